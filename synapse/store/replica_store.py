"""Reads the replica of other machines' logs as a store, for the gateways of this machine; see `store.replica`.

As a store it numbers events in the order in which they arrived here. Clients see the seqs that the events have on their
own machine: `events_of` and `log_after` return these.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, cast

from synapse.core.events import Recorded
from synapse.core.override import override
from synapse.core.store import IsAlive
from synapse.core.task import TaskId
from synapse.store.file import assume_alive
from synapse.store.queries import id_key, query
from synapse.store.reader import recorded_in
from synapse.store.replica import open_replica
from synapse.store.sqlite import LOCK_TIMEOUT, SqliteStore

_LARGEST: Final = 2**63 - 1


class ReplicaStore(SqliteStore):
    """A SqliteStore over a replica. Only the link writes it: nobody appends here, nor holds a lease."""

    @classmethod
    @override
    async def open(
        cls,
        path: Path,
        *,
        is_alive: IsAlive = assume_alive,
        lock_timeout: float = LOCK_TIMEOUT,
        search: bool = True,
    ) -> ReplicaStore:
        """Opens the replica at `path`; creates it if it does not exist. Raises what `SqliteStore.open` raises."""
        await asyncio.to_thread(_prepare, path, lock_timeout)
        store = await super().open(path, is_alive=is_alive, lock_timeout=lock_timeout, search=search)
        return cast("ReplicaStore", store)  # it is made of `cls`

    async def events_of(self, task_id: TaskId, after: int, limit: int) -> Sequence[Recorded]:
        """Returns the events of a task after the seq `after` of its own machine, in order, with those seqs."""
        return await self._log_reads.read(lambda connection: _events_of(connection, task_id, after, limit))

    async def log_after(self, seq: int, limit: int) -> Sequence[Recorded]:
        """Returns the events after `seq` in order, with the seqs of their machines; `position` is the seq here."""
        return await self._log_reads.read(lambda connection: _log_after(connection, seq, limit))


def _prepare(path: Path, lock_timeout: float) -> None:
    open_replica(path, lock_timeout=lock_timeout).close()


def _events_of(connection: sqlite3.Connection, task_id: TaskId, after: int, limit: int) -> list[Recorded]:
    after = min(after, _LARGEST)
    found: list[Recorded] = []
    with closing(connection.execute(query("origins_of_task"), (task_id, id_key(task_id), after))) as rows:
        for last, of_task, body in rows:
            found += recorded_in(last, TaskId(of_task), body, after, limit - len(found))
            if len(found) >= limit:
                break
    return found


def _log_after(connection: sqlite3.Connection, after: int, limit: int) -> list[Recorded]:
    after = min(after, _LARGEST)
    found: list[Recorded] = []
    with closing(connection.execute(query("origins_of_all"), (after,))) as rows:
        for last, origin_seq, of_task, body in rows:
            difference = origin_seq - last
            for seq, event, _ in recorded_in(last, TaskId(of_task), body, after, limit - len(found)):
                found.append(Recorded(seq + difference, event, seq))
            if len(found) >= limit:
                break
    return found
