"""The frames of an attach connection: decoding undoes encoding, and unknown frames are ignored."""

from __future__ import annotations

import pytest

from synapse.attach.frames import (
    Exited,
    Hello,
    Resize,
    Role,
    Size,
    Take,
    ToHost,
    ToViewer,
    decode_to_host,
    decode_to_viewer,
    encode,
)


@pytest.mark.parametrize(
    "frame", [Hello(80, 24), Hello(80, 24, types=False), Hello(80, 24, take=True), Resize(120, 40), Take()]
)
def test_frames_of_a_viewer_are_decoded(frame: ToHost) -> None:
    assert decode_to_host(encode(frame)) == frame


@pytest.mark.parametrize("frame", [Role(types=True), Role(types=False), Size(80, 24), Exited(3)])
def test_frames_of_a_host_are_decoded(frame: ToViewer) -> None:
    assert decode_to_viewer(encode(frame)) == frame


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        "[]",
        "{}",
        '{"type": "resize", "columns": 0, "rows": 5}',
        '{"type": "resize", "columns": "80", "rows": 5}',
        '{"type": "hello", "columns": 100000, "rows": 5}',
        '{"type": "later"}',
    ],
)
def test_unknown_frames_are_ignored(text: str) -> None:
    assert decode_to_host(text) is None
    assert decode_to_viewer(text) is None
