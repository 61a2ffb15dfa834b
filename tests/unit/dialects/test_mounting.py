"""A dialect of one agent below a path that names the agent: the same questions, asked of that agent."""

from __future__ import annotations

from synapse.core.requests import ForAgent, GetTask, SubscribeTask
from synapse.dialects.a2a_v1.routes import a2a_v1_dialect
from synapse.dialects.dialect import (
    Call,
    CallRoute,
    Dialect,
    DocumentRoute,
    Route,
    RpcTable,
    StreamCall,
    StreamRoute,
    WireAnswer,
    WireRequest,
    mounted,
)
from synapse.dialects.synapse.encode import encode_error

MOUNT = "/agents/{agentId}/v1"
ADA = WireRequest("GET", "/agents/ada/v1/tasks/t", {"agentId": "ada", "id": "t"})
DOCUMENT = WireAnswer(200, b"card")


def as_bytes(_result: object) -> bytes:
    return b"task"


def as_event(_update: object) -> None:
    return None


QUESTION = Call(GetTask("t"), as_bytes, status=202)
STREAM = StreamCall(SubscribeTask(task_id="t"), as_event)

SMALL = Dialect(
    name="small",
    routes=(
        Route(method="GET", path="/plain", decode=lambda wire: GetTask(wire.params["id"]), encode=lambda _: b""),
        StreamRoute(method="GET", path="/stream", decode=lambda _: SubscribeTask(task_id="s"), encode=lambda _: None),
        DocumentRoute(method="GET", path="/card", answer=lambda _: DOCUMENT),
        CallRoute(method="GET", path="/call", ask=lambda _: QUESTION),
        CallRoute(method="GET", path="/streamed", ask=lambda _: STREAM),
        CallRoute(method="GET", path="/answered", ask=lambda _: DOCUMENT),
        CallRoute(method="GET", path="/v1/call", ask=lambda _: QUESTION),
    ),
    encode_error=encode_error,
    rpc=RpcTable(methods={"Get": lambda _params, _wire: QUESTION}, encode_fault=lambda _: b""),
)


def test_each_route_stands_below_the_mount_and_asks_the_agent_of_the_path() -> None:
    plain, stream, card, call, streamed, answered = mounted(SMALL, MOUNT).routes

    assert [route.path for route in (plain, card)] == [f"{MOUNT}/plain", f"{MOUNT}/card"]
    assert isinstance(plain, Route)
    assert plain.decode(ADA) == ForAgent("ada", GetTask("t"))
    assert isinstance(stream, StreamRoute)
    assert stream.decode(ADA) == ForAgent("ada", SubscribeTask(task_id="s"))
    assert isinstance(card, DocumentRoute)
    assert card.answer(ADA) == DOCUMENT
    assert isinstance(call, CallRoute)
    assert call.ask(ADA) == QUESTION._replace(request=ForAgent("ada", GetTask("t")))
    assert isinstance(streamed, CallRoute)
    assert streamed.ask(ADA) == STREAM._replace(request=ForAgent("ada", SubscribeTask(task_id="t")))
    assert isinstance(answered, CallRoute)
    assert answered.ask(ADA) == DOCUMENT


def test_methods_of_json_rpc_ask_the_agent_of_the_path() -> None:
    rpc = mounted(SMALL, MOUNT).rpc

    assert rpc is not None
    assert rpc.methods["Get"](b"", ADA).request == ForAgent("ada", GetTask("t"))


def test_what_hosts_serve_twice_is_mounted_once() -> None:
    paths = [route.path for route in mounted(a2a_v1_dialect(), MOUNT).routes]

    assert f"{MOUNT}/message:send" in paths
    assert not [path for path in paths if "/v1/v1" in path]


def test_a_dialect_without_methods_has_none_when_mounted() -> None:
    assert mounted(Dialect(name="none", routes=(), encode_error=encode_error), MOUNT).rpc is None
