"""How requests of A2A 1.0 are decoded, over JSON-RPC and REST alike."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from synapse.core.errors import InvalidField, InvalidRequest, MalformedJson, RouteNotFound, UnsupportedOperation
from synapse.core.message import DataPart, FilePart, Part, Role, TextPart
from synapse.core.requests import (
    CancelTask,
    FollowTask,
    GetTask,
    ListTasks,
    Request,
    SendAndFollow,
    SendAndWait,
    SendMessage,
)
from synapse.core.task import TaskState
from synapse.dialects.dialect import Call, StreamCall
from tests.unit.dialects.a2a_v1.samples import MESSAGE, rest, rpc

SEND: dict[str, Any] = {"message": MESSAGE}


def sent(body: object) -> SendMessage:
    """Returns the request that both bindings decode from a body; they must agree."""
    by_rpc, by_rest = rpc("SendMessage", body).request, rest("POST", "/message:send", body).request
    assert by_rpc == by_rest
    assert isinstance(by_rpc, SendAndWait | SendMessage)
    return by_rpc.send if isinstance(by_rpc, SendAndWait) else by_rpc


def sent_part(part: dict[str, Any]) -> Part:
    return sent({"message": {**MESSAGE, "parts": [part]}}).message.parts[0]


def test_a_message_is_waited_for() -> None:
    call = rpc("SendMessage", SEND)

    assert isinstance(call, Call)
    assert isinstance(call.request, SendAndWait)
    assert (sent(SEND).message.text, sent(SEND).message.role, sent(SEND).dialect) == ("hello", Role.USER, "a2a_v1")


def test_a_message_whose_sender_does_not_wait_is_only_sent() -> None:
    call = rpc("SendMessage", {**SEND, "configuration": {"returnImmediately": True}})

    assert isinstance(call.request, SendMessage)


def test_a_streamed_message_is_followed() -> None:
    for call in (rpc("SendStreamingMessage", SEND), rest("POST", "/message:stream", SEND)):
        assert isinstance(call, StreamCall)
        assert isinstance(call.request, SendAndFollow)


def test_a_follow_up_names_its_task_whole() -> None:
    follow_up = sent({"message": {**MESSAGE, "taskId": "t-1", "contextId": "c-1"}})

    assert (follow_up.task_id, follow_up.context_id, follow_up.exact) == ("t-1", "c-1", True)


def test_all_fields_of_a_message_are_kept() -> None:
    spoken = {**MESSAGE, "metadata": {"k": [1]}, "extensions": ["urn:x"], "referenceTaskIds": ["t-0"]}
    message = sent({"message": spoken}).message

    assert (message.message_id, message.metadata) == ("m-1", {"k": [1]})
    assert (message.extensions, message.reference_task_ids) == (("urn:x",), ("t-0",))


def test_the_callers_metadata_is_stored_apart_from_the_hosts() -> None:
    assert sent({**SEND, "metadata": {"ttl": "soon", "response_expected": True}}).metadata == {
        "request": {"ttl": "soon", "response_expected": True}
    }
    assert sent(SEND).metadata == {}


@pytest.mark.parametrize(
    ("spoken", "part"),
    [
        ({"text": ""}, TextPart(text="")),
        ({"raw": "//4="}, FilePart(content=b"\xff\xfe")),
        ({"url": "https://x"}, FilePart(url="https://x")),
        ({"data": None}, DataPart(data=None)),
        ({"data": {"snake_case": None}}, DataPart(data={"snake_case": None})),
        ({"data": [1]}, DataPart(data=[1])),
        (
            {"url": "u", "filename": "n", "mediaType": "m", "metadata": {"k": 1}},
            FilePart(url="u", name="n", media_type="m", metadata={"k": 1}),
        ),
    ],
)
def test_each_kind_of_part_is_understood(spoken: dict[str, Any], part: Part) -> None:
    assert sent_part(spoken) == part


@pytest.mark.parametrize(
    ("spoken", "content"),
    [("//4=", b"\xff\xfe"), ("__4=", b"\xff\xfe"), ("//4", b"\xff\xfe"), ("__4", b"\xff\xfe"), ("", b"")],
)
def test_both_alphabets_of_base64_are_read_with_or_without_padding(spoken: str, content: bytes) -> None:
    assert sent_part({"raw": spoken}) == FilePart(content=content)


def test_field_names_are_taken_in_camel_case_and_as_the_protobuf_has_them() -> None:
    snake = {
        "message": {
            "message_id": "m-1",
            "role": 1,
            "parts": [{"raw": "aGk", "media_type": "text/plain", "metadata": {"kept_as_is": 1}}],
            "context_id": "c-1",
            "task_id": None,
            "reference_task_ids": ["t-0"],
        },
        "configuration": {"history_length": "3", "return_immediately": True, "accepted_output_modes": None},
    }
    camel = {
        "message": {
            "messageId": "m-1",
            "role": "ROLE_USER",
            "parts": [{"raw": "aGk=", "mediaType": "text/plain", "metadata": {"kept_as_is": 1}}],
            "contextId": "c-1",
            "referenceTaskIds": ["t-0"],
        },
        "configuration": {"historyLength": 3, "returnImmediately": True},
    }

    assert sent(snake) == sent(camel)


def test_unknown_fields_are_ignored() -> None:
    assert sent({**SEND, "tenant": "t", "new": {"message": 1}}) == sent(SEND)


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"messageId": ""}, "message.messageId"),
    ({"messageId": None}, "message.messageId"),
    ({"messageId": "x" * 257}, "message.messageId"),
    ({"role": "user"}, "message.role"),
    ({"role": "ROLE_UNSPECIFIED"}, "message.role"),
    ({"role": 7}, "message.role"),
    ({"parts": []}, "message.parts"),
    ({"parts": [{}]}, "message.parts[0]"),
    ({"parts": [{"text": "a", "url": "b"}]}, "message.parts[0]"),
    ({"parts": [{"text": 3}]}, "message.parts[0].text"),
    ({"parts": [{"raw": "not base64!"}]}, "message.parts[0].raw"),
    ({"parts": [{"text": "a", "metadata": []}]}, "message.parts[0].metadata"),
    ({"metadata": "no"}, "message.metadata"),
]


@pytest.mark.parametrize(("change", "field"), MISTAKES)
def test_a_field_that_is_wrong_is_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidField) as refused:
        sent({"message": {**MESSAGE, **change}})

    assert refused.value.field == field


@pytest.mark.parametrize("length", [-1, 2**31, 1.5, "many", True])
def test_a_history_length_is_a_whole_number_from_zero(length: object) -> None:
    with pytest.raises(InvalidField):
        rpc("GetTask", {"id": "t-1", "historyLength": length})


def test_a_body_that_is_not_json_is_malformed() -> None:
    for body in (b"{", b"\xff", b'{"message": \xff}'):
        with pytest.raises(MalformedJson):
            rest("POST", "/message:send", body)
        with pytest.raises(MalformedJson):
            rpc("SendMessage", body)


def test_a_message_is_not_sent_without_a_body() -> None:
    with pytest.raises(InvalidRequest):
        rest("POST", "/message:send")
    with pytest.raises(InvalidField):
        rpc("SendMessage")


def test_a_body_that_is_nested_too_deep_is_refused() -> None:
    for depth in (70, 100_000):
        deep = (
            b'{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":' + b"[" * depth + b"]" * depth + b"}]}}"
        )
        with pytest.raises(InvalidRequest, match="nested"):
            rest("POST", "/message:send", deep)


@pytest.mark.parametrize(
    ("by_rpc", "by_rest", "request_"),
    [
        (("GetTask", {"id": "t-1"}), ("GET", "/tasks/{id}"), GetTask("t-1", exact=True)),
        (("CancelTask", {"id": "t-1"}), ("POST", "/tasks/{id}:cancel"), CancelTask("t-1", exact=True)),
        (("SubscribeToTask", {"id": "t-1"}), ("POST", "/tasks/{id}:subscribe"), FollowTask(task_id="t-1")),
        (("SubscribeToTask", {"id": "t-1"}), ("GET", "/tasks/{id}:subscribe"), FollowTask(task_id="t-1")),
    ],
)
def test_a_task_is_named_by_its_whole_id(
    by_rpc: tuple[str, Any], by_rest: tuple[str, str], request_: Request[object]
) -> None:
    assert rpc(*by_rpc).request == request_
    assert rest(*by_rest, id="t-1").request == request_
    assert rest(by_rest[0], "/v1" + by_rest[1], id="t-1").request == request_


def test_a_broken_stream_is_resumed_after_the_last_event() -> None:
    assert rpc("SubscribeToTask", {"id": "t-1"}, last_event_id="17").request == FollowTask(task_id="t-1", after=17)
    with pytest.raises(InvalidField):
        rpc("SubscribeToTask", {"id": "t-1"}, last_event_id="seventeen")


def listed(params: dict[str, Any]) -> ListTasks:
    """Returns the request that both bindings decode from `params`."""
    query = "&".join(
        f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in params.items()
    )
    by_rpc, by_rest = rpc("ListTasks", params).request, rest("GET", "/tasks", query=query.replace("+", "%2B")).request
    assert by_rpc == by_rest
    assert isinstance(by_rpc, ListTasks)
    return by_rpc


def test_tasks_are_listed_with_all_filters() -> None:
    at = datetime(2026, 1, 15, 10, 30, tzinfo=UTC)

    assert listed({}) == ListTasks()
    assert listed(
        {
            "contextId": "c-1",
            "status": "TASK_STATE_INPUT_REQUIRED",
            "pageSize": 7,
            "pageToken": "1.2",
            "statusTimestampAfter": "2026-01-15T12:30:00.000+02:00",
            "historyLength": 0,
            "includeArtifacts": True,
        }
    ) == ListTasks(
        context_id="c-1",
        states=frozenset({TaskState.INPUT_REQUIRED}),
        limit=7,
        cursor="1.2",
        updated_after=at - timedelta(microseconds=1),
    )


@pytest.mark.parametrize("status", ["UNRECOGNIZED", "TASK_STATE_UNSPECIFIED", 0, ""])
def test_an_unset_state_means_all(status: object) -> None:
    request = rpc("ListTasks", {"status": status}).request

    assert request == ListTasks()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("status", "running"),
        ("pageSize", 0),
        ("pageSize", 101),
        ("pageSize", -1),
        ("statusTimestampAfter", "yesterday"),
        ("statusTimestampAfter", "2026-01-15"),
        ("includeArtifacts", "perhaps"),
        ("historyLength", -1),
    ],
)
def test_an_invalid_filter_is_refused(key: str, value: object) -> None:
    with pytest.raises(InvalidField) as by_rpc:
        rpc("ListTasks", {key: value})
    with pytest.raises(InvalidField) as by_rest:
        rest("GET", "/tasks", query=f"{key}={value}")

    assert by_rpc.value.field == by_rest.value.field == key


def test_the_beginning_of_time_is_no_filter() -> None:
    assert listed({"statusTimestampAfter": "0001-01-01T00:00:00Z"}) == ListTasks()


def test_an_extended_card_is_not_an_operation_of_this_agent() -> None:
    with pytest.raises(UnsupportedOperation):
        rest("GET", "/extendedAgentCard")
    with pytest.raises(UnsupportedOperation):
        rpc("GetExtendedAgentCard")


def test_the_card_path_of_the_former_version_is_not_one_of_this() -> None:
    with pytest.raises(RouteNotFound):
        rest("GET", "/card")
