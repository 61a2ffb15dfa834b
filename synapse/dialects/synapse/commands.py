"""Encodes and decodes what other processes of the user ask of a host: commands, the agent's status, and replies.

A gateway sends `POST /commands` on behalf of a caller that it has authenticated, and a machine's link on behalf of
callers on other machines, which have a `machine` and a `remote_sender`:

    {"caller": {…}, "request": {"type": "CancelTask", …}}   ─►   {"taskId": …, "version": …, "state": …}

The answer leaves out the task: it is durable before the host answers, and the gateway reads it from the store. An error
travels with its fields (`core.errors.to_wire`), so that the gateway raises an equal one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, get_args

import msgspec
from msgspec import UNSET, UnsetType

from synapse.core.agent import EXITED
from synapse.core.caller import Caller
from synapse.core.driver import AgentStatus
from synapse.core.errors import InvalidRequest, SynapseError, from_wire, to_wire
from synapse.core.json_text import object_in
from synapse.core.message import DataPart, FilePart, Message, MessageId, Part, Role, Sender, TextPart
from synapse.core.push import PushConfig
from synapse.core.registry import AgentReply
from synapse.core.requests import (
    CommandResult,
    HostCommand,
    OnBehalfOf,
    SendMessage,
)
from synapse.dialects.dialect import Call, WireAnswer, WireRequest
from synapse.dialects.proto_json import to_json
from synapse.dialects.task_json import http_status, message_object

PATH: Final = "/commands"
STATUS: Final = "/status"
STATUS_STREAM: Final = "/status/subscribe"
STATUS_WATCH: Final = "/status/watch"
SCREEN: Final = "/screen"
"""Hosts of earlier versions do not have these paths."""
REPLY: Final = "/tasks/send"

_PLAIN: Final[Mapping[str, type[Any]]] = {
    kind.__name__: kind for kind in get_args(HostCommand) if kind is not SendMessage
}
"""The commands whose fields are decoded as they are."""
_FLEET_FIELDS: Final = ("opens", "waiting")
"""The fields of SendMessage that mean something only for callers on another machine."""


class _Caller(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of a caller that a gateway or a link may set. They cannot make a caller a process of this machine."""

    scope: str
    sees_all: bool = False
    actions: frozenset[str] | None = None
    agents: frozenset[str] | None = None
    name: str = ""
    machine: str = ""
    remote_sender: str = ""


class _Part(msgspec.Struct, forbid_unknown_fields=True):
    text: str | UnsetType = UNSET
    data: Any = UNSET
    content: bytes | None = None
    url: str = ""
    name: str = ""
    media_type: str = ""
    metadata: dict[str, Any] = {}


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    message_id: str
    role: Role
    parts: tuple[_Part, ...]
    metadata: dict[str, Any] = {}
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()


class _Command(msgspec.Struct, forbid_unknown_fields=True):
    caller: _Caller
    request: msgspec.Raw


class _Send(msgspec.Struct, forbid_unknown_fields=True):
    """SendMessage, as its own shape: the fields of a part decide its class, which a dataclass cannot express."""

    type: str
    message: _Message
    dialect: str
    priority: int
    sender: Sender | None
    response_expected: bool
    sender_task_id: str
    in_reply_to: str
    context_id: str
    task_id: str
    exact: bool
    deadline: datetime | None
    metadata: dict[str, Any]
    parent_id: str = ""
    push: PushConfig | None = None
    opens: str = ""
    waiting: tuple[str, ...] = ()


class _Typed(msgspec.Struct):
    type: str


class _Result(msgspec.Struct):
    task_id: str = msgspec.field(default="", name="taskId")
    version: int = 0
    state: str = ""
    direct: bool = False
    config: PushConfig | None = None
    configs: tuple[PushConfig, ...] | None = None


class _Status(msgspec.Struct):
    since: datetime
    state: str = EXITED
    why: str = ""
    source: str = ""


_COMMAND: Final = msgspec.json.Decoder(_Command)
_TYPED: Final = msgspec.json.Decoder(_Typed)
_SEND: Final = msgspec.json.Decoder(_Send)
_RESULT: Final = msgspec.json.Decoder(_Result)
_STATUS: Final = msgspec.json.Decoder(_Status)


def encode_command(request: HostCommand, caller: Caller) -> bytes:
    """Returns the body that sends a command to a host."""
    fields: dict[str, Any] = msgspec.to_builtins(request)
    if not caller.machine and isinstance(request, SendMessage):
        # Hosts of earlier versions refuse fields that they do not know.
        for field in _FLEET_FIELDS:
            del fields[field]
    return to_json({"caller": encode_caller(caller), "request": {"type": type(request).__name__, **fields}})


