"""The task state machine.

Rule 1: every rule about what may happen to a task lives in this file.
Rule 2: this file does not know the caller, the wire format or the store.
Rule 3: only the journal calls it, so a task changes only through the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, assert_never

from synapse.core.errors import IllegalTransition, TaskFinished
from synapse.core.events import (
    ArtifactAdded,
    AttentionChanged,
    MessageAdded,
    MetadataChanged,
    ReceiptChanged,
    StateChanged,
    TaskEvent,
    TaskHidden,
    TaskOpened,
)
from synapse.core.message import Artifact
from synapse.core.task import Receipt, ReceiptStep, Task, changed_by, new_task
from synapse.core.task import TaskState as S
from synapse.core.task_metadata import changed_fields, reply_fields

_ENDS: Final = frozenset({S.COMPLETED, S.FAILED, S.CANCELED, S.REJECTED})

NEXT_STATES: Final[Mapping[S, frozenset[S]]] = {
    S.SUBMITTED: frozenset({S.WORKING, S.INPUT_REQUIRED, S.AUTH_REQUIRED}) | _ENDS,
    # working → submitted: a person decided that the agent did not take the message, so it is typed again.
    S.WORKING: frozenset({S.SUBMITTED, S.WORKING, S.INPUT_REQUIRED, S.AUTH_REQUIRED}) | _ENDS,
    S.INPUT_REQUIRED: frozenset({S.SUBMITTED, S.WORKING, S.INPUT_REQUIRED, S.AUTH_REQUIRED}) | _ENDS,
    S.AUTH_REQUIRED: frozenset({S.SUBMITTED, S.WORKING, S.INPUT_REQUIRED, S.AUTH_REQUIRED}) | _ENDS,
    S.COMPLETED: frozenset(),
    S.FAILED: frozenset(),
    S.CANCELED: frozenset(),
    S.REJECTED: frozenset(),
}


def opened(event: TaskOpened) -> Task:
    """Returns the task that `event` opens; a task whose message is to be delivered starts with the receipt `queued`."""
    queued = Receipt(step=ReceiptStep.QUEUED, at=event.at, source="journal")
    return new_task(
        {
            "id": event.task_id,
            "agent_id": event.agent_id,
            "inbox": event.inbox,
            "context_id": event.context_id,
            "scope": event.scope,
            "dialect": event.dialect,
            "history": (event.message,),
            "created_at": event.at,
            "updated_at": event.at,
            "priority": event.priority,
            "queued": event.queued,
            "deadline": event.deadline,
            "receipts": (queued,) if event.queued else (),
            "metadata": event.metadata,
            "parent_id": event.parent_id,
            **reply_fields(event.metadata),
        },
    )


def apply(task: Task, *events: TaskEvent) -> Task:
    """Returns the task after `events`, applied in order.

    Raises:
        IllegalTransition: the state machine does not allow the change.
        TaskFinished: the task is finished and takes no more messages, artifacts, attention or steps.
    """
    if not events:
        return task
    return changed_by(task, events, _changes, {"updated_at": events[-1].at, "version": task.version + len(events)})


def replay(events: Iterable[TaskEvent]) -> Task:
    """Returns the task that a complete log describes; the log begins with `TaskOpened`.

    Raises IllegalTransition.
    """
    log = tuple(events)
    if not log:
        raise IllegalTransition("an empty log makes no task")
    first, *rest = log
    if not isinstance(first, TaskOpened):
        raise IllegalTransition("a log begins with TaskOpened")
    return apply(opened(first), *rest)


def _changes(task: Task, event: TaskEvent) -> dict[str, Any]:  # noqa: C901, PLR0911 - one case per event
    """Returns the fields of the task that `event` changes, except the version and time, which every event changes."""
    match event:
        case ReceiptChanged():
            return {"receipts": (*task.receipts, _next_step(task, event))}
        case StateChanged():
            return _change_state(task, event)
        case ArtifactAdded():
            _require_open(task)
            return {"artifacts": _with_artifact(task.artifacts, event)}
        case MessageAdded(message=message):
            _require_open(task)
            return {"history": (*task.history, message)}
        case MetadataChanged(metadata=metadata):
            merged = _merged(task.metadata, metadata)
            return {"metadata": merged, **changed_fields(merged, metadata)}
        case AttentionChanged(attention=attention):
            if attention:
                _require_open(task)
            return {"attention": attention}
        case TaskHidden():
            return {"hidden": True}
        case TaskOpened():
            raise IllegalTransition(f"task {task.id} is open already")
        case _:
            assert_never(event)


def _change_state(task: Task, event: StateChanged) -> dict[str, Any]:
    if event.state not in NEXT_STATES[task.state]:
        raise IllegalTransition(f"task {task.id} is {task.state.value}; it cannot become {event.state.value}")
    attention = "" if event.state.is_terminal else task.attention
    return {"state": event.state, "reason": event.reason, "note": event.note, "attention": attention}


def _next_step(task: Task, event: ReceiptChanged) -> Receipt:
    last = task.receipt
    settled = last is not None and last.step.is_final
    # A finished task may still get one final step, but no other: a canceled message must never be typed.
    if task.state.is_terminal and (settled or not event.step.is_final):
        raise TaskFinished(f"task {task.id} is {task.state.value}; its receipt cannot become {event.step.value}")
    return Receipt(step=event.step, at=event.at, source=event.source, evidence=event.evidence)


def _with_artifact(artifacts: tuple[Artifact, ...], event: ArtifactAdded) -> tuple[Artifact, ...]:
    new = event.artifact
    for index, known in enumerate(artifacts):
        if known.artifact_id == new.artifact_id:
            whole = replace(known, parts=known.parts + new.parts) if event.append else new
            return (*artifacts[:index], whole, *artifacts[index + 1 :])
    return (*artifacts, new)


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**old, **new}
    return {key: value for key, value in merged.items() if value is not None}


def _require_open(task: Task) -> None:
    if task.state.is_terminal:
        raise TaskFinished(f"task {task.id} is {task.state.value} and takes nothing more")
