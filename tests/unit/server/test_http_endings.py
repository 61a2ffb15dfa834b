"""How a connection ends: callers who leave, applications that fail, time that is over, a server that stops."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from synapse.server import http
from synapse.server.asgi import HttpLimits, Receive, Scope, Send
from tests.fakes.web_app import Doing, web_app
from tests.fakes.wire import Wire, answers
from tests.unit.server.on_wire import (
    DOCUMENT_WANTED,
    LATER_WANTED,
    POST,
    ScriptedApp,
    exchange,
    on_wire,
    piece,
    saying,
    start,
    statuses,
)


async def test_a_caller_who_leaves_is_not_waited_for() -> None:
    doing = Doing()

    async with on_wire(web_app(doing)) as wire:
        wire.give(LATER_WANTED)
        await wire.settle()
        await wire.leave()
        assert doing.later is not None
        assert doing.later.cancelled()

    assert wire.written == b""


async def test_who_stops_talking_still_gets_all_answers_and_then_the_end() -> None:
    doing = Doing()

    async with on_wire(web_app(doing)) as wire:
        wire.give(LATER_WANTED + DOCUMENT_WANTED)
        await wire.settle()
        wire.stop_talking()
        await wire.settle()
        assert not wire.is_over
        assert doing.later is not None
        doing.later.set_result(b"{}")
        await wire.settle()
        assert wire.transport.closed

    assert [headers.get(b"connection") for _, headers, _ in answers(wire.written)] == [None, b"close"]


@pytest.mark.parametrize("asked", [LATER_WANTED, LATER_WANTED + b"GET /docu"])
async def test_who_stops_talking_is_not_waited_for_without_end(asked: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "HALF_CLOSED_SECONDS", 0.01)
    doing = Doing()

    async with on_wire(web_app(doing)) as wire:
        wire.give(asked)
        await wire.settle()
        wire.stop_talking()
        await wire.until(lambda: doing.later is not None and doing.later.cancelled())

    assert wire.written == b""


async def test_nothing_is_answered_once_somebody_who_stopped_talking_was_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "HALF_CLOSED_SECONDS", 0.01)
    doing = Doing()

    async with on_wire(web_app(doing)) as wire:
        wire.transport.unsent = [1]  # of an earlier answer, so the connection is not lost at once
        wire.give(LATER_WANTED)
        await wire.settle()
        wire.stop_talking()
        await wire.until(lambda: wire.transport.closed)
        assert doing.later is not None
        assert doing.later.cancelled()

    assert wire.written == b""


@pytest.mark.parametrize(
    "asked",
    [b"", DOCUMENT_WANTED, b"GET /docu", POST + b"Content-Length: 9\r\n\r\nhalf", b"GET /stream HTTP/1.1\r\n\r\n"],
)
async def test_who_stops_talking_with_nothing_left_to_be_told_has_left(asked: bytes) -> None:
    async with on_wire(web_app()) as wire:
        wire.give(asked)
        await wire.settle()
        wire.stop_talking()
        assert wire.transport.closed


async def test_who_leaves_with_requests_that_wait_is_noticed_though_nothing_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "CALLER_LOOK_SECONDS", 0.01)
    doing = Doing()

    async with on_wire(web_app(doing)) as wire:
        wire.give(LATER_WANTED + DOCUMENT_WANTED)
        for _ in range(3):
            looked = asyncio.Event()
            asyncio.get_running_loop().call_later(0.02, looked.set)
            await looked.wait()
        assert not wire.transport.reads
        assert not wire.is_over, "it is still there"
        wire.vanish()
        await wire.until(lambda: doing.later is not None and doing.later.cancelled())

    assert wire.written == b""


async def test_a_failure_is_told_to_a_head_without_a_body() -> None:
    wire = await exchange(saying(), b"HEAD /document HTTP/1.1\r\n\r\n")

    head, _, body = wire.written.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 500")
    assert b"content-length: 8" in head
    assert body == b""


async def test_a_caller_who_leaves_within_a_body_is_told_to_the_application() -> None:
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
        (start(headers=[(b"x-split", b"a\r\nb: c")]),),
        (start(headers=[(b"x split", b"a")]),),
    ],
)
async def test_an_application_that_fails_before_it_answers_is_answered_for(
    messages: tuple[dict[str, Any], ...],
) -> None:
    wire = await exchange(saying(*messages), DOCUMENT_WANTED)

    assert [(status, body) for status, _, body in answers(wire.written)] == [(500, b"internal")]


@pytest.mark.parametrize(
    "messages",
    [
        (start(), piece(b"half", more=True)),
        (start(headers=[(b"content-length", b"3")]), piece(b"four")),
        (start(headers=[(b"content-length", b"9")]), piece(b"four")),
        (start(), start()),
    ],
)
async def test_an_answer_that_breaks_off_ends_the_connection(messages: tuple[dict[str, Any], ...]) -> None:
    async with on_wire(saying(*messages)) as wire:
        wire.give(DOCUMENT_WANTED)
        await wire.settle()
        assert wire.transport.closed

    assert not wire.written.endswith(b"0\r\n\r\n")


async def test_an_application_that_fails_behind_its_answer_does_no_harm() -> None:
    async def script(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(start(headers=[(b"content-length", b"0")]))
        await send(piece(b""))
        raise ZeroDivisionError

    assert statuses(await exchange(ScriptedApp(script), DOCUMENT_WANTED, DOCUMENT_WANTED)) == [200, 200]


async def test_after_a_body_that_is_too_large_the_rest_is_thrown_away() -> None:
    async with on_wire(web_app(limits=HttpLimits(max_body_bytes=10))) as wire:
        wire.give(POST + b"Transfer-Encoding: chunked\r\n\r\n40\r\n" + b"x" * 64 + b"\r\n")
        await wire.settle()
        assert wire.transport.eof_written
        assert not wire.transport.closed
        assert wire.transport.reads
        wire.give(DOCUMENT_WANTED)
        await wire.settle()

    assert statuses(wire) == [413]


async def test_stopping_ends_a_connection_that_rests_at_once() -> None:
    async with on_wire(web_app()) as wire:
        wire.give(DOCUMENT_WANTED)
        await wire.settle()
        wire.connection.shutdown()
        assert wire.transport.closed


async def test_stopping_lets_an_answer_come_to_its_end() -> None:
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

    assert [(status, headers[b"connection"]) for status, headers, _ in answers(wire.written)] == [(200, b"close")]


async def test_a_connection_that_rests_too_long_is_closed_without_a_word() -> None:
    async with on_wire(web_app(), keep_alive=0) as wire:
        wire.give(DOCUMENT_WANTED)
        await wire.until(lambda: wire.transport.closed)

    assert statuses(wire) == [200]


async def test_a_request_must_arrive_in_time_but_not_while_we_do_not_read() -> None:
    doing = Doing()

    limits = HttpLimits(arrival_seconds=0.2)

    async with on_wire(web_app(doing, limits=limits)) as wire:
        # The last one is not whole, and cannot become so: two wait, so nothing is read.
        wire.give(LATER_WANTED + DOCUMENT_WANTED + b"GET /doc")
        wire.give(b"ument HTTP/1.1\r\n\r\nGET /too-late")
        long_after = asyncio.Event()
        asyncio.get_running_loop().call_later(0.25, long_after.set)
        await long_after.wait()
        assert doing.later is not None
        doing.later.set_result(b"{}")
        await wire.until(lambda: wire.is_over)

    assert statuses(wire) == [200, 200, 200, 408]


async def test_a_body_that_does_not_come_is_told_when_somebody_waits_for_it() -> None:
    async with on_wire(web_app(limits=HttpLimits(arrival_seconds=0.02))) as wire:
        wire.give(POST + b"Content-Length: 9\r\n\r\nhalf")
        await wire.until(lambda: wire.is_over)

    assert statuses(wire) == [408]


@pytest.mark.parametrize("asked", [b"GET /stream HTTP/1.1\r\n\r\n", DOCUMENT_WANTED])
async def test_whoever_reads_nothing_at_all_is_hung_up_on(asked: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "STALLED_SECONDS", 0.01)

    async with on_wire(web_app()) as wire:
        wire.give(asked)
        await wire.settle()
        wire.transport.unsent = [3, 2, 1, 1]
        wire.connection.pause_writing()
        wire.give(DOCUMENT_WANTED)
        await wire.until(lambda: wire.transport.aborted)
        assert wire.transport.unsent == [1], "as long as it became less, there was hope"


async def test_whoever_reads_again_is_not_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "STALLED_SECONDS", 0.01)

    async with on_wire(web_app()) as wire:
        wire.connection.pause_writing()
        wire.connection.resume_writing()
        later = asyncio.Event()
        asyncio.get_running_loop().call_later(0.05, later.set)
        await later.wait()
        assert not wire.transport.aborted


async def test_whoever_reads_nothing_of_the_end_is_hung_up_on_and_who_reads_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "FAREWELL_SECONDS", 0.01)

    async with on_wire(web_app()) as wire:
        wire.transport.unsent = [3, 2, 1, 1]
        wire.connection.shutdown()
        await wire.until(lambda: wire.transport.aborted)
        assert wire.transport.unsent == [1], "as long as it became less, there was hope"


@pytest.mark.parametrize("asked", [b"", DOCUMENT_WANTED, LATER_WANTED, DOCUMENT_WANTED + LATER_WANTED, b"GET /la"])
async def test_nothing_of_a_connection_that_is_gone_waits_for_the_collector(asked: bytes) -> None:
    async def play() -> weakref.ref[Any]:
        wire = Wire(web_app(Doing()))
        gone = weakref.ref(wire.connection)
        if asked:
            wire.give(asked)
            await wire.settle()
        await wire.leave()
        wire.close()
        # As the loop's own transports let go of it.
        wire.transport.connection = None
        asyncio.get_running_loop().set_exception_handler(None)
        return gone

    gc.collect()
    gc.disable()
    try:
        assert (await play())() is None
    finally:
        gc.enable()
