"""What a turn's events mean for its task: which facts are to be recorded. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
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
    MetadataChanged,
    ReceiptChanged,
    StateChanged,
    TaskEvent,
)
from synapse.core.message import Artifact, Message, MessageId, Part, Role, TextPart
from synapse.core.question import QUESTION, WAITING_FOR_PERSON, Question, open_question, question_fields
from synapse.core.task import ReceiptStep, Task, TaskState

INTERRUPTED: Final = "interrupted"
AGENT_EXITED: Final = "agent_exited"
EXPIRED: Final = "expired"
EXPLICIT_REPLY: Final = "reply"
PARTIAL: Final = "partial"
"""Marks the text of an answer that has not come to its end."""
_SCREEN: Final = "screen"
_OWN_WORDS: Final = frozenset({EXPLICIT_REPLY, "script", "a2a"})


def events_for(task: Task, event: TurnEvent, now: datetime) -> tuple[TaskEvent, ...]:  # noqa: C901, PLR0911, PLR0912 - a case each
    """Return what is to be recorded for `event`; nothing when it concerns no task."""
    match event:
        case Answered():  # of every turn one, so it stands first
            return answered(task, now, event)
        case Deferred(why=why):
            return _taken_back(task, now, why)
        case Typing():
            return (_step(task, now, ReceiptStep.TYPED, "journal", "the intent to type was recorded"),)
        case Submitted(source=source, evidence=evidence):
            return _submitted(task, now, source, evidence)
        case TurnStarted(source=source, evidence=evidence):
            return (_step(task, now, ReceiptStep.TURN_STARTED, source, evidence),)
        case DeliveryUncertain(why=why):
            return (AttentionChanged(task_id=task.id, at=now, attention=why),)
        case Progress(text=text):
            return () if open_question(task) else (_state(task, now, TaskState.WORKING, note=text),)
        case PartialAnswer(text=text, source=source):
            return _said(task, now, text, source)
        case ArtifactProduced(artifact=artifact, append=append, last_chunk=last):
            return (ArtifactAdded(task_id=task.id, at=now, artifact=artifact, append=append, last_chunk=last),)
        case QuestionRaised(question=question):
            return _questioned(task, now, question)
        case Resumed(by=by):
            return question_closed(task, now, TaskState.WORKING, f"answered: {by}")
        case InputRequested(parts=parts, authorization=authorization):
            return _asked(task, now, parts, TaskState.AUTH_REQUIRED if authorization else TaskState.INPUT_REQUIRED)
        case Refused(note=note):
            return ended(task, now, TaskState.REJECTED, "rejected", note)
        case Failed(reason=reason, note=note):
            return ended(task, now, TaskState.FAILED, reason, note)
        case _:
            assert_never(event)


def answered(task: Task, now: datetime, answer: Answered) -> tuple[TaskEvent, ...]:
    """The task is done; its answer becomes an artifact that says where the text was taken from."""
    told = [*close_question(task, now)]
    if answer.parts:
        told.append(ArtifactAdded(task_id=task.id, at=now, artifact=_answer(task, answer.parts, answer.source)))
    told.append(_step(task, now, ReceiptStep.ANSWERED, answer.source, "the turn ended"))
    told.append(_state(task, now, TaskState.COMPLETED, reason="direct_message" if answer.direct else ""))
    return tuple(told)


def is_whole(event: TurnEvent) -> bool:
    """Whether a turn that was interrupted ended by itself all the same: the interrupt came too late for it.

    An agent that tells how its turn ended says so of one that was cut short; what its screen shows may be cut.
    """
    return isinstance(event, InputRequested | Refused) or (isinstance(event, Answered) and event.source != _SCREEN)


def interrupted(task: Task, now: datetime, event: TurnEvent) -> tuple[TaskEvent, ...]:
    """The turn ended because a more urgent message interrupted it; what it had said so far is kept."""
    kept: tuple[TaskEvent, ...] = ()
    if isinstance(event, Answered) and event.parts:
        kept = (ArtifactAdded(task_id=task.id, at=now, artifact=_answer(task, event.parts, event.source)),)
    return (*kept, *ended(task, now, TaskState.CANCELED, INTERRUPTED, "a message of priority 5 interrupted the turn"))


def ended(task: Task, now: datetime, state: TaskState, reason: str, note: str) -> tuple[TaskEvent, ...]:
    """The task ends without an answer. One that only waited for a reply has no receipt to close."""
    step = _FINAL_STEPS[EXPIRED if reason == EXPIRED else state]
    receipt = (_step(task, now, step, "journal", note),) if task.queued else ()
    return (*close_question(task, now), *receipt, _state(task, now, state, reason=reason, note=note))


def question_closed(task: Task, now: datetime, state: TaskState, note: str = "") -> tuple[TaskEvent, ...]:
    """Nothing is asked any more, and the task goes on in `state`; nothing when nothing was asked.

    The state comes first: nobody shall see a task that waits for input without a question.
    """
    if open_question(task) is None:
        return ()
    return (_state(task, now, state, note=note), MetadataChanged(task_id=task.id, at=now, metadata={QUESTION: None}))


def expired(task: Task, now: datetime) -> tuple[TaskEvent, ...]:
    """The deadline came before there was proof that the agent has the message."""
    return ended(task, now, TaskState.FAILED, EXPIRED, "its deadline passed before it was delivered")


_FINAL_STEPS: Final[Mapping[Any, ReceiptStep]] = {
    EXPIRED: ReceiptStep.EXPIRED,
    TaskState.FAILED: ReceiptStep.FAILED,
    TaskState.REJECTED: ReceiptStep.FAILED,
    TaskState.CANCELED: ReceiptStep.CANCELED,
    # Somebody else ended it well: its message needs no answer any more.
    TaskState.COMPLETED: ReceiptStep.CANCELED,
}


def _taken_back(task: Task, now: datetime, why: str) -> tuple[TaskEvent, ...]:
    """An intent that came to nothing must not look like a message in doubt after a crash."""
    closed = question_closed(task, now, TaskState.SUBMITTED)
    if task.receipt is None or task.receipt.step is not ReceiptStep.TYPED:
        return closed
    return (
        *closed,
        _step(task, now, ReceiptStep.QUEUED, "journal", f"nothing was typed: {why}"),
    )


def _submitted(task: Task, now: datetime, source: str, evidence: str) -> tuple[TaskEvent, ...]:
    if task.receipt is not None and task.receipt.step in (ReceiptStep.SUBMITTED, ReceiptStep.TURN_STARTED):
        return ()  # a person has said so already, or it was submitted before a restart
    cleared: tuple[TaskEvent, ...] = ()
    if task.attention:
        cleared = (AttentionChanged(task_id=task.id, at=now, attention=""),)
    return (
        *cleared,
        _step(task, now, ReceiptStep.SUBMITTED, source, evidence),
        # What is asked stays asked: proof that the message was taken may come later than the question.
        *(() if open_question(task) else (_state(task, now, TaskState.WORKING),)),
    )


def _questioned(task: Task, now: datetime, question: Question) -> tuple[TaskEvent, ...]:
    """The state comes last: whoever hears of it finds the question."""
    asked_at = now.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    fields = {**question_fields(question), "asked_at": asked_at}
    return (
        MetadataChanged(task_id=task.id, at=now, metadata={QUESTION: fields}),
        _state(task, now, TaskState.INPUT_REQUIRED, reason=WAITING_FOR_PERSON, note=question.text),
    )


def close_question(task: Task, now: datetime) -> tuple[TaskEvent, ...]:
    """The turn ends, or the task does: what was asked is asked no more."""
    return question_closed(task, now, TaskState.WORKING, "what was asked is asked no more")


def _asked(task: Task, now: datetime, parts: tuple[Part, ...], state: TaskState) -> tuple[TaskEvent, ...]:
    question = Message(message_id=MessageId(f"{task.id}.{task.version + 1}"), role=Role.AGENT, parts=parts)
    return (
        *close_question(task, now),
        MessageAdded(task_id=task.id, at=now, message=question),
        _step(task, now, ReceiptStep.ANSWERED, "driver", "the agent asked for input"),
        _state(task, now, state, note=question.text),
    )


def _said(task: Task, now: datetime, text: str, source: str) -> tuple[TaskEvent, ...]:
    """The answer so far, as an artifact that the whole answer will replace. Only what is new of it is recorded."""
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
