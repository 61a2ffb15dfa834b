"""Converts tasks and events to the text that the store keeps, and back.

A snapshot of a task is an object; the events of an append are a list with the kind, the time and the fields of each.
Times are microseconds since 1970, bytes are base64, and fields with their default value are left out.

The text is compact JSON, written and read by msgspec, or by `json` where msgspec would change or refuse a value:

    lone surrogate              msgspec refuses it; `json` writes and reads it as an escape
    infinity, not a number      msgspec writes null, which would be read as None
    keys that are not strings   msgspec refuses some that `json` accepts

Both read what the other writes, so a row may be written by either.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, assert_never

import msgspec

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
from synapse.core.message import Artifact, DataPart, FilePart, Json, Message, MessageId, Part, Role, TextPart
from synapse.core.task import DEFAULT_PRIORITY, Receipt, ReceiptStep, Task, TaskId, TaskState, new_task
from synapse.core.task_metadata import reply_fields
from synapse.core.types import BootTime, Deadline

Fields = dict[str, Any]
EventRow = Sequence[Any]
"""Kind, time and fields of an event, as JSON has them."""

UNREADABLE: Final = (LookupError, ValueError, TypeError, AttributeError, OverflowError, RecursionError)
"""What reading raises for a text that this module has not written, as one of another machine."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
# A look-up in a table takes a tenth of the time of `TaskState(value)`.
_STATES: Final = {one.value: one for one in TaskState}
_STEPS: Final = {one.value: one for one in ReceiptStep}
_ROLES: Final = {one.value: one for one in Role}
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode
# No circularity check: events contain no cycles, and nesting that is too deep raises RecursionError.
_encode_any: Final = partial(json.dumps, separators=(",", ":"), check_circular=False)


def encode_task(task: Task) -> str:
    """Returns the text of a snapshot: the whole task as an object.

    Raises ValueError, TypeError or RecursionError for what JSON cannot hold.
    """
    fields: Fields = {
        "id": task.id,
        "agent_id": task.agent_id,
        "inbox": task.inbox,
        "context_id": task.context_id,
        "scope": task.scope,
        "dialect": task.dialect,
        "state": task.state.value,
        "created_at": micros(task.created_at),
        "updated_at": micros(task.updated_at),
        "version": task.version,
        "priority": task.priority,
        "queued": task.queued,
        "hidden": task.hidden,
        **_deadline_fields(task.deadline),
        "receipts": [[one.step.value, micros(one.at), one.source, one.evidence] for one in task.receipts],
        "history": [_message_fields(one) for one in task.history],
        "artifacts": [_artifact_fields(one) for one in task.artifacts],
        **_without_empty(
            reason=task.reason,
            note=task.note,
            attention=task.attention,
            metadata=task.metadata,
            parent_id=task.parent_id,
        ),
    }
    return to_json(fields)


def decode_task(fields: Fields) -> Task:
    """Returns the task of a snapshot.

    Raises LookupError, ValueError or TypeError for damaged text.
    """
    metadata: Json = fields.get("metadata", {})
    return new_task(
        {
            "id": TaskId(fields["id"]),
            "agent_id": fields["agent_id"],
            "inbox": fields["inbox"],
            "context_id": fields["context_id"],
            "scope": fields["scope"],
            "dialect": fields["dialect"],
            "state": _STATES[fields["state"]],
            "history": tuple([_message(one) for one in fields["history"]]),
            "created_at": moment(fields["created_at"]),
            "updated_at": moment(fields["updated_at"]),
            "version": fields["version"],
            "priority": fields["priority"],
            "queued": fields["queued"],
            "reason": fields.get("reason", ""),
            "note": fields.get("note", ""),
            "deadline": deadline_of(fields),
            "artifacts": tuple([_artifact(one) for one in fields["artifacts"]]),
            "receipts": tuple([_receipt(*one) for one in fields["receipts"]]),
            "attention": fields.get("attention", ""),
            "metadata": metadata,
            "parent_id": fields.get("parent_id", ""),
            "hidden": fields["hidden"],
            **reply_fields(metadata),
        }
    )


def encode_events(events: Iterable[TaskEvent]) -> str:
    """Returns the text of an append. It does not contain the id of the task.

    Raises ValueError, TypeError or RecursionError for what JSON cannot hold.
    """
    rows: list[EventRow] = []
    at, when = None, 0
    for event in events:
        if event.at is not at:  # events of one append usually share the datetime object
            at, when = event.at, micros(event.at)
        rows.append((_KINDS[type(event)], when, _event_fields(event)))
    return to_json(rows)


