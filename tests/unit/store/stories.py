"""Helpers of the contract tests of stores."""

from __future__ import annotations

from collections.abc import Sequence

from synapse.core.events import TaskEvent
from synapse.core.lifecycle import replay
from synapse.core.task import Task
from tests.fakes.leased_fleet_store import LeasedFleetStore
from tests.fakes.leased_store import LeasedStore
from tests.fakes.memory_store import MemoryStore

AnyStore = MemoryStore | LeasedStore | LeasedFleetStore


async def keep(store: AnyStore, *events: TaskEvent, digest: str = "", before: Sequence[TaskEvent] = ()) -> Task:
    """Appends events that follow those of `before`."""
    task = replay([*before, *events])
    await store.append(task, events, digest=digest)
    return task
