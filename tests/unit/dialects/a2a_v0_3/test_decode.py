"""How requests of A2A 0.3 are decoded: JSON-RPC as its schema, REST as its protobuf defines them."""

from __future__ import annotations

from typing import Any

import pytest

from synapse.core.errors import ExtendedCardMissing, InvalidField, InvalidRequest, RouteNotFound
from synapse.core.message import DataPart, FilePart, Part, Role, TextPart
from synapse.core.requests import CancelTask, FollowTask, GetTask, Request, SendAndFollow, SendAndWait, SendMessage
from tests.unit.dialects.a2a_v0_3.samples import REST_MESSAGE, RPC_MESSAGE, rest, rpc


def rpc_sent(**message: Any) -> SendMessage:
    request = rpc("message/send", {"message": {**RPC_MESSAGE, **message}}).request
    assert isinstance(request, SendAndWait)
    return request.send


def rest_sent(**message: Any) -> SendMessage:
    request = rest("POST", "/v1/message:send", {"message": {**REST_MESSAGE, **message}}).request
    assert isinstance(request, SendAndWait)
    return request.send


def test_both_forms_of_a_message_decode_to_equal_requests() -> None:
    more: dict[str, Any] = {"contextId": "c", "taskId": "t", "metadata": {"k": 1}, "extensions": ["urn:x"]}

    assert rpc_sent(**more) == rest_sent(**more)
    assert (rpc_sent().message.text, rpc_sent().message.role, rpc_sent().dialect) == ("hello", Role.USER, "a2a_v0_3")
    assert rpc_sent(referenceTaskIds=["t-0"]).message.reference_task_ids == ("t-0",)


@pytest.mark.parametrize(
    ("configuration", "waits"),
    [(None, True), ({}, True), ({"blocking": True}, True), ({"blocking": False}, False), ({"blocking": None}, True)],
)
def test_json_rpc_waits_unless_told_not_to(configuration: Any, waits: bool) -> None:
    request = rpc("message/send", {"message": RPC_MESSAGE, "configuration": configuration}).request

    assert isinstance(request, SendAndWait if waits else SendMessage)


@pytest.mark.parametrize(
    ("configuration", "waits"),
    [(None, True), ({"blocking": True}, True), ({"blocking": False}, False), ({"historyLength": 3}, False)],
)
def test_rest_waits_when_its_configuration_says_so_or_is_not_there(configuration: Any, waits: bool) -> None:
    body = {"message": REST_MESSAGE, "configuration": configuration}
    request = rest("POST", "/v1/message:send", body).request

    assert isinstance(request, SendAndWait if waits else SendMessage)


def test_a_streamed_message_is_followed() -> None:
    assert isinstance(rpc("message/stream", {"message": RPC_MESSAGE}).request, SendAndFollow)
    assert isinstance(rest("POST", "/v1/message:stream", {"message": REST_MESSAGE}).request, SendAndFollow)


PARTS: list[tuple[dict[str, Any], dict[str, Any], Part]] = [
    ({"kind": "text", "text": ""}, {"text": ""}, TextPart(text="")),
    (
        {"kind": "file", "file": {"bytes": "aGk=", "name": "n", "mimeType": "m"}},
        {"file": {"fileWithBytes": "aGk=", "name": "n", "mimeType": "m"}},
        FilePart(content=b"hi", name="n", media_type="m"),
    ),
    (
        {"kind": "file", "file": {"uri": "https://x"}},
        {"file": {"fileWithUri": "https://x"}},
        FilePart(url="https://x"),
    ),
    ({"kind": "data", "data": {"a": None}}, {"data": {"data": {"a": None}}}, DataPart(data={"a": None})),
    (
        {"kind": "data", "data": {"value": [1]}, "metadata": {"data_part_compat": True, "k": 1}},
        {"data": {"data": {"value": [1]}}, "metadata": {"data_part_compat": True, "k": 1}},
        DataPart(data=[1], metadata={"k": 1}),
    ),
    (
        {"kind": "text", "text": "t", "metadata": {"snake_case": 1}},
        {"text": "t", "metadata": {"snake_case": 1}},
        TextPart(text="t", metadata={"snake_case": 1}),
    ),
]


@pytest.mark.parametrize(("by_rpc", "by_rest", "part"), PARTS)
def test_each_kind_of_part_is_understood(by_rpc: dict[str, Any], by_rest: dict[str, Any], part: Part) -> None:
    assert rpc_sent(parts=[by_rpc]).message.parts == (part,)
    assert rest_sent(content=[by_rest]).message.parts == (part,)


