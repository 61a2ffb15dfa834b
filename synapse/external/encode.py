"""Encodes requests to external agents, in each protocol. Pure."""

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
    """The remote task that a message continues, by the agent's own ids; empty for a new conversation."""

    task_id: str = ""
    context_id: str = ""
    trace: tuple[tuple[str, str], ...] = ()
    """Headers that go with the message; see `core.trace`."""


NEW = RemoteTaskRef()


def send_call(interface: Interface, message: Message, ref: RemoteTaskRef = NEW, *, waits: bool = True) -> Call:
    """Returns the request that sends `message`; it asks for a stream if the agent has streams.

    If not, the answer `waits` for the end of the task, or comes at once with the task's current state.
    """
    call = _send_call(interface, message, ref, waits=waits)
    return replace(call, headers={**call.headers, **dict(ref.trace)}) if ref.trace else call


def _send_call(interface: Interface, message: Message, ref: RemoteTaskRef, *, waits: bool) -> Call:
    if interface.protocol == SYNAPSE:
        return Call(f"{interface.url}/tasks/send", {"message": _synapse_message(message, ref)})
    is_0_3, is_rest = interface.protocol == A2A_0_3, interface.binding != JSONRPC
    if is_0_3:
        encoded = _message_0_3_rest(message, ref) if is_rest else _message_0_3(message, ref)
        params = {"message": encoded, "configuration": {"blocking": waits}}
    else:
        configuration = {} if waits else {"returnImmediately": True}
        params = {"message": _message_1_0(message, ref), "configuration": configuration}
    if is_rest:
        verb = "stream" if interface.streaming else "send"
        return Call(f"{_base_url(interface)}/message:{verb}", params, _headers(interface))
    method = _SEND[is_0_3, interface.streaming]
    return Call(interface.url, _rpc(message.message_id, method, _tenanted(params, interface)), _headers(interface))


_SEND = {
    (False, False): "SendMessage",
    (False, True): "SendStreamingMessage",
    (True, False): "message/send",
    (True, True): "message/stream",
}
"""The JSON-RPC method that sends a message, by (is 0.3, streams)."""


def subscribe_call(interface: Interface, task_id: str) -> Call:
    """Returns the request that follows a task."""
    return _task_call(interface, task_id, _SUBSCRIBE, stream=True)


def get_call(interface: Interface, task_id: str) -> Call:
    """Returns the request that reads a task."""
    return _task_call(interface, task_id, _GET)


def cancel_call(interface: Interface, task_id: str) -> Call:
    """Returns the request that cancels a task."""
    return _task_call(interface, task_id, _CANCEL)


class _TaskRequest(NamedTuple):
    """The names of one request about a task in each protocol."""

    synapse: str
    a2a_0_3: str
    a2a_1_0: str
    verb: str = ""
    posts: bool = False


_GET = _TaskRequest("", "tasks/get", "GetTask")
_CANCEL = _TaskRequest("/cancel", "tasks/cancel", "CancelTask", ":cancel", posts=True)
_SUBSCRIBE = _TaskRequest("/subscribe", "tasks/resubscribe", "SubscribeToTask", ":subscribe")


def _task_call(interface: Interface, task_id: str, request: _TaskRequest, *, stream: bool = False) -> Call:
    headers = _headers(interface, stream=stream)
    body: dict[str, Any] | None = {} if request.posts else None
    # A stranger chose the id: it must not lead to another path.
    quoted = quote(task_id, safe="")
    if interface.protocol == SYNAPSE:
        return Call(f"{interface.url}/tasks/{quoted}{request.synapse}", body, headers)
    if interface.binding == JSONRPC:
        method = request.a2a_0_3 if interface.protocol == A2A_0_3 else request.a2a_1_0
        return Call(interface.url, _rpc(task_id, method, _tenanted({"id": task_id}, interface)), headers)
    return Call(f"{_base_url(interface)}/tasks/{quoted}{request.verb}", body, headers)


_VERSIONS = {A2A_0_3: "0.3", A2A_1_0: "1.0"}


def _headers(interface: Interface, *, stream: bool | None = None) -> dict[str, str]:
    version = _VERSIONS.get(interface.protocol)
    named = {"A2A-Version": version} if version else {}
    return {**named, **(_STREAM if (interface.streaming if stream is None else stream) else {})}


