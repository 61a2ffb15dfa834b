"""Updates of the feed as the events of a stream: the agent's text as it grows, then `complete`, or `error`.

The id of an event says how far its reader has come, so that a stream can be resumed by it alone:

    <task id>.<seq>.<length of the text told so far>.<checksum of that text>

The messages of the hub's WebSocket, as values: what comes in becomes a request, an update becomes what goes out.

Whoever serves the socket sends a message, then follows its task from the beginning (`after` 0), so that `task.created`
comes first; a task that was followed before is followed on from its last `seq`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from synapse.core.errors import InvalidField, InvalidRequest, SynapseError
from synapse.core.events import ArtifactAdded, MessageAdded, MetadataChanged, StateChanged, TaskOpened, Update
from synapse.core.message import Message, Role
from synapse.core.requests import ForAgent, Request, SubscribeTask, TaskStream
from synapse.core.task import Task, TaskState
from synapse.dialects.dialect import WireEvent, WireRequest
from synapse.dialects.hub import parts
from synapse.dialects.hub.decode import about_task, send_request
from synapse.dialects.hub.encode import REQUEST_METADATA, AgentName, error_object, failure_object, task_object
from synapse.dialects.proto_json import to_json

_EVENT_ID: Final = re.compile(
    r"(?:(?P<task>[^.]{1,256})\.)?(?P<seq>[0-9]{1,18})(?:\.(?P<length>[0-9]{1,10})\.(?P<sum>[0-9a-f]{8}))?"
)


class Told(NamedTuple):
    """How much of the text a reader has."""

    length: int = 0
    checksum: int = 0

    def is_beginning_of(self, text: str) -> bool:
        return len(text) >= self.length and _checksum(text[: self.length]) == self.checksum


NOTHING: Final = Told()


class StreamPosition(NamedTuple):
    """Where a reader was when its stream broke."""

    task_id: str
    seq: int
    told: Told


def last_place(wire: WireRequest) -> StreamPosition | None:
    """The place that the reader names; without a task's id in it when it names a mere seq.

    Raises InvalidField.
    """
    given = wire.header(b"last-event-id")
    if not given:
        return None
    known = _EVENT_ID.fullmatch(given)
    if known is None:
        raise InvalidField("Last-Event-ID", "must be the id of an event of an earlier stream")
    told = Told(int(known["length"]), int(known["sum"], 16)) if known["length"] else NOTHING
    return StreamPosition(known["task"] or "", int(known["seq"]), told)


class GrowingText:
    """Tells the updates of one task to one reader; it knows what it has told, so each stream needs its own."""

    def __init__(self, told: Told = NOTHING, *, ends_when_asked: bool = False) -> None:
        self._told = told
        self._ends_when_asked = ends_when_asked

    def __call__(self, update: Update) -> WireEvent | None:
        """The events that tell `update`, one behind the other; None when there is nothing to tell."""
        events: list[tuple[str, Any, Told]] = [
            ("update", {"type": "partial", "content": said}, self._told) for said in _said(update)
        ]
        events += self._growth(_text(update.task), _marks(update.task))
        if self._is_last(update):
            events.append((*_end(update.task), self._told))
        chain: WireEvent | None = None
        for name, data, told in reversed(events):
            # Whoever saw only the first of several has not seen the whole update, and gets it again.
            seq = update.seq if chain is None else update.seq - 1
            chain = WireEvent(_event_id(update.task, seq, told), name, to_json(data), chain)
        return chain

    def _growth(self, text: str, marks: dict[str, str]) -> list[tuple[str, Any, Told]]:
        before, self._told = self._told, Told(len(text), _checksum(text))
        if before == self._told:
            return []
        if before.is_beginning_of(text):
            return [("update", {"type": "partial", "content": text[before.length :], **marks}, self._told)]
        # The text was rewritten: what the reader has is to be forgotten.
        return [("update", {"type": "replace", "content": text, **marks}, self._told)]

    def _is_last(self, update: Update) -> bool:
        if not isinstance(update.event, StateChanged | None):
            return False
        state = update.task.state
        return state.is_terminal or (self._ends_when_asked and state.is_interrupted)


def _said(update: Update) -> list[str]:
    """What the agent said in a message of its own; a snapshot has what it said since somebody spoke to it."""
    if isinstance(update.event, MessageAdded):
        messages: tuple[Message, ...] = (update.event.message,)
    elif update.event is None:
        history = update.task.history
        last = max((index for index, message in enumerate(history) if message.role is Role.USER), default=-1)
        messages = history[last + 1 :]
    else:
        return []
    return [message.text for message in messages if message.role is Role.AGENT and message.text]


def _text(task: Task) -> str:
    """All that the agent handed over as text."""
    return "\n".join([artifact.text for artifact in task.artifacts if artifact.text])


def _marks(task: Task) -> dict[str, str]:
    """A text that was read off the agent's screen is not its own word, and says so."""
    is_from_screen = bool(task.artifacts) and task.artifacts[-1].metadata.get("source") == "screen"
    return {"source": "screen"} if is_from_screen else {}


def _end(task: Task) -> tuple[str, Any]:
    failure = failure_object(task)
    if failure is None:
        return "complete", {"taskId": task.id}
    details = {**failure.get("details", {}), "taskId": task.id}
    return "error", {"error": {**failure, "details": details}}


def _event_id(task: Task, seq: int, told: Told) -> str:
    return f"{task.id}.{seq}.{told.length}.{told.checksum:08x}"


def _checksum(text: str) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


_EXAMPLE: Final = '{"type": "message", "agentId": "…", "message": [{"type": "text", "content": "Hello!"}]}'


@dataclass(frozen=True, slots=True)
class Incoming:
    """What a client wants: to send a message, to follow a task, or only to know whether we are there."""

    send: Request[Task] | None = None
    subscribe: Request[TaskStream] | None = None
    message_id: str = ""
    """By which the client knows its message again."""

    @property
    def request(self) -> Request[object] | None:
        """The one request of the two, if there is one."""
        return self.send or self.subscribe


def decode_incoming(frame: str | bytes) -> Incoming:
    """What a frame says. Raises InvalidRequest."""
    if isinstance(frame, bytes):
        raise InvalidRequest("binary frames are not understood here", hint=f"send text such as {_EXAMPLE}")
    body = frame.encode("utf-8", "replace")
    if not body:
        raise InvalidRequest("the message is empty", hint=f"send text such as {_EXAMPLE}")
    return _READERS[parts.FRAME.read(body).type](body)


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
    shape = parts.MESSAGE_FRAME.read(body)
    return Incoming(send=ForAgent(shape.agent_id, send_request(shape)), message_id=shape.message_id)


def _subscribe(body: bytes) -> Incoming:
    shape = parts.SUBSCRIBE_FRAME.read(body)
    return Incoming(subscribe=about_task(shape.task_id, partial(_follow, shape.after)))


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
