"""HttpApp reports each request to its observer: dialect and result, without its content."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest

from synapse.core.errors import QueueFull, RouteNotFound, SynapseError, TaskNotFound
from synapse.core.requests import ForAgent, GetStatus, GetTask, Pending, SubscribeTask
from synapse.dialects.dialect import Call, CallRoute, Dialect, RpcTable, StreamCall, WireRequest
from synapse.gateway.metrics import ObservedService
from synapse.server import app
from synapse.server.app import HttpApp
from synapse.server.jsonrpc import rpc_dialect
from tests.unit.server.exchange import ME, Exchange, FixedService
from tests.unit.server.test_app_calls import SNAPSHOT, event_of, nothing, told


def call(_wire: WireRequest) -> Call[Any]:
    return Call(GetStatus(), nothing)


def stream(_wire: WireRequest) -> StreamCall:
    return StreamCall(SubscribeTask(task_id="x"), event_of)


def fault(error: SynapseError) -> bytes:
    return json.dumps(error.code).encode()


RPC = Dialect(
    name="a", routes=(), encode_error=told, rpc=RpcTable(methods={"M": lambda _, wire: call(wire)}, encode_fault=fault)
)
ROUTES = (CallRoute(method="POST", path="/call", ask=call), CallRoute(method="GET", path="/stream", ask=stream))
DIALECTS = [Dialect(name="words", routes=ROUTES, encode_error=told), rpc_dialect([RPC], lambda _: "", "/rpc")]


async def seen(request: Exchange, result: object, *, then_leave: bool = False) -> app.Exchange:
    """Returns the observed exchanges of one request whose result is `result`."""
    observed: list[app.Exchange] = []
    service = FixedService(result)
    service.feed.put_nowait(None)
    if then_leave:
        service.result = pending()
        request.leave()
    await request.run(HttpApp(service, DIALECTS, admit=lambda _: ME, observe=observed.append))
    (one,) = observed
    assert one.seconds >= 0
    return one


def post(path: str, body: bytes = b"{}") -> Exchange:
    return Exchange("POST", path, body, query=b"token=secret", content_type="application/json")


@pytest.mark.parametrize(
    ("request_", "result", "dialect", "error"),
    [
        (post("/call"), SNAPSHOT, "words", ""),
        (post("/call"), QueueFull("full"), "words", QueueFull.code),
        (post("/call"), RuntimeError("a defect"), "words", "internal"),
        (post("/nowhere"), None, app.NO_DIALECT, RouteNotFound.code),
        (post("/rpc", b'{"jsonrpc":"2.0","id":1,"method":"M"}'), SNAPSHOT, "jsonrpc", ""),
        (post("/rpc", b'{"jsonrpc":"2.0","id":1,"method":"M"}'), TaskNotFound("t"), "jsonrpc", TaskNotFound.code),
        (post("/rpc", b'{"jsonrpc":"2.0","id":1,"method":"N"}'), None, "jsonrpc", RouteNotFound.code),
        (post("/rpc", b"no json"), None, "jsonrpc", "malformed_json"),
    ],
)
async def test_a_request_is_observed_with_its_dialect_and_its_result(
    request_: Exchange, result: object, dialect: str, error: str
) -> None:
    one = await seen(request_, result)

    assert (one.method, one.path, one.dialect, one.error) == ("POST", request_.scope["path"], dialect, error)
    assert not one.is_stream
    assert "secret" not in str(one)


async def test_a_stream_is_observed_as_one() -> None:
    assert (await seen(Exchange("GET", "/stream"), None)).is_stream


async def test_a_disconnect_is_observed_as_such() -> None:
    assert (await seen(post("/call"), None, then_leave=True)).error == app.CALLER_LEFT


async def asked_of(result: Any) -> list[app.Exchange]:
    """Returns the observed exchanges of one gRPC request."""
    observed: list[app.Exchange] = []
    service = FixedService(result() if callable(result) else result)
    coming = ObservedService(service, "grpc", observed.append).handle(ForAgent("ada", GetTask("t")), ME)
    try:
        done: object = await coming
    except TaskNotFound:
        return observed
    if isinstance(done, Pending) and not done.is_settled:
        assert observed == [], "a pending answer is not observed yet"
        waiting = asyncio.ensure_future(cast("Pending[None]", done).settled())
        waiting.cancel()
        await asyncio.wait({waiting})
    return observed


def pending() -> Pending[None]:
    return Pending(None, asyncio.get_running_loop().create_future())


@pytest.mark.parametrize(
    ("result", "error"),
    [(SNAPSHOT, ""), (TaskNotFound("t"), TaskNotFound.code), (pending, app.CALLER_LEFT), (Pending(None), "")],
)
async def test_requests_outside_of_http_are_observed_by_their_class_name(result: object, error: str) -> None:
    (one,) = await asked_of(result)

    assert (one.dialect, one.path, one.error) == ("grpc", "GetTask", error)
