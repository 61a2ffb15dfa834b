"""What the requests of A2A 1.0 look like on the wire. JSON-RPC and REST have the same."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from synapse.dialects.proto_json import ProtoReader, Spellings

Name = Annotated[str, msgspec.Meta(max_length=256)]
"""An id or a name: short enough to be a key."""
GivenName = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Token = Annotated[str, msgspec.Meta(max_length=4096)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Names = Annotated[list[Token], msgspec.Meta(max_length=1000)]
Metadata = dict[str, Any]

Unset = msgspec.UnsetType
UNSET: Final = msgspec.UNSET


class PartShape(msgspec.Struct, rename="camel"):
    """Exactly one of the first four is there."""

    text: str | Unset = UNSET
    raw: bytes | Unset = UNSET
    url: Token | Unset = UNSET
    data: Any = UNSET
    filename: Name = ""
    media_type: Name = ""
    metadata: Metadata = {}


class MessageShape(msgspec.Struct, rename="camel"):
    message_id: GivenName
    role: Literal["ROLE_USER", "ROLE_AGENT"]
    parts: Annotated[list[PartShape], msgspec.Meta(min_length=1, max_length=1000)]
    context_id: Name = ""
    task_id: Name = ""
    metadata: Metadata = {}
    extensions: Names = []
    reference_task_ids: Names = []


class AuthenticationShape(msgspec.Struct):
    scheme: GivenName
    credentials: Token = ""


class PushShape(msgspec.Struct, rename="camel"):
    """A TaskPushNotificationConfig; with a message it has no task yet."""

    url: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
    id: Name = ""
    task_id: Name = ""
    token: Token = ""
    authentication: AuthenticationShape | None = None


class ConfigurationShape(msgspec.Struct, rename="camel"):
    accepted_output_modes: Names = []
    task_push_notification_config: PushShape | None = None
    history_length: Count | None = None
    return_immediately: bool = False


class SendShape(msgspec.Struct, rename="camel"):
    message: MessageShape
    configuration: ConfigurationShape | None = None
    metadata: Metadata = {}


class GetShape(msgspec.Struct, rename="camel"):
    id: GivenName
    history_length: Count | None = None


class TaskShape(msgspec.Struct):
    """Of a question that is only about a task: cancel, subscribe."""

    id: GivenName


class ListShape(msgspec.Struct, rename="camel"):
    context_id: Name = ""
    status: Name = ""
    page_size: Annotated[int, msgspec.Meta(ge=1, le=100)] = 50
    page_token: Token = ""
    history_length: Count | None = None
    status_timestamp_after: Name = ""
    include_artifacts: bool = False


_STATES: Final = {
    0: "TASK_STATE_UNSPECIFIED",
    1: "TASK_STATE_SUBMITTED",
    2: "TASK_STATE_WORKING",
    3: "TASK_STATE_COMPLETED",
    4: "TASK_STATE_FAILED",
    5: "TASK_STATE_CANCELED",
    6: "TASK_STATE_INPUT_REQUIRED",
    7: "TASK_STATE_REJECTED",
    8: "TASK_STATE_AUTH_REQUIRED",
}
_SPELLINGS: Final = Spellings(
    numbers=frozenset({"historyLength", "pageSize"}),
    enums={"role": {1: "ROLE_USER", 2: "ROLE_AGENT"}, "status": _STATES},
    binary=frozenset({"raw"}),
)

SEND: Final = ProtoReader(SendShape, _SPELLINGS)
GET: Final = ProtoReader(GetShape, _SPELLINGS)
TASK: Final = ProtoReader(TaskShape, _SPELLINGS)
LIST: Final = ProtoReader(ListShape, _SPELLINGS)
