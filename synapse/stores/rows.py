"""How events and tasks look as rows: compact JSON, moments as microseconds, file bytes as base64.

Fields that have their default are left out. The text is ASCII, so every string comes back as it was, even one that is
not valid Unicode.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from json import JSONDecoder, JSONEncoder
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
from synapse.core.message import Artifact, DataPart, FilePart, Json, Message, MessageId, Part, Role, TextPart
from synapse.core.receipt import Receipt, ReceiptStep
from synapse.core.task import DEFAULT_PRIORITY, Task, TaskId, TaskState

Fields = dict[str, Any]

# One encoder and decoder for all: making them costs more than a small event. There is nothing circular in an event.
compact_json: Final = JSONEncoder(separators=(",", ":"), check_circular=False).encode
_from_json: Final = JSONDecoder().decode
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def micros(moment: datetime) -> int:
    """Microseconds since 1970: exact, and in the order of time."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(micros: int) -> datetime:
    """The moment that `micros` stands for, in UTC."""
    return _EPOCH + timedelta(microseconds=micros)


def encode_event(event: TaskEvent) -> tuple[str, str]:  # noqa: C901, PLR0911 - one case per event is the point
    """Return the event's kind and body; its task and its time have columns of their own.

    Raises ValueError, TypeError or RecursionError for what JSON cannot hold.
    """
    match event:
        case TaskOpened():
            return "task_opened", compact_json(_opened_fields(event))
        case StateChanged(state=state, reason=reason, note=note):
            return "state_changed", _state_body(state, reason, note)
        case MessageAdded(message=message):
            return "message_added", compact_json({"message": _message_fields(message)})
        case ArtifactAdded(artifact=artifact, append=append, last_chunk=last):
            return "artifact_added", compact_json(
                {"artifact": _artifact_fields(artifact), "append": append, "last_chunk": last}
            )
        case ReceiptChanged(step=step, source=source, evidence=evidence):
            return "receipt_changed", _receipt_body(step, source, evidence)
        case MetadataChanged(metadata=metadata):
            return "metadata_changed", compact_json({"metadata": dict(metadata)})
        case AttentionChanged(attention=attention):
            return "attention_changed", compact_json({"attention": attention})
        case TaskHidden():
            return "task_hidden", "{}"
        case _:
            assert_never(event)


# These are the same for turn after turn, so their text is made once. Long ones would only fill the memory.
def _state_body(state: TaskState, reason: str, note: str) -> str:
    return (_state_text if len(note) > _SHORT else _known_state_text)(state, reason, note)


def _receipt_body(step: ReceiptStep, source: str, evidence: str) -> str:
    return (_receipt_text if len(evidence) > _SHORT else _known_receipt_text)(step, source, evidence)


def _state_text(state: TaskState, reason: str, note: str) -> str:
    return compact_json({"state": state.value, **_filled(reason=reason, note=note)})


def _receipt_text(step: ReceiptStep, source: str, evidence: str) -> str:
    return compact_json({"step": step.value, "source": source, "evidence": evidence})


_SHORT: Final = 200
_known_state_text: Final = lru_cache(maxsize=256)(_state_text)
_known_receipt_text: Final = lru_cache(maxsize=256)(_receipt_text)


def decode_event(kind: str, task_id: TaskId, at: int, body: str) -> TaskEvent:
    """Return the event of a row.

    Raises LookupError for an unknown kind, and LookupError, ValueError or TypeError for a damaged body.
    """
    return _DECODERS[kind](task_id, moment(at), _from_json(body))


def message_id_in(body: str) -> str:
    """Return the message id in the body of a `task_opened` or `message_added`."""
    message_id: str = _from_json(body)["message"]["message_id"]
    return message_id


def encode_task(task: Task) -> str:
    """Return the whole task as text."""
    return compact_json(
        {
            "id": task.id,
            "agent_id": task.agent_id,
            "inbox": task.inbox,
            "context_id": task.context_id,
            "scope": task.scope,
            "dialect": task.dialect,
            "state": task.state.value,
            "history": [_message_fields(message) for message in task.history],
            "created_at": micros(task.created_at),
            "updated_at": micros(task.updated_at),
            "version": task.version,
            "priority": task.priority,
            "queued": task.queued,
            "hidden": task.hidden,
            "deadline": micros(task.deadline) if task.deadline else None,
            "artifacts": [_artifact_fields(artifact) for artifact in task.artifacts],
            "receipts": [[one.step.value, micros(one.at), one.source, one.evidence] for one in task.receipts],
            **_filled(
                reason=task.reason,
                note=task.note,
                attention=task.attention,
                metadata=dict(task.metadata),
                parent_id=task.parent_id,
            ),
        }
    )


