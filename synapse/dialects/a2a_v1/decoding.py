"""From the words of A2A 1.0 to core requests. Each function raises InvalidRequest and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from synapse.core.message import DataPart, FilePart, Message, MessageId, Part, Role, TextPart
from synapse.core.requests import ListTasks, SendMessage
from synapse.core.task import TaskState
from synapse.core.wire_errors import InvalidField
from synapse.dialects.a2a_v1.paths import NAME
from synapse.dialects.a2a_v1.projection import STATE_NAMES
from synapse.dialects.a2a_v1.push import push_config
from synapse.dialects.a2a_v1.shapes import UNSET, ListShape, MessageShape, PartShape, SendShape, Unset
from synapse.dialects.proto_json import parse_instant

_ROLES: Final = {"ROLE_USER": Role.USER, "ROLE_AGENT": Role.AGENT}
_STATES: Final = {name: state for state, name in STATE_NAMES.items()}
_ANY_STATE: Final = frozenset({"", "TASK_STATE_UNSPECIFIED", "UNRECOGNIZED"})
"""What clients send when they mean no state; the last is what JavaScript's makes of a request without one."""
_TICK: Final = timedelta(microseconds=1)
_BEGINNING: Final = datetime.min.replace(tzinfo=UTC)


def send_request(shape: SendShape) -> SendMessage:
    """The message to send, and the webhook that is told of it."""
    push = shape.configuration.task_push_notification_config if shape.configuration is not None else None
    # Some keys of a task's metadata mean something to the agent's host. A stranger's stay apart from them.
    metadata: dict[str, Any] = {"request": shape.metadata} if shape.metadata else {}
    return SendMessage(
        message=_message(shape.message),
        dialect=NAME,
        context_id=shape.message.context_id,
        task_id=shape.message.task_id,
        exact=True,
        metadata=metadata,
        push=push_config(push) if push is not None else None,
    )


def list_request(shape: ListShape) -> ListTasks:
    return ListTasks(
        states=_states(shape.status),
        context_id=shape.context_id,
        updated_after=_just_before(shape.status_timestamp_after),
        limit=shape.page_size,
        cursor=shape.page_token,
    )


def _just_before(text: str) -> datetime | None:
    """1.0 §3.1.4 means tasks that changed at that time or after; ours are those that changed after."""
    at = parse_instant("statusTimestampAfter", text) if text else _BEGINNING
    return None if at == _BEGINNING else at - _TICK


def _states(name: str) -> frozenset[TaskState]:
    if name in _ANY_STATE:
        return frozenset()
    if name not in _STATES:
        raise InvalidField("status", f"'{name}' is not a state", hint="use one of " + ", ".join(_STATES))
    return frozenset({_STATES[name]})


def _message(shape: MessageShape) -> Message:
    return Message(
        message_id=MessageId(shape.message_id),
        role=_ROLES[shape.role],
        parts=tuple([_part(part, index) for index, part in enumerate(shape.parts)]),
        metadata=shape.metadata,
        extensions=tuple(shape.extensions),
        reference_task_ids=tuple(shape.reference_task_ids),
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
