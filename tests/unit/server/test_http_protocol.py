"""One connection: answers requests in order and completely, and buffers little."""

from __future__ import annotations

import asyncio
import gc

import pytest
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from synapse.server.asgi import Receive, Scope, Send, body_at_hand, when_left
from synapse.server.http_protocol import HEAD_LIMIT, PARSED_AT_ONCE
from tests.fakes.web_app import DOCUMENT, Doing, digest, web_app
from tests.fakes.wire import DATE, answers
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


async def test_a_plain_answer_has_a_date_and_no_server_header() -> None:
    wire = await exchange(web_app(), DOCUMENT_WANTED)

    assert answers(wire.written) == [
        (
            200,
            {b"date": DATE, b"content-type": b"application/json", b"content-length": b"%d" % len(DOCUMENT)},
            DOCUMENT,
        )
    ]


async def test_the_date_header_is_current() -> None:
    async with on_wire(web_app()) as wire:
        for date in (b"first", b"second"):
            wire.server.default_headers = [(b"date", date)]
            wire.give(DOCUMENT_WANTED)
            await wire.settle()

    assert [headers[b"date"] for _, headers, _ in answers(wire.written)] == [b"first", b"second"]


async def test_head_and_no_content_have_no_body() -> None:
    wire = await exchange(web_app(), DOCUMENT_WANTED.replace(b"GET", b"HEAD"), b"GET /nothing HTTP/1.1\r\n\r\n")

    assert wire.written.count(b"content-length") == 1
    assert DOCUMENT not in wire.written
    assert b"204 No Content\r\ndate: %b\r\nx-kept: 1\r\n\r\n" % DATE in wire.written


async def test_pipelined_requests_are_answered_in_order_one_at_a_time() -> None:
    doing = Doing()

    async with on_wire(web_app(doing)) as wire:
        wire.give(LATER_WANTED + DOCUMENT_WANTED + LATER_WANTED)
        await wire.settle()
        first = doing.later
        assert first is not None
        assert (wire.written, wire.transport.reads) == (b"", False)
        first.set_result(b'"first"')
        await wire.settle()
        assert doing.later is not None
        assert doing.later is not first
        doing.later.set_result(b'"last"')
        await wire.settle()
        assert wire.transport.reads

    assert [body for _, _, body in answers(wire.written)] == [b'"first"', DOCUMENT, b'"last"']


async def test_nothing_is_read_while_requests_wait() -> None:
    doing = Doing()

    async with on_wire(web_app(doing)) as wire:
        wire.give(LATER_WANTED + LATER_WANTED + LATER_WANTED)
        for answered in range(3):
            await wire.settle()
            # The last one is being answered and none waits, so reading goes on.
            assert wire.transport.reads is (answered == 2)
            assert doing.later is not None
            doing.later.set_result(b"{}")


async def test_nothing_is_written_while_the_client_does_not_read() -> None:
    async with on_wire(web_app()) as wire:
        wire.connection.pause_writing()
        wire.give(DOCUMENT_WANTED * 3)
        await wire.settle()
        assert (wire.written, wire.transport.reads) == (b"", False)
        wire.connection.resume_writing()
        await wire.settle()

    assert statuses(wire) == [200, 200, 200]


async def test_a_stream_waits_while_its_reader_does_not_read() -> None:
    doing = Doing()

    async with on_wire(web_app(doing)) as wire:
        wire.connection.pause_writing()
        wire.give(b"GET /stream HTTP/1.1\r\n\r\n")
        await wire.settle()
        assert wire.written == b""
        assert doing.told <= 1
        wire.connection.resume_writing()
        await wire.settle()
        assert doing.told > 1


async def test_of_ten_thousand_pipelined_requests_few_are_parsed_ahead() -> None:
    doing = Doing()
    asked = LATER_WANTED * 10_000

    def held() -> int:
        return sum([isinstance(one, RequestResponseCycle) for one in gc.get_objects()])

    async with on_wire(web_app(doing)) as wire:
        before = held()
        wire.give(asked)
        await wire.settle()
        assert held() - before < 1000
        assert not wire.transport.reads


