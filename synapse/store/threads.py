"""Threads that read from the store, each with its own connection.

    read ─► queue ─► thread: runs it ─► results ─► one call into the loop for all results so far

Quick reads wait only for other quick reads: pages of tasks, and scans of all tasks, have threads of their own.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Condition, Thread
from typing import Any, TypeVar

from synapse.core.errors import StoreFailed
from synapse.store.file import connect, store_error
from synapse.store.lost_files import StoreFiles

T = TypeVar("T")
Result = tuple[asyncio.Future[Any], Any, Exception | None]


class ReadThread:
    """One thread, started with the first read. `_serve` and its callees run in it, the rest in the event loop."""

    def __init__(self, path: Path, *, lock_timeout: float, gather: int = 1) -> None:
        """`gather` is how many results share one call into the loop while more reads wait."""
        self._files: StoreFiles | None = None
        self._generation = 0
        self._path = path
        self._gather = gather
        self._lock_timeout = lock_timeout
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._results: deque[Result] = deque()
        self._changed = Condition()
        self._is_idle = False
        self._is_delivering = False
        self._is_closing = False
        self._ended: asyncio.Future[None] | None = None
        self._connection: sqlite3.Connection | None = None

    def watch(self, files: StoreFiles) -> None:
        """Makes every read fail with StoreLost unless `files` are still in place."""
        self._files = files

    def read(self, read: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Runs `read` with the thread's connection, after earlier reads."""

        def work() -> T:
            # Also before a connection is opened: the file at the path may be another store.
            if self._files is not None:
                self._files.require()
            return read(self._connected())

        return self.run(work)

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Runs `work`, which needs no connection, after earlier reads. The future fails with a SynapseError."""
        done: asyncio.Future[T] = self._loop.create_future()
        if self._is_closing:
            done.set_exception(StoreFailed("the store is closed"))
            return done
        self._queue.append((work, done))
        if self._ended is None:
            self._ended = self._loop.create_future()
            Thread(target=self._serve, name="synapse-store-reader", daemon=True).start()
        elif self._is_idle:
            # The thread checks the queue again after it has set `_is_idle`, so no read is missed.
            self._wake()
        return done

    def stop(self) -> None:
        """Cancels the reads that wait; the thread ends after the current one."""
        self._is_closing = True
        while self._queue:
            with suppress(IndexError):  # the thread takes from it, too
                self._queue.popleft()[1].cancel()
        self._wake()

    async def close(self) -> None:
        """Stops, and waits for the thread to end."""
        self.stop()
        if self._ended is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._ended), self._lock_timeout)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify()

    def _deliver(self) -> None:
        self._is_delivering = False
        while self._results:
            done, result, error = self._results.popleft()
            if done.done():
                continue  # its caller was cancelled
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error)

    def _end(self) -> None:
        self._deliver()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def _serve(self) -> None:
        while self._wait_for_work():
            try:
                work, done = self._queue.popleft()
            except IndexError:
                continue  # `stop` has emptied the queue
            if not done.cancelled():
                self._results.append((done, *self._result_of(work)))
            if self._results and not self._is_delivering and (not self._queue or len(self._results) >= self._gather):
                self._is_delivering = True
                self._call_in_loop(self._deliver)
        if self._connection is not None:
            self._connection.close()
        self._call_in_loop(self._end)

    def _call_in_loop(self, callback: Callable[[], object]) -> None:
        # The loop may be closed by the time a long read ends.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)

    def _wait_for_work(self) -> bool:
        """Waits for a read; returns False when the thread is closing."""
        while not self._queue and not self._is_closing:
            with self._changed:
                self._is_idle = True
                if not self._queue and not self._is_closing:
                    self._changed.wait()
                self._is_idle = False
        return not self._is_closing

    def _result_of(self, work: Callable[[], Any]) -> tuple[Any, Exception | None]:
        try:
            return work(), None
        except (OSError, sqlite3.Error, UnicodeError, OverflowError) as error:
            translated = store_error(error, self._path)
            translated.__cause__ = error
            return None, translated
        except Exception as error:  # noqa: BLE001 - the caller gets any error, and the thread goes on
            return None, error

    def _connected(self) -> sqlite3.Connection:
        files = self._files
        if self._connection is not None and files is not None and self._generation != files.generation:
            self._connection.close()
            self._connection = None
        if self._connection is None:
            self._generation = files.generation if files is not None else 0
            self._connection = connect(self._path, lock_timeout=self._lock_timeout)
            if files is not None:
                files.require()
        return self._connection
