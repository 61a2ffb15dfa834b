"""Translates what happens to a task (a turn's events, its end) into the task events to record. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, assert_never

from synapse.core.driver import (
    Answered,
    ArtifactProduced,
    Deferred,
    DeliveryUncertain,
    Failed,
    InputRequested,
    PartialAnswer,
    Progress,
    QuestionRaised,
    Refused,
    Resumed,
    Submitted,
    TurnEvent,
    TurnStarted,
    Typing,
)
from synapse.core.events import (
    ArtifactAdded,
    AttentionChanged,
    MessageAdded,
    ReceiptChanged,
    StateChanged,
    TaskEvent,
)
from synapse.core.message import Artifact, Message, MessageId, Part, Role, TextPart
from synapse.core.question import WAITING_FOR_PERSON
from synapse.core.task import ReceiptStep, Task, TaskState
from synapse.core.task_metadata import question_noted, question_removed

INTERRUPTED: Final = "interrupted"
AGENT_EXITED: Final = "agent_exited"
EXPIRED: Final = "expired"
EXPLICIT_REPLY: Final = "reply"
REPLIED_FAILED: Final = "replied_failed"
"""The reason of a task whose agent replied that it failed."""
PARTIAL: Final = "partial"
"""Metadata key that marks the text of an unfinished answer."""
_SCREEN: Final = "screen"
PERSON: Final = "person"
_OWN_WORDS: Final = frozenset({EXPLICIT_REPLY, PERSON, "script", "a2a"})
"""Sources whose text its author declared to be the answer; the text of all others is inferred."""
_QUESTION_CLOSED: Final = "the question was closed"
_FINAL_STEPS: Final[Mapping[Any, ReceiptStep]] = {
    EXPIRED: ReceiptStep.EXPIRED,
    TaskState.FAILED: ReceiptStep.FAILED,
    TaskState.REJECTED: ReceiptStep.FAILED,
    TaskState.CANCELED: ReceiptStep.CANCELED,
    # Completed by request, not by an answer: the message is no longer to be answered.
    TaskState.COMPLETED: ReceiptStep.CANCELED,
}


def events_for(task: Task, event: TurnEvent, now: datetime) -> tuple[TaskEvent, ...]:  # noqa: C901, PLR0911, PLR0912 - a case each
    """Returns the events to record for an event of the task's turn."""
    match event:
        case Answered():  # every turn has one, so it is tested first
            return answered(task, now, event)
        case Deferred(why=why):
            return _deferred(task, now, why)
        case Typing():
            return (_step(task, now, ReceiptStep.TYPED, "journal", "the intent to type was recorded"),)
        case Submitted(source=source, evidence=evidence):
            return _submitted(task, now, source, evidence)
        case TurnStarted(source=source, evidence=evidence):
            return (_step(task, now, ReceiptStep.TURN_STARTED, source, evidence),)
        case DeliveryUncertain(why=why):
            return (AttentionChanged(task_id=task.id, at=now, attention=why),)
        case Progress(text=text):
            return () if task.question else (_state(task, now, TaskState.WORKING, note=text),)
        case PartialAnswer(text=text, source=source):
            return _partial_answer(task, now, text, source)
        case ArtifactProduced(artifact=artifact, append=append, last_chunk=last):
            return (ArtifactAdded(task_id=task.id, at=now, artifact=artifact, append=append, last_chunk=last),)
        case QuestionRaised(question=question):
            return (
                question_noted(task, now, question),
                # The state comes last, so that a reader of the new state finds the question.
                _state(task, now, TaskState.INPUT_REQUIRED, reason=WAITING_FOR_PERSON, note=question.text),
            )
        case Resumed(by=by):
            return close_question(task, now, TaskState.WORKING, f"answered: {by}")
        case InputRequested(parts=parts, authorization=authorization):
            return _input_requested(
                task, now, parts, TaskState.AUTH_REQUIRED if authorization else TaskState.INPUT_REQUIRED
            )
        case Refused(note=note):
            return ended(task, now, TaskState.REJECTED, "rejected", note)
        case Failed(reason=reason, note=note):
            return ended(task, now, TaskState.FAILED, reason, note)
        case _:
            assert_never(event)


def answered(task: Task, now: datetime, answer: Answered, evidence: str = "the turn ended") -> tuple[TaskEvent, ...]:
    """Returns the events that complete the task; the answer becomes an artifact that names the source of its text."""
    events = [*close_question(task, now, TaskState.WORKING, _QUESTION_CLOSED)]
    if answer.parts:
        events.append(ArtifactAdded(task_id=task.id, at=now, artifact=_answer(task, answer.parts, answer.source)))
    events.append(_step(task, now, ReceiptStep.ANSWERED, answer.source, evidence))
    events.append(_state(task, now, TaskState.COMPLETED, reason="direct_message" if answer.direct else ""))
    return tuple(events)


def replied(
    task: Task, now: datetime, message: Message, *, failed: bool, inferred: bool = False
) -> tuple[TaskEvent, ...]:
    """Returns the events that end the task with a reply; `failed` means that the agent could not do it."""
    if failed:
        note = message.text or "the agent replied that it failed"
        return ended(task, now, TaskState.FAILED, REPLIED_FAILED, note)
    return answered(task, now, Answered(parts=message.parts, source="inferred" if inferred else EXPLICIT_REPLY))


