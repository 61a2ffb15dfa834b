"""The messages of the hub's WebSocket, as values: what comes in becomes a request, an update becomes what goes out.

Whoever serves the socket sends a message, then follows its task from the beginning (`after` 0), so that `task.created`
comes first; a task that was followed before is followed on from its last `seq`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from synapse.core.errors import InvalidRequest, SynapseError
from synapse.core.events import ArtifactAdded, MessageAdded, MetadataChanged, StateChanged, TaskOpened, Update
from synapse.core.requests import Request, SubscribeTask, ToAgent
from synapse.core.task import TaskState
from synapse.dialects.hub import shapes
from synapse.dialects.hub.decoding import send_request
from synapse.dialects.hub.errors import error_object
from synapse.dialects.hub.ids import about_task
from synapse.dialects.hub.projection import AgentName, task_object
from synapse.dialects.hub.words import REQUEST_METADATA
from synapse.dialects.proto_json import to_json

_EXAMPLE: Final = '{"type": "message", "agentId": "…", "message": [{"type": "text", "content": "Hello!"}]}'


@dataclass(frozen=True, slots=True)
class Incoming:
    """What a client wants. Without a request it only asks whether we are there."""

    request: Request | None = None
    message_id: str = ""
    """By which the client knows its message again."""


def decode_incoming(frame: str | bytes) -> Incoming:
    """What a frame says. Raises InvalidRequest."""
    if isinstance(frame, bytes):
        raise InvalidRequest("binary frames are not understood here", hint=f"send text such as {_EXAMPLE}")
    body = frame.encode("utf-8", "replace")
    if not body:
        raise InvalidRequest("the message is empty", hint=f"send text such as {_EXAMPLE}")
    return _READERS[shapes.FRAME.read(body).type](body)


def encode_update(update: Update, agent_name: AgentName) -> str | None:
    """The object that tells `update`; None for what changes nothing that is shown: receipts, attention."""
    task, event = update.task, update.event
    match event:
        case TaskOpened():
            created = {"type": "task.created", "taskId": task.id, "messageId": event.message.message_id}
            return _told({**created, "seq": update.seq})
        case None | StateChanged():
            kind = _KINDS.get(task.state, "task.updated")
        case ArtifactAdded() | MessageAdded():
            kind = "task.updated"
        case MetadataChanged() if REQUEST_METADATA in event.metadata:
            kind = "task.updated"
        case _:
            return None
    return _told({"type": kind, "task": task_object(task, agent_name), "seq": update.seq})


def encode_error(error: SynapseError, *, seq: int, about: Mapping[str, str]) -> str:
    """`seq` is that of the last update that was sent; `about` names what the error belongs to, if that is known."""
    return _told({"type": "error", "error": error_object(error), **about, "seq": seq})


def encode_pong(*, seq: int) -> str:
    return _told({"type": "pong", "seq": seq})


_KINDS: Final[Mapping[TaskState, str]] = {
    TaskState.COMPLETED: "task.completed",
    TaskState.FAILED: "task.failed",
    TaskState.CANCELED: "task.failed",
    TaskState.REJECTED: "task.failed",
}


def _message(body: bytes) -> Incoming:
    shape = shapes.MESSAGE_FRAME.read(body)
    return Incoming(ToAgent(shape.agent_id, send_request(shape)), shape.message_id)


def _subscribe(body: bytes) -> Incoming:
    shape = shapes.SUBSCRIBE_FRAME.read(body)
    return Incoming(about_task(shape.task_id, partial(_follow, shape.after)))


def _follow(after: int | None, task_id: str) -> SubscribeTask:
    return SubscribeTask(task_id=task_id, after=after)


def _ping(_body: bytes) -> Incoming:
    return Incoming()


_READERS: Final[Mapping[str, Callable[[bytes], Incoming]]] = {
    "message": _message,
    "subscribe": _subscribe,
    "ping": _ping,
}


def _told(wire: dict[str, Any]) -> str:
    return to_json(wire).decode("utf-8")
