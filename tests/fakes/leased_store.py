"""The store in SQLite, for tests that are not about leases."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from synapse.core.events import TaskEvent
from synapse.core.override import override
from synapse.core.store import IsAlive, Lease
from synapse.core.task import Task
from synapse.store.sqlite import LOCK_TIMEOUT, SqliteStore
from tests.fakes.leases import ANY_LEASE

HOLDER = "a test"


def nobody_lives(_holder: str) -> bool:
    """Say that every holder of a lease has ended."""
    return False


class LeasedStore(SqliteStore):
    """Appends with a lease that it takes itself, for each inbox that a test writes without one."""

    _held: dict[str, Lease]

    @classmethod
    @override
    async def open(
        cls,
        path: Path,
        *,
        is_alive: IsAlive = nobody_lives,
        lock_timeout: float = LOCK_TIMEOUT,
        search: bool = True,
    ) -> LeasedStore:
        store = await super().open(path, is_alive=is_alive, lock_timeout=lock_timeout, search=search)
        assert isinstance(store, LeasedStore)
        store._held = {}
        return store

    @override
    def append(
        self, task: Task, events: Sequence[TaskEvent], *, lease: Lease = ANY_LEASE, digest: str = ""
    ) -> asyncio.Future[int]:
        if lease is ANY_LEASE:
            lease = self._held.get(task.inbox) or self._take(task.inbox)
        return super().append(task, events, lease=lease, digest=digest)

    @override
    async def verify(self, lease: Lease) -> None:
        if lease is not ANY_LEASE:
            await super().verify(lease)

    def _take(self, inbox: str) -> Lease:
        """Take the lease at once, as `append` has its place at the call; others of this store's path may share it."""
        try:
            with closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
                connection.execute(
                    "INSERT INTO inboxes (inbox, held_by, epoch) VALUES (?, ?, 1) "
                    "ON CONFLICT DO UPDATE SET held_by = excluded.held_by, epoch = MAX(1, epoch)",
                    (inbox, HOLDER),
                )
                ((epoch,),) = connection.execute("SELECT epoch FROM inboxes WHERE inbox = ?", (inbox,)).fetchall()
        except (sqlite3.Error, UnicodeError):
            # The store will say itself what is wrong with it.
            return Lease(inbox, HOLDER, 0)
        lease = self._held[inbox] = Lease(inbox, HOLDER, epoch)
        return lease