def encode_parts(parts: Iterable[Part]) -> str:
    """Returns the text of the parts of a message or an artifact, as in the text of its event."""
    return to_json([_part_fields(part) for part in parts])


def decode_event(task_id: TaskId, row: EventRow) -> TaskEvent:
    """Returns one event of an append.

    Raises LookupError, ValueError or TypeError for a damaged row, and for one of an unknown kind.
    """
    kind, at, fields = row
    return _DECODERS[kind](task_id, moment(at), fields)


def unknown_kind(row: EventRow) -> str:
    """Returns the kind of an event that only a newer Synapse knows, or ""."""
    match row:
        case [str(kind), _, _] if kind not in _DECODERS:
            return kind
        case _:
            return ""


def deadline_of(fields: Fields) -> Deadline | None:
    """Returns the deadline in the fields of a task or an event, if it has one."""
    if fields.get("deadline") is None:
        return None
    boot = fields.get("boot_deadline")
    return Deadline(moment(fields["deadline"]), BootTime(*boot) if boot is not None else None)


def to_json(value: object) -> str:
    """Returns `value` as compact JSON.

    Raises ValueError, TypeError or RecursionError for what JSON cannot hold.
    """
    try:
        text = _encode(value).decode()
    except (UnicodeEncodeError, TypeError):
        return _encode_any(value)
    # A null may stand for infinity or not-a-number. Most tasks contain no null, so this is rare.
    return _encode_any(value) if "null" in text else text


def read_task(text: str) -> Task:
    """Returns the task of a text that another machine has sent. Raises one of UNREADABLE."""
    task = decode_task(from_json(text))
    if not task.history:
        raise ValueError("it has no message")
    return task


def read_events(task_id: TaskId, text: str) -> list[TaskEvent]:
    """Returns the events of a text that another machine has sent. Raises one of UNREADABLE."""
    rows: list[EventRow] = from_json(text)
    return [decode_event(task_id, row) for row in rows]


def from_json(text: str) -> Any:
    """Returns the value of a JSON text. Raises ValueError or RecursionError."""
    try:
        return _decode(text)
    except msgspec.MsgspecError:
        return json.loads(text)


