"""Who waits for whom. Agents in a circle would wait for ever, so the message that closes one is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from synapse.core.errors import TaskNotFound
from synapse.core.store import TaskQuery, TaskStore
from synapse.core.task import Task, TaskId, TaskState
from synapse.service.absences import WAITS_FOR, WAITS_FOR_INBOX
from synapse.service.origin import awaits_reply, sender_in, sender_task_id

WAITER_LEFT: Final = "waiter_left"
"""Metadata of a waiting task whose `synapse send --response` is gone: nobody hangs on it any more."""
_OPEN: Final = frozenset(state for state in TaskState if not state.is_terminal)
_MOST_OPEN_TASKS: Final = 1000


@dataclass(frozen=True, slots=True)
class Party:
    """One side of a wait. Its id holds its port, and it may be started again at another; its inbox stays the same."""

    key: str
    """Its inbox, or its id where that is all that is known."""
    agent_id: str = field(compare=False)

    @classmethod
    def of(cls, agent_id: str, inbox: str = "") -> Party:
        return cls(inbox or agent_id, agent_id)


Wait = tuple[Party, Party]
"""(the agent that waits, the agent that it waits for)"""
Circle = tuple[Party, ...]
"""Each waits for the next one; the last one is the first one."""


def circle(waits: Iterable[Wait], new: Wait) -> Circle:
    """Return the circle that `new` would close, beginning with its waiter, or nothing."""
    waiter, target = new
    ahead: dict[Party, set[Party]] = {}
    for one, other in waits:
        ahead.setdefault(one, set()).add(other)
    paths: list[Circle] = [(waiter, target)]
    seen = {target}
    while paths:
        path = paths.pop(0)
        if path[-1] == waiter:
            return (*path[:-1], waiter)
        for following in sorted(ahead.get(path[-1], set()) - (seen - {waiter}), key=lambda party: party.key):
            seen.add(following)
            paths.append((*path, following))
    return ()


async def circle_closed_by(new: Task, store: TaskStore) -> Circle:
    """Return the circle that the wait for this task closes, over all agents of this store, or nothing."""
    page = await store.list(TaskQuery(states=_OPEN, limit=_MOST_OPEN_TASKS))
    waiting = [task for task in page.tasks if awaits_reply(task) and await _somebody_waits(store, task)]
    inboxes = {task.agent_id: task.inbox for task in (*waiting, new)}
    return circle((_wait(task, inboxes) for task in waiting), _wait(new, inboxes))


def waits_for_one_of(parties: Circle, task: Task) -> bool:
    """Whether the task waits for a reply of one of these agents; one that names nobody may."""
    asked = task.metadata.get(WAITS_FOR_INBOX) or task.metadata.get(WAITS_FOR)
    return asked is None or any(asked in (party.key, party.agent_id) for party in parties)


def _wait(task: Task, inboxes: Mapping[str, str]) -> Wait:
    """The wait for the end of a task; `inboxes` are those of known ids, for a waiter that told only its id."""
    waiter = sender_in(task.metadata)
    inbox = waiter.inbox or inboxes.get(waiter.sender_id, "")
    return Party.of(waiter.sender_id, inbox), Party.of(task.agent_id, task.inbox)


async def _somebody_waits(store: TaskStore, task: Task) -> bool:
    waiting = sender_task_id(task)
    if not waiting:
        return False
    try:
        asked = await store.load(TaskId(waiting))
    except TaskNotFound:
        return False
    return not asked.state.is_terminal and WAITER_LEFT not in asked.metadata
