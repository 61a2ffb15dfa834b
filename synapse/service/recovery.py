"""After a restart: what an earlier host of the same inbox left, and what becomes of it.

Queued messages go on. What ran in a CLI that is gone has failed. What was typed but not proven is never typed again by
itself: a person decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from synapse.core.events import AttentionChanged, TaskEvent
from synapse.core.receipt import ReceiptStep
from synapse.core.task import Task, TaskState
from synapse.service import outcomes

TYPED_BEFORE_RESTART: Final = "typed shortly before the host ended; it is not certain that the agent took it"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to record, and which tasks to queue again."""

    facts: tuple[tuple[TaskEvent, ...], ...]
    queue: tuple[Task, ...]


def plan(left: Iterable[Task], now: datetime) -> Plan:
    """Decide about the open tasks that were found, oldest first."""
    facts: list[tuple[TaskEvent, ...]] = []
    queue: list[Task] = []
    for task in left:
        if is_waiting_in_queue(task):
            queue.append(task)
        elif is_in_doubt(task):
            if not task.attention:
                facts.append((AttentionChanged(task_id=task.id, at=now, attention=TYPED_BEFORE_RESTART),))
        elif not task.state.is_interrupted:
            note = "the program that worked on it is gone"
            facts.append(outcomes.ended(task, now, TaskState.FAILED, outcomes.AGENT_EXITED, note))
    return Plan(tuple(facts), tuple(queue))


def is_waiting_in_queue(task: Task) -> bool:
    """Nothing of the task's last message was typed yet."""
    return task.queued and task.receipt is not None and task.receipt.step is ReceiptStep.QUEUED


def is_in_doubt(task: Task) -> bool:
    """The task's last message was typed, but there is no proof that it was taken."""
    return task.queued and task.receipt is not None and task.receipt.step is ReceiptStep.TYPED