def test_the_names_of_the_protobuf_are_taken_too() -> None:
    body = {
        "request": {
            "message_id": "m-1",
            "context_id": "c",
            "role": "ROLE_USER",
            "content": [{"file": {"file_with_bytes": "aGk", "mime_type": "m"}}],
        },
        "configuration": {"blocking": True},
    }
    request = rest("POST", "/v1/message:send", body).request

    assert isinstance(request, SendAndWait)
    assert (request.send.context_id, request.send.message.parts) == ("c", (FilePart(content=b"hi", media_type="m"),))


RPC_MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"messageId": ""}, "message.messageId"),
    ({"role": "ROLE_USER"}, "message.role"),
    ({"parts": []}, "message.parts"),
    ({"parts": [{"kind": "text"}]}, "message.parts[0]"),
    ({"parts": [{"kind": "text", "text": "a", "data": {}}]}, "message.parts[0]"),
    ({"parts": [{"kind": "data", "text": "a"}]}, "message.parts[0].kind"),
    ({"parts": [{"kind": "movie", "text": "a"}]}, "message.parts[0].kind"),
    ({"parts": [{"text": "a"}]}, "message.parts[0].kind"),
    ({"parts": [{"kind": "text", "text": "a"}, {"data": {}}]}, "message.parts[1].kind"),
    ({"parts": [{"kind": "data", "data": [1]}]}, "message.parts[0].data"),
    ({"parts": [{"kind": "file", "file": {}}]}, "message.parts[0].file"),
    ({"parts": [{"kind": "file", "file": {"bytes": "a", "uri": "b"}}]}, "message.parts[0].file.bytes"),
    ({"parts": [{"kind": "file", "file": {"bytes": "aGk=", "uri": "b"}}]}, "message.parts[0].file"),
]


@pytest.mark.parametrize(("change", "field"), RPC_MISTAKES)
def test_a_wrong_field_of_json_rpc_is_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidField) as refused:
        rpc_sent(**change)

    assert refused.value.field == field


REST_MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"role": "user"}, "message.role"),
    ({"content": "a string"}, "message.content"),
    ({"content": [{}]}, "message.content[0]"),
    ({"content": [{"file": {"name": "n"}}]}, "message.content[0].file"),
    ({"content": [{"data": {"no": "data"}}]}, "message.content[0].data.data"),
]


@pytest.mark.parametrize(("change", "field"), REST_MISTAKES)
def test_a_wrong_field_of_rest_is_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidField) as refused:
        rest_sent(**change)

    assert refused.value.field == field


@pytest.mark.parametrize(
    ("by_rpc", "by_rest", "request_"),
    [
        ("tasks/get", ("GET", "/tasks/{id}"), GetTask("t-1", exact=True)),
        ("tasks/cancel", ("POST", "/tasks/{id}:cancel"), CancelTask("t-1", exact=True)),
        ("tasks/resubscribe", ("GET", "/tasks/{id}:subscribe"), FollowTask(task_id="t-1")),
        ("tasks/resubscribe", ("POST", "/tasks/{id}:subscribe"), FollowTask(task_id="t-1")),
    ],
)
def test_a_task_is_named_by_its_whole_id(by_rpc: str, by_rest: tuple[str, str], request_: Request[object]) -> None:
    method, path = by_rest

    assert rpc(by_rpc, {"id": "t-1"}).request == request_
    assert rest(method, f"/v1{path}", id="t-1").request == request_
    assert rest(method, path, id="t-1").request == request_


def test_a_broken_stream_is_resumed_after_the_last_event() -> None:
    assert rpc("tasks/resubscribe", {"id": "t"}, last_event_id="17").request == FollowTask(task_id="t", after=17)
    with pytest.raises(InvalidField):
        rpc("tasks/resubscribe", {"id": "t"}, last_event_id="-1")


def test_there_is_no_extended_card() -> None:
    with pytest.raises(ExtendedCardMissing):
        rpc("agent/getAuthenticatedExtendedCard")
    with pytest.raises(ExtendedCardMissing):
        rest("GET", "/v1/card")


def test_operations_of_the_next_version_are_refused() -> None:
    for path in ("/v1/tasks", "/v1/extendedAgentCard"):
        with pytest.raises(RouteNotFound):
            rest("GET", path)


def test_a_message_is_not_sent_without_a_body() -> None:
    with pytest.raises(InvalidRequest):
        rest("POST", "/v1/message:send")
    with pytest.raises(InvalidField):
        rpc("message/send")
