"""Decodes supervisor requests into core requests. Every function raises InvalidRequest and no other error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal

import msgspec

from synapse.core.errors import InvalidField
from synapse.core.message import Message, MessageId, TextPart
from synapse.core.push import PushConfig, chosen_scheme
from synapse.core.requests import ListTasks, SendMessage, SetPushConfig
from synapse.core.task import TaskState
from synapse.dialects.dialect import WireRequest
from synapse.dialects.paths import SUPERVISOR
from synapse.dialects.proto_json import ProtoReader, Spellings, parse_instant
from synapse.dialects.supervisor.encode import (
    EXPIRED,
    FAILED,
    ROLE,
    ROLES,
    STATE_NAMES,
    STATE_WORDS,
    SYSTEM,
    TIMESTAMP,
    plain_id,
)

REQUEST_METADATA: Final = "request"
"""The key of a task's metadata that holds the caller's own metadata: the agent's host reads some of the other keys."""

_EVENT_ID: Final = re.compile(r"(?:event-)?([0-9]{1,18})")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])


Name = Annotated[str, msgspec.Meta(max_length=256)]
"""An id or a name: short enough to be a key."""
GivenName = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Token = Annotated[str, msgspec.Meta(max_length=4096)]
GivenToken = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
Names = Annotated[list[Token], msgspec.Meta(max_length=1000)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799_999)]
"""Since 1970, before the year 10000."""
Metadata = dict[str, Any]


class MessageShape(msgspec.Struct, rename="camel"):
    content: Annotated[str, msgspec.Meta(min_length=1)]
    role: Literal["user", "assistant", "system"] = "user"
    id: Name = ""
    timestamp: Name = ""
    # The document lets a message continue a task, but has no field that names it. A2A has these two.
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


def send_request(shape: SendShape, agent: str) -> SendMessage:
    push = shape.configuration.push_notification_config
    return SendMessage(
        message=_message(shape.message),
        dialect=SUPERVISOR,
        context_id=shape.context_id or shape.message.context_id,
        task_id=plain_id(shape.task_id or shape.message.task_id, agent),
        exact=True,
        metadata={REQUEST_METADATA: shape.metadata} if shape.metadata else {},
        push=None if push is None else _push_config(push),
    )


def list_request(shape: ListShape, query: Mapping[str, str]) -> ListTasks:
    after = shape.last_updated_after
    wanted = _metadata(query)
    return ListTasks(
        states=_states(shape.status),
        # Both words mean one state in the core; the task's reason tells them apart.
        expired={EXPIRED: True, FAILED: False}.get(shape.status),
        context_id=shape.context_id,
        updated_after=None if after is None else _EPOCH + timedelta(milliseconds=after),
        metadata={REQUEST_METADATA: wanted} if wanted else {},
        limit=shape.page_size,
        cursor=shape.page_token,
    )


def set_push_request(shape: SetPushShape, task_id: str, agent: str) -> SetPushConfig:
    if shape.task_id and plain_id(shape.task_id, agent) != task_id:
        raise InvalidField("taskId", "is not the task that the address names", hint="leave it out")
    return SetPushConfig(task_id=task_id, config=_push_config(shape.push_notification_config))


def last_event(wire: WireRequest) -> int | None:
    """Returns the seq in `Last-Event-ID`, after which to resume a stream.

    Raises InvalidField.
    """
    given = wire.header(b"last-event-id")
    if not given:
        return None
    known = _EVENT_ID.fullmatch(given)
    if known is None:
        raise InvalidField("Last-Event-ID", "must be the id of an event of an earlier stream", hint="event-1")
    return int(known[1])


def _message(shape: MessageShape) -> Message:
    metadata: dict[str, Any] = {}
    if shape.role == SYSTEM:
        metadata[ROLE] = SYSTEM
    if shape.timestamp:
        parse_instant("message.timestamp", shape.timestamp)
        metadata[TIMESTAMP] = shape.timestamp
    return Message(
        message_id=MessageId(shape.id),
        role=ROLES[shape.role],
        parts=(TextPart(text=shape.content),),
        metadata=metadata,
    )


def _push_config(shape: PushConfigShape) -> PushConfig:
    proof = shape.authentication or AuthenticationShape()
    return PushConfig(
        id=shape.id,
        url=shape.url,
        token=shape.token,
        scheme=chosen_scheme(proof.schemes),
        credentials=proof.credentials,
        dialect=SUPERVISOR,
    )


def _states(word: str) -> frozenset[TaskState]:
    if not word:
        return frozenset()
    if word not in STATE_WORDS:
        raise InvalidField("status", f"'{word}' is not a state", hint="use one of " + ", ".join(STATE_WORDS))
    name = FAILED if word == EXPIRED else word
    return frozenset(state for state, known in STATE_NAMES.items() if known == name)


def _metadata(query: Mapping[str, str]) -> dict[str, Any]:
    """Returns the metadata to filter by, which is given as JSON, or as `key:value` with commas between."""
    text = query.get("metadata", "").strip()
    if text.startswith("{"):
        with suppress(msgspec.DecodeError, RecursionError):
            return _OBJECT.decode(text)
    else:
        pairs = [pair.strip().partition(":" if ":" in pair else "=") for pair in text.split(",") if pair.strip()]
        if all(key and colon for key, colon, _ in pairs):
            return {key: value for key, _, value in pairs}
    raise InvalidField("metadata", "must be a JSON object", hint='metadata={"customField": "customValue"}')
