"""What is said to external agents: one message, in the words of each protocol. Pure."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, assert_never
from urllib.parse import quote

from synapse.core.message import DataPart, FilePart, Message, Part, TextPart
from synapse.external.card import A2A_0_3, A2A_1_0, JSONRPC, SYNAPSE, Interface
from synapse.external.requests import Call

_STREAM = {"Accept": "text/event-stream, application/json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteTaskRef:
    """What a message goes on with, in the words of the agent over there; empty for a new conversation."""

    task_id: str = ""
    context_id: str = ""
    trace: tuple[tuple[str, str], ...] = ()
    """Headers that go with the message; see `core.trace`."""


NEW = RemoteTaskRef()


def send_call(interface: Interface, message: Message, thread: RemoteTaskRef = NEW, *, waits: bool = True) -> Call:
    """The request that sends `message`; it asks for a stream where the agent has streams.

    Where it has none, the answer `waits` for the end of the task, or comes at once with the task as it is then.
    """
    call = _send_call(interface, message, thread, waits=waits)
    return replace(call, headers={**call.headers, **dict(thread.trace)}) if thread.trace else call


def _send_call(interface: Interface, message: Message, thread: RemoteTaskRef, *, waits: bool) -> Call:
    if interface.protocol == SYNAPSE:
        return Call(f"{interface.url}/tasks/send", {"message": _synapse_message(message, thread)})
    is_former, is_rest = interface.protocol == A2A_0_3, interface.binding != JSONRPC
    if is_former:
        spoken = _message_0_3_rest(message, thread) if is_rest else _message_0_3(message, thread)
        params = {"message": spoken, "configuration": {"blocking": waits}}
    else:
        configuration = {} if waits else {"returnImmediately": True}
        params = {"message": _message_1_0(message, thread), "configuration": configuration}
    if is_rest:
        verb = "stream" if interface.streaming else "send"
        return Call(f"{_place(interface)}/message:{verb}", params, _headers(interface))
    method = _SEND[is_former, interface.streaming]
    return Call(interface.url, _rpc(message.message_id, method, _tenanted(params, interface)), _headers(interface))


_SEND = {
    (False, False): "SendMessage",
    (False, True): "SendStreamingMessage",
    (True, False): "message/send",
    (True, True): "message/stream",
}
"""The method that sends a message: of 0.3 or not, with a stream or not."""


def subscribe_call(interface: Interface, task_id: str) -> Call:
    """The request that follows a task."""
    return _about_task(interface, task_id, _SUBSCRIBE, stream=True)


def get_call(interface: Interface, task_id: str) -> Call:
    """The request that reads a task."""
    return _about_task(interface, task_id, _GET)


def cancel_call(interface: Interface, task_id: str) -> Call:
    """The request that stops a task."""
    return _about_task(interface, task_id, _CANCEL)


class _Words(NamedTuple):
    """How one request about a task is said in each protocol."""

    synapse: str
    a2a_0_3: str
    a2a_1_0: str
    verb: str = ""
    posts: bool = False


_GET = _Words("", "tasks/get", "GetTask")
_CANCEL = _Words("/cancel", "tasks/cancel", "CancelTask", ":cancel", posts=True)
_SUBSCRIBE = _Words("/subscribe", "tasks/resubscribe", "SubscribeToTask", ":subscribe")


def _about_task(interface: Interface, task_id: str, words: _Words, *, stream: bool = False) -> Call:
    headers = _headers(interface, stream=stream)
    body: dict[str, Any] | None = {} if words.posts else None
    # The id is a stranger's word: it must not lead to another path.
    quoted = quote(task_id, safe="")
    if interface.protocol == SYNAPSE:
        return Call(f"{interface.url}/tasks/{quoted}{words.synapse}", body, headers)
    if interface.binding == JSONRPC:
        method = words.a2a_0_3 if interface.protocol == A2A_0_3 else words.a2a_1_0
        return Call(interface.url, _rpc(task_id, method, _tenanted({"id": task_id}, interface)), headers)
    return Call(f"{_place(interface)}/tasks/{quoted}{words.verb}", body, headers)


_VERSIONS = {A2A_0_3: "0.3", A2A_1_0: "1.0"}


def _headers(interface: Interface, *, stream: bool | None = None) -> dict[str, str]:
    version = _VERSIONS.get(interface.protocol)
    named = {"A2A-Version": version} if version else {}
    return {**named, **(_STREAM if (interface.streaming if stream is None else stream) else {})}


def _tenanted(params: dict[str, Any], interface: Interface) -> dict[str, Any]:
    return {**params, "tenant": interface.tenant} if interface.tenant else params


def _place(interface: Interface) -> str:
    """Where the paths of REST begin: 1.0 has the tenant there, 0.3 its version."""
    below = "v1" if interface.protocol == A2A_0_3 else interface.tenant
    return "/".join(filter(None, (interface.url.rstrip("/"), below)))


def _rpc(call_id: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": call_id, "method": method, "params": params}


def _synapse_message(message: Message, thread: RemoteTaskRef) -> dict[str, Any]:
    parts = [_part(part, "type") for part in message.parts]
    spoken = {"role": "user", "parts": parts, "message_id": message.message_id}
    return _with_more(spoken, message, task_id=thread.task_id, context_id=thread.context_id)


def _message_0_3(message: Message, thread: RemoteTaskRef) -> dict[str, Any]:
    parts = [_part(part, "kind") for part in message.parts]
    spoken = {"kind": "message", "messageId": message.message_id, "role": "user", "parts": parts}
    return _with_more(spoken, message, taskId=thread.task_id, contextId=thread.context_id)


def _message_0_3_rest(message: Message, thread: RemoteTaskRef) -> dict[str, Any]:
    """In REST 0.3 is its own protobuf, whose names are others."""
    parts = [_part_0_3_rest(part) for part in message.parts]
    spoken = {"messageId": message.message_id, "role": "ROLE_USER", "content": parts}
    return _with_more(spoken, message, taskId=thread.task_id, contextId=thread.context_id)


def _message_1_0(message: Message, thread: RemoteTaskRef) -> dict[str, Any]:
    parts = [_part_1_0(part) for part in message.parts]
    spoken = {"messageId": message.message_id, "role": "ROLE_USER", "parts": parts}
    return _with_more(spoken, message, taskId=thread.task_id, contextId=thread.context_id)


def _with_more(spoken: dict[str, Any], message: Message, **thread: str) -> dict[str, Any]:
    more = {name: value for name, value in thread.items() if value}
    return {**spoken, **more, **({"metadata": dict(message.metadata)} if message.metadata else {})}


def _part(part: Part, tag: str) -> dict[str, Any]:
    """A part of the synapse dialect or of 0.3, which differ in the name of the tag."""
    match part:
        case TextPart(text=text):
            spoken: dict[str, Any] = {tag: "text", "text": text}
        case FilePart():
            spoken = {tag: "file", "file": _file(part)}
        case DataPart(data=data):
            spoken = {tag: "data", "data": data}
        case _:
            assert_never(part)
    return {**spoken, "metadata": dict(part.metadata)} if part.metadata else spoken


def _file(part: FilePart) -> dict[str, Any]:
    where = {"uri": part.url} if part.content is None else {"bytes": _encoded(part.content)}
    named = {"name": part.name, "mimeType": part.media_type}
    return {**where, **{key: value for key, value in named.items() if value}}


def _part_0_3_rest(part: Part) -> dict[str, Any]:
    spoken = _part(part, "kind")
    del spoken["kind"]
    match part:
        case DataPart(data=data):
            # Its data is an object; anything else is put into one.
            return {**spoken, "data": {"data": data if isinstance(data, dict) else {"value": data}}}
        case FilePart():
            named = {"uri": "fileWithUri", "bytes": "fileWithBytes"}
            return {**spoken, "file": {named.get(key, key): value for key, value in _file(part).items()}}
        case _:
            return spoken


def _part_1_0(part: Part) -> dict[str, Any]:
    match part:
        case TextPart(text=text):
            spoken: dict[str, Any] = {"text": text}
        case FilePart(content=None, url=url):
            spoken = {"url": url}
        case FilePart(content=content):
            spoken = {"raw": _encoded(content or b"")}
        case DataPart(data=data):
            spoken = {"data": data}
        case _:
            assert_never(part)
    named = {"filename": part.name, "mediaType": part.media_type, "metadata": dict(part.metadata)}
    return {**spoken, **{key: value for key, value in named.items() if value}}


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
