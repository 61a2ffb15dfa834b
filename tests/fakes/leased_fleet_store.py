"""The store of a gateway in a fleet, for tests that are not about leases."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from pathlib import Path

from synapse.core.events import TaskEvent
from synapse.core.override import override
from synapse.core.store import Lease
from synapse.core.task import Task
from synapse.gateway.fleet_store import FleetStore
from synapse.store.replica_store import ReplicaStore
from tests.fakes.leased_store import LeasedStore
from tests.fakes.leases import ANY_LEASE


class LeasedFleetStore(FleetStore):
    """Appends to this machine's store with a lease that it takes itself."""

    @classmethod
    async def open(cls, folder: Path) -> LeasedFleetStore:
        own = await LeasedStore.open(folder / "store.db")
        return cls(own, await ReplicaStore.open(folder / "fleet" / "replica.db"))

    @override
    def append(
        self, task: Task, events: Sequence[TaskEvent], *, lease: Lease = ANY_LEASE, digest: str = ""
    ) -> Awaitable[int]:
        return self.own.append(task, events, lease=lease, digest=digest)
