"""From the words of the supervisor dialect to core requests. Each function raises InvalidRequest and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from synapse.core.message import Message, MessageId, TextPart
from synapse.core.push import PushConfig, chosen_scheme
from synapse.core.requests import ListTasks, SendMessage, SetPushConfig
from synapse.core.task import TaskState
from synapse.core.wire_errors import InvalidField
from synapse.dialects.proto_json import parse_instant
from synapse.dialects.supervisor.ids import plain_id
from synapse.dialects.supervisor.paths import NAME
from synapse.dialects.supervisor.shapes import (
    AuthenticationShape,
    ListShape,
    MessageShape,
    PushConfigShape,
    SendShape,
    SetPushShape,
)
from synapse.dialects.supervisor.words import (
    EXPIRED,
    FAILED,
    ROLE,
    ROLES,
    STATE_NAMES,
    STATE_WORDS,
    SYSTEM,
    TIMESTAMP,
)

REQUEST_METADATA: Final = "request"
"""Some keys of a task's metadata mean something to the agent's host. A stranger's stay apart from them, below this."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])


def send_request(shape: SendShape, agent: str) -> SendMessage:
    push = shape.configuration.push_notification_config
    return SendMessage(
        message=_message(shape.message),
        dialect=NAME,
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
        expired=_expired(shape.status),
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
        dialect=NAME,
    )


def _states(word: str) -> frozenset[TaskState]:
    if not word:
        return frozenset()
    if word not in STATE_WORDS:
        raise InvalidField("status", f"'{word}' is not a state", hint="use one of " + ", ".join(STATE_WORDS))
    name = FAILED if word == EXPIRED else word
    return frozenset(state for state, known in STATE_NAMES.items() if known == name)


def _expired(word: str) -> bool | None:
    """Two words stand for what is one state in the core; the reason tells them apart."""
    return {EXPIRED: True, FAILED: False}.get(word)


def _metadata(query: Mapping[str, str]) -> dict[str, Any]:
    """The values that a task's metadata must have: as JSON, or as `key:value` with commas between."""
    text = query.get("metadata", "").strip()
    if not text.startswith("{"):
        return dict(_pair(pair) for pair in text.split(",") if pair.strip())
    try:
        return _OBJECT.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _unclear_metadata() from error


def _pair(text: str) -> tuple[str, str]:
    key, colon, value = text.strip().partition(":" if ":" in text else "=")
    if not key or not colon:
        raise _unclear_metadata()
    return key, value


def _unclear_metadata() -> InvalidField:
    return InvalidField("metadata", "must be a JSON object", hint='metadata={"customField": "customValue"}')