def _tenanted(params: dict[str, Any], interface: Interface) -> dict[str, Any]:
    return {**params, "tenant": interface.tenant} if interface.tenant else params


def _base_url(interface: Interface) -> str:
    """Returns the base URL of REST: 1.0 appends the tenant, 0.3 its version."""
    below = "v1" if interface.protocol == A2A_0_3 else interface.tenant
    return "/".join(filter(None, (interface.url.rstrip("/"), below)))


def _rpc(call_id: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": call_id, "method": method, "params": params}


def _synapse_message(message: Message, ref: RemoteTaskRef) -> dict[str, Any]:
    parts = [_part(part, "type") for part in message.parts]
    encoded = {"role": "user", "parts": parts, "message_id": message.message_id}
    return _with_more(encoded, message, task_id=ref.task_id, context_id=ref.context_id)


def _message_0_3(message: Message, ref: RemoteTaskRef) -> dict[str, Any]:
    parts = [_part(part, "kind") for part in message.parts]
    encoded = {"kind": "message", "messageId": message.message_id, "role": "user", "parts": parts}
    return _with_more(encoded, message, taskId=ref.task_id, contextId=ref.context_id)


def _message_0_3_rest(message: Message, ref: RemoteTaskRef) -> dict[str, Any]:
    """Returns the message for REST 0.3, which uses the field names of its protobuf."""
    parts = [_part_0_3_rest(part) for part in message.parts]
    encoded = {"messageId": message.message_id, "role": "ROLE_USER", "content": parts}
    return _with_more(encoded, message, taskId=ref.task_id, contextId=ref.context_id)


def _message_1_0(message: Message, ref: RemoteTaskRef) -> dict[str, Any]:
    parts = [_part_1_0(part) for part in message.parts]
    encoded = {"messageId": message.message_id, "role": "ROLE_USER", "parts": parts}
    return _with_more(encoded, message, taskId=ref.task_id, contextId=ref.context_id)


def _with_more(encoded: dict[str, Any], message: Message, **ref: str) -> dict[str, Any]:
    more = {name: value for name, value in ref.items() if value}
    return {**encoded, **more, **({"metadata": dict(message.metadata)} if message.metadata else {})}


def _part(part: Part, tag: str) -> dict[str, Any]:
    """Returns a part for the synapse dialect or for 0.3, which differ in the name of the tag."""
    match part:
        case TextPart(text=text):
            encoded: dict[str, Any] = {tag: "text", "text": text}
        case FilePart():
            encoded = {tag: "file", "file": _file(part)}
        case DataPart(data=data):
            encoded = {tag: "data", "data": data}
        case _:
            assert_never(part)
    return {**encoded, "metadata": dict(part.metadata)} if part.metadata else encoded


def _file(part: FilePart) -> dict[str, Any]:
    where = {"uri": part.url} if part.content is None else {"bytes": _encoded(part.content)}
    named = {"name": part.name, "mimeType": part.media_type}
    return {**where, **{key: value for key, value in named.items() if value}}


def _part_0_3_rest(part: Part) -> dict[str, Any]:
    encoded = _part(part, "kind")
    del encoded["kind"]
    match part:
        case DataPart(data=data):
            # Data must be an object; any other value is wrapped in one.
            return {**encoded, "data": {"data": data if isinstance(data, dict) else {"value": data}}}
        case FilePart():
            named = {"uri": "fileWithUri", "bytes": "fileWithBytes"}
            return {**encoded, "file": {named.get(key, key): value for key, value in _file(part).items()}}
        case _:
            return encoded


def _part_1_0(part: Part) -> dict[str, Any]:
    match part:
        case TextPart(text=text):
            encoded: dict[str, Any] = {"text": text}
        case FilePart(content=None, url=url):
            encoded = {"url": url}
        case FilePart(content=content):
            encoded = {"raw": _encoded(content or b"")}
        case DataPart(data=data):
            encoded = {"data": data}
        case _:
            assert_never(part)
    named = {"filename": part.name, "mediaType": part.media_type, "metadata": dict(part.metadata)}
    return {**encoded, **{key: value for key, value in named.items() if value}}


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
