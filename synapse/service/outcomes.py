"""What a turn's events mean for its task: which facts are to be recorded. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, assert_never

from synapse.core.driver import (
    Answered,
    Asked,
    Doubted,
    Failed,
    Handed,
    NotNow,
    Progress,
    Refused,
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
from synapse.core.message import Artifact, Message, MessageId, Part, Role
from synapse.core.receipt import ReceiptStep
from synapse.core.task import Task, TaskState

INTERRUPTED: Final = "interrupted"
AGENT_EXITED: Final = "agent_exited"
EXPIRED: Final = "expired"
EXPLICIT_REPLY: Final = "reply"
_OWN_WORDS: Final = frozenset({EXPLICIT_REPLY, "script"})


def facts(task: Task, event: TurnEvent, now: datetime) -> tuple[TaskEvent, ...]:  # noqa: C901, PLR0911, PLR0912 - a case each
    """Return what is to be recorded for `event`; nothing when it concerns no task."""
    match event:
        case NotNow(why=why):
            return _taken_back(task, now, why)
        case Typing():
            return (_step(task, now, ReceiptStep.TYPED, "journal", "the intent to type was recorded"),)
        case Submitted(source=source, evidence=evidence):
            return _submitted(task, now, source, evidence)
        case TurnStarted(source=source, evidence=evidence):
            return (_step(task, now, ReceiptStep.TURN_STARTED, source, evidence),)
        case Doubted(why=why):
            return (AttentionChanged(task_id=task.id, at=now, attention=why),)
        case Progress(text=text):
            return (_state(task, now, TaskState.WORKING, note=text),)
        case Handed(artifact=artifact, append=append, last_chunk=last):
            return (ArtifactAdded(task_id=task.id, at=now, artifact=artifact, append=append, last_chunk=last),)
        case Asked(parts=parts, authorization=authorization):
            return _asked(task, now, parts, TaskState.AUTH_REQUIRED if authorization else TaskState.INPUT_REQUIRED)
        case Answered():
            return answered(task, now, event)
        case Refused(note=note):
            return ended(task, now, TaskState.REJECTED, "rejected", note)
        case Failed(reason=reason, note=note):
            return ended(task, now, TaskState.FAILED, reason, note)
        case _:
            assert_never(event)


def answered(task: Task, now: datetime, answer: Answered) -> tuple[TaskEvent, ...]:
    """The task is done; its answer becomes an artifact that says where the text was taken from."""
    added: tuple[TaskEvent, ...] = ()
    if answer.parts:
        added = (ArtifactAdded(task_id=task.id, at=now, artifact=_answer(task, answer.parts, answer.source)),)
    reason = "direct_message" if answer.direct else ""
    return (
        *added,
        _step(task, now, ReceiptStep.ANSWERED, answer.source, "the turn ended"),
        _state(task, now, TaskState.COMPLETED, reason=reason),
    )


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
    return (*receipt, _state(task, now, state, reason=reason, note=note))


def expired(task: Task, now: datetime) -> tuple[TaskEvent, ...]:
    """The deadline came before there was proof that the agent has the message."""
    return ended(task, now, TaskState.FAILED, EXPIRED, "its deadline passed before it was delivered")


_FINAL_STEPS: Final[Mapping[Any, ReceiptStep]] = {
    EXPIRED: ReceiptStep.EXPIRED,
    TaskState.FAILED: ReceiptStep.FAILED,
    TaskState.REJECTED: ReceiptStep.FAILED,
    TaskState.CANCELED: ReceiptStep.CANCELED,
}


def _taken_back(task: Task, now: datetime, why: str) -> tuple[TaskEvent, ...]:
    """An intent that came to nothing must not look like a message in doubt after a crash."""
    if task.receipt is None or task.receipt.step is not ReceiptStep.TYPED:
        return ()
    return (_step(task, now, ReceiptStep.QUEUED, "journal", f"nothing was typed: {why}"),)


def _submitted(task: Task, now: datetime, source: str, evidence: str) -> tuple[TaskEvent, ...]:
    if task.receipt is not None and task.receipt.step is ReceiptStep.SUBMITTED:
        return ()  # a person has said so already
    cleared: tuple[TaskEvent, ...] = ()
    if task.attention:
        cleared = (AttentionChanged(task_id=task.id, at=now, attention=""),)
    return (
        *cleared,
        _step(task, now, ReceiptStep.SUBMITTED, source, evidence),
        _state(task, now, TaskState.WORKING),
    )


def _asked(task: Task, now: datetime, parts: tuple[Part, ...], state: TaskState) -> tuple[TaskEvent, ...]:
    question = Message(message_id=MessageId(f"{task.id}.{task.version + 1}"), role=Role.AGENT, parts=parts)
    return (
        MessageAdded(task_id=task.id, at=now, message=question),
        _step(task, now, ReceiptStep.ANSWERED, "driver", "the agent asked for input"),
        _state(task, now, state, note=question.text),
    )


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