async def test_all_of_a_large_piece_is_answered_in_order() -> None:
    asked = b"".join([DOCUMENT_WANTED + POST + b"Content-Length: 5\r\n\r\n%05d" % number for number in range(1000)])

    async with on_wire(web_app()) as wire:
        wire.give(asked)
        await wire.until(lambda: wire.written.count(b"HTTP/1.1 200 OK") == 2000)
        assert wire.transport.reads

    told = [body for _, _, body in answers(wire.written)]

    assert told[::2] == [DOCUMENT] * 1000
    assert told[1::2] == [digest(b"%05d" % number) for number in range(1000)]


async def test_a_body_that_the_application_does_not_read_pauses_reading() -> None:
    reading = asyncio.Event()
    got: list[bytes] = []

    async def script(_scope: Scope, receive: Receive, send: Send) -> None:
        await reading.wait()
        more = True
        while more:
            message = await receive()
            got.append(message["body"])
            more = message["more_body"]
        await send(start())
        await send(piece(b""))

    async with on_wire(ScriptedApp(script)) as wire:
        wire.give(POST + b"Content-Length: 300000\r\n\r\n")
        for _ in range(3):
            wire.give(b"x" * 100_000)
        await wire.settle()
        assert not wire.transport.reads
        reading.set()
        await wire.settle()

    assert statuses(wire) == [200]
    assert sum(map(len, got)) == 300_000
    assert max(map(len, got)) <= HIGH_WATER_LIMIT + PARSED_AT_ONCE, "later bytes wait outside of the parser"


async def test_garbage_after_a_request_is_refused_once_the_request_is_answered() -> None:
    doing = Doing()

    async with on_wire(web_app(doing)) as wire:
        wire.give(LATER_WANTED + b"garbage\r\n\r\n")
        await wire.settle()
        assert wire.written == b""
        assert doing.later is not None
        doing.later.set_result(b"{}")
        await wire.settle()
        assert wire.is_over

    assert statuses(wire) == [200, 400]
    assert answers(wire.written)[1][1][b"connection"] == b"close"


async def test_bytes_after_the_last_request_are_not_parsed() -> None:
    wire = await exchange(web_app(), b"GET /document HTTP/1.1\r\nConnection: close\r\n\r\n" + DOCUMENT_WANTED)

    assert statuses(wire) == [200]
    assert answers(wire.written)[0][1][b"connection"] == b"close"


async def test_a_body_after_an_upgrade_header_is_never_parsed_as_a_request() -> None:
    body = DOCUMENT_WANTED
    asked = POST + b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    wire = await exchange(web_app(), asked + DOCUMENT_WANTED)

    assert [told for _, _, told in answers(wire.written)] == [digest(body), DOCUMENT]


async def test_many_upgrades_in_one_piece_are_all_answered() -> None:
    one = b"GET /document HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"

    async with on_wire(web_app()) as wire:
        wire.give(one * 2000)
        await wire.until(lambda: wire.server.total_requests == 2000)

    assert statuses(wire) == [200] * 2000


