"""The one thread of a process that writes: everything that waits is committed together.

    submit ─► queue ─lock file held─► drained ─► one transaction ─► COMMIT ─► one call into the loop for all of them
                │                                      └ failed: again, each in its own transaction
                └ waited longer than the bound: StoreLocked, and it will not be written

SQLite's lock is not fair between processes: four that saturate it starve one another. `flock` queues them, so it is
taken before each transaction. What waits for it stays in the queue, so the next batch is all the larger. A write that
comes alone never waits for others.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Condition, Event, Thread
from typing import Any, Final, Generic, TypeVar

from synapse.core.errors import StoreFailed, StoreLocked, StoreLost, SynapseError
from synapse.stores.sqlite_appends import Append, write
from synapse.stores.sqlite_errors import locked, store_error
from synapse.stores.sqlite_file import open_file
from synapse.stores.sqlite_location import lock_path
from synapse.stores.sqlite_loss import Loss, StoreFiles

log = logging.getLogger(__name__)

MOST_WAITING: Final = 20_000
_MOST_TOGETHER: Final = 1000
_ENOUGH: Final = 64
"""So many are written without looking for more."""
GATHER_SECONDS: Final = 0.0005

T = TypeVar("T")


@dataclass(slots=True)
class Job(Generic[T]):
    """Something else to do in a write transaction, and who waits for its result."""

    run: Callable[[sqlite3.Connection], T]
    done: asyncio.Future[T]

    def succeed(self, result: T) -> None:
        self.done.set_result(result)


@dataclass(slots=True)
class _Recovery:
    """Puts a lost store back; see `Writer.recover`."""

    done: asyncio.Future[bool]

    def succeed(self, result: bool) -> None:
        self.done.set_result(result)


Work = Append | Job[Any]
Submitted = Work | _Recovery
Outcome = tuple[Submitted, Any, SynapseError | None]
"""What became of a work: its result, or why it failed."""


class Writer:
    """Owns the writing connection. Everything but `_run` and what it calls happens in the loop."""

    def __init__(self, files: StoreFiles, connection: sqlite3.Connection, *, lock_timeout: float) -> None:
        self._files = files
        self._path = path = files.path
        self._connection = connection
        self._lock_timeout = lock_timeout
        self._loop = asyncio.get_running_loop()
        self._lock_file = os.open(lock_path(path), os.O_RDWR | os.O_CLOEXEC)
        self._queue: deque[tuple[float, Submitted]] = deque()
        self._changed = Condition()
        self._is_resting = False
        self._is_waking = False
        self._closing = Event()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._watch: asyncio.TimerHandle | None = None
        Thread(target=self._run, name="synapse-store-writer", daemon=True).start()

    def submit(self, work: Submitted) -> None:
        """Put `work` in the queue; its future is done when it is durable, in the order of the calls."""
        if self._closing.is_set() or len(self._queue) >= MOST_WAITING:
            work.done.set_exception(self._refusal())
            return
        self._queue.append((self._loop.time(), work))
        if self._is_resting and not self._is_waking:
            self._is_waking = True
            self._loop.call_soon(self._wake, len(self._queue))
        if self._watch is None:
            self._watch = self._loop.call_later(self._lock_timeout, self._expire)

    def recover(self) -> asyncio.Future[bool]:
        """Put the store back if it was deleted, and go on with it there; done with whether it can be used.

        What was submitted before is refused like anything else while the store is lost.
        """
        done: asyncio.Future[bool] = self._loop.create_future()
        self.submit(_Recovery(done))
        return done

    def _wake(self, waited: int) -> None:
        """Wake the thread once the loop has no more for it: together they cost less, and it takes turns with the loop.

        `waited` is how many works there were a round of the loop ago.
        """
        waiting = len(self._queue)
        if waited < waiting < _ENOUGH:
            self._loop.call_soon(self._wake, waiting)
            return
        self._is_waking = False
        # The thread looks at the queue once more after it has said that it rests, so nothing is left lying.
        with self._changed:
            self._changed.notify()

    async def close(self) -> None:
        """Write what waits, then close. A process that never gives the lock back cannot hold this up."""
        with self._changed:
            self._closing.set()
            self._changed.notify()
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._closed), self._lock_timeout)
        if self._watch is not None:
            self._watch.cancel()

    def _refusal(self) -> StoreFailed:
        if self._closing.is_set():
            return StoreFailed("the store is closed")
        return StoreFailed(
            f"{MOST_WAITING} writes wait for the disk already", hint=f"is the disk stuck? `df -h {self._path.parent}`"
        )

    def _expire(self) -> None:
        """Fail what has waited too long for the lock file."""
        self._watch = None
        now = self._loop.time()
        late: list[Submitted] = []
        with self._changed:
            while self._queue and self._queue[0][0] <= now - self._lock_timeout:
                late.append(self._queue.popleft()[1])
            oldest = self._queue[0][0] if self._queue else None
        if oldest is not None:
            self._watch = self._loop.call_at(oldest + self._lock_timeout, self._expire)
        _deliver([(work, None, locked(self._path)) for work in late])

    def _run(self) -> None:
        outcomes: list[Outcome] = []
        while self._wait_for_work():
            if len(outcomes) > 1:
                # Many write at once, so the next ones are a moment away: together they cost a tenth less.
                self._closing.wait(GATHER_SECONDS)
            outcomes = self._commit_what_waits()
            if outcomes:
                self._tell(_deliver, outcomes)
        self._save_what_is_lost()
        self._connection.close()
        os.close(self._lock_file)
        self._tell(self._closed.set_result, None)

    def _save_what_is_lost(self) -> None:
        try:
            self._files.save(self._connection)
        except (OSError, sqlite3.Error) as error:
            # The last words of this thread; there is nobody left to tell.
            log.warning("store_not_saved", extra={"path": str(self._path), "why": str(error)})

    def _tell(self, callback: Callable[[Any], object], argument: object) -> None:
        # The loop may be gone when a lock that somebody held for long is free at last.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, argument)

    def _wait_for_work(self) -> bool:
        while not self._queue and not self._closing.is_set():
            with self._changed:
                self._is_resting = True
                if not self._queue and not self._closing.is_set():
                    self._changed.wait()
                self._is_resting = False
        # What was in the queue may have waited too long by now, and be gone.
        return bool(self._queue) or not self._closing.is_set()

    def _commit_what_waits(self) -> list[Outcome]:
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX)
        except OSError as error:
            # A kernel may have no room for locks. As below: the thread goes on.
            failure = store_error(error, self._path)
            return [(work, None, failure) for work in self._taken()]
        try:
            batch = self._taken()
            writes = [work for work in batch if not isinstance(work, _Recovery)]
            outcomes = self._commit(writes) if writes else []
            return [*outcomes, *(self._recover(work) for work in batch if isinstance(work, _Recovery))]
        finally:
            fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    def _taken(self) -> list[Submitted]:
        with self._changed:
            return [self._queue.popleft()[1] for _ in range(min(len(self._queue), _MOST_TOGETHER))]

    def _commit(self, batch: Sequence[Work]) -> list[Outcome]:
        """Write the batch in one transaction; when that fails, each work in its own, so that only the guilty fail."""
        try:
            return self._write(batch)
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to those who wait, and the thread goes on
            failure = store_error(error, self._path)
        if len(batch) == 1 or isinstance(failure, StoreLocked | StoreLost):
            return [(work, None, failure) for work in batch]
        return [outcome for work in batch for outcome in self._commit([work])]

    def _recover(self, work: _Recovery) -> Outcome:
        try:
            if not self._files.fault():
                return work, True, None
            # Without its log alone it is left for the end: SQLite would use the log's old index for a new connection.
            if self._files.loss() is Loss.LOG_GONE or not self._files.save(self._connection):
                return work, False, None
            connection = open_file(self._path, lock_timeout=self._lock_timeout)
            self._files.adopt()
            lock_file = os.open(lock_path(self._path), os.O_RDWR | os.O_CLOEXEC)
        except (OSError, sqlite3.Error, SynapseError) as error:
            return work, None, store_error(error, self._path)
        self._connection.close()
        os.close(self._lock_file)
        self._connection, self._lock_file = connection, lock_file
        return work, not self._files.fault(), None

    def _write(self, batch: Sequence[Work]) -> list[Outcome]:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            seqs = iter(write(connection, [work for work in batch if isinstance(work, Append)]))
            results = [next(seqs) if isinstance(work, Append) else work.run(connection) for work in batch]
            # Before: what is refused must not come back with a store that is saved. And behind it: what went to a file
            # that nobody can open any more must not be acknowledged.
            self._files.require()
            connection.execute("COMMIT")
            self._files.require()
        except BaseException:
            # After some failures SQLite has rolled back already.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return [(work, result, None) for work, result in zip(batch, results, strict=True)]


def _deliver(outcomes: Sequence[Outcome]) -> None:
    """Tell those who wait, in the order in which it became durable."""
    for work, result, error in outcomes:
        if work.done.done():
            continue  # nobody waits any more
        if error is not None:
            work.done.set_exception(error)
        else:
            work.succeed(result)
