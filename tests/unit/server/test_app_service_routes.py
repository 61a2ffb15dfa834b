"""ServiceRoutes, whose answer takes several requests: at once, late, or as a stream of events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from typing import Any

from synapse.core.caller import Caller
from synapse.core.errors import QueueFull, SynapseError
from synapse.core.requests import GetStatus, ListAgents
from synapse.core.service import Handler
from synapse.dialects.dialect import (
    Dialect,
    EventAnswer,
    LateAnswer,
    ServiceRoute,
    WireAnswer,
    WireEvent,
    WireRequest,
)
from synapse.server import app as served
from synapse.server.app import CALLER_LEFT, HttpApp
from tests.unit.server.exchange import ME, Exchange, FixedService
from tests.unit.server.test_app_calls import called, told

Answer = WireAnswer | LateAnswer | EventAnswer


class Waiting:
    """A wait that the test ends; it notes how it ended."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.seen: list[served.Exchange] = []

    async def answer(self) -> WireAnswer:
        self.begun.set()
        return WireAnswer(200, json.dumps(await self.over).encode(), error="told")

    async def events(self) -> AsyncIterator[WireEvent]:
        yield WireEvent("", "", b"1")
        self.begun.set()
        yield WireEvent("", "", (await self.over).encode())

    def app(self, answer: Any) -> HttpApp:
        async def serve(_wire: WireRequest, _service: Handler, _caller: Caller) -> Answer:
            if isinstance(answer, BaseException):
                raise answer
            return answer  # type: ignore[no-any-return]  # one of the three

        return app_of(FixedService(None), serve, self.seen)

    def late(self) -> HttpApp:
        return self.app(LateAnswer(self.answer(), called))

    def streamed(self) -> HttpApp:
        return self.app(EventAnswer(self.events(), as_event))  # type: ignore[arg-type]  # a generator is a stream


def as_event(error: SynapseError) -> WireAnswer:
    return WireAnswer(200, b"data: %b\n\n" % error.code.encode(), media_type=b"text/event-stream")


def app_of(service: Any, serve: Any, seen: list[served.Exchange]) -> HttpApp:
    dialect = Dialect(name="words", routes=(ServiceRoute(method="POST", path="/", serve=serve),), encode_error=told)
    return HttpApp(service, [dialect], admit=lambda _: ME, observe=seen.append)


async def test_a_route_makes_several_requests_for_the_caller() -> None:
    async def serve(wire: WireRequest, service: Handler, caller: Caller) -> WireAnswer:
        asked: list[Awaitable[object]] = [service.handle(GetStatus(), caller), service.handle(ListAgents(), caller)]
        return WireAnswer(200, json.dumps([wire.path, *[await one for one in asked]]).encode(), error="why")

    service, seen = FixedService("x"), list[served.Exchange]()
    exchange = await Exchange("POST", "/").run(app_of(service, serve, seen))

    assert exchange.json == ["/", "x", "x"]
    assert service.asked == [(GetStatus(), ME), (ListAgents(), ME)]
    assert [(one.dialect, one.error) for one in seen] == [("words", "why")]


async def test_an_error_that_is_raised_is_encoded_by_the_dialect() -> None:
    exchange = await Exchange("POST", "/").run(Waiting().app(QueueFull("full")))

    assert (exchange.status, exchange.json) == (418, {"error": "queue_full"})


async def test_a_late_answer_is_waited_for() -> None:
    waiting = Waiting()
    running = asyncio.ensure_future(Exchange("POST", "/").run(waiting.late()))
    await waiting.begun.wait()
    waiting.over.set_result("done")

    assert (await running).json == "done"
    assert [one.error for one in waiting.seen] == ["told"]


async def test_a_caller_that_disconnects_ends_the_wait_for_a_late_answer() -> None:
    waiting, exchange = Waiting(), Exchange("POST", "/")
    running = asyncio.ensure_future(exchange.run(waiting.late()))
    await waiting.begun.wait()
    exchange.leave()
    await running

    assert exchange.sent == []
    assert waiting.over.cancelled()
    assert [one.error for one in waiting.seen] == [CALLER_LEFT]


async def test_a_server_that_stops_ends_a_late_answer_with_its_own_error() -> None:
    waiting = Waiting()
    app = waiting.late()
    running = asyncio.ensure_future(Exchange("POST", "/").run(app))
    await waiting.begun.wait()
    app.close()

    assert (await running).json == {"id": 1, "error": "agent_exited"}


async def test_events_are_sent_as_they_come() -> None:
    waiting, exchange = Waiting(), Exchange("POST", "/")
    running = asyncio.ensure_future(exchange.run(waiting.streamed()))
    await exchange.until(lambda: b"1" in exchange.body)
    assert exchange.headers[b"content-type"] == b"text/event-stream"
    waiting.over.set_result("2")
    await running

    assert exchange.body == b"data: 1\n\ndata: 2\n\n"
    assert [one.is_stream for one in waiting.seen] == [True]


async def test_a_reader_that_disconnects_ends_the_events() -> None:
    waiting, exchange = Waiting(), Exchange("POST", "/")
    running = asyncio.ensure_future(exchange.run(waiting.streamed()))
    await waiting.begun.wait()
    exchange.leave()
    await running

    assert waiting.over.cancelled()


async def test_a_server_that_stops_ends_the_events_with_their_own_error() -> None:
    waiting, exchange = Waiting(), Exchange("POST", "/")
    app = waiting.streamed()
    running = asyncio.ensure_future(exchange.run(app))
    await waiting.begun.wait()
    app.close()
    await running

    assert exchange.body == b"data: 1\n\ndata: agent_exited\n\n"