async def test_a_trailer_does_not_become_a_header() -> None:
    seen: list[tuple[bytes, bytes]] = []

    async def script(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["more_body"]:
            pass
        seen.extend(scope["headers"])
        await send(start())
        await send(piece(b""))

    chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nAuthorization: Bearer x\r\n\r\n"
    await exchange(ScriptedApp(script), chunked)

    assert [name for name, _ in seen] == [b"host", b"content-type", b"transfer-encoding"]


async def test_a_trailer_without_end_is_refused() -> None:
    endless = [b"X-Filler: " + b"x" * 10_000 + b"\r\n"] * 20

    wire = await exchange(web_app(), POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", *endless)

    assert statuses(wire) == [431]


@pytest.mark.parametrize("cut", [1, 3, 100])
async def test_a_head_that_is_too_large_is_refused_however_it_comes(cut: int) -> None:
    large = b"GET /document HTTP/1.1\r\n" + b"X-Filler: x\r\n" * (2 * HEAD_LIMIT // 13) + b"\r\n"
    size = len(large) // cut + 1

    wire = await exchange(web_app(), *[large[start : start + size] for start in range(0, len(large), size)])

    assert statuses(wire) == [431]


async def test_a_client_that_expects_100_continue_gets_it_when_the_body_is_read() -> None:
    wire = await exchange(web_app(), POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n", b"{}")

    assert wire.written.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")


async def test_an_answer_in_place_of_100_continue_closes_the_connection() -> None:
    asked = b"POST /nowhere HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 40\r\n\r\n"

    wire = await exchange(web_app(), asked, DOCUMENT_WANTED)

    assert statuses(wire) == [404]
    assert answers(wire.written)[0][1][b"connection"] == b"close"
    assert wire.is_over


async def test_an_answer_of_unknown_length_is_chunked() -> None:
    wire = await exchange(
        saying(start(), piece(b"one", more=True), piece(b"", more=True), piece(b"two")), DOCUMENT_WANTED
    )

    assert wire.written.endswith(b"transfer-encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")
    assert not wire.transport.eof_written


async def test_a_streamed_answer_to_head_has_no_body() -> None:
    answer = (start(200, [(b"x-kept", b"1")]), piece(b"one", more=True), piece(b"two"))
    asked = b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n"
    wire = await exchange(saying(*answer), asked, asked)

    assert wire.written.count(b"x-kept: 1\r\n\r\n") == 2
    assert b"one" not in wire.written
    assert b"0\r\n\r\n" not in wire.written.replace(b"200", b"")


@pytest.mark.parametrize("headers", [[], [(b"content-length", b"6")]])
async def test_an_http_1_0_answer_ends_with_the_connection(
    headers: list[tuple[bytes, bytes]],
) -> None:
    async with on_wire(saying(start(headers=headers), piece(b"one", more=True), piece(b"two"))) as wire:
        wire.give(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        await wire.settle()
        assert wire.transport.closed

    assert wire.written.endswith(b"connection: close\r\n\r\nonetwo")


@pytest.mark.parametrize("size", [10, 70_000])
async def test_a_request_whose_body_was_taken_notices_a_disconnect(size: int) -> None:
    left: list[str] = []

    async def script(_scope: Scope, _receive: Receive, send: Send) -> None:
        over = asyncio.Event()
        take, tell = body_at_hand(send), when_left(send)
        assert take is not None
        assert tell is not None
        assert len(take() or b"") == size
        tell(over.set)
        await over.wait()
        left.append("left")

    async with on_wire(ScriptedApp(script)) as wire:
        wire.give(POST + b"Content-Length: %d\r\n\r\n" % size + b"x" * size)
        await wire.settle()
        assert wire.transport.reads
        await wire.leave()

    assert left == ["left"]


async def test_few_pipelined_requests_wait_and_little_is_buffered() -> None:
    """uvicorn resumes reading with each answer, so each answer could bring another ten thousand requests."""
    asked = POST + b"Content-Length: 2\r\n\r\n{}"

    async with on_wire(web_app()) as wire:
        for _ in range(10):
            wire.give(asked * 200)
        waited: list[int] = []

        def seen() -> bool:
            waited.append(len(wire.connection.pipeline))
            return wire.server.total_requests == 10 * 200

        await wire.until(seen)
        assert max(waited) <= 1 + PARSED_AT_ONCE // len(asked)


@pytest.mark.parametrize("behind", [b"", DOCUMENT_WANTED, b"GET /docu"])
async def test_a_websocket_does_not_begin_before_earlier_requests_are_answered(behind: bytes) -> None:
    """Its frames would be mixed with the answer."""
    doing = Doing()
    asked = b"GET /document HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n"

    async with on_wire(web_app(doing)) as wire:
        wire.connection.ws_protocol_class = _Forbidden
        wire.give(LATER_WANTED + asked + behind)
        await wire.settle()
        assert doing.later is not None
        doing.later.set_result(b"{}")
        await wire.settle()

    assert statuses(wire)[:2] == [200, 200]


class _Forbidden(asyncio.Protocol):
    def __init__(self, **_arguments: object) -> None:
        raise AssertionError("no WebSocket may begin")
