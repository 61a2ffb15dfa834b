"""The server answers clients of every version, and hostile ones, without I/O."""

from __future__ import annotations

from typing import Any

import pytest

from synapse.mcp.server import (
    CAPABILITIES_KEY,
    CLIENT_KEY,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MOST_BATCHED,
    PARSE_ERROR,
    SESSION_VERSIONS,
    STATELESS_VERSION,
    UNSUPPORTED_VERSION,
    VERSION_KEY,
    Exchange,
    HttpHeaders,
    Server,
    Session,
    refuse,
)
from synapse.mcp.tools import AGENT_TOOLS, PERSON_TOOLS, SendCall, ToolResult

SERVER = Server(AGENT_TOOLS, "how to use them", "1.2.3")
ENVELOPE = {
    VERSION_KEY: STATELESS_VERSION,
    CAPABILITIES_KEY: {},
    CLIENT_KEY: {"name": "claude-code", "version": "2.1"},
}
SEND = {"name": "send", "arguments": {"to": "codex", "text": "hello"}}


def request(method: str, params: object = None, request_id: object = 1) -> dict[str, Any]:
    fields: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id, "method": method}
    return fields if params is None else {**fields, "params": params}


def receive(message: object, session: Session | None = None, headers: HttpHeaders | None = None) -> Exchange:
    return SERVER.receive(message, session or Session(), headers)


def reply_to(message: object, session: Session | None = None, headers: HttpHeaders | None = None) -> dict[str, Any]:
    reply = receive(message, session, headers).reply
    assert isinstance(reply, dict)
    return reply


@pytest.mark.parametrize("version", SESSION_VERSIONS)
def test_initialize_agrees_to_every_session_version(version: str) -> None:
    session = Session()
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "codex", "version": "0.166"}}

    result = reply_to(request("initialize", params), session)["result"]

    assert result["protocolVersion"] == version
    assert result["capabilities"] == {"tools": {}}
    assert result["serverInfo"]["version"] == "1.2.3"
    assert result["instructions"] == "how to use them"
    assert "resultType" not in result
    assert (session.protocol, session.client) == (version, "codex 0.166")


@pytest.mark.parametrize("version", ["2026-07-28", "1999-01-01", "", "x" * 10_000])
def test_initialize_with_another_version_is_offered_the_latest_session_version(version: str) -> None:
    result = reply_to(request("initialize", {"protocolVersion": version}))["result"]

    assert result["protocolVersion"] == "2025-11-25"


def test_a_stateless_client_discovers_the_server_without_a_session() -> None:
    session = Session()

    result = reply_to(request("server/discover", {"_meta": ENVELOPE}), session)["result"]

    assert result["resultType"] == "complete"
    assert result["supportedVersions"] == [STATELESS_VERSION]
    assert result["instructions"] == "how to use them"
    assert result["cacheScope"] == "private"
    assert result["ttlMs"] == 0
    assert (session.protocol, session.client) == (STATELESS_VERSION, "claude-code 2.1")


def test_tools_are_listed_in_the_form_of_each_era() -> None:
    old, new = receive(request("tools/list")), receive(request("tools/list", {"_meta": ENVELOPE}))

    assert old.listed
    assert new.listed
    assert isinstance(old.reply, dict)
    assert isinstance(new.reply, dict)
    assert [tool["name"] for tool in old.reply["result"]["tools"]] == [tool.name for tool in AGENT_TOOLS]
    assert new.reply["result"]["tools"] == old.reply["result"]["tools"]
    assert set(old.reply["result"]) == {"tools"}
    assert set(new.reply["result"]) == {"tools", "resultType", "ttlMs", "cacheScope"}


def test_a_person_has_no_reply_and_no_question_to_a_person() -> None:
    names = {tool.name for tool in PERSON_TOOLS}

    assert names == {"agents", "send", "status", "cancel"}