def decode_task(text: str) -> Task:
    """Return the task that `encode_task` wrote.

    Raises LookupError, ValueError or TypeError for damaged text.
    """
    fields = _from_json(text)
    return Task(
        id=TaskId(fields["id"]),
        agent_id=fields["agent_id"],
        inbox=fields["inbox"],
        context_id=fields["context_id"],
        scope=fields["scope"],
        dialect=fields["dialect"],
        state=TaskState(fields["state"]),
        history=tuple(_message(one) for one in fields["history"]),
        created_at=moment(fields["created_at"]),
        updated_at=moment(fields["updated_at"]),
        version=fields["version"],
        priority=fields["priority"],
        queued=fields["queued"],
        reason=fields.get("reason", ""),
        note=fields.get("note", ""),
        deadline=_deadline(fields),
        artifacts=tuple(_artifact(one) for one in fields["artifacts"]),
        receipts=tuple(_receipt(*one) for one in fields["receipts"]),
        attention=fields.get("attention", ""),
        metadata=fields.get("metadata", {}),
        parent_id=fields.get("parent_id", ""),
        hidden=fields["hidden"],
    )


def _filled(**fields: Any) -> Fields:
    """The fields that say something; an empty text, list or object is what their absence means."""
    return {name: value for name, value in fields.items() if value}


def _opened_fields(event: TaskOpened) -> Fields:
    fields: Fields = {
        "agent_id": event.agent_id,
        "inbox": event.inbox,
        "context_id": event.context_id,
        "scope": event.scope,
        "dialect": event.dialect,
        "message": _message_fields(event.message),
        **_filled(metadata=dict(event.metadata), parent_id=event.parent_id),
    }
    if event.priority != DEFAULT_PRIORITY:
        fields["priority"] = event.priority
    if not event.queued:
        fields["queued"] = False
    if event.deadline is not None:
        fields["deadline"] = micros(event.deadline)
    return fields


def _message_fields(message: Message) -> Fields:
    fields: Fields = {
        "message_id": message.message_id,
        "role": message.role.value,
        "parts": [_part_fields(part) for part in message.parts],
    }
    if message.metadata or message.extensions or message.reference_task_ids:
        fields |= _filled(
            metadata=dict(message.metadata),
            extensions=message.extensions,
            reference_task_ids=message.reference_task_ids,
        )
    return fields


def _artifact_fields(artifact: Artifact) -> Fields:
    return {
        "artifact_id": artifact.artifact_id,
        "parts": [_part_fields(part) for part in artifact.parts],
        **_filled(
            name=artifact.name,
            description=artifact.description,
            metadata=dict(artifact.metadata),
            extensions=artifact.extensions,
        ),
    }


def _part_fields(part: Part) -> Fields:
    fields: Fields = {}
    # Most parts have none of these, and nothing is written more often than parts.
    if part.name or part.media_type or part.metadata:
        fields = _filled(name=part.name, media_type=part.media_type, metadata=dict(part.metadata))
    match part:
        case TextPart(text=text):
            fields["text"] = text
        case FilePart(content=content, url=url):
            fields["url"] = url
            if content is not None:
                fields["bytes"] = b64encode(content).decode("ascii")
        case DataPart(data=data):
            fields["data"] = data
        case _:
            assert_never(part)
    return fields


def _message(fields: Fields) -> Message:
    return Message(
        message_id=MessageId(fields["message_id"]),
        role=Role(fields["role"]),
        parts=tuple(_part(one) for one in fields["parts"]),
        metadata=fields.get("metadata", {}),
        extensions=tuple(fields.get("extensions", ())),
        reference_task_ids=tuple(fields.get("reference_task_ids", ())),
    )


def _artifact(fields: Fields) -> Artifact:
    return Artifact(
        artifact_id=fields["artifact_id"],
        parts=tuple(_part(one) for one in fields["parts"]),
        name=fields.get("name", ""),
        description=fields.get("description", ""),
        metadata=fields.get("metadata", {}),
        extensions=tuple(fields.get("extensions", ())),
    )


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
    return Receipt(step=ReceiptStep(step), at=moment(at), source=source, evidence=evidence)


def _deadline(fields: Fields) -> datetime | None:
    return moment(fields["deadline"]) if fields.get("deadline") is not None else None


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
        deadline=_deadline(fields),
        metadata=fields.get("metadata", {}),
        parent_id=fields.get("parent_id", ""),
    )


def _state_changed(task_id: TaskId, at: datetime, fields: Fields) -> StateChanged:
    return StateChanged(
        task_id=task_id,
        at=at,
        state=TaskState(fields["state"]),
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
        step=ReceiptStep(fields["step"]),
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
KINDS: Final = frozenset(_DECODERS)
