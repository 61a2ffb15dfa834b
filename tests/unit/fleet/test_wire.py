"""Messages between links: what is written is read back, newer fields are ignored, newer types refused."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import msgspec
import pytest

from synapse.fleet.log import (
    LARGE,
    Batch,
    LogRow,
    Mark,
    PieceAnswer,
    RangeAnswer,
    RangeRequest,
    decode_batch,
    decode_log,
    encode_batch,
    encode_log,
    shown,
    whole_row,
)
from synapse.fleet.wire import (
    End,
    FindMessage,
    Found,
    Incarnation,
    MessageKind,
    Outcome,
    Problem,
    Receipt,
    RelayBody,
    RelayedMessage,
    UnreadableBody,
    decode_relay,
    encode_relay,
)

ME = Incarnation(3, "00ff00ff00ff00ff")
BODIES: tuple[RelayBody, ...] = (
    RelayedMessage(incarnation=ME, n=7, kind=MessageKind.SEND, message_id="m", target="codex", body=b"\x00\xff"),
    RelayedMessage(incarnation=ME, n=8, kind=MessageKind.ENDED, message_id="e", ends="m", end=End(state="completed")),
    Receipt(incarnation=ME, n=7, message_id="m", outcome=Outcome.ACCEPTED, by=Incarnation(1, "b"), task_id="t"),
    FindMessage(message_id="m"),
    Found(message_id="m", by=ME),
    Problem(code="not_now"),
)


@pytest.mark.parametrize("body", BODIES)
def test_a_body_is_read_as_it_was_written(body: RelayBody) -> None:
    assert decode_relay(encode_relay(body)) == body


@pytest.mark.parametrize("number", [-1, 2**62, 2**63])
@pytest.mark.parametrize(
    ("index", "name"), [(0, "n"), (0, "floor"), (0, "prev"), (0, "incarnation"), (2, "n"), (2, "by"), (2, "counter")]
)
def test_a_number_that_no_file_can_hold_is_refused(index: int, name: str, number: int) -> None:
    value = [number, "nonce"] if name in {"incarnation", "by"} else number
    fields = msgspec.msgpack.decode(encode_relay(BODIES[index])) | {name: value}

    with pytest.raises(UnreadableBody):
        decode_relay(msgspec.msgpack.encode(fields))


def test_a_counter_that_is_heard_leaves_room_for_newer_incarnations() -> None:
    fields = msgspec.msgpack.decode(encode_relay(BODIES[2])) | {"counter": 2**62 - 1}

    with pytest.raises(UnreadableBody):
        decode_relay(msgspec.msgpack.encode(fields))


@pytest.mark.parametrize(("number", "is_read"), [(-1, False), (2**62, False), (5, True)])
def test_a_log_with_a_number_that_no_file_can_hold_is_refused(number: int, is_read: bool) -> None:
    log = {"machine": "box2", "incarnation": [1, "a"]}
    piece = {**log, "type": "piece_of", "seq": 1, "offset": 0}
    batch = {**log, "type": "batch", "schema": 8, "prev": [], "last": [2, b""], "rows": []}
    changed = [{**piece, "seq": number}, {**piece, "offset": number}, {**log, "type": "range", "after": [number, b""]}]
    batches = [{**batch, "last": [number, b""]}, {**batch, "rows": [[number, b"x"]]}, {**batch, "schema": number}]

    read = [_is_read(decode_log, msgspec.msgpack.encode(one)) for one in changed]
    read += [_is_read(decode_batch, zlib.compress(msgspec.msgpack.encode(one))) for one in batches]

    assert read == [is_read] * 6


def _is_read(decode: Callable[[bytes], object], body: bytes) -> bool:
    try:
        decode(body)
    except UnreadableBody:
        return False
    return True


def test_a_field_of_a_newer_version_is_ignored() -> None:
    fields = msgspec.msgpack.decode(encode_relay(BODIES[0])) | {"colour": "blue"}

    assert decode_relay(msgspec.msgpack.encode(fields)) == BODIES[0]


@pytest.mark.parametrize(
    "body", [b"", b"\xff", b"\xc1", msgspec.msgpack.encode({"type": "poem"}), b"\x81\xa4type\xa2\xff\xfe"]
)
def test_bytes_that_are_no_message_are_refused(body: bytes) -> None:
    with pytest.raises(UnreadableBody):
        decode_relay(body)


def test_a_kind_of_a_newer_version_is_readable() -> None:
    message = RelayedMessage(incarnation=ME, n=1, kind="poem", message_id="m")

    assert decode_relay(encode_relay(message)) == message


def test_a_batch_is_read_as_it_was_written() -> None:
    batch = Batch(
        machine="box2", incarnation=ME, schema=8, prev=Mark(), last=Mark(2, b"d"), rows=(LogRow(2, b'["a"]'),)
    )

    assert decode_batch(encode_batch(batch)) == batch


@pytest.mark.parametrize("cut", [0, 1, 10, -1])
def test_a_batch_that_is_cut_off_is_refused(cut: int) -> None:
    batch = Batch(machine="box2", incarnation=ME, schema=8, prev=Mark(), last=Mark(2, b"d"), rows=(LogRow(2, b"x"),))

    with pytest.raises(UnreadableBody):
        decode_batch(encode_batch(batch)[:cut])


def test_a_batch_that_unpacks_to_too_much_is_refused() -> None:
    batch = Batch(
        machine="box2", incarnation=ME, schema=8, prev=Mark(), last=Mark(2, b"d"), rows=(LogRow(2, bytes(20_000_000)),)
    )

    with pytest.raises(UnreadableBody):
        decode_batch(encode_batch(batch))


@pytest.mark.parametrize(
    "body",
    [
        RangeRequest(machine="box2", incarnation=ME, after=Mark(4, b"d")),
        RangeAnswer(incarnation=ME, batches=(b"x",), more=True),
        PieceAnswer(gone=True),
    ],
)
def test_a_question_about_a_log_is_read_as_it_was_written(body: RangeRequest | RangeAnswer | PieceAnswer) -> None:
    assert decode_log(encode_log(body)) == body


def test_an_unknown_question_about_a_log_is_refused() -> None:
    with pytest.raises(UnreadableBody):
        decode_log(msgspec.msgpack.encode({"type": "poem"}))


def test_a_large_row_goes_as_its_size_and_hash_and_is_whole_again_with_its_pieces() -> None:
    row = LogRow(5, b"x" * (LARGE + 1))

    sent = shown(row)

    assert (sent.data, sent.size) == (b"", LARGE + 1)
    assert whole_row(sent, [row.data[:100], row.data[100:]]) == row
    assert whole_row(sent, [row.data[:100]]) is None
    assert whole_row(sent, [b"y" * (LARGE + 1)]) is None


def decode_compressed(body: bytes) -> object:
    return decode_batch(zlib.compress(body))


@pytest.mark.parametrize("decode", [decode_relay, decode_log, decode_compressed])
def test_a_body_with_too_many_levels_is_refused(decode: Callable[[bytes], object]) -> None:
    for kind in (b"find", b"piece", b"batch"):
        nested = (
            bytes([0x82, 0xA4]) + b"type" + bytes([0xA0 + len(kind)]) + kind + b"\xa1x" + b"\x91" * 100_000 + b"\xc0"
        )

        with pytest.raises(UnreadableBody):
            decode(nested)
