"""CallRoutes, whose request is known only when the body is read: pending results, streams, and errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from synapse.core.errors import QueueFull, SynapseError, TaskNotFound
from synapse.core.events import StateChanged, Update
from synapse.core.requests import GetStatus, Pending, SubscribeTask
from synapse.core.task import TaskState
from synapse.dialects.dialect import AnyCall, Call, CallRoute, Dialect, StreamCall, WireAnswer, WireEvent, WireRequest
from synapse.server.app import HttpApp
from tests.unit.dialects.synapse.samples import CREATED, a_task
from tests.unit.server.exchange import ME, Exchange, FixedService

SNAPSHOT = Update(7, None, a_task())
WORKING = Update(8, StateChanged(task_id=a_task().id, at=CREATED, state=TaskState.WORKING), a_task())


def told(error: SynapseError) -> WireAnswer:
    return WireAnswer(418, json.dumps({"error": error.code}).encode())


def called(error: SynapseError) -> WireAnswer:
    return WireAnswer(200, json.dumps({"id": 1, "error": error.code}).encode())


def event_of(update: Update) -> WireEvent | None:
    """Encodes an update; changes of state have no event in this dialect."""
    return WireEvent(str(update.seq), "", b"{}") if update.event is None else None


def app(service: Any, ask: Callable[[WireRequest], AnyCall | WireAnswer], method: str = "POST") -> HttpApp:
    route = CallRoute(method=method, path="/", ask=ask, media_type=b"application/x+json")
    return HttpApp(service, [Dialect(name="calls", routes=(route,), encode_error=told)], admit=lambda _: ME)


def encoded(result: object) -> bytes:
    return json.dumps(result).encode()


def nothing(_result: object) -> bytes:
    return b""


def a_call(_wire: WireRequest) -> Call[Any]:
    return Call(GetStatus(), encoded)


def its_own_errors(_wire: WireRequest) -> Call[Any]:
    return Call(GetStatus(), encoded, called)


def a_stream(_wire: WireRequest) -> StreamCall:
    return StreamCall(SubscribeTask(task_id="x"), event_of, called)


async def test_a_call_is_answered_with_the_media_type_of_its_route() -> None:
    exchange = await Exchange("POST", "/").run(app(FixedService({"a": 1}), a_call))

    assert (exchange.status, exchange.json) == (200, {"a": 1})
    assert exchange.headers[b"content-type"] == b"application/x+json"


async def test_a_call_has_its_own_status_and_one_without_a_body_has_no_length() -> None:
    accepted = app(FixedService({"a": 1}), lambda _: Call(GetStatus(), encoded, status=202))
    gone = app(FixedService(None), lambda _: Call(GetStatus(), nothing, status=204))

    exchange = await Exchange("POST", "/").run(accepted)
    assert (exchange.status, exchange.json) == (202, {"a": 1})
    exchange = await Exchange("POST", "/").run(gone)
    assert (exchange.status, exchange.body, exchange.headers) == (204, b"", {})


async def test_a_route_may_answer_without_the_service() -> None:
    service = FixedService(None)
    exchange = await Exchange("POST", "/").run(app(service, lambda _: WireAnswer(304, b"", ((b"etag", b"x"),))))

    assert (exchange.status, exchange.body, service.asked) == (304, b"", [])
    assert exchange.headers == {b"etag": b"x"}, "an answer without a body has no length and no type"


async def test_the_call_encodes_errors_and_else_the_dialect() -> None:
    failing = FixedService(TaskNotFound("x"))

    own = await Exchange("POST", "/").run(app(failing, its_own_errors))
    plain = await Exchange("POST", "/").run(app(failing, a_call))

    assert (own.status, own.json) == (200, {"id": 1, "error": "task_not_found"})
    assert (plain.status, plain.json) == (418, {"error": "task_not_found"})


async def test_the_call_encodes_a_defect_too() -> None:
    broken = FixedService(ZeroDivisionError("secret"))
    exchange = await Exchange("POST", "/").run(app(broken, its_own_errors))

    assert exchange.json == {"id": 1, "error": "internal"}


async def test_the_dialect_encodes_the_error_of_an_invalid_request() -> None:
    def refuse(_wire: WireRequest) -> Call[Any]:
        raise QueueFull

    exchange = await Exchange("POST", "/").run(app(FixedService(None), refuse))

    assert (exchange.status, exchange.json) == (418, {"error": "queue_full"})


class Later:
    """A service whose result is pending."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.result: asyncio.Future[object] | None = None

    async def handle(self, _request: object, _caller: object) -> Any:
        self.result = asyncio.get_running_loop().create_future()
        self.asked.set()
        return Pending(None, self.result)


