"""One end of a stream: what arrives is what was sent, up to a loss, and a loss is always noticed."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse.fleet.stream import (
    BEAT_SECONDS,
    HEADER,
    MAX_FRAME,
    PIECE_COST,
    SILENCE_SECONDS,
    WINDOW,
    Kind,
    Reason,
    StreamEnd,
    cut,
    is_close,
    is_stream_id,
    next_stream_id,
    viewer_of,
)

FRAMES = st.lists(st.one_of(st.binary(max_size=90), st.text(max_size=30)), max_size=12)


def packets_of(writer: StreamEnd, frame: bytes | str, most: int = 16) -> list[bytes]:
    return [writer.piece(kind, payload) for kind, payload in cut(frame, most)]


def beat_of(end: StreamEnd, now: float = 0.0) -> bytes:
    beat = end.beat(now)
    assert beat is not None
    return beat


def taken(reader: StreamEnd) -> list[bytes | str]:
    frames: list[bytes | str] = []
    while (frame := reader.take()) is not None:
        frames.append(frame)
    return frames


@given(FRAMES, st.integers(1, 40))
def test_frames_arrive_whole_in_order_and_of_their_kind_however_they_are_cut(
    frames: list[bytes | str], most: int
) -> None:
    writer, reader = StreamEnd(0), StreamEnd(0)

    for frame in frames:
        for packet in packets_of(writer, frame, most):
            reader.receive(packet, 0)

    assert taken(reader) == frames
    assert reader.ended is None


@given(FRAMES.filter(bool), st.data())
def test_a_lost_or_moved_packet_ends_the_stream_with_a_prefix_of_the_frames(
    frames: list[bytes | str], data: st.DataObject
) -> None:
    writer, reader = StreamEnd(0), StreamEnd(0)
    packets = [packet for frame in frames for packet in packets_of(writer, frame)]
    lost = data.draw(st.integers(0, len(packets) - 1))
    moved_to = data.draw(st.one_of(st.none(), st.integers(0, len(packets) - 1).filter(lambda at: at != lost)))
    arriving = packets[:lost] + packets[lost + 1 :]
    if moved_to is not None:
        arriving.insert(moved_to, packets[lost])

    for packet in [*arriving, beat_of(writer)]:
        reader.receive(packet, 0)

    assert reader.ended is Reason.HOLE
    frames_seen = taken(reader)
    assert frames_seen == frames[: len(frames_seen)]


@given(st.lists(st.binary(max_size=60), max_size=30))
def test_any_bytes_of_the_other_end_are_survived(packets: list[bytes]) -> None:
    reader = StreamEnd(0)

    for packet in packets:
        reader.receive(packet, 0)
        reader.take()


def test_a_lost_last_packet_is_missed_at_the_close() -> None:
    writer, reader = StreamEnd(0), StreamEnd(0)
    packets_of(writer, b"the end")

    reader.receive(writer.close(), 0)

    assert reader.ended is Reason.HOLE


def test_a_close_in_order_leaves_the_frames_before_it() -> None:
    writer, reader = StreamEnd(0), StreamEnd(0)

    for packet in [*packets_of(writer, "bye"), writer.close()]:
        reader.receive(packet, 0)

    assert reader.ended is Reason.LEFT
    assert taken(reader) == ["bye"]


def test_a_writer_stops_at_the_window_and_goes_on_with_the_credit() -> None:
    writer, reader = StreamEnd(0), StreamEnd(0)
    payload = bytes(1000)
    while writer.has_room(payload):
        reader.receive(writer.piece(Kind.BINARY, payload), 0)
    assert WINDOW - 2 * (1000 + PIECE_COST) < reader.waiting_cost <= WINDOW

    taken(reader)
    credit = reader.due_credit()
    assert credit is not None
    writer.receive(credit, 0)

    assert writer.has_room(payload)
    assert reader.due_credit() is None
    assert reader.ended is writer.ended is None


def test_a_lost_credit_comes_again_with_the_next_beat() -> None:
    writer, reader = StreamEnd(0), StreamEnd(0)
    while writer.has_room(b""):
        reader.receive(writer.piece(Kind.BINARY, b""), 0)
    taken(reader)
    assert reader.due_credit() is not None

    writer.receive(beat_of(reader), 0)

    assert writer.has_room(b"")


@pytest.mark.parametrize("payload", [b"", bytes(60_000)], ids=["small", "large"])
def test_a_writer_that_ignores_its_credit_is_cut_off_before_it_fills_the_memory(payload: bytes) -> None:
    reader = StreamEnd(0)
    rude = StreamEnd(0)

    for _ in range(2 * WINDOW // PIECE_COST):
        reader.receive(rude.piece(Kind.BINARY, payload), 0)

    assert reader.ended is Reason.BROKEN
    assert reader.waiting_cost <= WINDOW


def test_a_frame_that_never_ends_is_cut_off() -> None:
    writer, reader = StreamEnd(0), StreamEnd(0)
    piece = bytes(65536)

    for _ in range(MAX_FRAME // len(piece) + 1):
        reader.receive(writer.piece(Kind.BINARY_PIECE, piece), 0)
        assert reader.take() is None

    assert reader.ended is Reason.BROKEN


def test_credit_for_more_than_was_sent_is_refused() -> None:
    writer = StreamEnd(0)

    writer.receive(HEADER.pack(Kind.CREDIT, 1), 0)

    assert writer.ended is Reason.BROKEN


def test_text_that_is_none_ends_the_stream() -> None:
    reader = StreamEnd(0)
    reader.receive(HEADER.pack(Kind.TEXT, 0) + b"\xff", 0)

    assert reader.take() is None
    assert reader.ended is Reason.BROKEN


def test_silence_ends_a_stream_and_any_packet_prevents_it() -> None:
    here, there = StreamEnd(0), StreamEnd(0)
    here.receive(beat_of(there, 3.0), 3.0)

    assert here.beat(SILENCE_SECONDS + 2.9) is not None
    assert here.beat(SILENCE_SECONDS + 3.1) is None
    assert here.ended is Reason.SILENCE


def test_several_beats_may_be_lost() -> None:
    assert SILENCE_SECONDS >= 4 * BEAT_SECONDS


def test_unknown_packets_and_reasons_of_a_newer_version_are_tolerated() -> None:
    end = StreamEnd(0)
    end.receive(HEADER.pack(99, 0) + b"new", 0)
    assert end.ended is None

    end.receive(HEADER.pack(Kind.CLOSE, 0) + b"something new", 0)

    assert end.ended is Reason.LEFT


def test_the_first_reason_counts() -> None:
    end = StreamEnd(0)
    end.end(Reason.HOLE)

    packet = end.close()

    assert end.ended is Reason.HOLE
    assert is_close(packet)
    assert packet.endswith(b"hole")


def test_every_reason_has_a_sentence_of_its_own() -> None:
    sentences = sorted(reason.sentence for reason in Reason)

    assert all(one != other for one, other in pairwise(sentences))


@pytest.mark.parametrize("text", ["", "short", "x" * 65, "a.b.c.d.e.f.g.h.i.j", "a" * 15 + "*", "a" * 15 + ">"])
def test_what_would_change_the_subject_is_no_stream_id(text: str) -> None:
    assert not is_stream_id(text)


@pytest.mark.parametrize("first", ["0f3c-47aa-11e9-8b0c", "odd_id_of_another_version"])
def test_the_streams_of_one_viewer_have_ids_of_their_own_and_its_name(first: str) -> None:
    second = next_stream_id(first)
    third = next_stream_id(second)

    assert len({first, second, third}) == 3
    assert viewer_of(second) == viewer_of(third)
    assert is_stream_id(second)
    assert is_stream_id(third)
