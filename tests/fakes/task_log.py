"""Writes the log of one task as a host does: from what happens in its turns."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from synapse.core.driver import Submitted, TurnEvent, TurnStarted, Typing
from synapse.core.events import TaskEvent
from synapse.core.task import Task
from synapse.tasks import outcomes
from synapse.tasks.journal import rebuild
from tests.fakes.facts import TASK, after, opened


class TaskLog:
    """Collects the events of one task; times are seconds since its beginning."""

    def __init__(self, task_id: str = TASK, **fields: Any) -> None:
        self.events: list[TaskEvent] = [opened(task_id, **fields)]

    @property
    def task(self) -> Task:
        return rebuild(None, self.events)

    def add(self, *events: TaskEvent) -> TaskLog:
        self.events += events
        return self

    def turn(self, event: TurnEvent, at: float = 1) -> TaskLog:
        return self.add(*outcomes.events_for(self.task, event, after(at)))

    def end(self, events: Callable[[Task, datetime], tuple[TaskEvent, ...]], at: float = 1) -> TaskLog:
        return self.add(*events(self.task, after(at)))

    def taken(self, at: float = 0.3) -> TaskLog:
        """The agent takes the message."""
        for event in (Typing(), Submitted(source="hook", evidence="seen"), TurnStarted(source="hook", evidence="seen")):
            self.turn(event, at)
        return self
