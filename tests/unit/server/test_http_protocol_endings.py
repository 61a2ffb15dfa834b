"""How a connection ends: by the client, by a failed application, by a time limit, or by the server."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from synapse.server.asgi import HttpLimits, Receive, Scope, Send
from synapse.server.http_protocol import CLOSING_SECONDS, STALLED_SECONDS
from tests.fakes.web_app import Doing, web_app
from tests.fakes.wire import Wire, answers
from tests.unit.server.on_wire import (
    DOCUMENT_WANTED,
    LATER_WANTED,
    POST,
    ScriptedApp,
    exchange,
    is_closed,
    is_over,
    on_wire,
    piece,
    saying,
    start,
    statuses,
)


@pytest.mark.parametrize("behind", [b"", DOCUMENT_WANTED, b"GET /docu"])
async def test_a_client_that_disconnects_ends_the_wait_even_with_pipelined_requests(behind: bytes) -> None:
    doing = Doing()

    async with on_wire(web_app(doing)) as wire:
        wire.give(LATER_WANTED + behind)
        await wire.settle()
        await wire.leave()
        await wire.until(lambda: doing.later is not None and doing.later.cancelled())

    assert wire.written == b""


@pytest.mark.parametrize(
    "asked",
    [b"", DOCUMENT_WANTED, b"GET /docu", POST + b"Content-Length: 9\r\n\r\nhalf", LATER_WANTED],
)
async def test_a_half_closed_connection_counts_as_disconnected(asked: bytes) -> None:
    async with on_wire(web_app()) as wire:
        wire.give(asked)
        await wire.settle()
        wire.stop_talking()
        assert wire.transport.closed


async def test_a_failed_head_request_gets_an_answer_without_a_body() -> None:
    wire = await exchange(saying(), b"HEAD /document HTTP/1.1\r\n\r\n")

    head, _, body = wire.written.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 500")
    assert body == b""


async def test_a_disconnect_within_a_body_is_reported_to_the_application() -> None:
    seen: list[str] = []

    async def script(_scope: Scope, receive: Receive, send: Send) -> None:
        seen.extend([(await receive())["type"], (await receive())["type"]])
        await send(start())

    wire = await exchange(ScriptedApp(script), POST + b"Content-Length: 9\r\n\r\n", b"half")

    assert seen == ["http.request", "http.disconnect"]
    assert wire.written == b""


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (piece(b"no head"),),
    ],
)
async def test_an_application_that_fails_before_its_answer_causes_a_500(
    messages: tuple[dict[str, Any], ...],
) -> None:
    wire = await exchange(saying(*messages), DOCUMENT_WANTED)

    assert statuses(wire) == [500]


@pytest.mark.parametrize("header", [(b"x-split", b"a\r\nb: c"), (b"x split", b"a"), (b"x:", b"a"), (b"x", b"\0")])
async def test_an_invalid_header_is_never_written(header: tuple[bytes, bytes]) -> None:
    async with on_wire(saying(start(headers=[header]), piece(b""))) as wire:
        wire.give(DOCUMENT_WANTED)
        await wire.settle()
        assert wire.transport.closed

    assert wire.written == b""


@pytest.mark.parametrize(
    "messages",
    [
        (start(), piece(b"half", more=True)),
        (start(headers=[(b"content-length", b"3")]), piece(b"four")),
        (start(headers=[(b"content-length", b"9")]), piece(b"four")),
        (start(), start()),
    ],
)
async def test_an_incomplete_answer_closes_the_connection(messages: tuple[dict[str, Any], ...]) -> None:
    async with on_wire(saying(*messages)) as wire:
        wire.give(DOCUMENT_WANTED)
        await wire.settle()
        assert wire.transport.closed

    assert not wire.written.endswith(b"0\r\n\r\n")


async def test_an_application_that_fails_after_its_answer_has_answered() -> None:
    async def script(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(start(headers=[(b"content-length", b"0")]))
        await send(piece(b""))
        raise ZeroDivisionError

    assert statuses(await exchange(ScriptedApp(script), DOCUMENT_WANTED)) == [200]


async def test_the_rest_of_a_body_that_is_too_large_is_discarded_for_a_while() -> None:
    async with on_wire(web_app(limits=HttpLimits(max_body_bytes=10))) as wire:
        wire.give(POST + b"Transfer-Encoding: chunked\r\n\r\n40\r\n" + b"x" * 64 + b"\r\n")
        await wire.settle()
        assert wire.transport.eof_written
        assert not is_closed(wire)
        assert wire.transport.reads
        wire.give(DOCUMENT_WANTED)
        await wire.settle()
        for second in range(5):
            wire.tick(second)
        assert not is_closed(wire)
        wire.tick(5)
        assert wire.transport.closed

    assert statuses(wire) == [413]


async def test_shutdown_closes_an_idle_connection_at_once() -> None:
    async with on_wire(web_app()) as wire:
        wire.give(DOCUMENT_WANTED)
        await wire.settle()
        wire.connection.shutdown()
        assert wire.transport.closed


async def test_shutdown_lets_a_running_answer_finish() -> None:
    doing = Doing()

    async with on_wire(web_app(doing)) as wire:
        wire.give(LATER_WANTED + DOCUMENT_WANTED)
        await wire.settle()
        wire.connection.shutdown()
        await wire.settle()
        assert not wire.is_over
        assert doing.later is not None
        doing.later.set_result(b"{}")
        await wire.settle()
        assert wire.transport.closed

    told = [(status, headers.get(b"connection")) for status, headers, _ in answers(wire.written)]
    assert told == [(200, None), (200, b"close")]


async def test_a_connection_that_is_idle_for_too_long_is_closed_without_an_answer() -> None:
    async with on_wire(web_app(), keep_alive=5) as wire:
        wire.give(DOCUMENT_WANTED)
        await wire.settle()
        for second in range(5):
            wire.tick(second)
        assert not is_closed(wire)
        wire.tick(5)
        assert wire.transport.closed

    assert statuses(wire) == [200]


async def test_a_request_must_arrive_in_time_except_while_reading_is_paused() -> None:
    doing = Doing()

    async with on_wire(web_app(doing)) as wire:
        # The last one stays incomplete: two requests wait, so nothing is read.
        wire.give(LATER_WANTED + DOCUMENT_WANTED + b"GET /doc")
        wire.give(b"ument HTTP/1.1\r\n\r\nGET /too-late")
        await wire.settle()
        for second in range(100):
            wire.tick(second)
        assert doing.later is not None
        doing.later.set_result(b"{}")
        await wire.settle()
        assert not is_over(wire)
        for second in range(100, 200):
            wire.tick(second)
        assert wire.is_over

    assert statuses(wire) == [200, 200, 200, 408]


@pytest.mark.parametrize("drip", [b"\r\n", b"", b"GET /doc", POST, POST + b"Content-Length: 9\r\n\r\nhalf"])
async def test_an_incomplete_request_is_refused_after_the_time_limit(drip: bytes) -> None:
    async with on_wire(web_app(limits=HttpLimits(arrival_seconds=30))) as wire:
        if len(drip) > 2:
            wire.give(drip)
        for second in range(100):
            if len(drip) == 2:
                wire.give(drip)
            await wire.settle()
            wire.tick(second)
            # A second later the connection may be closed.
            assert wire.is_over is (second >= 30)
            if wire.is_over:
                break

    assert statuses(wire) == [408]


async def test_a_client_that_keeps_sending_requests_never_times_out() -> None:
    async with on_wire(web_app()) as wire:
        for second in range(100):
            wire.give(DOCUMENT_WANTED)
            await wire.settle()
            wire.tick(second)

    assert statuses(wire) == [200] * 100


async def test_a_slow_answer_does_not_count_as_a_slow_request() -> None:
    doing = Doing()

    async with on_wire(web_app(doing)) as wire:
        wire.give(LATER_WANTED)
        await wire.settle()
        for second in range(1000):
            wire.tick(second)
        assert doing.later is not None
        doing.later.set_result(b"{}")
        await wire.settle()

    assert statuses(wire) == [200]


@pytest.mark.parametrize("asked", [b"GET /stream HTTP/1.1\r\n\r\n", DOCUMENT_WANTED])
async def test_a_client_that_reads_nothing_is_disconnected(asked: bytes) -> None:
    async with on_wire(web_app()) as wire:
        wire.give(asked)
        await wire.settle()
        wire.transport.unsent = [3, 2, 1]
        wire.connection.pause_writing()
        wire.give(DOCUMENT_WANTED)
        for second in range(3):
            wire.tick(second)
        wire.tick(2 + STALLED_SECONDS - 1)
        assert not wire.transport.aborted, "it had read some of its answer by then"
        wire.tick(2 + STALLED_SECONDS)
        assert wire.transport.aborted


async def test_a_client_that_resumes_reading_stays_connected() -> None:
    async with on_wire(web_app()) as wire:
        wire.give(DOCUMENT_WANTED + b"GET /stream HTTP/1.1\r\n\r\n")
        await wire.settle()
        for unsent, second in [(9, 0), (9, 100), (8, 110), (8, 200), (0, 220), (9, 230), (9, 320)]:
            wire.transport.unsent = [unsent]
            wire.tick(second)
        assert not wire.transport.aborted


async def test_a_client_that_reads_nothing_while_closing_is_disconnected_sooner() -> None:
    async with on_wire(web_app()) as wire:
        wire.transport.unsent = [3, 2, 1]
        wire.connection.shutdown()
        for second in range(3):
            wire.tick(second)
        wire.tick(2 + CLOSING_SECONDS - 1)
        assert not wire.transport.aborted
        wire.tick(2 + CLOSING_SECONDS)
        assert wire.transport.aborted


@pytest.mark.parametrize("asked", [b"", DOCUMENT_WANTED, LATER_WANTED, DOCUMENT_WANTED + LATER_WANTED, b"GET /la"])
def test_a_closed_connection_is_freed_without_the_garbage_collector(asked: bytes) -> None:
    async def play() -> weakref.ref[Any]:
        wire = Wire(web_app(Doing()))
        gone = weakref.ref(wire.connection)
        if asked:
            wire.give(asked)
            await wire.settle()
        await wire.leave()
        await wire.until(lambda: not wire.server.tasks)
        wire.close()
        # As the loop's own transports drop it.
        wire.transport.connection = None
        asyncio.get_running_loop().set_exception_handler(None)
        return gone

    gc.collect()
    gc.disable()
    try:
        assert asyncio.run(play())() is None
    finally:
        gc.enable()
