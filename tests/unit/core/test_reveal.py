"""Characters that hide in a text are seen by the person who decides about it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse.core.reveal import Piece, reveal, revealed


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rm -rf build", "rm -rf build"),
        ("", ""),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("a\x1b[31mred", "a<U+001B>[31mred"),
        ("cat \u202etxt.exe", "cat <U+202E>txt.exe"),
        ("pass\u200bword", "pass<U+200B>word"),
        ("rm\u00a0-rf", "rm<U+00A0>-rf"),
        ("rm\u2800x", "rm<U+2800>x"),
        ("tag\U000e0041", "tag<U+E0041>"),
        ("half \ud800", "half <U+D800>"),
        ("curl ex\u0430mple.com", "curl ex\u0430<U+0430>mple.com"),
        ("\uff53udo", "\uff53<U+FF53>udo"),
        ("\u0441\u0440 a b", "\u0441<U+0441>\u0440<U+0440> a b"),
        ("rm \u2212rf", "rm \u2212<U+2212>rf"),
        ("a\u2215b", "a\u2215<U+2215>b"),
        ("full\u3000width", "full<U+3000>width"),
    ],
)
def test_what_hides_is_named(text: str, shown: str) -> None:
    assert revealed(text) == shown


@pytest.mark.parametrize("text", ["caf\u00e9", "привет мир", "Pythonで書く", "⚠\ufe0f", "👩\u200d💻"])
def test_honest_text_of_any_script_stays_as_it_is(text: str) -> None:
    assert revealed(text) == text


def test_a_joiner_after_an_ascii_character_only_hides() -> None:
    assert revealed("sudo\u200d") == "sudo<U+200D>"


def test_a_mark_is_told_from_the_same_words_in_the_text() -> None:
    assert reveal("<U+200B>\u200b") == [Piece("<U+200B>", is_mark=False), Piece("<U+200B>", is_mark=True)]


@given(st.text())
def test_nothing_but_what_was_there_stays_and_no_control_is_left(text: str) -> None:
    pieces = reveal(text)

    kept = "".join(piece.text for piece in pieces if not piece.is_mark)
    left = iter(text)
    assert all(char in left for char in kept)
    assert not any(ord(char) < 32 for char in kept if char not in "\n\t")
