"""How tasks and what is said in them look as text: compact JSON, moments as microseconds, file bytes as base64.

Fields that have their default are left out. The text is put together here and not by an encoder of objects: most of it
is the same for every task, and nothing is written more often.

How the events of one append look as text: a list with the kind, the moment and the fields of each.

JSON as the store writes it: nothing between the words, and ASCII, so that every string comes back as it was.

That holds even for one that is not valid Unicode.
"""

from __future__ import annotations

import json.encoder
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from synapse.core.task import DEFAULT_PRIORITY, Receipt, ReceiptStep, Task, TaskId, TaskState
from synapse.core.types import BootTime, Deadline

Fields = dict[str, Any]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
# To look a member up takes a tenth of the time that its class takes to find it.
STATES: Final = {one.value: one for one in TaskState}
STEPS: Final = {one.value: one for one in ReceiptStep}
_ROLES: Final = {one.value: one for one in Role}


def micros(moment: datetime) -> int:
    """Microseconds since 1970: exact, and in the order of time."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(micros: int) -> datetime:
    """The moment that `micros` stands for, in UTC."""
    return _EPOCH + micros * _MICROSECOND


def encode_task(task: Task) -> str:
    """Return the whole task as text: an object, where events are a list.

    Raises ValueError, TypeError or RecursionError for what JSON cannot hold.
    """
    history = ",".join([message_text(one) for one in task.history])
    artifacts = ",".join([artifact_text(one) for one in task.artifacts])
    fixed = {
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
        "deadline": micros(task.deadline.at) if task.deadline else None,
        "boot_deadline": task.deadline.boot if task.deadline else None,
        "receipts": [[one.step.value, micros(one.at), one.source, one.evidence] for one in task.receipts],
    }
    more = filled_text(
        reason=task.reason,
        note=task.note,
        attention=task.attention,
        metadata=dict(task.metadata),
        parent_id=task.parent_id,
    )
    return f'{compact_json(fixed)[:-1]},"history":[{history}],"artifacts":[{artifacts}]{more}}}'


def decode_task(fields: Fields) -> Task:
    """Return the task whose text `encode_task` wrote.

    Raises LookupError, ValueError or TypeError for damaged text.
    """
    return Task(
        id=TaskId(fields["id"]),
        agent_id=fields["agent_id"],
        inbox=fields["inbox"],
        context_id=fields["context_id"],
        scope=fields["scope"],
        dialect=fields["dialect"],
        state=STATES[fields["state"]],
        history=tuple([message_of(one) for one in fields["history"]]),
        created_at=moment(fields["created_at"]),
        updated_at=moment(fields["updated_at"]),
        version=fields["version"],
        priority=fields["priority"],
        queued=fields["queued"],
        reason=fields.get("reason", ""),
        note=fields.get("note", ""),
        deadline=deadline_of(fields),
        artifacts=tuple([artifact_of(one) for one in fields["artifacts"]]),
        receipts=tuple([_receipt(*one) for one in fields["receipts"]]),
        attention=fields.get("attention", ""),
        metadata=fields.get("metadata", {}),
        parent_id=fields.get("parent_id", ""),
        hidden=fields["hidden"],
    )


def filled_text(**fields: Any) -> str:
    """The fields that say something, to follow others; an empty text, list or object is what their absence means."""
    return "".join([f',"{name}":{_text(value)}' for name, value in fields.items() if value])


def message_text(message: Message) -> str:
    parts = ",".join([_part_text(part) for part in message.parts])
    more = ""
    if message.metadata or message.extensions or message.reference_task_ids:
        more = filled_text(
            metadata=dict(message.metadata),
            extensions=message.extensions,
            reference_task_ids=message.reference_task_ids,
        )
    return f'{{"message_id":{quoted(message.message_id)},"role":{quoted(message.role)},"parts":[{parts}]{more}}}'


def message_of(fields: Fields) -> Message:
    return Message(
        message_id=MessageId(fields["message_id"]),
        role=_ROLES[fields["role"]],
        parts=tuple([_part(one) for one in fields["parts"]]),
        metadata=fields.get("metadata", {}),
        extensions=tuple(fields.get("extensions", ())),
        reference_task_ids=tuple(fields.get("reference_task_ids", ())),
    )


def artifact_text(artifact: Artifact) -> str:
    parts = ",".join([_part_text(part) for part in artifact.parts])
    more = f',"name":{quoted(artifact.name)}' if artifact.name else ""
    if artifact.description:
        more += f',"description":{quoted(artifact.description)}'
    if artifact.metadata:
        more += f',"metadata":{compact_json(dict(artifact.metadata))}'
    if artifact.extensions:
        more += f',"extensions":{compact_json(artifact.extensions)}'
    return f'{{"artifact_id":{quoted(artifact.artifact_id)},"parts":[{parts}]{more}}}'


def artifact_of(fields: Fields) -> Artifact:
    return Artifact(
        artifact_id=fields["artifact_id"],
        parts=tuple([_part(one) for one in fields["parts"]]),
        name=fields.get("name", ""),
        description=fields.get("description", ""),
        metadata=fields.get("metadata", {}),
        extensions=tuple(fields.get("extensions", ())),
    )


def deadline_text(deadline: Deadline) -> str:
    """By both clocks; versions that know only the wall clock read the first and pass over the second."""
    boot = f',"boot_deadline":{compact_json(deadline.boot)}' if deadline.boot is not None else ""
    return f'"deadline":{micros(deadline.at)}{boot}'


def deadline_of(fields: Fields) -> Deadline | None:
    if fields.get("deadline") is None:
        return None
    boot = fields.get("boot_deadline")
    return Deadline(moment(fields["deadline"]), BootTime(*boot) if boot is not None else None)


def _text(value: object) -> str:
    return quoted(value) if isinstance(value, str) else compact_json(value)


def _part_text(part: Part) -> str:
    more = ""
    # Most parts have none of these.
    if part.name or part.media_type or part.metadata:
        more = filled_text(name=part.name, media_type=part.media_type, metadata=dict(part.metadata))
    match part:
        case TextPart(text=text):
            return f'{{"text":{quoted(text)}{more}}}'
        case FilePart(content=None, url=url):
            return f'{{"url":{quoted(url)}{more}}}'
        case FilePart(content=content, url=url):
            # base64 has nothing that needs to be quoted.
            return f'{{"url":{quoted(url)},"bytes":"{b64encode(content or b"").decode("ascii")}"{more}}}'
        case DataPart(data=data):
            return f'{{"data":{compact_json(data)}{more}}}'
        case _:
            assert_never(part)


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
    return Receipt(step=STEPS[step], at=moment(at), source=source, evidence=evidence)


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


quoted: Final = json.encoder.encode_basestring_ascii
"""A string as JSON. Raises TypeError for anything else."""
from_json: Final[Callable[[str], Any]] = JSONDecoder().decode


def _made_once() -> Callable[[object], str]:
    # There is nothing circular in an event, and what is nested too deeply is told.
    encoder = JSONEncoder(separators=(",", ":"), check_circular=False)
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return encoder.encode
    # `JSONEncoder.encode` makes one of these for every text, which takes as long as writing a small one.
    pieces = make(None, encoder.default, quoted, None, ":", ",", False, False, True)
    return lambda value: "".join(pieces(value, 0))


compact_json: Final = _made_once()
"""Raises ValueError, TypeError or RecursionError for what JSON cannot hold."""
