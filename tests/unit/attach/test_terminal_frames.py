"""The frames of terminals: decoding undoes encoding, and whatever a stranger sends is refused in words."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse.attach.frames import Exited, Resize, Role, Size, Take
from synapse.attach.terminal_frames import (
    MAX_INPUT,
    Close,
    Credit,
    Failed,
    FromViewer,
    Input,
    Kind,
    Lost,
    Open,
    Output,
    Ping,
    Pong,
    Snapshot,
    decode_from_viewer,
    decode_to_viewer,
    encode_from_viewer,
    encode_to_viewer,
    split,
)
from synapse.core.errors import AgentNotFound, InvalidRequest

OPEN = Open(agent="ada", after=17, run="r1", columns=80, rows=24, types=True)


@pytest.mark.parametrize(
    "said",
    [
        OPEN,
        Open(agent="ada", after=None, run="", columns=80, rows=24, types=False),
        Input(b"\x1b[A"),
        Resize(100, 30),
        Credit(2**53 - 1),
        Close(),
        Take(),
        Ping(),
    ],
)
def test_frames_of_a_viewer_are_decoded(said: FromViewer) -> None:
    frame = split(encode_from_viewer(7, said))

    assert frame.terminal == 7
    assert decode_from_viewer(frame) == said


@pytest.mark.parametrize(
    "said",
    [
        Snapshot(9, 80, 24, "r1", b"bytes\nof a terminal"),
        Output(2**40, b"\x00\xff"),
        Size(80, 24),
        Role(types=True),
        Exited(-15),
    ],
)
def test_frames_of_a_host_are_decoded(said: Snapshot | Output | Size | Role | Exited) -> None:
    assert decode_to_viewer(split(encode_to_viewer(0, said))) == said


def test_what_only_a_gateway_says_is_left_to_its_pages() -> None:
    for said in (Lost(), Pong(), Failed(AgentNotFound("nobody"))):
        assert decode_to_viewer(split(encode_to_viewer(3, said))) is None


def test_an_error_says_what_a_person_can_do() -> None:
    frame = split(encode_to_viewer(3, Failed(AgentNotFound("nobody"))))

    assert frame.kind == Kind.ERROR
    assert b'"agent_not_found"' in frame.payload
    assert b"synapse list" in frame.payload


def test_a_header_has_thirteen_bytes() -> None:
    assert encode_to_viewer(258, Output(3, b"x")) == b"\x11\x00\x00\x01\x02\x00\x00\x00\x00\x00\x00\x00\x03x"


@pytest.mark.parametrize("kind", [0, 8, 16, 17, 255])
def test_a_viewer_has_no_frames_of_other_kinds(kind: int) -> None:
    with pytest.raises(InvalidRequest, match="kind"):
        decode_from_viewer(split(bytes([kind]) + bytes(12)))


def test_input_is_bounded() -> None:
    with pytest.raises(InvalidRequest, match="at most"):
        decode_from_viewer(split(encode_from_viewer(1, Input(bytes(MAX_INPUT + 1)))))


@given(st.binary(max_size=200) | st.text(max_size=20))
def test_any_frame_of_a_stranger_is_understood_or_refused(data: bytes | str) -> None:
    for decode in (decode_from_viewer, decode_to_viewer):
        with suppress(InvalidRequest):
            decode(split(data))


@given(st.sampled_from([1, 3, 16, 18, 19, 20]), st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_payload_of_a_stranger_is_understood_or_refused(kind: int, payload: bytes) -> None:
    for decode in (decode_from_viewer, decode_to_viewer):
        with suppress(InvalidRequest):
            decode(split(bytes([kind]) + bytes(12) + payload))
