"""JSON-RPC 2.0: valid calls, the dialect of each, and the id in every answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from synapse.core.errors import InternalFailure, InvalidField, SynapseError, TaskNotFound, VersionNotSupported
from synapse.core.events import Update
from synapse.core.requests import GetTask, SubscribeTask
from synapse.dialects.dialect import (
    AnyCall,
    Call,
    CallRoute,
    Dialect,
    Params,
    RpcTable,
    StreamCall,
    WireAnswer,
    WireEvent,
    WireRequest,
)
from synapse.server.jsonrpc import rpc_dialect
from tests.unit.dialects.synapse.samples import a_task


def table(name: str, prefix: str, **more: Any) -> Dialect:
    def encode(result: object) -> bytes:
        return json.dumps({name: result}).encode()

    def get(params: Params, _wire: WireRequest) -> Call[Any]:
        if not params:
            raise InvalidField("id", "is missing")
        return Call(GetTask(json.loads(params)["id"]), encode)

    def follow(params: Params, _wire: WireRequest) -> StreamCall:
        if not params:
            raise InvalidField("id", "is missing")
        return StreamCall(SubscribeTask(task_id="x"), event_of)

    def fault(error: SynapseError) -> bytes:
        return json.dumps({"dialect": name, "code": error.code, "message": str(error)}).encode()

    methods: dict[str, Callable[[Params, WireRequest], AnyCall]] = {
        f"{prefix}Get": get,
        f"{prefix}Follow": follow,
    }
    rpc = RpcTable(methods=methods, encode_fault=fault, **more)
    return Dialect(name=name, routes=(), encode_error=lambda _: WireAnswer(500, b""), rpc=rpc)


def event_of(update: Update) -> WireEvent | None:
    return None if update.seq == 0 else WireEvent(str(update.seq), "", b'{"x":1}')


def demanded(wire: WireRequest) -> str:
    version = wire.header(b"a2a-version")
    if version == "9":
        raise VersionNotSupported(version, ("new", "old"))
    return version


DIALECT = rpc_dialect([table("new", "New"), table("old", "old/", faults_as_events=frozenset({"old/Follow"}))], demanded)


def ask(body: object, version: str = "") -> AnyCall | WireAnswer:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    (route,) = DIALECT.routes
    assert isinstance(route, CallRoute)
    return route.ask(WireRequest("POST", "/", headers=[(b"a2a-version", version.encode())], body=content))


def fault(body: object, version: str = "") -> dict[str, Any]:
    """Returns the error that answers a body."""
    answer = ask(body, version)
    assert isinstance(answer, WireAnswer)
    assert answer.status == 200
    told: dict[str, Any] = json.loads(answer.body)
    assert told["jsonrpc"] == "2.0"
    assert set(told) == {"jsonrpc", "id", "error"}
    return {"id": told["id"], **told["error"]}


def call(method: str, call_id: object = 1, **more: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": call_id, "method": method, **more}


@pytest.mark.parametrize("call_id", [1, "one", "", 0, -7, None, 2**70, "\u00e9"])
def test_the_result_carries_the_id_of_the_call(call_id: object) -> None:
    asked = ask(call("NewGet", call_id, params={"id": "t"}))

    assert isinstance(asked, Call)
    assert asked.request == GetTask("t")
    assert json.loads(asked.encode("r")) == {"jsonrpc": "2.0", "id": call_id, "result": {"new": "r"}}
    assert asked.encode_error is not None
    assert json.loads(asked.encode_error(TaskNotFound("t")).body)["id"] == call_id


def test_a_call_without_an_id_gets_an_answer_with_a_null_id() -> None:
    asked = ask({"jsonrpc": "2.0", "method": "NewGet", "params": {"id": "t"}})

    assert isinstance(asked, Call)
    assert json.loads(asked.encode("r"))["id"] is None


def test_every_event_of_a_stream_carries_the_id() -> None:
    asked = ask(call("NewFollow", "s", params={}))
    assert isinstance(asked, StreamCall)

    assert asked.encode(Update(7, None, a_task())) == WireEvent("7", "", b'{"jsonrpc":"2.0","id":"s","result":{"x":1}}')
    assert asked.encode(Update(0, None, a_task())) is None


def test_the_method_determines_the_dialect() -> None:
    old = ask(call("old/Get", params={"id": "t"}))

    assert isinstance(old, Call)
    assert json.loads(old.encode("r"))["result"] == {"old": "r"}


def test_a_demanded_dialect_has_only_its_own_methods() -> None:
    assert isinstance(ask(call("old/Get", params={"id": "t"}), "old"), Call)
    assert fault(call("old/Get"), "new") == {
        "id": 1,
        "dialect": "new",
        "code": "route_not_found",
        "message": "there is no method 'old/Get'",
    }
    assert fault(call("NewGet"), "old")["dialect"] == "old"


def test_an_unsupported_version_is_refused_with_the_id() -> None:
    told = fault(call("NewGet", "seven"), "9")

    assert (told["id"], told["code"], told["dialect"]) == ("seven", "version_not_supported", "new")


@pytest.mark.parametrize("body", [b"", b"{", b"nonsense", b'{"jsonrpc": "2.0", "method": "\xff"}'])
def test_invalid_json_is_a_parse_error_without_an_id(body: bytes) -> None:
    told = fault(body)

    assert (told["id"], told["code"]) == (None, "malformed_json")


@pytest.mark.parametrize(
    ("body", "call_id"),
    [
        ([], None),
        ([call("NewGet")], None),
        ("text", None),
        ({"id": 3, "method": "NewGet"}, 3),
        ({"jsonrpc": "1.0", "id": 3, "method": "NewGet"}, 3),
        ({"jsonrpc": "2.0", "id": "x"}, "x"),
        ({"jsonrpc": "2.0", "id": 3, "method": 7}, 3),
        (call("NewGet", 1.5), None),
        (call("NewGet", True), None),
        (call("NewGet", {"a": 1}), None),
    ],
)
def test_json_that_is_not_a_call_is_an_invalid_request_with_its_id_if_it_has_one(body: object, call_id: object) -> None:
    told = fault(body)

    assert (told["id"], told["code"]) == (call_id, "malformed_call")


def test_a_batch_is_refused_as_such() -> None:
    assert fault([call("NewGet")])["message"] == "batches are not taken"


def test_a_body_that_is_nested_too_deep_is_refused() -> None:
    assert fault(b'{"jsonrpc": "2.0", "params":' + b"[" * 100_000)["code"] == "malformed_call"


def test_the_first_dialect_encodes_the_error_of_an_unknown_method() -> None:
    told = fault(call("nothing/here"))

    assert (told["dialect"], told["code"]) == ("new", "route_not_found")


def test_the_error_of_invalid_params_has_the_id() -> None:
    assert fault(call("NewGet", 5)) == {
        "id": 5,
        "dialect": "new",
        "code": "invalid_field",
        "message": "id: is missing",
    }


def test_a_streaming_method_reports_its_error_as_an_event() -> None:
    wrong = ask(call("old/Follow", 5))
    assert isinstance(wrong, WireAnswer)
    assert wrong.media_type == b"text/event-stream"
    assert json.loads(wrong.body.removeprefix(b"data: "))["error"]["code"] == "invalid_field"

    asked = ask(call("old/Follow", 5, params={}))
    assert isinstance(asked, StreamCall)
    assert asked.encode_error is not None
    refused = asked.encode_error(TaskNotFound("t"))
    assert refused.body.startswith(b"data: ")
    assert refused.body.endswith(b"\n\n")


def test_errors_before_the_call_is_read_have_no_id() -> None:
    answer = DIALECT.encode_error(InternalFailure())

    assert (answer.status, json.loads(answer.body)["id"]) == (200, None)