@pytest.mark.parametrize("meta", [{}, {"_meta": ENVELOPE}])
def test_a_call_is_run_by_the_transport_and_answered_in_its_era(meta: dict[str, Any]) -> None:
    exchange = receive(request("tools/call", {**SEND, **meta}, "abc"))
    assert exchange.reply is None
    (call,) = exchange.calls
    assert isinstance(call.call, SendCall)
    assert (call.call.to, call.call.text, call.call.waits) == ("codex", "hello", False)

    exchange.finish(call, ToolResult("task 1", "the text"))

    assert exchange.is_complete
    result = {"content": [{"type": "text", "text": "task 1\n"}, {"type": "text", "text": "the text"}], "isError": False}
    expected = {"resultType": "complete", **result} if meta else result
    assert exchange.reply == {"jsonrpc": "2.0", "id": "abc", "result": expected}


def test_a_canceled_call_gets_no_answer() -> None:
    exchange = receive(request("tools/call", SEND))

    exchange.finish(exchange.calls[0], None)

    assert exchange.is_complete
    assert exchange.reply is None


def test_progress_is_reported_only_to_a_client_that_gave_a_token() -> None:
    asked = receive(request("tools/call", {**SEND, "_meta": {"progressToken": "p1"}})).calls[0]
    unasked = receive(request("tools/call", SEND)).calls[0]

    note = asked.progress(2, "waits")

    assert note is not None
    assert note["params"] == {"progressToken": "p1", "progress": 2, "message": "waits"}
    assert unasked.progress(2, "waits") is None


def test_a_cancellation_names_its_request() -> None:
    for request_id in (7, "seven"):
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}}
        exchange = receive(note)

        assert exchange.canceled == [request_id]
        assert exchange.reply is None


@pytest.mark.parametrize(
    "note",
    [
        {"method": "notifications/initialized"},
        {"method": "notifications/unknown", "params": 5},
        {"method": "notifications/cancelled"},
        {"method": "notifications/cancelled", "params": []},
        {"method": "notifications/cancelled", "params": {"requestId": None}},
        {"method": "notifications/cancelled", "params": {"requestId": {}}},
        {"method": "tools/call", "params": SEND},
        {"result": {}, "id": 1},
        {"error": {"code": 1, "message": ""}, "id": 1},
    ],
)
def test_notifications_and_answers_are_not_answered(note: dict[str, Any]) -> None:
    exchange = receive({"jsonrpc": "2.0", **note})

    assert exchange.reply is None
    assert exchange.is_complete
    assert exchange.canceled == []
    assert exchange.http_status == 202


deep: list[Any] = []
for _ in range(500):
    deep = [deep]


