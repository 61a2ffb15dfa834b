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
from synapse.core.store import IsAlive, KnownMessage, TaskPage, TaskQuery
from synapse.core.task import Task, TaskId
from synapse.store import reader as store_reader
from synapse.store import writer
from synapse.store.codec import micros
from synapse.store.file import check_file, open_file, query
from synapse.store.loss import StoreFiles
from synapse.store.pushes import SqlitePushes
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

    @classmethod
    async def open(cls, path: Path, *, lock_timeout: float = LOCK_TIMEOUT) -> SqliteStore:
        """Open the store at `path`, making or migrating it first if needed.

        Raises:
            StoreUnsafe: the folder lies on a network file system.
            StoreTooNew, StoreCorrupt, StoreLocked, StoreFull, StoreFailed: each with a hint.
        """
        reader = Reader(path, lock_timeout=lock_timeout, gather=_ANSWERS_TOGETHER)
        try:
            files, connection = await reader.do(partial(_open, path, lock_timeout))
        except BaseException:
            reader.stop()
            raise
        return cls(files, connection, reader, lock_timeout)

    def append(self, task: Task, events: Sequence[TaskEvent], *, digest: str = "") -> asyncio.Future[int]:
        """Make events durable; see `TaskStore.append`."""
        done: asyncio.Future[int] = self._loop.create_future()
        try:
            append = writer.encode(task, events, digest, done)
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

    async def open_tasks(self, inbox: str) -> Sequence[Task]:
        """The unfinished tasks of an inbox, oldest first."""
        return await self._by_page.look(lambda connection: store_reader.open_tasks(connection, inbox))

    async def claim_inbox(self, inbox: str, holder: str, is_alive: IsAlive) -> bool:
        """Take the lease of an inbox unless a living holder has it; the same holder may claim again."""

        def claim(connection: sqlite3.Connection) -> bool:
            row = connection.execute(query("holder"), (inbox,)).fetchone()
            if row is not None and row[0] != holder and is_alive(row[0]):
                return False
            connection.execute(query("take_inbox"), (inbox, holder))
            return True

        return await self._write(claim)

    async def release_inbox(self, inbox: str, holder: str) -> None:
        """Give the lease back, if this holder has it."""
        await self._write(lambda connection: connection.execute(query("release_inbox"), (inbox, holder)))

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


def _open(path: Path, lock_timeout: float) -> tuple[StoreFiles, sqlite3.Connection]:
    connection = open_file(path, lock_timeout=lock_timeout)
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
