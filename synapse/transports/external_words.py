"""What is said to external agents: one message, in the words of each protocol. Pure."""

from __future__ import annotations

import base64
from typing import Any, assert_never
from urllib.parse import quote

from synapse.core.message import DataPart, FilePart, Message, Part, TextPart
from synapse.transports.errand import Call
from synapse.transports.external_card import A2A_0_3, JSONRPC, SYNAPSE, Interface

_STREAM = {"Accept": "text/event-stream, application/json"}


def send_call(interface: Interface, message: Message) -> Call:
    """The request that sends `message`; it asks for a stream where the agent has streams."""
    if interface.protocol == SYNAPSE:
        return Call(f"{interface.url}/tasks/send", {"message": _synapse_message(message)})
    if interface.protocol == A2A_0_3:
        method = "message/stream" if interface.streaming else "message/send"
        question = {"message": _message_0_3(message), "configuration": {"blocking": True}}
        return Call(interface.url, _rpc(message, method, question), _headers("0.3", interface))
    params: dict[str, Any] = {"message": _message_1_0(message), "configuration": {}}
    if interface.binding == JSONRPC:
        method = "SendStreamingMessage" if interface.streaming else "SendMessage"
        if interface.tenant:
            params["tenant"] = interface.tenant
        return Call(interface.url, _rpc(message, method, params), _headers("1.0", interface))
    place = "/".join(filter(None, (interface.url.rstrip("/"), interface.tenant)))
    verb = "stream" if interface.streaming else "send"
    return Call(f"{place}/message:{verb}", params, _headers("1.0", interface))


def subscribe_call(interface: Interface, task_id: str) -> Call:
    """The request that follows a task in the synapse dialect."""
    # The id is a stranger's word: it must not lead to another path.
    return Call(f"{interface.url}/tasks/{quote(task_id, safe='')}/subscribe", headers=_STREAM)


def _headers(version: str, interface: Interface) -> dict[str, str]:
    return {"A2A-Version": version, **(_STREAM if interface.streaming else {})}


def _rpc(message: Message, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": message.message_id, "method": method, "params": params}


def _synapse_message(message: Message) -> dict[str, Any]:
    parts = [_part(part, "type") for part in message.parts]
    return _with_metadata({"role": "user", "parts": parts, "message_id": message.message_id}, message)


def _message_0_3(message: Message) -> dict[str, Any]:
    parts = [_part(part, "kind") for part in message.parts]
    spoken = {"kind": "message", "messageId": message.message_id, "role": "user", "parts": parts}
    return _with_metadata(spoken, message)


def _message_1_0(message: Message) -> dict[str, Any]:
    parts = [_part_1_0(part) for part in message.parts]
    return _with_metadata({"messageId": message.message_id, "role": "ROLE_USER", "parts": parts}, message)


def _with_metadata(spoken: dict[str, Any], message: Message) -> dict[str, Any]:
    return {**spoken, "metadata": dict(message.metadata)} if message.metadata else spoken


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
