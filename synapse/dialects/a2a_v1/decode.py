"""Decodes requests of A2A 1.0 into core requests. Every function raises InvalidRequest and no other error.

JSON-RPC and REST have the same shapes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal

import msgspec

from synapse.core.errors import InvalidField
from synapse.core.message import DataPart, FilePart, Message, MessageId, Part, Role, TextPart
from synapse.core.push import PushConfig
from synapse.core.requests import ListTasks, SendMessage
from synapse.dialects.a2a_v1.encode import STATE_NAMES
from synapse.dialects.paths import A2A_V1
from synapse.dialects.proto_json import ProtoReader, Spellings, parse_instant

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
    """A part has exactly one of the first four fields."""

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
    """A TaskPushNotificationConfig. One that comes with a message has no task id yet."""

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
    """A request with no field but the task's id: cancel, subscribe."""

    id: GivenName


class ListShape(msgspec.Struct, rename="camel"):
    context_id: Name = ""
    status: Name = ""
    page_size: Annotated[int, msgspec.Meta(ge=1, le=100)] = 50
    page_token: Token = ""
    history_length: Count | None = None
    status_timestamp_after: Name = ""
    include_artifacts: bool = False


_STATE_NUMBERS: Final = {
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
    enums={"role": {1: "ROLE_USER", 2: "ROLE_AGENT"}, "status": _STATE_NUMBERS},
    binary=frozenset({"raw"}),
)

SEND: Final = ProtoReader(SendShape, _SPELLINGS)
GET: Final = ProtoReader(GetShape, _SPELLINGS)
TASK: Final = ProtoReader(TaskShape, _SPELLINGS)
LIST: Final = ProtoReader(ListShape, _SPELLINGS)

_ROLES: Final = {"ROLE_USER": Role.USER, "ROLE_AGENT": Role.AGENT}
_STATES: Final = {name: state for state, name in STATE_NAMES.items()}
_ANY_STATE: Final = frozenset({"", "TASK_STATE_UNSPECIFIED", "UNRECOGNIZED"})
"""What clients send when they mean any state. The JavaScript SDK sends the last one when no state is set."""
_BEGINNING: Final = datetime.min.replace(tzinfo=UTC)


def send_request(shape: SendShape) -> SendMessage:
    """Decodes a message to send, with the webhook to notify about its task."""
    push = shape.configuration.task_push_notification_config if shape.configuration is not None else None
    given = shape.message
    # The agent's host reads some keys of a task's metadata, so the caller's keys are stored below one key of their own.
    metadata: dict[str, Any] = {"request": shape.metadata} if shape.metadata else {}
    return SendMessage(
        message=Message(
            message_id=MessageId(given.message_id),
            role=_ROLES[given.role],
            parts=tuple([_part(part, index) for index, part in enumerate(given.parts)]),
            metadata=given.metadata,
            extensions=tuple(given.extensions),
            reference_task_ids=tuple(given.reference_task_ids),
        ),
        dialect=A2A_V1,
        context_id=given.context_id,
        task_id=given.task_id,
        exact=True,
        metadata=metadata,
        push=push_config(push) if push is not None else None,
    )


def list_request(shape: ListShape) -> ListTasks:
    name, after = shape.status, shape.status_timestamp_after
    if name not in _STATES and name not in _ANY_STATE:
        raise InvalidField("status", f"'{name}' is not a state", hint="use one of " + ", ".join(_STATES))
    at = parse_instant("statusTimestampAfter", after) if after else _BEGINNING
    return ListTasks(
        states=frozenset({_STATES[name]}) if name in _STATES else frozenset(),
        context_id=shape.context_id,
        # 1.0 §3.1.4 includes tasks that changed at that time, ListTasks does not.
        updated_after=None if at == _BEGINNING else at - timedelta(microseconds=1),
        limit=shape.page_size,
        cursor=shape.page_token,
    )


def push_config(shape: PushShape) -> PushConfig:
    authentication = shape.authentication
    return PushConfig(
        id=shape.id,
        url=shape.url,
        token=shape.token,
        scheme=authentication.scheme if authentication else "",
        credentials=authentication.credentials if authentication else "",
        dialect=A2A_V1,
    )


def _part(shape: PartShape, index: int) -> Part:
    given = (shape.text, shape.raw, shape.url, shape.data)
    if given.count(UNSET) != 3:
        raise InvalidField(f"message.parts[{index}]", "must have exactly one of 'text', 'raw', 'url' and 'data'")
    name, media_type, metadata = shape.filename, shape.media_type, shape.metadata
    if not isinstance(shape.text, Unset):
        return TextPart(text=shape.text, name=name, media_type=media_type, metadata=metadata)
    if not isinstance(shape.raw, Unset):
        return FilePart(content=shape.raw, name=name, media_type=media_type, metadata=metadata)
    if not isinstance(shape.url, Unset):
        return FilePart(url=shape.url, name=name, media_type=media_type, metadata=metadata)
    return DataPart(data=shape.data, name=name, media_type=media_type, metadata=metadata)
