"""A TaskStore in one SQLite file that all agents of a user share.

One thread of each process writes (see `writer`), others read (see `threads`), so no call blocks the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from synapse.core.errors import InvalidRequest, StoreFailed, UnsupportedOperation
from synapse.core.events import Recorded, TaskEvent
from synapse.core.store import IsAlive, KnownMessage, Lease, SearchProgress, TaskPage, TaskQuery
from synapse.core.task import Task, TaskId
from synapse.store import reader as store_reader
from synapse.store import writer
from synapse.store.codec import micros
from synapse.store.doorbell import Listener
from synapse.store.file import assume_alive, check_file, lock_path, open_file
from synapse.store.lost_files import StoreFiles
from synapse.store.pushes import SqlitePushes
from synapse.store.queries import query
from synapse.store.search import SearchIndex, index_path
from synapse.store.threads import ReadThread
from synapse.store.writer import Job, Writer, prune_some

log = logging.getLogger(__name__)

LOCK_TIMEOUT: Final = 10.0
_RESULTS_TOGETHER: Final = 6
"""How many quick reads share one call into the loop: one call for each would cost half as much as the read itself."""

T = TypeVar("T")


class SqliteStore:
    """Implements `core.store.TaskStore`. `SqliteStore.open` makes it; it belongs to the event loop that opened it."""

    def __init__(
        self,
        files: StoreFiles,
        connection: sqlite3.Connection,
        lookups: ReadThread,
        lock_timeout: float,
        *,
        search: bool,
    ) -> None:
        self._files = files
        self._path = path = files.path
        self._lock_timeout = lock_timeout
        # Looked up once: `get_running_loop` makes a system call each time.
        self._loop = asyncio.get_running_loop()
        self._writer = Writer(files, connection, lock_timeout=lock_timeout)
        # Quick reads do not wait for slow ones: look-ups by key, the event log, pages, and scans have a thread each.
        self._lookups = lookups
        self._log_reads = ReadThread(path, lock_timeout=lock_timeout)
        self._page_reads = ReadThread(path, lock_timeout=lock_timeout)
        self._scans = ReadThread(path, lock_timeout=lock_timeout)
        self._readers = (self._lookups, self._log_reads, self._page_reads, self._scans)
        for reader in self._readers:
            reader.watch(files)
        self._searches = ReadThread(index_path(path), lock_timeout=lock_timeout)
        self._index = SearchIndex(files, lock_timeout=lock_timeout, now=self._loop.time)
        self._has_search = search
        self.pushes = SqlitePushes(self._lookups.read, self._page_reads.read, self._write)
        """The push configurations of the tasks."""
        self._listener: Listener | None = None
        self._rings_seen = -1
        """The listener's count of rings when `_last_seq` was read."""
        self._last_seq = 0

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        is_alive: IsAlive = assume_alive,
        lock_timeout: float = LOCK_TIMEOUT,
        search: bool = True,
    ) -> SqliteStore:
        """Opens the store at `path`; creates or migrates it first if needed.

        `is_alive` says whether the holder of a lease still runs: a store in use is not migrated. `search` allows the
        search index.

        Raises:
            StoreInUse: it has to be migrated, and a process of an older version holds a lease.
            StoreUnsafe: the folder is on a network file system.
            StoreTooNew, StoreCorrupt, StoreLocked, StoreFull, StoreFailed: each with a hint.
        """
        reader = ReadThread(path, lock_timeout=lock_timeout, gather=_RESULTS_TOGETHER)
        try:
            files, connection = await reader.run(partial(_open, path, is_alive, lock_timeout))
        except BaseException:
            reader.stop()
            raise
        return cls(files, connection, reader, lock_timeout, search=search)

    def append(self, task: Task, events: Sequence[TaskEvent], *, lease: Lease, digest: str = "") -> asyncio.Future[int]:
        """Makes events durable; see `TaskStore.append`."""
        done: asyncio.Future[int] = self._loop.create_future()
        try:
            append = writer.encode_append(task, events, lease, digest, done)
        except InvalidRequest as error:
            done.set_exception(error)
        else:
            self._writer.submit(append)
        return done

    async def load(self, task_id: TaskId) -> Task:
        """Returns the task. Raises TaskNotFound."""
        return await self._lookups.read(lambda connection: store_reader.load(connection, task_id))

    async def find(self, prefix: str, *, inbox: str = "", limit: int = 10) -> Sequence[TaskId]:
        """Returns the ids of visible tasks that begin with `prefix`, newest first."""
        reader = self._lookups if store_reader.is_whole_id(prefix) else self._scans
        return await reader.read(lambda connection: store_reader.find(connection, prefix, inbox, limit))

    async def find_message(self, inbox: str, scope: str, message_id: str) -> KnownMessage | None:
        """Returns the task that claimed the message id, if any; an empty inbox or scope matches all."""
        return await self._lookups.read(
            lambda connection: store_reader.find_message(connection, inbox, scope, message_id)
        )

    async def list(self, query: TaskQuery) -> TaskPage:
        """Returns one page of the tasks that match, newest change first; see `TaskStore.list`."""
        if query.text:
            if not self._has_search:
                raise UnsupportedOperation(
                    "search is switched off",
                    hint="`search = true` in the user's settings switches it on  (synapse config)",
                )
            return await self._searches.run(lambda: self._index.page(query))
        reader = self._scans if query.metadata or query.expired is not None else self._page_reads
        return await reader.read(lambda connection: store_reader.list_tasks(connection, query))

    async def update_search(self, seconds: float) -> SearchProgress:
        """Brings the search index up to date, for about `seconds` at most; see `TaskStore.update_search`."""
        if not self._has_search:
            await self._searches.run(self._index.discard)
            return SearchProgress(0, 0)
        return await self._searches.run(lambda: self._index.update(seconds))

    async def read_after(self, seq: int, *, task_id: TaskId | None = None, limit: int = 500) -> Sequence[Recorded]:
        """Returns the events after `seq` in order, of one task or of all."""
        return await self._log_reads.read(lambda connection: store_reader.read_after(connection, seq, task_id, limit))

    async def last_seq(self) -> int:
        """Returns the seq of the newest event; 0 when there is none."""
        return await self._log_reads.read(store_reader.last_seq)

    async def store_id(self) -> str:
        """Returns the id that the store got when it was made."""
        return await self._lookups.read(store_reader.store_id)

    async def wait_after(self, seq: int, seconds: float) -> int:
        """Waits for an event after `seq`, for `seconds` at most; returns the seq of the newest event."""
        if self._listener is None:
            self._listener = Listener(lock_path(self._path))
        listener = self._listener
        end = self._loop.time() + seconds
        # Nothing has rung since `_last_seq` was read, so it still holds.
        is_known = listener.hears and listener.rings == self._rings_seen and seconds > 0
        while True:
            if not is_known:
                rings = listener.rings
                last = await self.last_seq()
                # The count from before the read: a ring during the read may be for a newer event.
                self._rings_seen, self._last_seq = rings, last
            left = end - self._loop.time()
            if self._last_seq > seq or left <= 0:
                return self._last_seq
            await listener.wait(self._rings_seen, left)
            is_known = False

    async def open_tasks(self, inbox: str) -> Sequence[Task]:
        """Returns the unfinished tasks of an inbox, oldest first."""
        return await self._page_reads.read(lambda connection: store_reader.open_tasks(connection, inbox))

    async def acquire(self, inbox: str, holder: str, is_alive: IsAlive) -> Lease | None:
        """Returns a new lease of the inbox; None while another living holder has one. See `TaskStore.acquire`."""

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
        await self._lookups.read(lambda connection: writer.require_lease(connection, lease))

    async def release(self, lease: Lease) -> None:
        """Releases the lease; does nothing when it is lost."""
        await self._write(
            lambda connection: connection.execute(query("release"), (lease.inbox, lease.holder, lease.epoch))
        )

    async def stored_bytes(self, *, inbox: str = "", scope: str = "") -> int:
        """Returns the size of the stored events in bytes; an empty inbox or scope matches all."""
        return await self._lookups.read(lambda connection: store_reader.stored_bytes(connection, inbox, scope))

    async def prune(self, before: datetime, *, relayed_before: datetime | None = None) -> int:
        """Deletes finished tasks that have not changed since `before`, in steps between which others can write.

        Returns how many tasks were deleted. For `relayed_before` see `TaskStore.prune`.
        """
        total = 0
        relayed = micros(relayed_before or before)
        while deleted := await self._write(partial(prune_some, before=micros(before), relayed_before=relayed)):
            total += deleted
        if total:
            # Texts that are no longer kept here are not kept in the index either.
            try:
                await self._searches.run(self._index.forget_pruned)
            except StoreFailed as error:
                log.warning("pruned_tasks_still_indexed", extra={"error": str(error)})
        return total

    async def check(self) -> None:
        """Reads the whole file. Raises StoreCorrupt."""
        await self._scans.run(lambda: check_file(self._path, lock_timeout=self._lock_timeout))

    async def recover(self) -> bool:
        """Puts a deleted store back in its place and continues with it; returns whether it can be used.

        Call it when the process ends, so that pending events are recorded. Until then a store that a user deleted stays
        deleted.
        """
        return await self._writer.recover()

    async def close(self) -> None:
        """Writes the queued events, then closes the file."""
        if self._listener is not None:
            self._listener.close()
        await self._writer.close()
        if self._index.is_open:
            await self._searches.run(self._index.close)
        await asyncio.gather(*(reader.close() for reader in (*self._readers, self._searches)))
        self._files.close()

    def fault(self) -> str:
        """Returns what is wrong with the store's files, or ""; see `TaskStore.fault`."""
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
