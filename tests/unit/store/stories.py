"""What the tests of every kind of store share."""

from __future__ import annotations

from collections.abc import Sequence

from synapse.core.events import TaskEvent
from synapse.core.lifecycle import replay
from synapse.core.store import TaskStore
from synapse.core.task import Task


async def keep(store: TaskStore, *events: TaskEvent, digest: str = "", before: Sequence[TaskEvent] = ()) -> Task:
    """Append events that follow those of `before`."""
    task = replay([*before, *events])
    await store.append(task, events, digest=digest)
    return task
