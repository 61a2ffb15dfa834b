"""The log of all tasks as updates: each event with the task after it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

from synapse.core.events import Recorded, TaskOpened, Update
from synapse.core.store import TaskStore
from synapse.core.task import Task, TaskId
from synapse.service.journal import Journal, rebuild

_PAGE: Final = 500
_TASKS_IN_MEMORY: Final = 512


def _all(_recorded: Recorded) -> bool:
    return True


class LogReader:
    """Reads on in the log. It remembers the tasks that it has seen last, so that most events cost no look back."""

    def __init__(self, journal: Journal, store: TaskStore) -> None:
        self._journal = journal
        self._store = store
        self._tasks: OrderedDict[TaskId, Task] = OrderedDict()
        self.seq = 0
        """The last event that was read, wanted or not."""

    async def after(self, seq: int, wanted: Callable[[Recorded], bool] = _all) -> AsyncGenerator[Update, None]:
        """The updates after `seq` that are in the log and wanted; ends where the log ends."""
        self.seq = seq
        while page := await self._store.read_after(self.seq, limit=_PAGE):
            for recorded in page:
                before = self._tasks.pop(recorded.event.task_id, None)
                # What is passed over is forgotten: a task that misses an event is of no use for the next.
                task = await self._task_after(recorded, before) if wanted(recorded) else None
                self.seq = recorded.seq
                if task is not None:
                    self._remember(task)
                    yield Update(recorded.seq, recorded.event, task)
            if len(page) < _PAGE:
                return

    def _remember(self, task: Task) -> None:
        if task.state.is_terminal:
            return  # what little may follow is read again
        self._tasks[task.id] = task
        if len(self._tasks) > _TASKS_IN_MEMORY:
            self._tasks.popitem(last=False)

    async def _task_after(self, recorded: Recorded, before: Task | None) -> Task | None:
        """The task after this event; None when the log was pruned meanwhile."""
        if before is not None or isinstance(recorded.event, TaskOpened):
            return rebuild(before, (recorded.event,))
        async with aclosing(self._journal.updates(recorded.event.task_id)) as updates:
            async for update in updates:
                if update.seq == recorded.seq:
                    return update.task
        return None
