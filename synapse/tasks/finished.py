"""Keeps the tasks of an agent that ended last, for people who follow what the agent does.

The store is read once, when somebody asks for the first time; later ends come from the journal. So a stream of statuses
reads nothing, and a host that nobody watches keeps nothing. Tasks are kept in brief: a hundred pages of an answer are
read from the task itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from synapse.core.errors import StoreFailed
from synapse.core.events import Update
from synapse.core.message import FilePart, Part, Role, TextPart
from synapse.core.requests import MOST_FINISHED
from synapse.core.store import TaskQuery, TaskStore
from synapse.core.task import Task, TaskId, TaskState, changed
from synapse.core.types import Clock
from synapse.tasks.journal import Journal

LONGEST_TEXT: Final = 2000
"""How much of each text is kept."""
KEPT_FOR: Final = timedelta(days=7)
_READ: Final = 3 * MOST_FINISHED
"""How many are read: tasks that only waited for a reply end too, and are left out."""
_MOST_PARTS: Final = 10
_ENDED: Final = frozenset(state for state in TaskState if state.is_terminal)


class FinishedTasks:
    """The messages to one agent whose tasks ended last, in brief."""

    def __init__(self, journal: Journal, store: TaskStore, inbox: str, clock: Clock) -> None:
        self._journal = journal
        self._store = store
        self._inbox = inbox
        self._clock = clock
        self._tasks: dict[TaskId, Task] = {}
        self._is_complete = False
        """Whether the tasks that ended earlier were read from the store."""
        self._is_listening = False
        self._reading = asyncio.Lock()

    async def newest(self, count: int) -> tuple[Task, ...]:
        """Returns at most `count` tasks that ended in the last days, newest first. Without those of a failing store."""
        if not self._is_complete:
            await self._read()
        since = self._clock.now() - KEPT_FOR
        return tuple([task for task in self._tasks.values() if ended_at(task) > since][:count])

    async def _read(self) -> None:
        async with self._reading:
            if self._is_complete:
                return
            if not self._is_listening:
                # First, so that no end is missed in between.
                self._is_listening = True
                self._journal.listen(self._on_update, self._has_ended)
            query = TaskQuery(inbox=self._inbox, states=_ENDED, updated_after=self._clock.now() - KEPT_FOR, limit=_READ)
            try:
                page = await self._store.list(query)
            except StoreFailed:
                return  # the next one tries again
            # What the journal told meanwhile is newer.
            self._keep([*map(in_brief, page.tasks), *self._tasks.values()])
            self._is_complete = True

    def _has_ended(self, task_id: TaskId) -> bool:
        task = self._journal.known(task_id)
        return task is not None and task.state.is_terminal

    def _on_update(self, update: Update) -> None:
        if update.task.state.is_terminal:
            self._keep([*self._tasks.values(), in_brief(update.task)])

    def _keep(self, tasks: Iterable[Task]) -> None:
        """Keeps the newest of `tasks`; of two versions of one task the later in the order given."""
        latest = {task.id: task for task in tasks}.values()
        shown = [task for task in latest if task.queued and not task.hidden]
        newest = sorted(shown, key=ended_at, reverse=True)[:MOST_FINISHED]
        self._tasks = {task.id: task for task in newest}


def ended_at(task: Task) -> datetime:
    """Returns when a task ended. Its last change may be later, as when the answer was passed on."""
    return task.receipts[-1].at if task.receipts else task.updated_at


def in_brief(task: Task) -> Task:
    """Returns the task with the beginning of its texts, and names instead of files.

    It has the first message, and the agent's last one, which is the answer of an agent without artifacts.
    """
    spoken = [message for message in task.history[1:] if message.role is Role.AGENT]
    history = [replace(one, parts=_brief_parts(one.text, one.parts)) for one in (*task.history[:1], *spoken[-1:])]
    artifacts = [replace(one, parts=_brief_parts(one.text, one.parts)) for one in task.artifacts[:_MOST_PARTS]]
    return changed(task, {"history": tuple(history), "artifacts": tuple(artifacts)})


def _brief_parts(text: str, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    names = [replace(part, content=None) for part in parts if isinstance(part, FilePart)]
    return (*([TextPart(text=text[:LONGEST_TEXT])] if text else []), *names[:_MOST_PARTS])