def is_whole(event: TurnEvent) -> bool:
    """Decides whether an interrupted turn still ended by itself, because the interrupt came too late.

    An agent that reports how its turn ended also reports when it was cut short; an answer read from the screen may be
    cut.
    """
    return isinstance(event, InputRequested | Refused) or (isinstance(event, Answered) and event.source != _SCREEN)


def interrupted(task: Task, now: datetime, event: TurnEvent) -> tuple[TaskEvent, ...]:
    """Returns the events that end a turn interrupted by a more urgent message; they keep the answer so far."""
    kept: tuple[TaskEvent, ...] = ()
    if isinstance(event, Answered) and event.parts:
        kept = (ArtifactAdded(task_id=task.id, at=now, artifact=_answer(task, event.parts, event.source)),)
    return (*kept, *ended(task, now, TaskState.CANCELED, INTERRUPTED, "a message of priority 5 interrupted the turn"))


def ended(task: Task, now: datetime, state: TaskState, reason: str, note: str) -> tuple[TaskEvent, ...]:
    """Returns the events that end the task without an answer. A task that only waits for a reply has no receipt."""
    step = _FINAL_STEPS[EXPIRED if reason == EXPIRED else state]
    receipt = (_step(task, now, step, "journal", note),) if task.queued else ()
    closed = close_question(task, now, TaskState.WORKING, _QUESTION_CLOSED)
    return (*closed, *receipt, _state(task, now, state, reason=reason, note=note))


def close_question(task: Task, now: datetime, state: TaskState, note: str = "") -> tuple[TaskEvent, ...]:
    """Returns the events that close the task's open question, if any, and continue the task in `state`.

    The state comes first, so that no reader sees a task that waits for input without a question.
    """
    if task.question is None:
        return ()
    return (_state(task, now, state, note=note), question_removed(task, now))


def agent_exited(task: Task, now: datetime, note: str) -> tuple[TaskEvent, ...]:
    """Returns the events that fail the task because the agent, or the program that worked on it, is gone."""
    return ended(task, now, TaskState.FAILED, AGENT_EXITED, note)


def expired(task: Task, now: datetime) -> tuple[TaskEvent, ...]:
    """Returns the events that fail the task because its deadline passed without proof that the agent took it."""
    return ended(task, now, TaskState.FAILED, EXPIRED, "its deadline passed before it was delivered")


def _deferred(task: Task, now: datetime, why: str) -> tuple[TaskEvent, ...]:
    """Returns the events that withdraw an intent to type, which after a crash would look like a message in doubt."""
    closed = close_question(task, now, TaskState.SUBMITTED)
    if task.receipt is None or task.receipt.step is not ReceiptStep.TYPED:
        return closed
    return (*closed, _step(task, now, ReceiptStep.QUEUED, "journal", f"nothing was typed: {why}"))


def _submitted(task: Task, now: datetime, source: str, evidence: str) -> tuple[TaskEvent, ...]:
    if task.receipt is not None and task.receipt.step in (ReceiptStep.SUBMITTED, ReceiptStep.TURN_STARTED):
        return ()  # a person has confirmed it already, or it was submitted before a restart
    cleared: tuple[TaskEvent, ...] = ()
    if task.attention:
        cleared = (AttentionChanged(task_id=task.id, at=now, attention=""),)
    return (
        *cleared,
        _step(task, now, ReceiptStep.SUBMITTED, source, evidence),
        # A question stays open: proof that the agent took the message may come later than its question.
        *(() if task.question else (_state(task, now, TaskState.WORKING),)),
    )


def _input_requested(task: Task, now: datetime, parts: tuple[Part, ...], state: TaskState) -> tuple[TaskEvent, ...]:
    question = Message(message_id=MessageId(f"{task.id}.{task.version + 1}"), role=Role.AGENT, parts=parts)
    return (
        *close_question(task, now, TaskState.WORKING, _QUESTION_CLOSED),
        MessageAdded(task_id=task.id, at=now, message=question),
        _step(task, now, ReceiptStep.ANSWERED, "driver", "the agent asked for input"),
        _state(task, now, state, note=question.text),
    )


def _partial_answer(task: Task, now: datetime, text: str, source: str) -> tuple[TaskEvent, ...]:
    """Returns the answer so far as an artifact that the whole answer will replace; only its new text is recorded."""
    whole = _answer(task, (TextPart(text=text),), source)
    whole = replace(whole, metadata={**whole.metadata, PARTIAL: True})
    known = next((one for one in task.artifacts if one.artifact_id == whole.artifact_id), None)
    if known is None or known.metadata != whole.metadata or not text.startswith(known.text):
        return (ArtifactAdded(task_id=task.id, at=now, artifact=whole, last_chunk=False),)
    rest = text[len(known.text) :]
    chunk = replace(whole, parts=(TextPart(text=rest),))
    return (ArtifactAdded(task_id=task.id, at=now, artifact=chunk, append=True, last_chunk=False),) if rest else ()


def _answer(task: Task, parts: tuple[Part, ...], source: str) -> Artifact:
    inferred = source not in _OWN_WORDS
    return Artifact(
        artifact_id=f"{task.short_id}-answer",
        name="answer",
        parts=parts,
        metadata={"source": source, "inferred": inferred},
    )


def _step(task: Task, now: datetime, step: ReceiptStep, source: str, evidence: str) -> ReceiptChanged:
    return ReceiptChanged(task_id=task.id, at=now, step=step, source=source, evidence=evidence)


def _state(task: Task, now: datetime, state: TaskState, *, reason: str = "", note: str = "") -> StateChanged:
    return StateChanged(task_id=task.id, at=now, state=state, reason=reason, note=note)