async def test_a_pending_result_is_waited_for() -> None:
    service, exchange = Later(), Exchange("POST", "/")
    running = asyncio.ensure_future(exchange.run(app(service, a_call)))
    await service.asked.wait()
    assert service.result is not None
    service.result.set_result("done")
    exchange = await running

    assert exchange.json == "done"


async def test_an_available_result_is_not_waited_for() -> None:
    done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    done.set_result("done")
    exchange = await Exchange("POST", "/").run(app(FixedService(Pending("not yet", done)), a_call))

    assert exchange.json == "done"


async def test_a_settled_result_is_answered_as_it_is() -> None:
    exchange = await Exchange("POST", "/").run(app(FixedService(Pending("done")), a_call))
    assert exchange.json == "done"


async def test_a_caller_that_disconnects_ends_the_wait_and_gets_no_answer() -> None:
    service, exchange = Later(), Exchange("POST", "/")
    running = asyncio.ensure_future(exchange.run(app(service, a_call)))
    await service.asked.wait()
    exchange.leave()
    await running
    assert service.result is not None

    assert exchange.sent == []
    assert service.result.cancelled()


async def test_a_server_that_stops_answers_waiting_callers_with_an_error() -> None:
    service, exchange = Later(), Exchange("POST", "/")
    serving = app(service, its_own_errors)
    running = asyncio.ensure_future(exchange.run(serving))
    await service.asked.wait()
    serving.close()
    exchange = await running

    assert exchange.json == {"id": 1, "error": "agent_exited"}


async def test_a_cancelled_request_stays_cancelled() -> None:
    async def conversation() -> None:
        service = Later()
        running = asyncio.ensure_future(Exchange("POST", "/").run(app(service, a_call)))
        await service.asked.wait()
        running.cancel()
        await running

    with pytest.raises(asyncio.CancelledError):
        await conversation()


async def test_a_stream_omits_updates_that_the_dialect_does_not_encode() -> None:
    service = FixedService(None)
    for update in (SNAPSHOT, WORKING, None):
        service.feed.put_nowait(update)

    exchange = await Exchange("POST", "/").run(app(service, a_stream))

    assert exchange.body == b"id: 7\ndata: {}\n\n"


async def test_an_error_before_the_stream_is_a_plain_answer_and_within_it_an_event() -> None:
    before = await Exchange("POST", "/").run(app(FixedService(TaskNotFound("x")), a_stream))
    service = FixedService(None)
    service.feed.put_nowait(TaskNotFound("x"))
    within = await Exchange("POST", "/").run(app(service, a_stream))

    assert before.json == {"id": 1, "error": "task_not_found"}
    assert within.body == b'event: error\ndata: {"id": 1, "error": "task_not_found"}\n\n'


async def test_an_error_that_is_encoded_as_an_event_is_sent_unchanged() -> None:
    def as_event(_error: SynapseError) -> WireAnswer:
        return WireAnswer(200, b"data: oh\n\n", media_type=b"text/event-stream")

    service = FixedService(None)
    service.feed.put_nowait(TaskNotFound("x"))
    streaming = app(service, lambda _: StreamCall(SubscribeTask(task_id="x"), event_of, as_event))

    assert (await Exchange("POST", "/").run(streaming)).body == b"data: oh\n\n"


async def test_a_stream_takes_no_head() -> None:
    service = FixedService(None)
    exchange = await Exchange("HEAD", "/").run(app(service, a_stream, "GET"))

    assert (exchange.json, service.asked) == ({"id": 1, "error": "method_not_allowed"}, [])
