"""Who waits for whom. Agents in a circle would wait for ever, so the message that closes one is refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from synapse.core.errors import TaskNotFound
from synapse.core.store import TaskQuery, TaskStore
from synapse.core.task import Task, TaskId, TaskState
from synapse.service.origin import awaits_reply, sender_in, sender_task_id

WAITER_LEFT: Final = "waiter_left"
"""Metadata of a waiting task whose `synapse send --response` is gone: nobody hangs on it any more."""
_OPEN: Final = frozenset(state for state in TaskState if not state.is_terminal)
_MOST_OPEN_TASKS: Final = 1000

Wait = tuple[str, str]
"""(the agent that waits, the agent that it waits for)"""


def cycle(waits: Iterable[Wait], new: Wait) -> tuple[str, ...]:
    """Return the circle that `new` would close, beginning with its waiter, or nothing."""
    waiter, target = new
    ahead: dict[str, set[str]] = {}
    for one, other in waits:
        ahead.setdefault(one, set()).add(other)
    paths: list[tuple[str, ...]] = [(waiter, target)]
    seen = {target}
    while paths:
        path = paths.pop(0)
        if path[-1] == waiter:
            return path
        for following in sorted(ahead.get(path[-1], set()) - (seen - {waiter})):
            seen.add(following)
            paths.append((*path, following))
    return ()


async def waits_in(store: TaskStore) -> list[Wait]:
    """Return who waits for whom now, over all agents of this store."""
    page = await store.list(TaskQuery(states=_OPEN, limit=_MOST_OPEN_TASKS))
    return [
        (sender_in(task.metadata).sender_id, task.agent_id)
        for task in page.tasks
        if awaits_reply(task) and await _somebody_waits(store, task)
    ]


async def _somebody_waits(store: TaskStore, task: Task) -> bool:
    waiting = sender_task_id(task)
    if not waiting:
        return False
    try:
        asked = await store.load(TaskId(waiting))
    except TaskNotFound:
        return False
    return not asked.state.is_terminal and WAITER_LEFT not in asked.metadata
