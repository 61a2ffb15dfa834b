"""Server-sent events, from bytes to events."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse.transports.chunks import ChunkDecoder
from synapse.transports.events import EventDecoder, ServerEvent

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
def test_events_do_not_depend_on_how_the_bytes_were_cut(places: list[int]) -> None:
    decoder = EventDecoder()

    assert [event for piece in cut(STREAM, places) for event in decoder.receive(piece)] == EVENTS


@given(st.binary(), st.lists(st.integers(min_value=1, max_value=20)), st.lists(st.integers(min_value=0, max_value=500)))
def test_chunks_come_off_however_they_and_the_bytes_were_cut(data: bytes, sizes: list[int], places: list[int]) -> None:
    decoder = ChunkDecoder()

    assert b"".join(decoder.receive(piece) for piece in cut(chunked(data, sizes), places)) == data
    assert decoder.ended


def test_what_is_not_chunked_is_refused() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        ChunkDecoder().receive(b"nonsense\r\n")
