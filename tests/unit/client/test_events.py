"""Server-sent events, from bytes to events."""

from __future__ import annotations

import socket
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse.client.events import EventDecoder, EventStream, ServerEvent, open_stream
from synapse.client.http import Answer, ChunkDecoder, HostAddress, NoAnswer
from tests.unit.client.test_client import answering

STREAM = (
    ": hello\r\n\r\n"
    'id: 1\nevent: snapshot\ndata: {"task": {}}\n\n'
    "id: 2\nevent: state_changed\ndata: first line\ndata:second line: with colon\n\n"
    ": keep-alive\n\n"
    "data: 日本\nunknown: x\n\n"
    "event: no_data\n\n"
    "id: 3\ndata: unfinished"
).encode()
EVENTS = [
    ServerEvent("1", "snapshot", '{"task": {}}'),
    ServerEvent("2", "state_changed", "first line\nsecond line: with colon"),
    ServerEvent("2", "", "日本"),
]


def chunked(data: bytes, sizes: list[int]) -> bytes:
    pieces: list[bytes] = []
    for size in sizes:
        piece, data = data[:size], data[size:]
        pieces += [f"{len(piece):X};note=x\r\n".encode() + piece + b"\r\n"] if piece else []
    rest = f"{len(data):x}\r\n".encode() + data + b"\r\n" if data else b""
    return b"".join(pieces) + rest + b"0\r\n\r\n"


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(edges)]


def test_a_stream_is_read_as_its_events() -> None:
    assert EventDecoder().receive(STREAM) == EVENTS


@given(st.lists(st.integers(min_value=0, max_value=1000)))
def test_events_are_decoded_however_the_bytes_are_split(places: list[int]) -> None:
    decoder = EventDecoder()

    assert [event for piece in cut(STREAM, places) for event in decoder.receive(piece)] == EVENTS


@given(st.binary(), st.lists(st.integers(min_value=1, max_value=20)), st.lists(st.integers(min_value=0, max_value=500)))
def test_chunks_are_decoded_however_the_bytes_are_split(data: bytes, sizes: list[int], places: list[int]) -> None:
    decoder = ChunkDecoder()

    assert b"".join(decoder.receive(piece) for piece in cut(chunked(data, sizes), places)) == data
    assert decoder.ended


def test_bytes_that_are_not_chunked_are_refused() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        ChunkDecoder().receive(b"nonsense\r\n")


@contextmanager
def answer_of(path: Path, *pieces: bytes) -> Generator[HostAddress]:
    """A host that sends these pieces to its first client."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        with answering(listener, *pieces):
            yield HostAddress(str(path))


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


Ask = Callable[..., EventStream | Answer]


@pytest.fixture
def ask(tmp_path: Path) -> Generator[Ask]:
    with ExitStack() as hosts:

        def ask(*pieces: bytes, after: str = "") -> EventStream | Answer:
            address = hosts.enter_context(answer_of(tmp_path / "s", *pieces))
            return open_stream(address, "/x", after=after, deadline=5.0, monotonic=lambda: 0.0)

        yield ask


def test_an_open_stream_gives_its_events_and_then_ends(ask: Ask) -> None:
    stream = ask(HEAD, STREAM, after="1")

    assert isinstance(stream, EventStream)
    assert [stream.next(5.0) for _ in range(4)] == [*EVENTS, None]
    stream.close()


def test_a_refusal_is_an_answer_instead_of_a_stream(ask: Ask) -> None:
    body = b'{"error": {"code": "task_not_found"}}'
    refused = ask(b"HTTP/1.1 404 Not Found\r\nContent-Length: 37\r\n\r\n" + body)

    assert isinstance(refused, Answer)
    assert (refused.status, refused.body["error"]["code"]) == (404, "task_not_found")


def test_a_stream_of_broken_chunks_raises_no_answer(ask: Ask) -> None:
    with pytest.raises(NoAnswer):
        ask(HEAD[:-2] + b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n")


def test_a_deadline_that_has_passed_is_a_timeout(ask: Ask) -> None:
    stream = ask(HEAD)

    assert isinstance(stream, EventStream)
    with pytest.raises(TimeoutError):
        stream.next(0.0)
    stream.close()


def test_a_connection_that_is_closed_without_an_answer_raises_no_answer(ask: Ask) -> None:
    with pytest.raises(NoAnswer):
        ask()
