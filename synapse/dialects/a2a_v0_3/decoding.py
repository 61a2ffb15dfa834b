"""From the words of A2A 0.3 to core requests. Each function raises InvalidRequest and nothing else."""

from __future__ import annotations

from typing import Any, Final

from synapse.core.message import FilePart, Json, Message, MessageId, Part, Role, TextPart
from synapse.core.requests import SendMessage
from synapse.core.wire_errors import InvalidField
from synapse.dialects.a2a_v0_3.paths import NAME
from synapse.dialects.a2a_v0_3.push import push_config
from synapse.dialects.a2a_v0_3.shapes import (
    FileShape,
    MessageShape,
    PartShape,
    ProtoFileShape,
    ProtoMessageShape,
    ProtoPartShape,
    ProtoSendShape,
    PushShape,
    SendShape,
)
from synapse.dialects.a2a_v0_3.words import data_part

_ROLES: Final = {"user": Role.USER, "agent": Role.AGENT, "ROLE_USER": Role.USER, "ROLE_AGENT": Role.AGENT}


def send_request(shape: SendShape) -> SendMessage:
    """The message of JSON-RPC, and the webhook that is told of it."""
    push = shape.configuration.push_notification_config if shape.configuration is not None else None
    spoken = shape.message
    message = Message(
        message_id=MessageId(spoken.message_id),
        role=_ROLES[spoken.role],
        parts=tuple([_part(part, index) for index, part in enumerate(spoken.parts)]),
        metadata=spoken.metadata,
        extensions=tuple(spoken.extensions),
        reference_task_ids=tuple(spoken.reference_task_ids),
    )
    return _send(message, spoken, shape.metadata, push)


def proto_send_request(shape: ProtoSendShape) -> SendMessage:
    """The message of REST."""
    push = shape.configuration.push_notification if shape.configuration is not None else None
    spoken = shape.message
    message = Message(
        message_id=MessageId(spoken.message_id),
        role=_ROLES[spoken.role],
        parts=tuple([_proto_part(part, index) for index, part in enumerate(spoken.content)]),
        metadata=spoken.metadata,
        extensions=tuple(spoken.extensions),
    )
    return _send(message, spoken, shape.metadata, push)


def _send(
    message: Message, spoken: MessageShape | ProtoMessageShape, metadata: Json, push: PushShape | None
) -> SendMessage:
    # Some keys of a task's metadata mean something to the agent's host. A stranger's stay apart from them.
    apart: dict[str, Any] = {"request": metadata} if metadata else {}
    return SendMessage(
        message=message,
        dialect=NAME,
        context_id=spoken.context_id,
        task_id=spoken.task_id,
        exact=True,
        metadata=apart,
        push=push_config(push) if push is not None else None,
    )


def _part(shape: PartShape, index: int) -> Part:
    place = f"message.parts[{index}]"
    part: Part
    match (shape.text, shape.file, shape.data):
        case (str() as text, None, None):
            part, kind = TextPart(text=text, metadata=shape.metadata), "text"
        case (None, FileShape() as file, None):
            part, kind = _file(file, shape.metadata, place), "file"
        case (None, None, dict() as data):
            part, kind = data_part(data, shape.metadata), "data"
        case _:
            raise InvalidField(place, "must have exactly one of 'text', 'file' and 'data'")
    if shape.kind != kind:
        raise InvalidField(f"{place}.kind", f"is '{shape.kind}', but the part has '{kind}'")
    return part


def _proto_part(shape: ProtoPartShape, index: int) -> Part:
    place = f"message.content[{index}]"
    match (shape.text, shape.file, shape.data):
        case (str() as text, None, None):
            return TextPart(text=text, metadata=shape.metadata)
        case (None, ProtoFileShape() as file, None):
            plain = FileShape(
                content=file.file_with_bytes, uri=file.file_with_uri, name=file.name, mime_type=file.mime_type
            )
            return _file(plain, shape.metadata, place)
        case (None, None, data) if data is not None:
            return data_part(data.data, shape.metadata)
        case _:
            raise InvalidField(place, "must have exactly one of 'text', 'file' and 'data'")


def _file(file: FileShape, metadata: Json, place: str) -> FilePart:
    if (file.content is None) == (file.uri is None):
        raise InvalidField(f"{place}.file", "must have either its bytes or its uri")
    return FilePart(
        content=file.content, url=file.uri or "", name=file.name, media_type=file.mime_type, metadata=metadata
    )
