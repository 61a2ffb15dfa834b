"""Encodes updates of a task as server-sent events and as frames of the hub's WebSocket, and decodes its frames.

A stream of events has the agent's text as it grows, then `complete` or `error`. The id of an event says how much of the
text its reader has, so a stream can be resumed from the id alone:

    <task id>.<seq>.<length of the text sent so far>.<checksum of that text>

The server of the WebSocket sends a message, then follows its task from the beginning (`after` 0), so that
`task.created` comes first. It follows a task that it followed before from the last `seq`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from synapse.core.errors import InvalidField, InvalidRequest, SynapseError
from synapse.core.events import ArtifactAdded, MessageAdded, MetadataChanged, StateChanged, TaskOpened, Update
from synapse.core.message import Artifact, Message, Role
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
_EXAMPLE: Final = '{"type": "message", "agentId": "…", "message": [{"type": "text", "content": "Hello!"}]}'

_KINDS: Final[Mapping[TaskState, str]] = {
    TaskState.COMPLETED: "task.completed",
    TaskState.FAILED: "task.failed",
    TaskState.CANCELED: "task.failed",
    TaskState.REJECTED: "task.failed",
}


class SentText(NamedTuple):
    """How much of the text a reader has: its length and checksum."""

    length: int = 0
    checksum: int = 0

    def is_beginning_of(self, text: str) -> bool:
        return len(text) >= self.length and _checksum(text[: self.length]) == self.checksum


NOTHING_SENT: Final = SentText()


class StreamPosition(NamedTuple):
    """The position of a reader whose stream broke."""

    task_id: str
    seq: int
    sent: SentText


def last_position(wire: WireRequest) -> StreamPosition | None:
    """Returns the position in `Last-Event-ID`, if there is one. The task id is empty when the header is a plain seq.

    Raises InvalidField.
    """
    given = wire.header(b"last-event-id")
    if not given:
        return None
    known = _EVENT_ID.fullmatch(given)
    if known is None:
        raise InvalidField("Last-Event-ID", "must be the id of an event of an earlier stream")
    sent = SentText(int(known["length"]), int(known["sum"], 16)) if known["length"] else NOTHING_SENT
    return StreamPosition(known["task"] or "", int(known["seq"]), sent)


class GrowingText:
    """Encodes the updates of one task for one reader. It remembers the text that it has sent."""

    def __init__(self, sent: SentText = NOTHING_SENT, *, ends_when_asked: bool = False) -> None:
        self._sent = sent
        self._ends_when_asked = ends_when_asked

    def __call__(self, update: Update) -> WireEvent | None:
        """Returns the events for `update`, chained by `then`, or None when there is nothing to send."""
        events: list[tuple[str, Any, SentText]] = [
            ("update", {"type": "partial", "content": text}, self._sent) for text in _agent_texts(update)
        ]
        events += self._growth(update.task.artifacts)
        state = update.task.state
        is_over = state.is_terminal or (self._ends_when_asked and state.is_interrupted)
        if is_over and isinstance(update.event, StateChanged | None):
            events.append((*_end(update.task), self._sent))
        chain: WireEvent | None = None
        for name, data, sent in reversed(events):
            # A reader that got only some of the events has not got the whole update, and gets it again.
            seq = update.seq if chain is None else update.seq - 1
            event_id = f"{update.task.id}.{seq}.{sent.length}.{sent.checksum:08x}"
            chain = WireEvent(event_id, name, to_json(data), chain)
        return chain

    def _growth(self, artifacts: tuple[Artifact, ...]) -> list[tuple[str, Any, SentText]]:
        """Returns the event for what the text of all artifacts has gained, if anything."""
        text = "\n".join([artifact.text for artifact in artifacts if artifact.text])
        before, self._sent = self._sent, SentText(len(text), _checksum(text))
        if before == self._sent:
            return []
        # Marks a text that was read from the agent's screen instead of reported by the agent.
        is_from_screen = bool(artifacts) and artifacts[-1].metadata.get("source") == "screen"
        marks = {"source": "screen"} if is_from_screen else {}
        if before.is_beginning_of(text):
            return [("update", {"type": "partial", "content": text[before.length :], **marks}, self._sent)]
        # The text was rewritten, so the reader must drop what it has.
        return [("update", {"type": "replace", "content": text, **marks}, self._sent)]


@dataclass(frozen=True, slots=True)
class Incoming:
    """A decoded frame: a message to send, a task to follow, or a ping, which has neither."""

    send: Request[Task] | None = None
    subscribe: Request[TaskStream] | None = None
    message_id: str = ""
    """The id that the client gave its message."""

    @property
    def request(self) -> Request[object] | None:
        """The request of the frame, if it has one."""
        return self.send or self.subscribe


def decode_incoming(frame: str | bytes) -> Incoming:
    """Decodes a frame.

    Raises InvalidRequest.
    """
    if isinstance(frame, bytes):
        raise InvalidRequest("binary frames are not understood here", hint=f"send text such as {_EXAMPLE}")
    body = frame.encode("utf-8", "replace")
    if not body:
        raise InvalidRequest("the message is empty", hint=f"send text such as {_EXAMPLE}")
    match parts.FRAME.read(body).type:
        case "message":
            message = parts.MESSAGE_FRAME.read(body)
            return Incoming(send=ForAgent(message.agent_id, send_request(message)), message_id=message.message_id)
        case "subscribe":
            wanted = parts.SUBSCRIBE_FRAME.read(body)
            subscribe = about_task(wanted.task_id, lambda plain: SubscribeTask(task_id=plain, after=wanted.after))
            return Incoming(subscribe=subscribe)
        case "ping":
            return Incoming()


def encode_update(update: Update, agent_name: AgentName) -> str | None:
    """Returns the frame for `update`, or None for updates that change nothing visible: receipts, attention."""
    task, event = update.task, update.event
    match event:
        case TaskOpened():
            created = {"type": "task.created", "taskId": task.id, "messageId": event.message.message_id}
            return _frame({**created, "seq": update.seq})
        case None | StateChanged():
            kind = _KINDS.get(task.state, "task.updated")
        case ArtifactAdded() | MessageAdded():
            kind = "task.updated"
        case MetadataChanged() if REQUEST_METADATA in event.metadata:
            kind = "task.updated"
        case _:
            return None
    return _frame({"type": kind, "task": task_object(task, agent_name), "seq": update.seq})


def encode_error(error: SynapseError, *, seq: int, about: Mapping[str, str]) -> str:
    """Returns the frame for `error`. `seq` is that of the last update; `about` names the task or message, if known."""
    return _frame({"type": "error", "error": error_object(error), **about, "seq": seq})


def encode_pong(*, seq: int) -> str:
    return _frame({"type": "pong", "seq": seq})


def _agent_texts(update: Update) -> list[str]:
    """Returns the texts of the agent's messages in `update`; for a snapshot, those since the user's last message."""
    if isinstance(update.event, MessageAdded):
        messages: tuple[Message, ...] = (update.event.message,)
    elif update.event is None:
        history = update.task.history
        last = max((index for index, message in enumerate(history) if message.role is Role.USER), default=-1)
        messages = history[last + 1 :]
    else:
        return []
    return [message.text for message in messages if message.role is Role.AGENT and message.text]


def _end(task: Task) -> tuple[str, Any]:
    """Returns the last event of a stream: its name and data."""
    failure = failure_object(task)
    if failure is None:
        return "complete", {"taskId": task.id}
    details = {**failure.get("details", {}), "taskId": task.id}
    return "error", {"error": {**failure, "details": details}}


def _checksum(text: str) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


def _frame(wire: dict[str, Any]) -> str:
    return to_json(wire).decode("utf-8")
