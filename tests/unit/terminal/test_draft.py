"""A person's half-typed line, judged by their keys."""

from __future__ import annotations

import pytest

from synapse.terminal.draft import PersonDraft


@pytest.mark.parametrize(
    "keys",
    [b"x", b"one\rtwo", b"\x1b[A", b"ab\x7f", b"\x1b[200~pasted\x1b[201~", b"\x1b[200~one\ntwo\x1b[201~", b"a\x1b[D"],
)
def test_a_line_that_was_begun_is_open(keys: bytes) -> None:
    draft = PersonDraft()

    draft.typed(keys)

    assert draft.is_open


@pytest.mark.parametrize(
    "keys",
    [
        b"", b"a line\r", b"a line\n", b"abc\x15", b"abc\x03", b"ab\x7f\x7f", b"\x1b[I\x1b[O", b"\x1b[A\r",
        b"\x1b[200~one\n\x1b[201~", b"\x1b[13u",
    ],
)  # fmt: skip
def test_a_line_that_was_ended_or_emptied_is_not(keys: bytes) -> None:
    draft = PersonDraft()

    for at in range(len(keys)):
        draft.typed(keys[at : at + 1])

    assert not draft.is_open


@pytest.mark.parametrize("keys", [b"x", b"\r", b"\x1b", b"\x1b[A", b"\x1b[200~pasted\x1b[201~", b"\x1b[?1;2cx"])
def test_a_key_is_a_press(keys: bytes) -> None:
    assert PersonDraft().typed(keys)


@pytest.mark.parametrize(
    "told",
    [
        b"\x1b[?1;2c",
        b"\x1b[24;80R",
        b"\x1bP>|tmux 3.3a\x1b\\",
        b"\x1b]11;rgb:0000/0000/0000\x1b\\",
        b"\x1b[I",
        b"\x1b[?",
    ],
)
def test_what_the_terminal_itself_tells_is_no_press(told: bytes) -> None:
    assert not PersonDraft().typed(told)


@pytest.mark.parametrize(("typed", "is_open"), [(b"abc\x1a", True), (b"\x1a", False), (b"\x1b[122;5u", False)])
def test_a_program_that_edits_its_own_line_has_it_still_after_ctrl_z(typed: bytes, *, is_open: bool) -> None:
    draft = PersonDraft()

    draft.typed(typed)

    assert draft.is_open is is_open


@pytest.mark.parametrize(("typed", "is_open"), [(b"abc\x1a", False), (b"\x1a", False), (b"abc\x1ad", True)])
def test_ctrl_z_drops_a_line_that_the_kernel_edits(typed: bytes, *, is_open: bool) -> None:
    draft = PersonDraft()

    draft.typed(typed, suspending_drops_line=True)

    assert draft.is_open is is_open
