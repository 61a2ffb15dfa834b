"""Stories that are told to every kind of store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from synapse.core.events import TaskEvent
from synapse.core.lifecycle import replay
from synapse.core.store import TaskStore
from synapse.core.task import Task

Story = Callable[[TaskStore], Awaitable[None]]
Tell = Callable[[Story], None]


async def keep(store: TaskStore, *events: TaskEvent, digest: str = "", before: Sequence[TaskEvent] = ()) -> Task:
    """Append events that follow those of `before`."""
    task = replay([*before, *events])
    await store.append(task, events, digest=digest)
    return task
