"""A stream sends each update, and ends with the feed, the reader or the server."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from synapse.core.caller import Caller
from synapse.core.errors import FeedLagged, TaskNotFound
from synapse.core.events import StateChanged, Update
from synapse.core.task import TaskState
from synapse.dialects.dialect import WireEvent
from synapse.server.app import HttpApp
from synapse.server.asgi import HttpLimits
from synapse.server.sse import event_bytes
from tests.unit.dialects.synapse.samples import CREATED, a_task
from tests.unit.server.exchange import ME, Exchange, FixedService
from tests.unit.server.test_app import DIALECT

SNAPSHOT = Update(7, None, a_task())
DONE = Update(
    8,
    StateChanged(task_id=a_task().id, at=CREATED, state=TaskState.COMPLETED),
    a_task(state=TaskState.COMPLETED),
)


def subscription() -> Exchange:
    return Exchange("GET", "/tasks/550e8400/subscribe", last_event_id="6")


def stream_app(service: FixedService, keep_alive: float = 60.0) -> HttpApp:
    return HttpApp(service, [DIALECT], admit=lambda _: ME, limits=HttpLimits(keep_alive_seconds=keep_alive))


def feed_of(*updates: Update | BaseException | None) -> FixedService:
    service = FixedService(None)
    for update in updates:
        service.feed.put_nowait(update)
    return service


async def test_each_update_is_one_event_and_the_end_of_the_feed_ends_the_stream() -> None:
    service = feed_of(SNAPSHOT, DONE, None)
    exchange = subscription()

    await exchange.run(stream_app(service))

    snapshot, done, rest = exchange.body.decode().split("\n\n")
    assert snapshot.splitlines()[:2] == ["id: 7", "event: snapshot"]
    assert done.splitlines()[:2] == ["id: 8", "event: state_changed"]
    assert json.loads(done.splitlines()[2].removeprefix("data: "))["task"]["status"] == "completed"
    assert rest == ""
    assert exchange.sent[-1] == {"type": "http.response.body", "body": b""}
    assert service.feed_closed


def test_an_event_that_no_reader_resumes_after_has_no_id() -> None:
    assert event_bytes(WireEvent("", "status", b"{}")) == b"event: status\ndata: {}\n\n"


async def test_a_stream_has_the_headers_of_an_uncached_event_stream() -> None:
    exchange = subscription()

    await exchange.run(stream_app(feed_of(None)))

    assert exchange.status == 200
    assert exchange.headers == {
        b"content-type": b"text/event-stream",
        b"cache-control": b"no-store",
        b"x-accel-buffering": b"no",
    }


async def test_a_reader_that_disconnects_closes_its_subscription() -> None:
    async def follow_and_leave() -> FixedService:
        service = feed_of(SNAPSHOT)
        exchange = subscription()
        running = asyncio.ensure_future(exchange.run(stream_app(service)))
        await exchange.until(lambda: b"snapshot" in exchange.body)
        exchange.leave()
        await running
        return service

    assert (await follow_and_leave()).feed_closed


async def test_a_server_that_stops_ends_its_streams_with_an_error() -> None:
    service = feed_of(SNAPSHOT)
    exchange = subscription()
    app = stream_app(service)
    running = asyncio.ensure_future(exchange.run(app))
    await exchange.until(lambda: b"snapshot" in exchange.body)
    app.close()
    app.close()
    await running

    assert service.feed_closed
    assert exchange.sent[-1] == {"type": "http.response.body", "body": b""}
    _, error, rest = exchange.body.decode().split("\n\n")
    assert rest == ""
    assert error.splitlines()[0] == "event: error"
    told = json.loads(error.splitlines()[1].removeprefix("data: "))["error"]
    assert (told["code"], told["message"]) == ("agent_exited", "this server ends; the task is kept")
    assert "Last-Event-ID" in told["hint"]


async def test_a_complete_stream_does_not_end_with_an_error() -> None:
    async def follow_to_the_end() -> Exchange:
        service = feed_of(SNAPSHOT, DONE, None)
        exchange = subscription()
        app = stream_app(service)
        await exchange.run(app)
        app.close()
        return exchange

    assert b"event: error" not in (await follow_to_the_end()).body


async def test_a_cancelled_stream_closes_its_subscription() -> None:
    async def follow_and_cancel() -> FixedService:
        service = feed_of(SNAPSHOT)
        exchange = subscription()
        running = asyncio.ensure_future(exchange.run(stream_app(service)))
        await exchange.until(lambda: b"snapshot" in exchange.body)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return service

    assert (await follow_and_cancel()).feed_closed


async def test_an_idle_stream_sends_keep_alive_comments() -> None:
    async def follow_quietly() -> Exchange:
        exchange = subscription()
        running = asyncio.ensure_future(exchange.run(stream_app(feed_of(SNAPSHOT), keep_alive=0.01)))
        await exchange.until(lambda: exchange.body.count(b": \n\n") >= 2)
        exchange.leave()
        await running
        return exchange

    assert (await follow_quietly()).body.startswith(b"id: 7\n")


async def test_a_reader_that_reads_nothing_gets_one_keep_alive_and_can_still_disconnect() -> None:
    service = feed_of(SNAPSHOT)
    exchange = subscription()
    exchange.take_nothing()
    running = asyncio.ensure_future(exchange.run(stream_app(service, keep_alive=0.01)))
    await exchange.until(lambda: exchange.waiting == 2)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await exchange.until(lambda: exchange.waiting > 2)
    waiting = exchange.waiting
    exchange.leave()
    await running

    assert service.feed_closed
    assert waiting == 2


async def test_a_subscription_is_closed_also_if_it_ends_during_a_send() -> None:
    async def cancel_while_sending() -> bool:
        service = feed_of(SNAPSHOT)
        exchange = subscription()
        exchange.take_nothing()
        running = asyncio.ensure_future(exchange.run(stream_app(service)))
        await exchange.until(lambda: exchange.waiting == 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return service.feed_closed  # here: the loop's own end would close it too

    assert await cancel_while_sending()


async def test_a_missing_task_is_answered_without_a_stream() -> None:
    exchange = subscription()

    await exchange.run(stream_app(FixedService(TaskNotFound("550e8400"))))

    assert (exchange.status, exchange.code) == (404, "task_not_found")


async def test_a_reader_that_fell_behind_learns_where_to_resume() -> None:
    exchange = subscription()

    await exchange.run(stream_app(feed_of(SNAPSHOT, FeedLagged(7))))

    name, data = exchange.body.decode().split("\n\n")[1].splitlines()
    assert name == "event: error"
    assert json.loads(data.removeprefix("data: "))["error"] == {
        "code": "feed_lagged",
        "message": "the reader fell behind after event 7",
        "hint": "resume after 7",
    }


async def test_a_defect_in_the_feed_is_logged_and_the_reader_gets_no_details(caplog: pytest.LogCaptureFixture) -> None:
    exchange = subscription()

    with caplog.at_level(logging.ERROR):
        await exchange.run(stream_app(feed_of(SNAPSHOT, ZeroDivisionError("secret"))))

    assert b'"code":"internal"' in exchange.body
    assert b"secret" not in exchange.body
    assert [record.message for record in caplog.records] == ["stream_failed"]


async def test_a_stream_ends_with_an_error_when_its_reader_loses_its_access() -> None:
    is_valid = True
    reader = Caller(holds=lambda: is_valid)
    service = feed_of(SNAPSHOT)
    app = HttpApp(service, [DIALECT], admit=lambda _: reader, limits=HttpLimits(recheck_seconds=0.01))
    exchange = subscription()
    running = asyncio.ensure_future(exchange.run(app))
    await exchange.until(lambda: b"event: snapshot" in exchange.body)

    is_valid = False
    await running

    assert b"event: error" in exchange.body
    assert b"no longer valid" in exchange.body
    assert exchange.sent[-1] == {"type": "http.response.body", "body": b""}
    assert service.feed_closed
