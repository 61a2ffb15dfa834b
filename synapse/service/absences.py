"""Waiting for an agent that is gone: who asked it is told, instead of waiting for ever."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from synapse.core.agent import AgentEntry
from synapse.core.clock import Clock
from synapse.core.errors import Conflict
from synapse.core.registry import Registry
from synapse.core.task import Task, TaskId, TaskState
from synapse.service import outcomes
from synapse.service.journal import Journal

WAITS_FOR: Final = "waits_for"
"""Metadata of a task that waits for a reply: the agent that was asked."""
WAITS_FOR_INBOX: Final = "waits_for_inbox"
"""Beside it, the inbox of that agent: it has the same when it is started again at another port."""
GRACE_SECONDS: Final = 10.0
"""An agent may be away for so long, to be started again; its new host then tells what became of the request."""


def was_asked(task: Task, entry: AgentEntry) -> bool:
    """Whether the task waits for a reply of that agent."""
    return entry.is_agent_of(task.metadata.get(WAITS_FOR_INBOX) or "", task.metadata[WAITS_FOR])


class Absences:
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
        missing = self._missing()
        self._missed = {task.id: self._missed.get(task.id, now) for task in missing}
        for task in missing:
            if now - self._missed[task.id] >= GRACE_SECONDS:
                await self._fail(task)

    def _missing(self) -> list[Task]:
        waiting = [task for task in self._journal.open_tasks() if not task.queued and task.metadata.get(WAITS_FOR)]
        if not waiting:
            return []
        here = self._registry.entries()
        return [task for task in waiting if not any(was_asked(task, entry) for entry in here)]

    async def _fail(self, task: Task) -> None:
        note = f"{task.metadata[WAITS_FOR]} is gone; what it had not begun waits for its next start"
        # The reply may have come just now.
        with suppress(Conflict):
            await self._journal.record(
                *outcomes.ended(task, self._clock.now(), TaskState.FAILED, outcomes.AGENT_EXITED, note)
            )
