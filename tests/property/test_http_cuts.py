"""What is asked and answered over HTTP does not depend on how the bytes were cut; whatever they are, it stands."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from synapse.server.asgi import Receive, Scope, Send
from tests.fakes.wire import Wire, answers
from tests.unit.server.on_wire import ScriptedApp, piece, start

LONGEST = 48
JSON = b"Content-Type: application/json\r\n"


def head(line: bytes, *headers: bytes) -> bytes:
    return line + b"\r\nHost: x\r\n" + b"".join(header + b"\r\n" for header in headers) + b"\r\n"


def posted(body: bytes, *headers: bytes) -> bytes:
    return head(b"POST /echo HTTP/1.1", JSON[:-2], b"Content-Length: %d" % len(body), *headers) + body


@st.composite
def chunked(draw: st.DrawFn) -> bytes:
    pieces = draw(st.lists(st.binary(min_size=1, max_size=40), max_size=4))
    trailer = draw(st.sampled_from([b"", b"X-Trailer: 1\r\n", b"Content-Length: 9\r\n"]))
    coded = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    begun = head(b"POST /echo HTTP/1.1", JSON[:-2], b"Transfer-Encoding: chunked")
    return begun + coded + b"0\r\n" + trailer + b"\r\n"


SOUND = st.one_of(
    st.sampled_from(
        [
            head(b"GET /document HTTP/1.1"),
            head(b"GET /now HTTP/1.1"),
            head(b"GET /nothing HTTP/1.1"),
            head(b"GET /nowhere?a=b#c HTTP/1.1"),
            head(b"GET http://x/document HTTP/1.1"),
            head(b"OPTIONS * HTTP/1.1"),
            head(b"GET /document HTTP/1.1", b"Connection: upgrade", b"Upgrade: h2c"),
            head(b"GET /document HTTP/1.1", b"Connection: upgrade", b"Upgrade: websocket"),
            b"\r\n" + head(b"GET /now HTTP/1.1"),
            head(b"POST /nowhere HTTP/1.1", b"Content-Length: 5") + b"hello",
            posted(b"asked first", b"Expect: 100-continue"),
            posted(b"an upgrade with a body", b"Connection: upgrade", b"Upgrade: h2c"),
            posted(b"x" * (LONGEST + 1)),
        ]
    ),
    st.binary(max_size=LONGEST).map(posted),
    chunked(),
)
LAST = st.sampled_from(
    [
        b"",
        head(b"GET /document HTTP/1.1", b"Connection: close"),
        head(b"GET /document HTTP/1.0"),
        head(b"GET /document HTTP/1.0", b"Connection: keep-alive"),
        b"GET /document\r\n\r\n",
        head(b"POST /echo HTTP/1.1", b"Content-Length: 5", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
        head(b"POST /echo HTTP/1.1", b"Content-Length: 5", b"Content-Length: 6") + b"hello",
        head(b"POST /echo HTTP/1.1", b"Content-Length: +5") + b"hello",
        head(b"POST /echo HTTP/1.1", JSON[:-2], b"Transfer-Encoding: gzip") + b"hello",
        head(b"POST /echo HTTP/1.1", JSON[:-2], b"Transfer-Encoding: chunked") + b"5\r\nhello\r\nno size\r\n",
        head(b"POST /echo HTTP/1.1", JSON[:-2], b"Transfer-Encoding: chunked")
        + b"40\r\n"
        + b"x" * 64
        + b"\r\nno size\r\n",
        head(b"POST /nowhere HTTP/1.1", b"Transfer-Encoding: chunked") + b"no size\r\n",
        head(b"GET /document HTTP/1.1", b"Folded: a\r\n b"),
        head(b"GET /document HTTP/1.1", b"Spaced : a"),
        b"GET /document HTTP/1.1\nHost: x\n\n",
        b"CONNECT x:80 HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"GET /document HTTP/1.1\r\nHost",
    ]
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Sound requests, one that may be unsound, and more behind it; sometimes one byte of all that is another."""
    stream = b"".join(draw(st.lists(SOUND, max_size=4))) + draw(LAST) + b"".join(draw(st.lists(SOUND, max_size=2)))
    if stream and draw(st.integers(0, 3)) == 0:
        place = draw(st.integers(0, len(stream) - 1))
        stream = stream[:place] + draw(st.binary(min_size=1, max_size=1)) + stream[place + 1 :]
    return stream


async def heard(pieces: list[bytes], *, patient: bool) -> tuple[Any, ...]:
    """What is asked and answered, and whether that was all, when these pieces come one by one."""
    asked: list[Any] = []

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        """Read the whole body, as every route of ours does that has one."""
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, more = body + message["body"], message["more_body"]
        asked.append((scope["method"], scope["raw_path"], scope["query_string"], list(scope["headers"]), body))
        await send(start(headers=[(b"content-length", b"2")]))
        await send(piece(b"ok"))

    wire = Wire(ScriptedApp(answer))
    try:
        for sent in pieces:
            wire.give(sent)
            if patient:
                await wire.settle()
        await wire.settle()
        told = [(status, body) for status, _, body in answers(wire.written)]
        over = wire.is_over
        await wire.leave()
        assert wire.failures == []
        assert not wire.server.tasks
        assert not wire.server.connections
        return asked, told, over
    finally:
        wire.close()


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=150)
@given(streams(), st.data())
async def test_what_is_asked_and_answered_does_not_depend_on_how_the_bytes_were_cut(
    stream: bytes, data: st.DataObject
) -> None:
    places = sorted(data.draw(st.sets(st.integers(1, max(1, len(stream) - 1)), max_size=6)))
    pieces = [stream[start:end] for start, end in zip([0, *places], [*places, len(stream)], strict=True)]

    at_once = await heard([stream], patient=True)
    cut = await heard([piece for piece in pieces if piece], patient=data.draw(st.booleans()))

    assert cut == at_once


@settings(deadline=None, max_examples=100)
@given(st.lists(st.binary(max_size=60), max_size=5))
async def test_whatever_comes_nothing_breaks(pieces: list[bytes]) -> None:
    _, told, _ = await heard([piece for piece in pieces if piece], patient=True)

    assert all(status == 400 for status, _ in told)
