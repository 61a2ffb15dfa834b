"""Collects the figures of the last day from the log: once from its beginning, then only what is new."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from synapse.auth.policy import may_use
from synapse.core.caller import Caller
from synapse.core.errors import InvalidField
from synapse.core.events import TaskOpened
from synapse.core.message import Json
from synapse.core.requests import GetFigures
from synapse.core.store import TaskQuery, TaskStore
from synapse.core.task import TaskId, TaskState
from synapse.core.types import Clock
from synapse.gateway.directory import GatewayDirectory, name_when_left
from synapse.tasks.figures import KEPT, STEP_SECONDS, FigureCounter, Group

_PAGE: Final = 200
"""How many events one read takes: others follow the log through the same thread."""
_OPEN: Final = frozenset(state for state in TaskState if not state.is_terminal)


class FigureCollector:
    """Counts the log when figures are asked for; keeps the counts of a day."""

    def __init__(self, directory: GatewayDirectory, logs: Sequence[TaskStore], clock: Clock) -> None:
        """`logs` are this machine's store and, in a fleet, the replica of the others."""
        self._directory = directory
        self._clock = clock
        self._counter = FigureCounter()
        self._logs = tuple(_CountedLog(log, self._counter) for log in logs)
        self._counting = asyncio.Lock()

    async def collect(self, request: GetFigures, caller: Caller) -> Json:
        """Returns the figures of the agents and scopes that the caller may see. Raises InvalidField or StoreFailed."""
        if request.hours not in STEP_SECONDS:
            raise InvalidField("hours", f"must be one of {', '.join(map(str, STEP_SECONDS))}")
        async with self._counting:
            for log in self._logs:
                await log.count_new(self._clock.now() - KEPT)
        agents = self._directory.agents()
        names = {agent.entry.inbox: agent.name for agent in agents}

        def name_of(group: Group) -> str | None:
            if not caller.sees(group.scope):
                return None
            name = names.get(group.inbox) or name_when_left(group.inbox, group.agent_id)
            return name if may_use(caller, name) else None

        shown = [agent.name for agent in agents if may_use(caller, agent.name)]
        return self._counter.figures(self._clock.now(), request.hours, name_of, shown)


class _CountedLog:
    """One log, and how far it is counted."""

    def __init__(self, store: TaskStore, counter: FigureCounter) -> None:
        self._store = store
        self._counter = counter
        self._begin: int | None = None
        """The seq after which all events are counted; earlier events only tell of tasks that go on."""
        self._seq = 0

    async def count_new(self, since: datetime) -> None:
        """Counts what is new; the first time, what is newer than `since`."""
        if self._begin is None:
            begin = await self._seq_before(since)
            await self._learn_open_tasks(begin)
            self._begin = self._seq = begin
        while page := await self._store.read_after(self._seq, limit=_PAGE):
            for seq, event, _ in page:
                if not isinstance(event, TaskOpened) and not self._counter.knows(event.task_id):
                    await self._learn(event.task_id, self._begin)
                self._counter.count(event)
                self._seq = seq

    async def _seq_before(self, at: datetime) -> int:
        """Returns a seq after which the log has all events since `at`: their times are nearly in the order of seqs."""
        low, high = 0, await self._store.last_seq()
        while low < high:
            middle = (low + high) // 2
            first = await self._store.read_after(middle, limit=1)
            if not first or first[0].event.at >= at:
                high = middle
            else:
                low = first[0].seq
        return low

    async def _learn_open_tasks(self, begin: int) -> None:
        """Learns of tasks that were open before: some may have waited for a person all day, without an event."""
        query = TaskQuery(states=_OPEN, limit=_PAGE)
        page = await self._store.list(query)
        while page.tasks:
            for task in page.tasks:
                await self._learn(task.id, begin)
            if not page.next_cursor:
                break
            page = await self._store.list(TaskQuery(states=_OPEN, limit=_PAGE, cursor=page.next_cursor))

    async def _learn(self, task_id: TaskId, begin: int) -> None:
        """Counts the events of a task up to the seq `begin`. They are too old for the figures, but tell what it is."""
        seq = 0
        while page := await self._store.read_after(seq, task_id=task_id, limit=_PAGE):
            for seq, event, _ in page:
                if seq > begin:
                    return
                self._counter.count(event)
