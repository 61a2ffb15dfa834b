"""One message, in the words of each protocol."""

from __future__ import annotations

import pytest

from synapse.core.message import DataPart, FilePart, Message, MessageId, Part, Role, TextPart
from synapse.transports.external_card import Interface
from synapse.transports.external_words import send_call, subscribe_call

PARTS: tuple[Part, ...] = (
    TextPart(text="hi", metadata={"lang": "en"}),
    FilePart(content=b"\x00\x01", name="a.bin", media_type="application/octet-stream"),
    FilePart(url="https://example.com/b"),
    DataPart(data={"n": 1}),
)
MESSAGE = Message(message_id=MessageId("m-1"), role=Role.USER, parts=PARTS, metadata={"trace": "x"})


def interface(protocol: str, binding: str = "JSONRPC", *, streaming: bool = False, tenant: str = "") -> Interface:
    return Interface(protocol=protocol, url="http://other/rpc", binding=binding, tenant=tenant, streaming=streaming)


def test_a2a_1_0_over_json_rpc() -> None:
    call = send_call(interface("a2a-1.0", tenant="t"), MESSAGE)

    assert call.url == "http://other/rpc"
    assert call.headers == {"A2A-Version": "1.0"}
    assert call.body == {
        "jsonrpc": "2.0",
        "id": "m-1",
        "method": "SendMessage",
        "params": {
            "tenant": "t",
            "configuration": {},
            "message": {
                "messageId": "m-1",
                "role": "ROLE_USER",
                "metadata": {"trace": "x"},
                "parts": [
                    {"text": "hi", "metadata": {"lang": "en"}},
                    {"raw": "AAE=", "filename": "a.bin", "mediaType": "application/octet-stream"},
                    {"url": "https://example.com/b"},
                    {"data": {"n": 1}},
                ],
            },
        },
    }


@pytest.mark.parametrize(
    ("tenant", "streaming", "url"),
    [
        ("", False, "http://other/rpc/message:send"),
        ("", True, "http://other/rpc/message:stream"),
        ("t", False, "http://other/rpc/t/message:send"),
    ],
)
def test_a2a_1_0_over_rest(tenant: str, streaming: bool, url: str) -> None:
    call = send_call(interface("a2a-1.0", "HTTP+JSON", tenant=tenant, streaming=streaming), MESSAGE)

    assert call.url == url
    assert call.body is not None
    assert set(call.body) == {"message", "configuration"}


def test_a2a_0_3() -> None:
    call = send_call(interface("a2a-0.3"), MESSAGE)

    assert call.headers == {"A2A-Version": "0.3"}
    assert call.body == {
        "jsonrpc": "2.0",
        "id": "m-1",
        "method": "message/send",
        "params": {
            "configuration": {"blocking": True},
            "message": {
                "kind": "message",
                "messageId": "m-1",
                "role": "user",
                "metadata": {"trace": "x"},
                "parts": [
                    {"kind": "text", "text": "hi", "metadata": {"lang": "en"}},
                    {
                        "kind": "file",
                        "file": {"bytes": "AAE=", "name": "a.bin", "mimeType": "application/octet-stream"},
                    },
                    {"kind": "file", "file": {"uri": "https://example.com/b"}},
                    {"kind": "data", "data": {"n": 1}},
                ],
            },
        },
    }


@pytest.mark.parametrize(("protocol", "method"), [("a2a-1.0", "SendStreamingMessage"), ("a2a-0.3", "message/stream")])
def test_an_agent_with_streams_is_asked_for_one(protocol: str, method: str) -> None:
    call = send_call(interface(protocol, streaming=True), MESSAGE)

    assert call.body is not None
    assert call.body["method"] == method
    assert "text/event-stream" in call.headers["Accept"]


def test_the_synapse_dialect() -> None:
    spoken = Message(message_id=MessageId("m-1"), role=Role.USER, parts=(TextPart(text="hi"),))
    call = send_call(Interface(protocol="synapse", url="http://other"), spoken)

    assert call.url == "http://other/tasks/send"
    assert call.body == {"message": {"role": "user", "parts": [{"type": "text", "text": "hi"}], "message_id": "m-1"}}


def test_a_strange_task_id_leads_to_no_other_path() -> None:
    call = subscribe_call(Interface(protocol="synapse", url="http://other"), "../x?y")

    assert call.url == "http://other/tasks/..%2Fx%3Fy/subscribe"
    assert call.body is None
