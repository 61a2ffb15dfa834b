"""Decodes requests of A2A 0.3 into core requests. Every function raises InvalidRequest and no other error.

JSON-RPC has the shapes of the JSON schema, REST those of the protobuf (`Proto…`).
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from synapse.core.errors import InvalidField
from synapse.core.message import DataPart, FilePart, Json, Message, MessageId, Part, Role, TextPart
from synapse.core.push import PushConfig, chosen_scheme
from synapse.core.requests import SendMessage
from synapse.dialects.a2a_v0_3.encode import NOT_AN_OBJECT
from synapse.dialects.paths import A2A_V0_3
from synapse.dialects.proto_json import ProtoReader, Spellings

Name = Annotated[str, msgspec.Meta(max_length=256)]
"""An id or a name: short enough to be a key."""
GivenName = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Address = Annotated[str, msgspec.Meta(max_length=4096)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Names = Annotated[list[Address], msgspec.Meta(max_length=1000)]
Metadata = dict[str, Any]


class FileShape(msgspec.Struct, rename="camel"):
    """A file of JSON-RPC: `bytes` or `uri`."""

    content: bytes | None = msgspec.field(default=None, name="bytes")
    uri: Address | None = None
    name: Name = ""
    mime_type: Name = ""


class PartShape(msgspec.Struct, rename="camel"):
    """A part of JSON-RPC: exactly one of `text`, `file` and `data`, and `kind` says which."""

    kind: Literal["text", "file", "data"]
    text: str | None = None
    file: FileShape | None = None
    data: dict[str, Any] | None = None
    metadata: Metadata = {}


class MessageShape(msgspec.Struct, rename="camel"):
    message_id: GivenName
    role: Literal["user", "agent"]
    parts: Annotated[list[PartShape], msgspec.Meta(min_length=1, max_length=1000)]
    context_id: Name = ""
    task_id: Name = ""
    metadata: Metadata = {}
    extensions: Names = []
    reference_task_ids: Names = []


class AuthenticationShape(msgspec.Struct):
    schemes: Names = []
    credentials: Address = ""


class PushShape(msgspec.Struct):
    """A PushNotificationConfig, in JSON-RPC and in REST."""

    url: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
    id: Name = ""
    token: Address = ""
    authentication: AuthenticationShape | None = None


class ConfigurationShape(msgspec.Struct, rename="camel"):
    push_notification_config: PushShape | None = None
    history_length: Count | None = None
    blocking: bool | None = None


class SendShape(msgspec.Struct):
    message: MessageShape
    configuration: ConfigurationShape | None = None
    metadata: Metadata = {}


class ProtoFileShape(msgspec.Struct, rename="camel"):
    """A file of REST."""

    file_with_bytes: bytes | None = None
    file_with_uri: Address | None = None
    name: Name = ""
    mime_type: Name = ""


class ProtoDataShape(msgspec.Struct):
    data: dict[str, Any]


class ProtoPartShape(msgspec.Struct):
    """A part of REST: exactly one of `text`, `file` and `data`."""

    text: str | None = None
    file: ProtoFileShape | None = None
    data: ProtoDataShape | None = None
    metadata: Metadata = {}


class ProtoMessageShape(msgspec.Struct, rename="camel"):
    message_id: GivenName
    role: Literal["ROLE_USER", "ROLE_AGENT"]
    content: Annotated[list[ProtoPartShape], msgspec.Meta(min_length=1, max_length=1000)]
    context_id: Name = ""
    task_id: Name = ""
    metadata: Metadata = {}
    extensions: Names = []


class ProtoConfigurationShape(msgspec.Struct, rename="camel"):
    push_notification: PushShape | None = None
    history_length: Count | None = None
    blocking: bool = False


class ProtoSendShape(msgspec.Struct):
    message: ProtoMessageShape
    configuration: ProtoConfigurationShape | None = None
    metadata: Metadata = {}


class GetShape(msgspec.Struct, rename="camel"):
    id: GivenName
    history_length: Count | None = None


class TaskShape(msgspec.Struct):
    """A request with no field but the task's id: cancel, resubscribe."""

    id: GivenName