def micros(moment: datetime) -> int:
    """Returns the time as microseconds since 1970: exact, and ordered like the times."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(micros: int) -> datetime:
    """Returns the time of `micros`, in UTC."""
    return _EPOCH + micros * _MICROSECOND


def _message_fields(message: Message) -> Fields:
    fields: Fields = {
        "message_id": message.message_id,
        "role": message.role.value,
        "parts": [_part_fields(part) for part in message.parts],
    }
    if message.metadata or message.extensions or message.reference_task_ids:
        fields |= _without_empty(
            metadata=message.metadata,
            extensions=message.extensions,
            reference_task_ids=message.reference_task_ids,
        )
    return fields


def _message(fields: Fields) -> Message:
    return Message(
        message_id=MessageId(fields["message_id"]),
        role=_ROLES[fields["role"]],
        parts=tuple([_part(one) for one in fields["parts"]]),
        metadata=fields.get("metadata", {}),
        extensions=tuple(fields.get("extensions", ())),
        reference_task_ids=tuple(fields.get("reference_task_ids", ())),
    )


def _artifact_fields(artifact: Artifact) -> Fields:
    fields: Fields = {
        "artifact_id": artifact.artifact_id,
        "parts": [_part_fields(part) for part in artifact.parts],
    }
    if artifact.name or artifact.description or artifact.metadata or artifact.extensions:
        fields |= _without_empty(
            name=artifact.name,
            description=artifact.description,
            metadata=artifact.metadata,
            extensions=artifact.extensions,
        )
    return fields


def _artifact(fields: Fields) -> Artifact:
    return Artifact(
        artifact_id=fields["artifact_id"],
        parts=tuple([_part(one) for one in fields["parts"]]),
        name=fields.get("name", ""),
        description=fields.get("description", ""),
        metadata=fields.get("metadata", {}),
        extensions=tuple(fields.get("extensions", ())),
    )


def _deadline_fields(deadline: Deadline | None) -> Fields:
    """Returns the deadline by both clocks. Earlier versions know only the wall clock, and ignore the second field."""
    if deadline is None:
        return {}
    fields: Fields = {"deadline": micros(deadline.at)}
    if deadline.boot is not None:
        fields["boot_deadline"] = deadline.boot
    return fields


def _part_fields(part: Part) -> Fields:
    fields: Fields
    match part:
        case TextPart(text=text):
            fields = {"text": text}
        case FilePart(content=None, url=url):
            fields = {"url": url}
        case FilePart(content=content, url=url):
            fields = {"url": url, "bytes": b64encode(content or b"").decode("ascii")}
        case DataPart(data=data):
            fields = {"data": data}
        case _:
            assert_never(part)
    # Most parts have none of these.
    if part.name or part.media_type or part.metadata:
        fields |= _without_empty(name=part.name, media_type=part.media_type, metadata=part.metadata)
    return fields


def _part(fields: Fields) -> Part:
    name, media_type = fields.get("name", ""), fields.get("media_type", "")
    metadata: Json = fields.get("metadata", {})
    if "text" in fields:
        return TextPart(text=fields["text"], name=name, media_type=media_type, metadata=metadata)
    if "url" in fields:
        content = b64decode(fields["bytes"]) if "bytes" in fields else None
        return FilePart(content=content, url=fields["url"], name=name, media_type=media_type, metadata=metadata)
    return DataPart(data=fields["data"], name=name, media_type=media_type, metadata=metadata)


def _receipt(step: str, at: int, source: str, evidence: str) -> Receipt:
    return Receipt(step=_STEPS[step], at=moment(at), source=source, evidence=evidence)


def _without_empty(**fields: object) -> Fields:
    """Returns the fields that are not empty; decoding a missing field gives the empty value."""
    return {name: value for name, value in fields.items() if value}


def _event_fields(event: TaskEvent) -> Fields:  # noqa: C901, PLR0911 - one case for each event
    match event:
        case ReceiptChanged():
            return {"step": event.step.value, "source": event.source, "evidence": event.evidence}
        case StateChanged():
            state: Fields = {"state": event.state.value}
            return state | _without_empty(reason=event.reason, note=event.note) if event.reason or event.note else state
        case TaskOpened():
            return _opened_fields(event)
        case ArtifactAdded():
            artifact = _artifact_fields(event.artifact)
            return {"artifact": artifact, "append": event.append, "last_chunk": event.last_chunk}
        case MessageAdded():
            return {"message": _message_fields(event.message)}
        case MetadataChanged():
            return {"metadata": event.metadata}
        case AttentionChanged():
            return {"attention": event.attention}
        case TaskHidden():
            return {}
        case _:
            assert_never(event)


def _opened_fields(event: TaskOpened) -> Fields:
    fields: Fields = {
        "agent_id": event.agent_id,
        "inbox": event.inbox,
        "scope": event.scope,
        "dialect": event.dialect,
        "context_id": event.context_id,
        "message": _message_fields(event.message),
    }
    if event.metadata or event.parent_id:
        fields |= _without_empty(metadata=event.metadata, parent_id=event.parent_id)
    if event.deadline is not None:
        fields |= _deadline_fields(event.deadline)
    if event.priority != DEFAULT_PRIORITY:
        fields["priority"] = event.priority
    if not event.queued:
        fields["queued"] = False
    return fields


def _opened(task_id: TaskId, at: datetime, fields: Fields) -> TaskOpened:
    return TaskOpened(
        task_id=task_id,
        at=at,
        agent_id=fields["agent_id"],
        inbox=fields["inbox"],
        context_id=fields["context_id"],
        scope=fields["scope"],
        dialect=fields["dialect"],
        message=_message(fields["message"]),
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
        state=_STATES[fields["state"]],
        reason=fields.get("reason", ""),
        note=fields.get("note", ""),
    )


def _artifact_added(task_id: TaskId, at: datetime, fields: Fields) -> ArtifactAdded:
    return ArtifactAdded(
        task_id=task_id,
        at=at,
        artifact=_artifact(fields["artifact"]),
        append=fields["append"],
        last_chunk=fields["last_chunk"],
    )


def _receipt_changed(task_id: TaskId, at: datetime, fields: Fields) -> ReceiptChanged:
    return ReceiptChanged(
        task_id=task_id,
        at=at,
        step=_STEPS[fields["step"]],
        source=fields["source"],
        evidence=fields["evidence"],
    )


_DECODERS: Final[Mapping[str, Callable[[TaskId, datetime, Fields], TaskEvent]]] = {
    "task_opened": _opened,
    "state_changed": _state_changed,
    "message_added": lambda task_id, at, fields: MessageAdded(
        task_id=task_id, at=at, message=_message(fields["message"])
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
_KINDS: Final[Mapping[type[TaskEvent], str]] = {
    TaskOpened: "task_opened",
    StateChanged: "state_changed",
    MessageAdded: "message_added",
    ArtifactAdded: "artifact_added",
    ReceiptChanged: "receipt_changed",
    MetadataChanged: "metadata_changed",
    AttentionChanged: "attention_changed",
    TaskHidden: "task_hidden",
}
