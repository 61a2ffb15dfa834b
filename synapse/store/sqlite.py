"""Tasks in one SQLite file, shared by all agents of a user: written by one thread, read by others.

Deleting what nobody needs any more, a little at a time, so that others can write in between.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from synapse.core.errors import InvalidRequest
from synapse.core.events import Recorded, TaskEvent
from synapse.core.store import IsAlive, KnownMessage, Lease, TaskPage, TaskQuery
from synapse.core.task import Task, TaskId
from synapse.store import reader as store_reader
from synapse.store import writer
from synapse.store.codec import micros
from synapse.store.doorbell import Listener
from synapse.store.file import assume_alive, check_file, lock_path, open_file
from synapse.store.loss import StoreFiles
from synapse.store.pushes import SqlitePushes
from synapse.store.queries import query
from synapse.store.threads import Reader
from synapse.store.writer import Group, Job, Writer, count, keep

LOCK_TIMEOUT: Final = 10.0
_ANSWERS_TOGETHER: Final = 6
"""Of what is read in a moment: a call into the loop for each would cost half as much as reading does."""

T = TypeVar("T")


class SqliteStore:
    """A TaskStore in a file. Made by `SqliteStore.open`; belongs to the event loop that opened it."""

    def __init__(self, files: StoreFiles, connection: sqlite3.Connection, by_key: Reader, lock_timeout: float) -> None:
        self._files = files
        self._path = path = files.path
        self._lock_timeout = lock_timeout
        # Asking for it costs a call of the system each time.
        self._loop = asyncio.get_running_loop()
        self._writer = Writer(files, connection, lock_timeout=lock_timeout)
        self._by_key = by_key
        self._by_seq = Reader(path, lock_timeout=lock_timeout)
        self._by_page = Reader(path, lock_timeout=lock_timeout)
        self._by_looking = Reader(path, lock_timeout=lock_timeout)
        self._readers = (self._by_key, self._by_seq, self._by_page, self._by_looking)
        for reader in self._readers:
            reader.watch(files)
        self.pushes = SqlitePushes(self._by_key.look, self._by_page.look, self._write)
        """The webhooks of the tasks."""
        self._listener: Listener | None = None
        self._looked_at = -1
        """How often the store had rung when `_last_seq` was read."""
        self._last_seq = 0

    @classmethod
    async def open(
        cls, path: Path, *, is_alive: IsAlive = assume_alive, lock_timeout: float = LOCK_TIMEOUT
    ) -> SqliteStore:
        """Open the store at `path`, making or migrating it first if needed.

        `is_alive` tells which holders of leases still run: a store that they use is not migrated under them.

        Raises:
            StoreInUse: it has to be migrated, and a process of an older version holds a lease.
            StoreUnsafe: the folder lies on a network file system.
            StoreTooNew, StoreCorrupt, StoreLocked, StoreFull, StoreFailed: each with a hint.
        """
        reader = Reader(path, lock_timeout=lock_timeout, gather=_ANSWERS_TOGETHER)
        try:
            files, connection = await reader.do(partial(_open, path, is_alive, lock_timeout))
        except BaseException:
            reader.stop()
            raise
        return cls(files, connection, reader, lock_timeout)

    def append(self, task: Task, events: Sequence[TaskEvent], *, lease: Lease, digest: str = "") -> asyncio.Future[int]:
        """Make events durable; see `TaskStore.append`."""
        done: asyncio.Future[int] = self._loop.create_future()
        try:
            append = writer.encode(task, events, lease, digest, done)
        except InvalidRequest as error:
            done.set_exception(error)
        else:
            self._writer.submit(append)
        return done

    async def load(self, task_id: TaskId) -> Task:
        """Raises TaskNotFound."""
        return await self._by_key.look(lambda connection: store_reader.load(connection, task_id))

    async def find(self, prefix: str, *, inbox: str = "", limit: int = 10) -> Sequence[TaskId]:
        """Ids that begin with `prefix`, hidden ones excluded, newest first."""
        reader = self._by_key if store_reader.is_whole_id(prefix) else self._by_looking
        return await reader.look(lambda connection: store_reader.find(connection, prefix, inbox, limit))

    async def find_message(self, inbox: str, scope: str, message_id: str) -> KnownMessage | None:
        """The task that claimed the message id, if any; an empty inbox or scope means any."""
        return await self._by_key.look(
            lambda connection: store_reader.find_message(connection, inbox, scope, message_id)
        )

    async def list(self, query: TaskQuery) -> TaskPage:
        """One page of the tasks that fit, newest change first."""
        reader = self._by_looking if query.metadata or query.expired is not None else self._by_page
        return await reader.look(lambda connection: store_reader.list_tasks(connection, query))

    async def read_after(self, seq: int, *, task_id: TaskId | None = None, limit: int = 500) -> Sequence[Recorded]:
        """The events after `seq`, in order; of one task, or of all."""
        return await self._by_seq.look(lambda connection: store_reader.read_after(connection, seq, task_id, limit))

    async def last_seq(self) -> int:
        """The seq of the newest event; 0 when there is none."""
        return await self._by_seq.look(store_reader.last_seq)

    async def wait_after(self, seq: int, seconds: float) -> int:
        """Return the seq of the newest event once that is beyond `seq`, or after `seconds`."""
        if self._listener is None:
            self._listener = Listener(lock_path(self._path))
        listener = self._listener
        end = self._loop.time() + seconds
        # What was seen behind the last ring is still so.
        is_known = listener.hears and listener.rings == self._looked_at and seconds > 0
        while True:
            if not is_known:
                rings = listener.rings
                last = await self.last_seq()
                # Only now: what rings meanwhile may be newer than what was seen.
                self._looked_at, self._last_seq = rings, last
            left = end - self._loop.time()
            if self._last_seq > seq or left <= 0:
                return self._last_seq
            await listener.wait(self._looked_at, left)
            is_known = False

    async def open_tasks(self, inbox: str) -> Sequence[Task]:
        """The unfinished tasks of an inbox, oldest first."""
        return await self._by_page.look(lambda connection: store_reader.open_tasks(connection, inbox))

    async def acquire(self, inbox: str, holder: str, is_alive: IsAlive) -> Lease | None:
        """Return a new lease of the inbox; None while another living holder has one. See `TaskStore.acquire`."""

        def acquire(connection: sqlite3.Connection) -> Lease | None:
            held_by, epoch = connection.execute(query("lease"), (inbox,)).fetchone() or ("", 0)
            if held_by not in ("", holder) and is_alive(held_by):
                return None
            lease = Lease(inbox, holder, epoch + 1)
            connection.execute(query("acquire"), (lease.inbox, lease.holder, lease.epoch))
            return lease

        return await self._write(acquire)

    async def verify(self, lease: Lease) -> None:
        """Raises LeaseLost unless `lease` is current."""
        await self._by_key.look(lambda connection: writer.require_lease(connection, lease))

    async def release(self, lease: Lease) -> None:
        """Give the lease back; does nothing when it is lost."""
        await self._write(
            lambda connection: connection.execute(query("release"), (lease.inbox, lease.holder, lease.epoch))
        )

    async def stored_bytes(self, *, inbox: str = "", scope: str = "") -> int:
        """How many bytes of events are kept; an empty inbox or scope means any."""
        return await self._by_key.look(lambda connection: store_reader.stored_bytes(connection, inbox, scope))

    async def prune(self, before: datetime) -> int:
        """Delete finished tasks that did not change since, in steps that let others write; return how many."""
        total = 0
        while deleted := await self._write(partial(prune_some, before=micros(before))):
            total += deleted
        return total

    async def check(self) -> None:
        """Read the whole file.

        Raises StoreCorrupt.
        """
        await self._by_looking.do(lambda: check_file(self._path, lock_timeout=self._lock_timeout))

    async def recover(self) -> bool:
        """Put a store that was deleted back to its place, and go on with it; False when it cannot be used after all.

        To be asked for at the end of a process, so that what waits to be recorded is recorded: until then it stays as
        whoever deleted it has left it.
        """
        return await self._writer.recover()

    async def close(self) -> None:
        """Write what waits, then close the file."""
        if self._listener is not None:
            self._listener.close()
        await self._writer.close()
        await asyncio.gather(*(reader.close() for reader in self._readers))
        self._files.close()

    def fault(self) -> str:
        """What is wrong with the store's files, or nothing; see `TaskStore.fault`."""
        fault = self._files.fault()
        return f"{self._path} {fault}" if fault else ""

    def _write(self, run: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        done: asyncio.Future[T] = self._loop.create_future()
        self._writer.submit(Job(run, done))
        return done


def _open(path: Path, is_alive: IsAlive, lock_timeout: float) -> tuple[StoreFiles, sqlite3.Connection]:
    connection = open_file(path, is_alive=is_alive, lock_timeout=lock_timeout)
    try:
        return StoreFiles(path), connection
    except BaseException:
        connection.close()
        raise


_TASKS_AT_ONCE: Final = 100
_EVENTS_AT_ONCE: Final = 2000


def prune_some(connection: sqlite3.Connection, before: int) -> int:
    """Delete the oldest finished tasks that did not change since `before` with all that is theirs; return how many."""
    events = 0
    deleted = 0
    more: Counter[Group] = Counter()
    fewer: Counter[tuple[str, str]] = Counter()
    for number, task_id, inbox, scope, state, version, hidden in connection.execute(
        query("old_tasks"), (before, _TASKS_AT_ONCE)
    ).fetchall():
        if deleted and events + version > _EVENTS_AT_ONCE:
            break
        fewer[inbox, scope] -= connection.execute(query("bytes_of_task"), (number,)).fetchone()[0]
        connection.execute(query("delete_deliveries_of_task"), (task_id,))
        connection.execute(query("delete_pushes_of_task"), (task_id,))
        connection.execute(query("delete_appends"), (number,))
        connection.execute(query("delete_snapshot"), (number,))
        connection.execute(query("delete_task"), (number,))
        if not hidden:
            more[inbox, scope, state] -= 1
        events += version
        deleted += 1
    count(connection, more)
    keep(connection, fewer)
    return deleted
