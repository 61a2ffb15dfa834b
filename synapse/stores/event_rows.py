"""How the events of one append look as text: a list with the kind, the moment and the fields of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, assert_never

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
from synapse.core.receipt import ReceiptStep
from synapse.core.task import DEFAULT_PRIORITY, TaskId, TaskState
from synapse.stores.compact_json import compact_json, quoted
from synapse.stores.rows import (
    STATES,
    STEPS,
    Fields,
    artifact_of,
    artifact_text,
    deadline_of,
    deadline_text,
    filled_text,
    message_of,
    message_text,
    micros,
    moment,
)

EventRow = Sequence[Any]
"""Kind, moment and fields, as they come out of JSON."""


def encode_events(events: Iterable[TaskEvent]) -> str:
    """Return the text of events; the task that they belong to is not in it.

    Raises ValueError, TypeError or RecursionError for what JSON cannot hold.
    """
    texts: list[str] = []
    at, when = None, 0
    for event in events:
        if event.at is not at:  # what happens together has the same moment
            at, when = event.at, micros(event.at)
        texts.append(_event_text(event, when))
    return f"[{','.join(texts)}]"


def decode_event(task_id: TaskId, row: EventRow) -> TaskEvent:
    """Return one event of the list.

    Raises LookupError, ValueError or TypeError for a damaged row; see `unknown_kind`.
    """
    kind, at, fields = row
    return _DECODERS[kind](task_id, moment(at), fields)


def unknown_kind(row: EventRow) -> str:
    """The kind of an event that only a newer Synapse knows, or an empty string."""
    match row:
        case [str(kind), _, _] if kind not in _DECODERS:
            return kind
        case _:
            return ""


def _event_text(event: TaskEvent, at: int) -> str:  # noqa: C901, PLR0911 - one case per event is the point
    match event:
        case ReceiptChanged():
            say = _receipt_text if len(event.evidence) > _SHORT else _known_receipt_text
            return f'["receipt_changed",{at},{say(event.step, event.source, event.evidence)}]'
        case StateChanged():
            say_state = _state_text if len(event.note) > _SHORT else _known_state_text
            return f'["state_changed",{at},{say_state(event.state, event.reason, event.note)}]'
        case TaskOpened():
            return f'["task_opened",{at},{_opened_text(event)}]'
        case ArtifactAdded(artifact=artifact, append=append, last_chunk=last):
            how = f'"append":{_JSON_BOOL[append]},"last_chunk":{_JSON_BOOL[last]}'
            return f'["artifact_added",{at},{{"artifact":{artifact_text(artifact)},{how}}}]'
        case MessageAdded(message=message):
            return f'["message_added",{at},{{"message":{message_text(message)}}}]'
        case MetadataChanged(metadata=metadata):
            return f'["metadata_changed",{at},{{"metadata":{compact_json(dict(metadata))}}}]'
        case AttentionChanged(attention=attention):
            return f'["attention_changed",{at},{{"attention":{quoted(attention)}}}]'
        case TaskHidden():
            return f'["task_hidden",{at},{{}}]'
        case _:
            assert_never(event)


def _opened_text(event: TaskOpened) -> str:
    whose = _known_whose(event.agent_id, event.inbox, event.scope, event.dialect)
    more = f',"metadata":{compact_json(dict(event.metadata))}' if event.metadata else ""
    if event.parent_id:
        more += f',"parent_id":{quoted(event.parent_id)}'
    if event.priority != DEFAULT_PRIORITY:
        more += f',"priority":{event.priority}'
    if not event.queued:
        more += ',"queued":false'
    if event.deadline is not None:
        more += f",{deadline_text(event.deadline)}"
    return f'{{{whose},"context_id":{quoted(event.context_id)},"message":{message_text(event.message)}{more}}}'


def _whose_text(agent_id: str, inbox: str, scope: str, dialect: str) -> str:
    return compact_json({"agent_id": agent_id, "inbox": inbox, "scope": scope, "dialect": dialect})[1:-1]


def _state_text(state: TaskState, reason: str, note: str) -> str:
    return f'{{"state":{quoted(state)}{filled_text(reason=reason, note=note)}}}'


def _receipt_text(step: ReceiptStep, source: str, evidence: str) -> str:
    return compact_json({"step": step.value, "source": source, "evidence": evidence})


# These are the same for turn after turn, so their text is made once. Long ones would only fill the memory.
_SHORT: Final = 200
_known_whose: Final = lru_cache(maxsize=256)(_whose_text)
_known_state_text: Final = lru_cache(maxsize=256)(_state_text)
_known_receipt_text: Final = lru_cache(maxsize=256)(_receipt_text)
_JSON_BOOL: Final = {False: "false", True: "true"}


def _opened(task_id: TaskId, at: datetime, fields: Fields) -> TaskOpened:
    return TaskOpened(
        task_id=task_id,
        at=at,
        agent_id=fields["agent_id"],
        inbox=fields["inbox"],
        context_id=fields["context_id"],
        scope=fields["scope"],
        dialect=fields["dialect"],
        message=message_of(fields["message"]),
        priority=fields.get("priority", DEFAULT_PRIORITY),
        queued=fields.get("queued", True),
        deadline=deadline_of(fields),
        metadata=fields.get("metadata", {}),
        parent_id=fields.get("parent_id", ""),
    )


def _state_changed(task_id: TaskId, at: datetime, fields: Fields) -> StateChanged:
    return StateChanged(
        task_id=task_id,
        at=at,
        state=STATES[fields["state"]],
        reason=fields.get("reason", ""),
        note=fields.get("note", ""),
    )


def _artifact_added(task_id: TaskId, at: datetime, fields: Fields) -> ArtifactAdded:
    return ArtifactAdded(
        task_id=task_id,
        at=at,
        artifact=artifact_of(fields["artifact"]),
        append=fields["append"],
        last_chunk=fields["last_chunk"],
    )


def _receipt_changed(task_id: TaskId, at: datetime, fields: Fields) -> ReceiptChanged:
    return ReceiptChanged(
        task_id=task_id,
        at=at,
        step=STEPS[fields["step"]],
        source=fields["source"],
        evidence=fields["evidence"],
    )


_DECODERS: Final[Mapping[str, Callable[[TaskId, datetime, Fields], TaskEvent]]] = {
    "task_opened": _opened,
    "state_changed": _state_changed,
    "message_added": lambda task_id, at, fields: MessageAdded(
        task_id=task_id, at=at, message=message_of(fields["message"])
    ),
    "artifact_added": _artifact_added,
    "receipt_changed": _receipt_changed,
    "metadata_changed": lambda task_id, at, fields: MetadataChanged(
        task_id=task_id, at=at, metadata=fields["metadata"]
    ),
    "attention_changed": lambda task_id, at, fields: AttentionChanged(
        task_id=task_id, at=at, attention=fields["attention"]
    ),
    "task_hidden": lambda task_id, at, _fields: TaskHidden(task_id=task_id, at=at),
}