def encode_caller(caller: Caller) -> dict[str, Any]:
    """Returns the fields of the caller on whose behalf a command is sent."""
    fields: dict[str, Any] = {
        "scope": caller.scope,
        "sees_all": caller.sees_all,
        "actions": None if caller.actions is None else sorted(caller.actions),
        "agents": None if caller.agents is None else sorted(caller.agents),
        "name": caller.name,
    }
    if caller.machine:
        fields |= {"machine": caller.machine, "remote_sender": caller.remote_sender}
    return fields


def decode_caller(fields: dict[str, Any]) -> Caller:
    """Returns the caller of these fields. Raises InvalidRequest."""
    try:
        return Caller(**msgspec.structs.asdict(msgspec.convert(fields, _Caller)))
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"the caller cannot be read: {error}") from error


def ask(wire: WireRequest) -> Call[CommandResult]:
    """Decodes the command in the body, and the caller that it is for.

    Raises InvalidRequest.
    """
    try:
        command = _COMMAND.decode(wire.body)
        kind = _TYPED.decode(command.request).type
        request = _request(kind, command.request)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(
            f"the body is not a command: {error}", hint="only a gateway of the same version sends commands"
        ) from error
    caller = Caller(**msgspec.structs.asdict(command.caller))
    return Call(OnBehalfOf(caller, request), encode_result, encode_failure)


def encode_result(command: CommandResult) -> bytes:
    """Returns the answer to a command."""
    result = command.result
    if command.task_id:
        about = {"version": command.version, "state": command.state, "direct": command.direct}
        return to_json({"taskId": command.task_id, **about})
    if isinstance(result, PushConfig):
        return to_json({"config": msgspec.to_builtins(result)})
    if isinstance(result, tuple):
        return to_json({"configs": msgspec.to_builtins(result)})
    return b"{}"


def decode_result(body: bytes) -> CommandResult:
    """Decodes the answer to a command.

    Raises ValueError.
    """
    done = _RESULT.decode(body)
    result = done.configs if done.config is None else done.config
    return CommandResult(
        task_id=done.task_id, version=done.version, state=done.state, direct=done.direct, result=result
    )


def decode_agent_status(body: bytes) -> AgentStatus:
    """Decodes the agent's status, from `GET /status` or an event of its stream.

    Raises ValueError.
    """
    shape = _STATUS.decode(body)
    return AgentStatus(state=shape.state, why=shape.why, source=shape.source, since=shape.since)


def encode_reply(reply: AgentReply) -> bytes:
    """Returns the body of the `POST /tasks/send` that delivers a reply to the host of the waiting agent."""
    sender = reply.sender
    metadata: dict[str, Any] = {
        "sender": {
            "sender_id": sender.sender_id,
            "sender_type": sender.sender_type,
            "sender_endpoint": sender.sender_endpoint,
        },
        "in_reply_to": reply.in_reply_to,
    }
    if reply.failed:
        metadata["failed"] = True
    if reply.inferred:
        metadata["inferred"] = True
    message = Message(message_id=MessageId(""), role=Role.AGENT, parts=reply.parts)
    return to_json({"message": message_object(message), "metadata": metadata})


def encode_failure(error: SynapseError) -> WireAnswer:
    """Returns the answer for `error`, with its fields, so that the gateway can raise an equal one."""
    return WireAnswer(http_status(type(error)), to_json({"error": to_wire(error)}))


def decode_failure(body: bytes) -> SynapseError:
    """Returns the error in a host's answer, with its class. See `from_wire` for hosts of other versions."""
    try:
        wire = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        wire = {}
    return from_wire(object_in(wire, "error"))


def _request(kind: str, raw: msgspec.Raw) -> HostCommand:
    if kind == SendMessage.__name__:
        send = _SEND.decode(raw)
        fields = msgspec.structs.asdict(send)
        del fields["type"]
        fields["message"] = _message(send.message)
        return SendMessage(**fields)
    known = _PLAIN.get(kind)
    if known is None:
        raise InvalidRequest(f"'{kind[:80]}' is not a command", hint=f"known: {', '.join(sorted(_PLAIN))}")
    request: HostCommand = msgspec.json.decode(raw, type=known)
    return request


def _message(shape: _Message) -> Message:
    return Message(
        message_id=MessageId(shape.message_id),
        role=shape.role,
        parts=tuple(_part(part) for part in shape.parts),
        metadata=shape.metadata,
        extensions=shape.extensions,
        reference_task_ids=shape.reference_task_ids,
    )


def _part(shape: _Part) -> Part:
    about: dict[str, Any] = {"name": shape.name, "media_type": shape.media_type, "metadata": shape.metadata}
    if shape.text is not UNSET:
        return TextPart(text=shape.text, **about)
    if shape.data is not UNSET:
        return DataPart(data=shape.data, **about)
    return FilePart(content=shape.content, url=shape.url, **about)
