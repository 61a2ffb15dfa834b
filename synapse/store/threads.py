"""Threads that read, each with a connection of its own.

    look ─► queue ─► thread: looks ─► answers ─► one call into the loop for all that are there by then

What is read in a moment waits only for its like: a page of tasks, or a look at every one of them, has another thread.
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
from synapse.store.loss import StoreFiles

T = TypeVar("T")
Answer = tuple[asyncio.Future[Any], Any, Exception | None]


class Reader:
    """One thread, started when it is first needed. Everything but `_run` and what it calls happens in the loop."""

    def __init__(self, path: Path, *, lock_timeout: float, gather: int = 1) -> None:
        """While more is asked, so many answers are told together."""
        self._files: StoreFiles | None = None
        self._generation = 0
        self._path = path
        self._gather = gather
        self._lock_timeout = lock_timeout
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._answers: deque[Answer] = deque()
        self._changed = Condition()
        self._is_resting = False
        self._is_told = False
        self._is_closing = False
        self._ended: asyncio.Future[None] | None = None
        self._connection: sqlite3.Connection | None = None

    def watch(self, files: StoreFiles) -> None:
        """Look only while these are the store's files; a look fails with StoreLost otherwise."""
        self._files = files

    def look(self, look: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Look with the connection of the thread, behind what was asked before."""

        def work() -> T:
            # Before a connection is opened, too: what lies at the path may be another store.
            if self._files is not None:
                self._files.require()
            return look(self._connected())

        return self.do(work)

    def do(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """The same without a connection. The future is done with the result, or with a SynapseError."""
        done: asyncio.Future[T] = self._loop.create_future()
        if self._is_closing:
            done.set_exception(StoreFailed("the store is closed"))
            return done
        self._queue.append((work, done))
        if self._ended is None:
            self._ended = self._loop.create_future()
            Thread(target=self._run, name="synapse-store-reader", daemon=True).start()
        elif self._is_resting:
            # The thread looks at the queue once more after it has said that it rests, so nothing is left lying.
            self._wake()
        return done

    def stop(self) -> None:
        """Give up what waits; the thread ends when what is being read has been read."""
        self._is_closing = True
        while self._queue:
            with suppress(IndexError):  # the thread takes from it, too
                self._queue.popleft()[1].cancel()
        self._wake()

    async def close(self) -> None:
        """The same, and wait for that."""
        self.stop()
        if self._ended is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._ended), self._lock_timeout)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify()

    def _deliver(self) -> None:
        self._is_told = False
        while self._answers:
            done, result, error = self._answers.popleft()
            if done.done():
                continue  # nobody waits any more
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error)

    def _end(self) -> None:
        self._deliver()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def _run(self) -> None:
        while self._wait_for_work():
            try:
                work, done = self._queue.popleft()
            except IndexError:
                continue  # given up meanwhile
            if not done.cancelled():
                self._answers.append((done, *self._result_of(work)))
            if self._answers and not self._is_told and (not self._queue or len(self._answers) >= self._gather):
                self._is_told = True
                self._tell(self._deliver)
        if self._connection is not None:
            self._connection.close()
        self._tell(self._end)

    def _tell(self, callback: Callable[[], object]) -> None:
        # The loop may be gone when a long look is over at last.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)

    def _wait_for_work(self) -> bool:
        """Whether there is something to do; not when the reader is closing."""
        while not self._queue and not self._is_closing:
            with self._changed:
                self._is_resting = True
                if not self._queue and not self._is_closing:
                    self._changed.wait()
                self._is_resting = False
        return not self._is_closing

    def _result_of(self, work: Callable[[], Any]) -> tuple[Any, Exception | None]:
        try:
            return work(), None
        except (OSError, sqlite3.Error, UnicodeError, OverflowError) as error:
            told = store_error(error, self._path)
            told.__cause__ = error
            return None, told
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to who waits, and the thread goes on
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