@pytest.mark.parametrize(
    ("message", "code", "request_id"),
    [
        (None, INVALID_REQUEST, None),
        (5, INVALID_REQUEST, None),
        ("text", INVALID_REQUEST, None),
        (True, INVALID_REQUEST, None),
        ({}, INVALID_REQUEST, None),
        ({"id": 3}, INVALID_REQUEST, 3),
        ({"jsonrpc": "1.0", "id": 3, "method": "ping"}, INVALID_REQUEST, 3),
        ({"jsonrpc": "2.0", "id": 3}, INVALID_REQUEST, 3),
        ({"jsonrpc": "2.0", "id": 3, "method": 4}, INVALID_REQUEST, 3),
        ({"jsonrpc": "2.0", "id": 3, "method": ""}, INVALID_REQUEST, 3),
        (request("ping", request_id=None), INVALID_REQUEST, None),
        (request("ping", request_id=True), INVALID_REQUEST, None),
        (request("ping", request_id=1.5), INVALID_REQUEST, None),
        (request("ping", request_id={}), INVALID_REQUEST, None),
        (request("ping", request_id="\ud800"), INVALID_REQUEST, None),
        (request("ping", []), INVALID_PARAMS, 1),
        (request("ping", ""), INVALID_PARAMS, 1),
        (request("ping", 0), INVALID_PARAMS, 1),
        (request("ping", deep), INVALID_PARAMS, 1),
        (request("ping", {"_meta": 1}), INVALID_PARAMS, 1),
        (request("no/such"), METHOD_NOT_FOUND, 1),
        (request("resources/list"), METHOD_NOT_FOUND, 1),
        (request("subscriptions/listen", {"_meta": ENVELOPE}), METHOD_NOT_FOUND, 1),
        (request("ping", {"_meta": ENVELOPE}), METHOD_NOT_FOUND, 1),
        (request("x" * 1_000_000), METHOD_NOT_FOUND, 1),
        (request("initialize"), INVALID_PARAMS, 1),
        (request("initialize", {"protocolVersion": 1}), INVALID_PARAMS, 1),
        (request("tools/list", {"cursor": "2"}), INVALID_PARAMS, 1),
        (request("tools/call"), INVALID_PARAMS, 1),
        (request("tools/call", {"name": 5}), INVALID_PARAMS, 1),
        (request("tools/call", {"name": "approve"}), INVALID_PARAMS, 1),
        (request("tools/call", {"name": "\ud800"}), INVALID_PARAMS, 1),
        (request("tools/call", {"name": "send", "arguments": "to codex"}), INVALID_PARAMS, 1),
        (request("tools/call", {"name": "send", "arguments": []}), INVALID_PARAMS, 1),
        (request("server/discover"), INVALID_PARAMS, 1),
        (request("server/discover", {"_meta": {VERSION_KEY: STATELESS_VERSION}}), INVALID_PARAMS, 1),
        (request("tools/list", {"_meta": {**ENVELOPE, VERSION_KEY: 7}}), INVALID_PARAMS, 1),
        (request("tools/list", {"_meta": {**ENVELOPE, CAPABILITIES_KEY: []}}), INVALID_PARAMS, 1),
        (request("tools/list", {"_meta": {**ENVELOPE, VERSION_KEY: "2027-01-01"}}), UNSUPPORTED_VERSION, 1),
        (request("tools/list", {"_meta": {**ENVELOPE, VERSION_KEY: "2025-11-25"}}), UNSUPPORTED_VERSION, 1),
    ],
)
def test_a_wrong_request_gets_the_error_of_its_kind(message: object, code: int, request_id: object) -> None:
    reply = reply_to(message)

    assert reply["error"]["code"] == code
    assert reply["id"] == request_id
    assert len(reply["error"]["message"]) < 300
    reply["error"]["message"].encode("utf-8")


def test_an_unsupported_version_names_the_supported_ones() -> None:
    meta = {**ENVELOPE, VERSION_KEY: "2031-01-01"}

    error = reply_to(request("server/discover", {"_meta": meta}))["error"]

    assert error["data"] == {"supported": [STATELESS_VERSION], "requested": "2031-01-01"}


def test_wrong_arguments_are_shown_to_the_model_and_run_nothing() -> None:
    exchange = receive(request("tools/call", {"name": "send", "arguments": {"to": "codex"}}))

    assert exchange.is_complete
    assert isinstance(exchange.reply, dict)
    assert exchange.reply["result"]["isError"] is True
    assert "'text'" in exchange.reply["result"]["content"][0]["text"]


def test_a_batch_is_answered_as_one_batch_once_its_calls_are_finished() -> None:
    exchange = receive([request("ping"), request("tools/call", SEND, 2), {"jsonrpc": "2.0", "method": "x"}, 5])
    assert not exchange.is_complete

    exchange.finish(exchange.calls[0], ToolResult("sent"))

    assert isinstance(exchange.reply, list)
    assert [reply["id"] for reply in exchange.reply] == [1, None, 2]


def test_batches_belong_to_the_versions_that_had_them() -> None:
    for version in ("2025-06-18", "2025-11-25", STATELESS_VERSION):
        assert reply_to([request("ping")], Session(version))["error"]["code"] == INVALID_REQUEST
    for version in ("2024-11-05", "2025-03-26", ""):
        assert isinstance(receive([request("ping")], Session(version)).reply, list)


