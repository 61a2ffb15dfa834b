"""After a restart: what an earlier host of the same inbox left, and what becomes of it.

Queued messages go on, and what waits for another agent's reply waits on. What ran in a CLI that is gone has failed;
what runs in an agent elsewhere is followed again.
What was typed but not proven is never typed again by itself: a person decides. Instructions were for the agent that is
gone; the next one gets its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from synapse.core.address import SYSTEM
from synapse.core.events import AttentionChanged, TaskEvent
from synapse.core.message import Message
from synapse.core.question import open_question
from synapse.core.task import ReceiptStep, Task, TaskState
from synapse.tasks import outcomes
from synapse.tasks.admission import sender_in
from synapse.tasks.waits import WAITS_FOR, WAITS_FOR_INBOX

ANSWERS: Final = "answers_question"
"""Metadata of a message that answered a question (this one); it was never meant to be typed."""
_ON_ITS_WAY: Final = frozenset({ReceiptStep.TYPED, ReceiptStep.SUBMITTED, ReceiptStep.TURN_STARTED})
TYPED_BEFORE_RESTART: Final = "typed shortly before the host ended; it is not certain that the agent took it"


def ends_with_us(_task: Task) -> bool:
    """For agents whose work ends with the process that runs them."""
    return False


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """What to record, and which tasks to queue again, to follow again, and to leave waiting for a reply."""

    facts: tuple[tuple[TaskEvent, ...], ...]
    queue: tuple[Task, ...]
    waiting: tuple[Task, ...]
    resumed: tuple[Task, ...] = ()


def plan(  # noqa: C901 - one case per kind of task
    left: Iterable[Task], now: datetime, can_resume: Callable[[Task], bool] = ends_with_us
) -> RecoveryPlan:
    """Decide about the open tasks that were found, oldest first.

    `can_resume` tells whether the agent is known to have the task's last message and can be asked what came of it.
    """
    facts: list[tuple[TaskEvent, ...]] = []
    queue: list[Task] = []
    waiting: list[Task] = []
    resumed: list[Task] = []
    for task in left:
        if is_instruction(task):
            note = "the agent whose instructions these are is gone"
            facts.append(outcomes.ended(task, now, TaskState.FAILED, outcomes.AGENT_EXITED, note))
        elif is_waiting_for_reply(task):
            waiting.append(task)
        elif is_waiting_in_queue(task):
            queue.append(task)
        elif is_being_worked_on(task) and can_resume(task):
            resumed.append(task)
        elif is_in_doubt(task):
            doubt = AttentionChanged(task_id=task.id, at=now, attention=TYPED_BEFORE_RESTART)
            closed = outcomes.question_closed(task, now, TaskState.SUBMITTED)
            if closed or not task.attention:
                facts.append((*closed, doubt))
        elif not task.state.is_interrupted or open_question(task):
            # What was asked in the middle of a turn went with the program; a question that ended one stays.
            note = "the program that worked on it is gone"
            facts.append(outcomes.ended(task, now, TaskState.FAILED, outcomes.AGENT_EXITED, note))
    return RecoveryPlan(tuple(facts), tuple(queue), tuple(waiting), tuple(resumed))


def is_instruction(task: Task) -> bool:
    """It tells an agent at its start who it is: nobody else can say that they are the system."""
    return sender_in(task.metadata).sender_id == SYSTEM


def last_prompt(task: Task) -> Message:
    """The last message that is, or was, to be typed."""
    return next((message for message in reversed(task.history) if ANSWERS not in message.metadata), task.message)


def as_prompt(message: Message) -> Message:
    """The message without what only we say of one: a caller's own mark would keep it from being typed."""
    if ANSWERS not in message.metadata:
        return message
    return replace(message, metadata={key: value for key, value in message.metadata.items() if key != ANSWERS})


def is_waiting_in_queue(task: Task) -> bool:
    """Nothing of the task's last message was typed yet."""
    return task.queued and task.receipt is not None and task.receipt.step is ReceiptStep.QUEUED


def is_waiting_for_reply(task: Task) -> bool:
    """Another agent was asked, and can be found again: its reply comes, or it is seen that it is gone."""
    asked = [task.metadata.get(key) for key in (WAITS_FOR, WAITS_FOR_INBOX)]
    return not task.queued and all(isinstance(name, str) and name for name in asked)


def is_being_worked_on(task: Task) -> bool:
    """The agent was given, or was being given, the task's last message, and has not ended the turn."""
    return task.queued and task.receipt is not None and task.receipt.step in _ON_ITS_WAY


def is_in_doubt(task: Task) -> bool:
    """The task's last message was typed, but there is no proof that it was taken."""
    return task.queued and task.receipt is not None and task.receipt.step is ReceiptStep.TYPED
