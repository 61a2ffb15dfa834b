"""What other processes of this user ask of a host, for both ends: commands, the agent's state, and replies.

`POST /commands` is what a gateway asks for somebody whom it has let in:

    {"caller": {…}, "request": {"type": "CancelTask", …}}   ─►   {"taskId": …, "version": …}

The task itself is not sent back: it is durable before the host answers, and the gateway reads it from the store. An
error travels with its fields (`core.errors.to_wire`), so that the gateway raises the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from synapse.core.agent import EXITED
from synapse.core.caller import Caller
from synapse.core.driver import AgentStatus
from synapse.core.errors import InvalidRequest, SynapseError, from_wire, to_wire
from synapse.core.json_text import object_in
from synapse.core.message import DataPart, FilePart, Message, MessageId, Part, Role, TextPart
from synapse.core.push import PushConfig
from synapse.core.registry import AgentReply
from synapse.core.requests import (
    AnswerQuestion,
    CancelTask,
    ChangeTask,
    CommandResult,
    DeletePushConfig,
    DeleteTask,
    GetPushConfig,
    HostCommand,
    ListPushConfigs,
    OnBehalfOf,
    Sender,
    SendMessage,
    SetPushConfig,
)
from synapse.dialects.dialect import Call, WireAnswer, WireRequest
from synapse.dialects.synapse.encode import message_object, status_of, to_json

PATH: Final = "/commands"
STATUS: Final = "/status"
STATUS_STREAM: Final = "/status/subscribe"
"""Hosts of earlier versions do not have it."""
REPLY: Final = "/tasks/send"

_PLAIN: Final[Mapping[str, type[Any]]] = {
    kind.__name__: kind
    for kind in (
        CancelTask,
        AnswerQuestion,
        ChangeTask,
        DeleteTask,
        SetPushConfig,
        GetPushConfig,
        ListPushConfigs,
        DeletePushConfig,
    )
}
COMMANDS: Final = (SendMessage, *_PLAIN.values())
"""The requests that go from a gateway to a host; all others a gateway answers by itself, or not at all."""


class _Caller(msgspec.Struct, forbid_unknown_fields=True):
    """Of a caller only what a gateway may say: nobody becomes a process of this machine that way."""

    scope: str
    sees_all: bool = False
    actions: frozenset[str] | None = None
    agents: frozenset[str] | None = None
    name: str = ""


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


class _Typed(msgspec.Struct):
    type: str


class _Done(msgspec.Struct):
    task_id: str = msgspec.field(default="", name="taskId")
    version: int = 0
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
_DONE: Final = msgspec.json.Decoder(_Done)
_STATUS: Final = msgspec.json.Decoder(_Status)


def encode_command(request: HostCommand, caller: Caller) -> bytes:
    """The body that asks a host for one of COMMANDS."""
    about = {
        "scope": caller.scope,
        "sees_all": caller.sees_all,
        "actions": caller.actions,
        "agents": caller.agents,
        "name": caller.name,
    }
    fields: dict[str, Any] = msgspec.to_builtins(request)
    return to_json({"caller": about, "request": {"type": type(request).__name__, **fields}})


def ask(wire: WireRequest) -> Call[CommandResult]:
    """What the body asks for, on whose behalf. Raises InvalidRequest."""
    try:
        command = _COMMAND.decode(wire.body)
        kind = _TYPED.decode(command.request).type
        request = _request(kind, command.request)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(
            f"this is no command: {error}", hint="only a gateway of the same version asks so"
        ) from error
    given = command.caller
    caller = Caller(
        scope=given.scope, sees_all=given.sees_all, actions=given.actions, agents=given.agents, name=given.name
    )
    return Call(OnBehalfOf(caller, request), encode_done, encode_failure)


def encode_done(done: CommandResult) -> bytes:
    """The answer that tells what came of a command."""
    result = done.result
    if done.task_id:
        return to_json({"taskId": done.task_id, "version": done.version, "direct": done.direct})
    if isinstance(result, PushConfig):
        return to_json({"config": msgspec.to_builtins(result)})
    if isinstance(result, tuple):
        return to_json({"configs": msgspec.to_builtins(result)})
    return b"{}"


def decode_done(body: bytes) -> CommandResult:
    """Raises ValueError."""
    done = _DONE.decode(body)
    result = done.configs if done.config is None else done.config
    return CommandResult(task_id=done.task_id, version=done.version, direct=done.direct, result=result)


def decode_agent_status(body: bytes) -> AgentStatus:
    """What an agent does, from `GET /status` or an event of its stream. Raises ValueError."""
    told = _STATUS.decode(body)
    return AgentStatus(state=told.state, why=told.why, source=told.source, since=told.since)


def encode_reply(reply: AgentReply) -> bytes:
    """The body of the `POST /tasks/send` that brings a reply to the host of the waiting agent."""
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
    """The error as elsewhere in this dialect, with its fields, so that the gateway can raise the same one."""
    return WireAnswer(status_of(type(error)), to_json({"error": to_wire(error)}))


def decode_failure(body: bytes) -> SynapseError:
    """The error that a host told, of the same class; see `from_wire` for one of another version."""
    try:
        told = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        told = {}
    return from_wire(object_in(told, "error"))


class _Send(msgspec.Struct, forbid_unknown_fields=True):
    """SendMessage; its parts are told apart by what they have, which a dataclass cannot say."""

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


_SEND: Final = msgspec.json.Decoder(_Send)


def _request(kind: str, raw: msgspec.Raw) -> HostCommand:
    if kind == SendMessage.__name__:
        return _send(_SEND.decode(raw))
    known = _PLAIN.get(kind)
    if known is None:
        raise InvalidRequest(f"'{kind[:80]}' is no command", hint=f"known: {', '.join(sorted(_PLAIN))}")
    request: HostCommand = msgspec.json.decode(raw, type=known)
    return request


def _send(shape: _Send) -> SendMessage:
    fields = msgspec.structs.asdict(shape)
    del fields["type"]
    fields["message"] = _message(shape.message)
    return SendMessage(**fields)


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
