"""Waiting at a gateway until a task has settled: the log tells when to look, and the store how the task is then."""

from __future__ import annotations

import asyncio

from synapse.core.events import Recorded, StateChanged
from synapse.core.store import TaskStore
from synapse.core.task import Task, TaskId
from synapse.service.settling import is_settled
from synapse.service.store_tail import StoreTail


class GatewayWaits:
    """Lets any number wait. Nothing is rebuilt for them: a look at each event is enough, and one at the task."""

    def __init__(self, store: TaskStore, tail: StoreTail) -> None:
        self._store = store
        self._tail = tail
        self._waiting: dict[TaskId, set[asyncio.Event]] = {}
        tail.hear_events(self._hear)

    async def settled(self, task_id: TaskId) -> Task:
        """Return the task once it has ended or waits for somebody. Raises StoreFailed or TaskNotFound."""
        settled = asyncio.Event()
        # Looking begins before the task is read: what comes in between is heard.
        async with self._tail.running():
            self._waiting.setdefault(task_id, set()).add(settled)
            try:
                while not is_settled((task := await self._store.load(task_id)).state):
                    await settled.wait()
                    settled.clear()
                return task
            finally:
                self._leave(task_id, settled)

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
