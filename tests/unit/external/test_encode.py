"""Encodes requests in each protocol."""

from __future__ import annotations

import pytest

from synapse.core.message import DataPart, FilePart, Message, MessageId, Part, Role, TextPart
from synapse.external.card import Interface
from synapse.external.encode import RemoteTaskRef, cancel_call, get_call, send_call, subscribe_call
from synapse.external.requests import Call

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


@pytest.mark.parametrize("kind", [interface("a2a-1.0"), interface("a2a-0.3", "HTTP+JSON"), interface("synapse")])
def test_a_message_has_the_trace_headers_of_its_task(kind: Interface) -> None:
    traced = send_call(kind, MESSAGE, RemoteTaskRef(trace=(("traceparent", "00-a-b-01"), ("tracestate", "c=d"))))

    assert traced.headers == {**send_call(kind, MESSAGE).headers, "traceparent": "00-a-b-01", "tracestate": "c=d"}


def test_a_strange_task_id_leads_to_no_other_path() -> None:
    call = subscribe_call(Interface(protocol="synapse", url="http://other"), "../x?y")

    assert call.url == "http://other/tasks/..%2Fx%3Fy/subscribe"
    assert call.body is None


@pytest.mark.parametrize(
    ("protocol", "names"),
    [
        ("a2a-1.0", {"taskId": "t", "contextId": "c"}),
        ("a2a-0.3", {"taskId": "t", "contextId": "c"}),
        ("synapse", {"task_id": "t", "context_id": "c"}),
    ],
)
def test_a_message_continues_a_task(protocol: str, names: dict[str, str]) -> None:
    call = send_call(interface(protocol), MESSAGE, RemoteTaskRef(task_id="t", context_id="c"))

    assert call.body is not None
    spoken = call.body.get("params", call.body)["message"]
    assert names.items() <= spoken.items()


@pytest.mark.parametrize(
    ("protocol", "configuration"), [("a2a-1.0", {"returnImmediately": True}), ("a2a-0.3", {"blocking": False})]
)
def test_a_message_may_be_sent_without_waiting_for_the_answer(protocol: str, configuration: dict[str, bool]) -> None:
    call = send_call(interface(protocol), MESSAGE, waits=False)

    assert call.body is not None
    assert call.body["params"]["configuration"] == configuration


@pytest.mark.parametrize(
    ("kind", "get", "cancel", "follow"),
    [
        (interface("a2a-1.0", tenant="x"), "GetTask", "CancelTask", "SubscribeToTask"),
        (interface("a2a-0.3"), "tasks/get", "tasks/cancel", "tasks/resubscribe"),
    ],
    ids=["1.0", "0.3"],
)
def test_a_task_is_read_over_json_rpc(kind: Interface, get: str, cancel: str, follow: str) -> None:
    calls = [get_call(kind, "t/1"), cancel_call(kind, "t/1"), subscribe_call(kind, "t/1")]

    assert [call.body["method"] for call in calls if call.body] == [get, cancel, follow]
    tenant = {"tenant": "x"} if kind.tenant else {}
    assert all(call.body and call.body["params"] == {"id": "t/1", **tenant} for call in calls)
    assert ["text/event-stream" in call.headers.get("Accept", "") for call in calls] == [False, False, True]


@pytest.mark.parametrize(
    ("kind", "paths"),
    [
        (
            interface("a2a-1.0", "HTTP+JSON", tenant="x"),
            ["/x/tasks/t%2F1", "/x/tasks/t%2F1:cancel", "/x/tasks/t%2F1:subscribe"],
        ),
        (interface("synapse"), ["/tasks/t%2F1", "/tasks/t%2F1/cancel", "/tasks/t%2F1/subscribe"]),
    ],
    ids=["1.0", "synapse"],
)
def test_a_task_is_read_by_its_path(kind: Interface, paths: list[str]) -> None:
    calls: list[Call] = [get_call(kind, "t/1"), cancel_call(kind, "t/1"), subscribe_call(kind, "t/1")]

    assert [call.url.removeprefix("http://other/rpc") for call in calls] == paths
    assert [call.body for call in calls] == [None, {}, None]


def test_a2a_0_3_over_rest() -> None:
    call = send_call(interface("a2a-0.3", "HTTP+JSON"), MESSAGE)

    assert call.url == "http://other/rpc/v1/message:send"
    assert call.headers == {"A2A-Version": "0.3"}
    assert call.body == {
        "configuration": {"blocking": True},
        "message": {
            "messageId": "m-1",
            "role": "ROLE_USER",
            "metadata": {"trace": "x"},
            "content": [
                {"text": "hi", "metadata": {"lang": "en"}},
                {"file": {"fileWithBytes": "AAE=", "name": "a.bin", "mimeType": "application/octet-stream"}},
                {"file": {"fileWithUri": "https://example.com/b"}},
                {"data": {"data": {"n": 1}}},
            ],
        },
    }
    assert get_call(interface("a2a-0.3", "HTTP+JSON"), "t").url == "http://other/rpc/v1/tasks/t"
