"""Decides after a restart what becomes of the open tasks that an earlier host of the inbox left.

Queued messages stay queued unless the agent does not accept their sender, and tasks that wait for an agent's reply or a
person's answer keep waiting. Work of a CLI
that is gone has failed; work of an agent elsewhere is followed again. A message that was typed without proof that the
agent took it is never typed again automatically: a person decides. Initial instructions fail with the agent that they
were for; the next one gets its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Final

from synapse.core.address import SYSTEM
from synapse.core.errors import SenderNotAccepted
from synapse.core.events import AttentionChanged, TaskEvent
from synapse.core.message import Message
from synapse.core.task import ReceiptStep, Task, TaskId, TaskState
from synapse.tasks import outcomes
from synapse.tasks.person_questions import is_open_question

ANSWERS: Final = "answers_question"
"""Metadata key of a message that answered a question: the question's id. Such a message is never typed."""
TYPED_BEFORE_RESTART: Final = "typed shortly before the host ended; it is not certain that the agent took it"
_ON_ITS_WAY: Final = frozenset({ReceiptStep.TYPED, ReceiptStep.SUBMITTED, ReceiptStep.TURN_STARTED})

_NONE: Final[Mapping[TaskId, tuple[TaskEvent, ...]]] = MappingProxyType({})


def ends_with_us(_task: Task) -> bool:
    """Returns False: the default, for agents whose work ends with the process that runs them."""
    return False


def refuses_none(_task: Task) -> str:
    """Returns an empty text: the default, for agents that accept every sender."""
    return ""


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """Which events to record, and which tasks to queue, to leave waiting for a reply, and to follow again."""

    events: tuple[tuple[TaskEvent, ...], ...]
    queue: tuple[Task, ...]
    waiting: tuple[Task, ...]
    resumed: tuple[Task, ...] = ()


def plan(  # noqa: C901, PLR0912 - one case per kind of task
    left: Iterable[Task],
    now: datetime,
    can_resume: Callable[[Task], bool] = ends_with_us,
    ends: Mapping[TaskId, tuple[TaskEvent, ...]] = _NONE,
    refusal_of: Callable[[Task], str] = refuses_none,
) -> RecoveryPlan:
    """Decides what becomes of the open tasks, given oldest first.

    `can_resume` says whether the agent has the task's last message and can still be asked for its result. `ends` has
    the events of tasks whose end is known, but was not recorded. `refusal_of` says why the agent does not accept the
    sender of a queued message; empty if it does.
    """
    events: list[tuple[TaskEvent, ...]] = []
    queue: list[Task] = []
    waiting: list[Task] = []
    resumed: list[Task] = []
    for task in left:
        if is_instruction(task):
            note = "the agent that these instructions were for is gone"
            events.append(outcomes.agent_exited(task, now, note))
        elif task.id in ends:
            events.append(ends[task.id])
        elif is_waiting_for_reply(task) or is_open_question(task):
            waiting.append(task)
        elif is_waiting_in_queue(task):
            if why := refusal_of(task):
                events.append(outcomes.ended(task, now, TaskState.REJECTED, SenderNotAccepted.code, why))
            else:
                queue.append(task)
        elif is_being_worked_on(task) and can_resume(task):
            resumed.append(task)
        elif is_in_doubt(task):
            doubt = AttentionChanged(task_id=task.id, at=now, attention=TYPED_BEFORE_RESTART)
            closed = outcomes.close_question(task, now, TaskState.SUBMITTED)
            if closed or not task.attention:
                events.append((*closed, doubt))
        elif not task.state.is_interrupted or task.question:
            # A question in the middle of a turn is gone with its program; one that ended the turn stays open.
            note = "the program that worked on it is gone"
            events.append(outcomes.agent_exited(task, now, note))
    return RecoveryPlan(tuple(events), tuple(queue), tuple(waiting), tuple(resumed))


def is_instruction(task: Task) -> bool:
    """Decides whether the task holds an agent's initial instructions.

    No other sender can claim to be the system, whose other messages tell the agent that a request was not answered.
    """
    return task.sender.sender_id == SYSTEM and not task.delivers


def last_prompt(task: Task) -> Message:
    """Returns the task's last message that is, or was, to be typed."""
    return next((message for message in reversed(task.history) if ANSWERS not in message.metadata), task.message)


def as_prompt(message: Message) -> Message:
    """Returns the message without the key ANSWERS: set by a caller, it would keep the message from being typed."""
    if ANSWERS not in message.metadata:
        return message
    return replace(message, metadata={key: value for key, value in message.metadata.items() if key != ANSWERS})


def is_waiting_in_queue(task: Task) -> bool:
    """Decides whether nothing of the task's last message was typed yet."""
    return task.queued and task.receipt is not None and task.receipt.step is ReceiptStep.QUEUED


def is_waiting_for_reply(task: Task) -> bool:
    """Decides whether the task waits for an agent that can be found again: it replies, or is found to be lost."""
    return not task.queued and task.waits_for is not None and bool(task.waits_for.inbox)


def is_being_worked_on(task: Task) -> bool:
    """Decides whether the agent has, or was being given, the task's last message and has not ended the turn."""
    return task.queued and task.receipt is not None and task.receipt.step in _ON_ITS_WAY


def is_in_doubt(task: Task) -> bool:
    """Decides whether the task's last message was typed without proof that the agent took it."""
    return task.queued and task.receipt is not None and task.receipt.step is ReceiptStep.TYPED