@pytest.mark.parametrize("size", [0, MOST_BATCHED + 1])
def test_an_empty_or_huge_batch_is_refused_as_a_whole(size: int) -> None:
    assert reply_to([request("ping")] * size)["error"]["code"] == INVALID_REQUEST


def test_a_client_may_try_both_eras_on_one_connection() -> None:
    session = Session()

    reply_to(request("server/discover", {"_meta": ENVELOPE}), session)
    initialized = reply_to(request("initialize", {"protocolVersion": "2025-06-18"}), session)

    assert initialized["result"]["protocolVersion"] == "2025-06-18"
    assert "resultType" not in reply_to(request("tools/list"), session)["result"]


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        (HttpHeaders(STATELESS_VERSION, "tools/call", "send"), None),
        (HttpHeaders(None, "tools/call", "send"), HEADER_MISMATCH),
        (HttpHeaders("2025-11-25", "tools/call", "send"), HEADER_MISMATCH),
        (HttpHeaders(STATELESS_VERSION, "tools/list", "send"), HEADER_MISMATCH),
        (HttpHeaders(STATELESS_VERSION, None, "send"), HEADER_MISMATCH),
        (HttpHeaders(STATELESS_VERSION, "tools/call", "cancel"), HEADER_MISMATCH),
        (HttpHeaders(STATELESS_VERSION, "tools/call"), HEADER_MISMATCH),
    ],
)
def test_a_stateless_post_must_agree_with_its_headers(headers: HttpHeaders, code: int | None) -> None:
    exchange = receive(request("tools/call", {**SEND, "_meta": ENVELOPE}), headers=headers)

    if code is None:
        assert len(exchange.calls) == 1
        return
    assert exchange.calls == []
    assert isinstance(exchange.reply, dict)
    assert exchange.reply["error"]["code"] == code
    assert exchange.http_status == 400


def test_a_post_with_the_new_version_in_its_header_alone_is_refused() -> None:
    exchange = receive(request("tools/list"), headers=HttpHeaders(STATELESS_VERSION, "tools/list"))

    assert isinstance(exchange.reply, dict)
    assert exchange.reply["error"]["code"] == INVALID_PARAMS


def test_an_unknown_version_header_is_refused() -> None:
    exchange = receive(request("tools/list"), headers=HttpHeaders("2030-01-01"))

    assert isinstance(exchange.reply, dict)
    assert exchange.reply["error"]["code"] == UNSUPPORTED_VERSION
    assert exchange.http_status == 400


@pytest.mark.parametrize(
    ("message", "headers", "status"),
    [
        (request("ping"), HttpHeaders(), 200),
        (request("no/such"), HttpHeaders(), 200),
        (request("no/such", {"_meta": ENVELOPE}), HttpHeaders(STATELESS_VERSION, "no/such"), 404),
        (request("tools/list", {"_meta": ENVELOPE}), HttpHeaders(STATELESS_VERSION, "tools/list"), 200),
        (5, HttpHeaders(), 400),
    ],
)
def test_the_http_status_follows_the_era(message: object, headers: HttpHeaders, status: int) -> None:
    assert receive(message, headers=headers).http_status == status


def test_what_is_no_json_is_answered_without_an_id() -> None:
    exchange = refuse(PARSE_ERROR, "not JSON")

    assert exchange.reply == {"jsonrpc": "2.0", "id": None, "error": {"code": PARSE_ERROR, "message": "not JSON"}}
    assert exchange.http_status == 400


@pytest.mark.parametrize("info", [None, 5, [], {}, {"name": 5}, {"name": "\x1b[31mx" * 100, "version": []}])
def test_a_client_that_describes_itself_wrongly_is_served(info: object) -> None:
    session = Session()

    reply_to(request("initialize", {"protocolVersion": "2025-11-25", "clientInfo": info}), session)

    assert session.client.isprintable()
    assert len(session.client) <= 100
