"""Waiting at a gateway until a task has settled: the log tells when to look, and the store how the task is then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from synapse.core.errors import AgentExited
from synapse.core.events import Recorded, StateChanged
from synapse.core.store import TaskStore
from synapse.core.task import Task, TaskId
from synapse.service.discretion import discreet
from synapse.service.settling import is_settled
from synapse.service.store_tail import StoreTail

MOST_MISSES: Final = 5
"""So often an agent may be missed: one that is started again goes on with what it has left."""


class GatewayWaits:
    """Lets any number wait. Nothing is rebuilt for them: a look at each event is enough, and one at the task.

    `is_here` tells whether anybody can go on with a task; nobody waits for an agent that is gone.
    """

    def __init__(self, store: TaskStore, tail: StoreTail, is_here: Callable[[Task], bool]) -> None:
        self._store = store
        self._tail = tail
        self._is_here = is_here
        self._waiting: dict[TaskId, set[asyncio.Event]] = {}
        tail.hear_events(self._hear)

    async def settled(self, task_id: TaskId) -> Task:
        """Return the task once it has ended or waits for somebody.

        Raises StoreFailed, TaskNotFound, or AgentExited when its agent is gone and does not come back.
        """
        # Looking begins before the task is read: what comes in between is heard.
        with discreet():
            async with self._tail.running():
                return await self._settled(task_id)

    async def _settled(self, task_id: TaskId) -> Task:
        settled = asyncio.Event()
        misses = 0
        self._waiting.setdefault(task_id, set()).add(settled)
        try:
            while not is_settled((task := await self._store.load(task_id)).state):
                misses = 0 if self._is_here(task) else misses + 1
                if misses > MOST_MISSES:
                    raise AgentExited(
                        f"the agent of task {task.short_id} is gone", hint="the task is kept until it is back"
                    )
                await settled.wait()
                settled.clear()
            return task
        finally:
            self._leave(task_id, settled)

    def look_again(self) -> None:
        """Let each who waits look at its task, and at who works on it."""
        for waiting in self._waiting.values():
            for settled in waiting:
                settled.set()

    def _hear(self, recorded: Recorded) -> None:
        event = recorded.event
        if isinstance(event, StateChanged) and event.task_id in self._waiting and is_settled(event.state):
            for settled in self._waiting[event.task_id]:
                settled.set()

    def _leave(self, task_id: TaskId, settled: asyncio.Event) -> None:
        waiting = self._waiting[task_id]
        waiting.discard(settled)
        if not waiting:
            del self._waiting[task_id]
