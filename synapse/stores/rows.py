"""How tasks and what is said in them look as text: compact JSON, moments as microseconds, file bytes as base64.

Fields that have their default are left out. The text is put together here and not by an encoder of objects: most of it
is the same for every task, and nothing is written more often.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta
from typing import Any, Final, assert_never

from synapse.core.clock import BootTime, Deadline
from synapse.core.message import Artifact, DataPart, FilePart, Json, Message, MessageId, Part, Role, TextPart
from synapse.core.receipt import Receipt, ReceiptStep
from synapse.core.task import Task, TaskId, TaskState
from synapse.stores.compact_json import compact_json, quoted

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
