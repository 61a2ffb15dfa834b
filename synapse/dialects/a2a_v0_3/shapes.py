"""What the requests of A2A 0.3 look like on the wire: in JSON-RPC as its schema has them, in REST as its protobuf."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

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
    """A PushNotificationConfig, the same in both forms."""

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
    """Of a question that is only about a task: cancel, resubscribe."""

    id: GivenName


_SCHEMA: Final = Spellings(numbers=frozenset({"historyLength"}), binary=frozenset({"bytes"}))
_PROTO: Final = Spellings(
    # In the protobuf the message to send is called `request`.
    renamed={"request": "message"},
    numbers=frozenset({"historyLength"}),
    enums={"role": {1: "ROLE_USER", 2: "ROLE_AGENT"}},
    binary=frozenset({"fileWithBytes"}),
)

SEND: Final = ProtoReader(SendShape, _SCHEMA)
PROTO_SEND: Final = ProtoReader(ProtoSendShape, _PROTO)
GET: Final = ProtoReader(GetShape, _SCHEMA)
TASK: Final = ProtoReader(TaskShape, _SCHEMA)