_SCHEMA: Final = Spellings(numbers=frozenset({"historyLength"}), binary=frozenset({"bytes"}))
_PROTO: Final = Spellings(
    # The protobuf calls the message to send `request`.
    renamed={"request": "message"},
    numbers=frozenset({"historyLength"}),
    enums={"role": {1: "ROLE_USER", 2: "ROLE_AGENT"}},
    binary=frozenset({"fileWithBytes"}),
)

SEND: Final = ProtoReader(SendShape, _SCHEMA)
PROTO_SEND: Final = ProtoReader(ProtoSendShape, _PROTO)
GET: Final = ProtoReader(GetShape, _SCHEMA)
TASK: Final = ProtoReader(TaskShape, _SCHEMA)

_ROLES: Final = {"user": Role.USER, "agent": Role.AGENT, "ROLE_USER": Role.USER, "ROLE_AGENT": Role.AGENT}


def send_request(shape: SendShape) -> SendMessage:
    """Decodes a message of JSON-RPC, with the webhook to notify about its task."""
    push = shape.configuration.push_notification_config if shape.configuration is not None else None
    given = shape.message
    message = Message(
        message_id=MessageId(given.message_id),
        role=_ROLES[given.role],
        parts=tuple([_part(part, index) for index, part in enumerate(given.parts)]),
        metadata=given.metadata,
        extensions=tuple(given.extensions),
        reference_task_ids=tuple(given.reference_task_ids),
    )
    return _send(message, given, shape.metadata, push)


def proto_send_request(shape: ProtoSendShape) -> SendMessage:
    """Decodes a message of REST, with the webhook to notify about its task."""
    push = shape.configuration.push_notification if shape.configuration is not None else None
    given = shape.message
    message = Message(
        message_id=MessageId(given.message_id),
        role=_ROLES[given.role],
        parts=tuple([_proto_part(part, index) for index, part in enumerate(given.content)]),
        metadata=given.metadata,
        extensions=tuple(given.extensions),
    )
    return _send(message, given, shape.metadata, push)


def push_config(shape: PushShape, config_id: str = "") -> PushConfig:
    """Decodes a webhook's configuration; `config_id` names one that has no id of its own."""
    authentication = shape.authentication
    return PushConfig(
        id=shape.id or config_id,
        url=shape.url,
        token=shape.token,
        scheme=chosen_scheme(authentication.schemes) if authentication else "",
        credentials=authentication.credentials if authentication else "",
        dialect=A2A_V0_3,
    )


def _send(
    message: Message, given: MessageShape | ProtoMessageShape, metadata: Json, push: PushShape | None
) -> SendMessage:
    # The agent's host reads some keys of a task's metadata, so the caller's keys are stored below one key of their own.
    stored: dict[str, Any] = {"request": metadata} if metadata else {}
    return SendMessage(
        message=message,
        dialect=A2A_V0_3,
        context_id=given.context_id,
        task_id=given.task_id,
        exact=True,
        metadata=stored,
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
            part, kind = _data_part(data, shape.metadata), "data"
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
            return _data_part(data.data, shape.metadata)
        case _:
            raise InvalidField(place, "must have exactly one of 'text', 'file' and 'data'")


def _file(file: FileShape, metadata: Json, place: str) -> FilePart:
    if (file.content is None) == (file.uri is None):
        raise InvalidField(f"{place}.file", "must have either its bytes or its uri")
    return FilePart(
        content=file.content, url=file.uri or "", name=file.name, media_type=file.mime_type, metadata=metadata
    )


def _data_part(data: Json, metadata: Json) -> DataPart:
    """Unwraps data that is not an object; see NOT_AN_OBJECT."""
    if metadata.get(NOT_AN_OBJECT) is True and set(data) == {"value"}:
        rest = {key: value for key, value in metadata.items() if key != NOT_AN_OBJECT}
        return DataPart(data=data["value"], metadata=rest)
    return DataPart(data=data, metadata=metadata)
