"""Who waits for whom. Agents in a circle would wait for ever, so the message that closes one is refused.

Waiting for an agent that is gone: who asked it is told, instead of waiting for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from synapse.core.agent import AgentEntry
from synapse.core.errors import Conflict, TaskNotFound
from synapse.core.registry import Registry
from synapse.core.store import TaskQuery, TaskStore
from synapse.core.task import Task, TaskId, TaskState
from synapse.core.types import Clock
from synapse.tasks import outcomes
from synapse.tasks.admission import awaits_reply, sender_in, sender_task_id
from synapse.tasks.journal import Journal

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


WAITS_FOR: Final = "waits_for"
"""Metadata of a task that waits for a reply: the agent that was asked."""
WAITS_FOR_INBOX: Final = "waits_for_inbox"
"""Beside it, the inbox of that agent: it has the same when it is started again at another port."""
GRACE_SECONDS: Final = 10.0
"""An agent may be away for so long, to be started again; its new host then tells what became of the request."""


def was_asked(task: Task, entry: AgentEntry) -> bool:
    """Whether the task waits for a reply of that agent."""
    return entry.is_agent_of(task.metadata.get(WAITS_FOR_INBOX) or "", task.metadata[WAITS_FOR])


class LostAgents:
    """Ends what waits for an agent whose host was killed; one that ends in order says so itself."""

    def __init__(self, journal: Journal, registry: Registry, clock: Clock) -> None:
        self._journal = journal
        self._registry = registry
        self._clock = clock
        self._missed: dict[TaskId, float] = {}
        """Since when the agent that a task waits for is not here."""

    async def give_up(self) -> None:
        """Fail what has waited too long for an agent that is not here."""
        now = self._clock.monotonic()
        missing = await self._missing()
        self._missed = {task.id: self._missed.get(task.id, now) for task in missing}
        for task in missing:
            if now - self._missed[task.id] >= GRACE_SECONDS:
                await self._fail(task)

    async def _missing(self) -> list[Task]:
        waiting = [task for task in self._journal.open_tasks() if not task.queued and task.metadata.get(WAITS_FOR)]
        if not waiting:
            return []
        here = await self._registry.agents()
        return [task for task in waiting if not any(was_asked(task, entry) for entry in here)]

    async def _fail(self, task: Task) -> None:
        note = f"{task.metadata[WAITS_FOR]} is gone; what it had not begun waits for its next start"
        # The reply may have come just now.
        with suppress(Conflict):
            await self._journal.record(
                *outcomes.ended(task, self._clock.now(), TaskState.FAILED, outcomes.AGENT_EXITED, note)
            )
