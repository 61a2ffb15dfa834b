"""What the requests of the supervisor dialect look like on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from synapse.dialects.proto_json import ProtoReader, Spellings

Name = Annotated[str, msgspec.Meta(max_length=256)]
"""An id or a name: short enough to be a key."""
GivenName = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Token = Annotated[str, msgspec.Meta(max_length=4096)]
GivenToken = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
Names = Annotated[list[Token], msgspec.Meta(max_length=1000)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799_999)]
"""Since 1970, and before the year 10000."""
Metadata = dict[str, Any]


class MessageShape(msgspec.Struct, rename="camel"):
    content: Annotated[str, msgspec.Meta(min_length=1)]
    role: Literal["user", "assistant", "system"] = "user"
    id: Name = ""
    timestamp: Name = ""
    # The document lets a message continue a task, and has no field for saying which: these are the standard's.
    task_id: Name = ""
    context_id: Name = ""


class AuthenticationShape(msgspec.Struct):
    schemes: Names = []
    credentials: Token = ""


class PushConfigShape(msgspec.Struct):
    url: GivenToken
    id: Name = ""
    token: Token = ""
    authentication: AuthenticationShape | None = None


class ConfigurationShape(msgspec.Struct, rename="camel"):
    accepted_output_modes: Names = []
    history_length: Count | None = None
    push_notification_config: PushConfigShape | None = None
    blocking: bool = False


class SendShape(msgspec.Struct, rename="camel"):
    message: MessageShape
    configuration: ConfigurationShape = msgspec.field(default_factory=ConfigurationShape)
    metadata: Metadata = {}
    task_id: Name = ""
    context_id: Name = ""


class SetPushShape(msgspec.Struct, rename="camel"):
    push_notification_config: PushConfigShape
    task_id: Token = ""


class GetShape(msgspec.Struct, rename="camel"):
    history_length: Count | None = None


class ListShape(msgspec.Struct, rename="camel"):
    context_id: Name = ""
    status: Name = ""
    page_size: Annotated[int, msgspec.Meta(ge=1, le=100)] = 50
    page_token: Token = ""
    history_length: Count = 0
    last_updated_after: Milliseconds | None = None
    include_artifacts: bool = False


_SPELLINGS: Final = Spellings()

SEND: Final = ProtoReader(SendShape, _SPELLINGS)
SET_PUSH: Final = ProtoReader(SetPushShape, _SPELLINGS)
GET: Final = ProtoReader(GetShape, _SPELLINGS)
LIST: Final = ProtoReader(ListShape, _SPELLINGS)
