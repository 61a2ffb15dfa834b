"""Bodies are read strictly, and an error names the field and the next step."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest

from synapse.core.errors import InvalidRequest, PriorityOutOfRange
from synapse.core.message import DataPart, FilePart, Role, Sender, TextPart
from synapse.core.requests import (
    AddExternal,
    AnswerQuestion,
    CancelTask,
    GetScreen,
    GetStatus,
    GetTask,
    ListExternals,
    ListTasks,
    RemoveExternal,
    Request,
    ResolveTask,
    SubscribeTask,
    WatchStatus,
)
from synapse.core.task import TaskState
from synapse.dialects.dialect import WireRequest
from synapse.dialects.proto_json import NESTING_LIMIT
from synapse.dialects.synapse.decode import (
    ask_screen,
    decode_answer,
    decode_cancel,
    decode_create,
    decode_discover,
    decode_externals,
    decode_get,
    decode_list,
    decode_remove_external,
    decode_reply,
    decode_resolve,
    decode_send,
    decode_send_external,
    decode_signal,
    decode_status,
    decode_subscribe,
    decode_tools,
    decode_watch_status,
)
from synapse.dialects.task_json import message_object

HELLO: dict[str, Any] = {"role": "user", "parts": [{"type": "text", "text": "Hello!"}]}
TASK = {"id": "54241e7e"}
OTHER = {"alias": "other"}


def wire(body: object = None, query: bytes = b"", params: dict[str, str] = TASK) -> WireRequest:
    content = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
    return WireRequest("POST", "/", params, query, (), content)


def refusal(decode: Callable[[WireRequest], Request[object]], request: WireRequest) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        decode(request)
    assert caught.value.hint or isinstance(caught.value, PriorityOutOfRange)
    return caught.value


def test_the_plain_example_is_a_message_of_normal_priority_without_a_sender() -> None:
    request = decode_send(wire({"message": HELLO}))

    assert request.message.role is Role.USER
    assert request.message.parts == (TextPart(text="Hello!"),)
    assert request.message.message_id == ""
    assert (request.dialect, request.priority, request.sender) == ("synapse", 3, None)
    assert (request.context_id, request.task_id, request.response_expected) == ("", "", False)


def test_the_metadata_of_the_reference_is_understood_and_the_rest_is_kept() -> None:
    metadata = {
        "sender": {
            "sender_id": "synapse-claude-8100",
            "sender_type": "claude",
            "sender_endpoint": "http://localhost:8100",
        },
        "response_expected": True,
        "sender_task_id": "abc12345",
        "in_reply_to": "task-id-optional",
        "ttl": 60,
        "unknown": {"kept": [1]},
    }

    request = decode_send(wire({"message": HELLO, "metadata": metadata}))

    assert request.sender == Sender(
        sender_id="synapse-claude-8100", sender_type="claude", sender_endpoint="http://localhost:8100"
    )
    assert request.response_expected is True
    assert request.sender_task_id == "abc12345"
    assert request.in_reply_to == "task-id-optional"
    assert request.metadata == metadata


def test_null_means_left_out() -> None:
    metadata = {"sender": None, "response_expected": None, "sender_task_id": None, "in_reply_to": None}

    request = decode_send(wire({"message": HELLO, "metadata": metadata, "context_id": None}))

    assert (request.sender, request.response_expected, request.in_reply_to) == (None, False, "")
    assert decode_send(wire({"message": HELLO, "metadata": None})).metadata == {}


@pytest.mark.parametrize("place", ["top", "message"])
def test_context_and_task_may_stand_at_the_top_or_in_the_message(place: str) -> None:
    ids = {"context_id": "c", "task_id": "t"}
    body = {"message": HELLO, **ids} if place == "top" else {"message": {**HELLO, **ids}}

    request = decode_send(wire(body))

    assert (request.context_id, request.task_id) == ("c", "t")


@pytest.mark.parametrize("key", ["message_id", "messageId"])
def test_both_spellings_of_the_message_id_are_understood(key: str) -> None:
    request = decode_send(wire({"message": {**HELLO, key: "m-7"}}))

    assert request.message.message_id == "m-7"


def test_every_kind_of_part_survives_decoding_and_encoding() -> None:
    message = {
        "role": "agent",
        "parts": [
            {"type": "text", "text": "see"},
            {"type": "file", "file": {"name": "doc.pdf", "mimeType": "application/pdf", "bytes": "JVBERg=="}},
            {"type": "file", "file": {"uri": "https://x/y"}, "metadata": {"k": 1}},
            {"type": "data", "data": [1, {"a": None}], "name": "n", "mimeType": "application/json"},
        ],
        "metadata": {"m": 1},
    }

    read = decode_send(wire({"message": message})).message

    assert read.parts == (
        TextPart(text="see"),
        FilePart(content=b"%PDF", name="doc.pdf", media_type="application/pdf"),
        FilePart(url="https://x/y", metadata={"k": 1}),
        DataPart(data=[1, {"a": None}], name="n", media_type="application/json"),
    )
    assert message_object(read) == message


@pytest.mark.parametrize("priority", [1, 2, 3, 4, 5])
def test_the_query_sets_the_priority(priority: int) -> None:
    assert decode_send(wire({"message": HELLO}, b"priority=%d" % priority)).priority == priority


@pytest.mark.parametrize("given", ["0", "6", "-1", "3.0", "high", "", "05", "\uff11"])
def test_other_priorities_are_refused(given: str) -> None:
    error = refusal(decode_send, wire({"message": HELLO}, f"priority={quote(given)}".encode()))

    assert isinstance(error, PriorityOutOfRange)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "the body is empty"),
        (b"{", "the body is not JSON: input data was truncated"),
        (b"hello", "the body is not JSON: invalid character (byte 0)"),
        (b"\xff\xfe", "the body is not JSON: invalid character (byte 0)"),
        (b'{"message": "\xff"}', "message: expected object, got str"),
        (b'{"context_id": "\xff"}', "the body is not JSON: 'utf-8' codec can't decode byte 0xff"),
        ([], "the body: expected object, got array"),
        ({}, "the body: the field 'message' is missing"),
        ({"message": 3}, "message: expected object, got int"),
        ({"message": {"role": "user"}}, "message: the field 'parts' is missing"),
        ({"message": {"parts": HELLO["parts"]}}, "message: the field 'role' is missing"),
        ({"message": {**HELLO, "role": "robot"}}, "message.role: must be 'user' or 'agent'"),
        ({"message": {**HELLO, "parts": []}}, "message.parts: must not be empty"),
        ({"message": {**HELLO, "parts": [{"text": "a"}]}}, "message.parts[0]: the field 'type' is missing"),
        (
            {"message": {**HELLO, "parts": [{"type": "image"}]}},
            "message.parts[0].type: must be 'text', 'file' or 'data'",
        ),
        (
            {"message": {**HELLO, "parts": [{"type": "text", "text": 5}]}},
            "message.parts[0].text: expected str, got int",
        ),
        (
            {"message": {**HELLO, "parts": [{"type": "file", "file": {"bytes": "not base64"}}]}},
            "message.parts[0].file.bytes: invalid base64",
        ),
        (
            {"message": {**HELLO, "parts": [{"type": "file", "file": {"name": "x"}}]}},
            "message.parts[0].file: must have either 'bytes' or 'uri'",
        ),
        (
            {"message": {**HELLO, "parts": [{"type": "file", "file": {"bytes": "", "uri": "http://x"}}]}},
            "message.parts[0].file: must have either 'bytes' or 'uri'",
        ),
        ({"message": HELLO, "metadata": []}, "metadata: expected object"),
        ({"message": HELLO, "metadata": {"sender": "me"}}, "metadata.sender: expected object"),
        ({"message": HELLO, "metadata": {"sender": {}}}, "metadata.sender: the field 'sender_id' is missing"),
        (
            {"message": HELLO, "metadata": {"sender": {"sender_id": ""}}},
            "metadata.sender.sender_id: must not be empty",
        ),
        ({"message": HELLO, "metadata": {"response_expected": 1}}, "metadata.response_expected: expected bool"),
        ({"message": HELLO, "context_id": "c" * 257}, "context_id: expected str of length <= 256"),
    ],
)
def test_a_wrong_body_is_refused_by_the_name_of_its_field(body: object, sentence: str) -> None:
    assert str(refusal(decode_send, wire(body))).startswith(sentence)


@pytest.mark.parametrize("depth", [NESTING_LIMIT + 1, 5_000])
@pytest.mark.parametrize("bracket", [b"[]", b'{"a":}'])
def test_json_that_is_nested_too_deep_is_refused(depth: int, bracket: bytes) -> None:
    opening, closing = bracket[:-1], bracket[-1:]
    deep = opening * depth + (b"1" if opening != b"[" else b"") + closing * depth
    body = json.dumps({"message": HELLO, "metadata": {"x": 0}}).encode().replace(b"0", deep)

    error = refusal(decode_send, wire(body))

    assert str(error) == f"the body is nested deeper than {NESTING_LIMIT} levels"


def test_many_small_values_beside_each_other_are_not_deep() -> None:
    body = {"message": HELLO, "metadata": {"list": [{"a": [index]} for index in range(500)]}}

    assert len(decode_send(wire(body)).metadata["list"]) == 500


def test_creating_a_task_takes_the_body_of_a_message() -> None:
    metadata = {"sender": {"sender_id": "synapse-claude-8100"}, "x": 1}

    request = decode_create(wire({"message": HELLO, "metadata": metadata, "context_id": "c"}))

    assert request.message.text == "Hello!"
    assert request.sender == Sender(sender_id="synapse-claude-8100")
    assert (request.context_id, request.metadata, request.dialect) == ("c", metadata, "synapse")


def test_requests_without_a_body_are_made_of_the_path() -> None:
    assert decode_get(wire()) == GetTask("54241e7e")
    assert decode_cancel(wire()) == CancelTask("54241e7e")
    assert decode_status(wire()) == GetStatus()
    assert decode_status(wire(query=b"finished=20")) == GetStatus(20)
    assert decode_watch_status(wire()) == WatchStatus()
    assert decode_watch_status(wire(query=b"finished=3")) == WatchStatus(3)
    for many in (b"21", b"-1", b"x"):
        with pytest.raises(InvalidRequest, match="finished: must be a whole number from 0 to 20"):
            decode_watch_status(wire(query=b"finished=" + many))
    assert decode_externals(wire()) == ListExternals()
    assert decode_remove_external(wire(params=OTHER)) == RemoveExternal("other")


@pytest.mark.parametrize(
    ("tag", "known"), [(b"", ""), (b'"7.3"', "7.3"), (b'W/"7.3"', "7.3"), (b"7.3", "7.3"), (b"*", "*")]
)
def test_a_screen_is_asked_for_with_the_version_that_the_reader_has(tag: bytes, known: str) -> None:
    headers = ((b"if-none-match", tag),) if tag else ()

    assert ask_screen(wire()._replace(headers=headers)).request == GetScreen(known=known)
    assert ask_screen(wire(query=b"lines=1000")).request == GetScreen(lines=1000)
    assert "lines: must be a whole number from 0 to 1000" in str(refusal_of_screen(b"lines=1001"))


def refusal_of_screen(query: bytes) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        ask_screen(wire(query=query))
    return caught.value


def test_a_list_without_a_query_is_the_first_page() -> None:
    assert decode_list(wire()) == ListTasks()


def test_a_list_can_be_narrowed() -> None:
    query = b"status=failed,working&context_id=c&parent_id=p&limit=7&cursor=x&updated_after=2026-01-31T10:30:00%2B09:00"

    assert decode_list(wire(query=query)) == ListTasks(
        states=frozenset({TaskState.FAILED, TaskState.REJECTED, TaskState.WORKING}),
        context_id="c",
        parent_id="p",
        updated_after=datetime(2026, 1, 31, 1, 30, tzinfo=UTC),
        limit=7,
        cursor="x",
    )


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        (b"status=done", "status: 'done' is not a state"),
        (b"limit=0", "limit: must be a whole number from 1 to 500"),
        (b"limit=501", "limit: must be"),
        (b"limit=1_0", "limit: must be"),
        (b"limit=" + b"9" * 5000, "limit: must be"),
        (b"updated_after=yesterday", "updated_after: must be a time with its zone"),
        (b"updated_after=2026-01-31T10:30:00", "updated_after: must be a time with its zone"),
        (b"updated_after=0001-01-01T00:00:00%2B14:00", "updated_after: must be a time with its zone"),
        (b"cursor=%ff", "the query cannot be read"),
        (b"cursor=\xff", "the query cannot be read"),
        (b"a=1&" * 101, "the query cannot be read"),
    ],
)
def test_a_wrong_query_is_refused_by_the_name_of_its_field(query: bytes, sentence: str) -> None:
    assert str(refusal(decode_list, wire(query=query))).startswith(sentence)


def test_a_subscription_begins_with_a_snapshot_or_resumes() -> None:
    header = WireRequest("GET", "/", TASK, headers=[(b"accept", b"*/*"), (b"last-event-id", b"17")])

    assert decode_subscribe(wire()) == SubscribeTask(task_id="54241e7e", after=None)
    assert decode_subscribe(header) == SubscribeTask(task_id="54241e7e", after=17)
    assert decode_subscribe(wire(query=b"after=0")) == SubscribeTask(task_id="54241e7e", after=0)


@pytest.mark.parametrize("given", [b"-1", b"event-1", b"9" * 20, b"\xb9"])
def test_a_subscription_resumes_only_after_a_number(given: bytes) -> None:
    request = WireRequest("GET", "/", TASK, headers=[(b"last-event-id", given)])

    assert "Last-Event-ID" in str(refusal(decode_subscribe, request))


def test_a_reply_names_the_request_or_means_the_last_one() -> None:
    last = decode_reply(wire({"message": HELLO}))
    named = decode_reply(wire({"message": HELLO, "task_id": "54241e7e", "failed": True}))

    assert (last.task_id, last.failed, last.message.text) == ("", False, "Hello!")
    assert (named.task_id, named.failed) == ("54241e7e", True)


@pytest.mark.parametrize("verdict", ["delivered", "retry", "fail"])
def test_a_person_resolves_by_a_verdict(verdict: str) -> None:
    request = decode_resolve(wire({"verdict": verdict}))

    assert request == ResolveTask(task_id="54241e7e", verdict=verdict)


def test_a_person_may_say_since_when_they_were_asked() -> None:
    request = decode_resolve(wire({"verdict": "retry", "asked_at": "2026-01-31T10:30:00.250Z"}))

    assert request.asked_at == datetime(2026, 1, 31, 10, 30, 0, 250_000, tzinfo=UTC)
    assert "asked_at: must be a time" in str(refusal(decode_resolve, wire({"verdict": "retry", "asked_at": "now"})))


def test_another_verdict_is_refused() -> None:
    error = refusal(decode_resolve, wire({"verdict": "maybe"}))

    assert str(error) == "verdict: must be 'delivered', 'retry' or 'fail'"


@pytest.mark.parametrize("given", [{"verdict": "allow"}, {"verdict": "deny"}, {"option": "2"}, {"text": "main"}])
def test_a_question_is_answered_by_a_verdict_an_option_or_a_text(given: dict[str, str]) -> None:
    named = decode_answer(wire({**given, "question_id": "q-1"}))
    anything = decode_answer(wire(given, params={}))

    assert named == AnswerQuestion(task_id="54241e7e", question_id="q-1", **given)
    assert anything == AnswerQuestion(**given)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "the body: must have one of 'verdict', 'option' and 'text'"),
        ({"text": " "}, "the body: must have one of 'verdict', 'option' and 'text'"),
        ({"option": "1", "text": "yes"}, "the body: must have one of 'verdict', 'option' and 'text'"),
        ({"verdict": "maybe"}, "verdict: must be 'allow' or 'deny'"),
    ],
)
def test_an_answer_that_says_nothing_or_two_things_is_refused(given: dict[str, str], why: str) -> None:
    assert str(refusal(decode_answer, wire(given))) == why


def test_an_external_agent_is_added_by_its_address() -> None:
    assert decode_discover(wire({"url": "http://other-agent:9000"})) == AddExternal(url="http://other-agent:9000")
    assert decode_discover(wire({"url": "https://o/x", "alias": "other"})).alias == "other"


@pytest.mark.parametrize("url", ["", "other", "ftp://x", "http://", "http://[x", "http://x:99999", "http://x y"])
def test_an_invalid_address_is_refused(url: str) -> None:
    assert str(refusal(decode_discover, wire({"url": url}))).startswith("url: must be")


def test_a_message_to_an_external_agent_goes_by_its_alias() -> None:
    request = decode_send_external(wire({"message": HELLO}, params=OTHER))

    assert (request.alias, request.message.text) == ("other", "Hello!")


def test_a_hooks_report_is_any_object_with_the_secret_of_its_launch() -> None:
    headers = ((b"x-synapse-secret", b"s3cret"),)
    request = decode_signal(WireRequest("POST", "/signals", {}, b"", headers, b'{"a": {"b": [1]}}'))

    assert (request.payload, request.secret) == ({"a": {"b": [1]}}, "s3cret")


@pytest.mark.parametrize("body", [b"", b"[1]", b"{", b'{"a": "\xff"}'])
def test_a_report_that_is_not_an_object_is_refused(body: bytes) -> None:
    refusal(decode_signal, wire(body))


def test_a_report_of_tools_names_the_client_and_its_protocol() -> None:
    request = decode_tools(wire({"client": "claude-code 2.1", "protocol": "2026-07-28", "more": 1}))

    assert (request.client, request.protocol) == ("claude-code 2.1", "2026-07-28")
    assert decode_tools(wire({})).client == ""


@pytest.mark.parametrize("body", [b"", [], {"client": 1}, {"protocol": None}, {"client": "x" * 70_000}])
def test_a_report_of_tools_with_wrong_fields_is_refused(body: object) -> None:
    refusal(decode_tools, wire(body))
