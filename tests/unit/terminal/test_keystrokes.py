"""What bytes type a text: one paste or one line, and never anything that acts on the terminal."""

from __future__ import annotations

import pytest

from synapse.terminal.keys import keystrokes
from tests.unit.terminal.scenes import line_profile, page_profile


def test_a_program_that_takes_pastes_gets_one_paste() -> None:
    keys = keystrokes("one\ntwo\tthree", page_profile(), bracketed_paste=True)

    assert keys.data == b"\x1b[200~one\ntwo\tthree\x1b[201~"
    assert keys.shown == "one\ntwo\tthree"


def test_a_line_program_that_takes_pastes_gets_one_too() -> None:
    assert keystrokes("one\ntwo", line_profile(), bracketed_paste=True).data == b"\x1b[200~one\ntwo\x1b[201~"


def test_a_line_program_gets_one_line_without_tabs() -> None:
    keys = keystrokes("one\n  two\tthree\n", line_profile(), bracketed_paste=False)

    assert keys.data == b"one two three"


def test_the_profile_says_what_stands_for_a_line_break() -> None:
    profile = line_profile(typing={"newline": " / "})

    assert keystrokes("one\ntwo", profile, bracketed_paste=False).shown == "one / two"


@pytest.mark.parametrize("text", ["see @codex", "run /model", "@codex", "fix #12", "use $skill"])
def test_a_text_that_would_open_a_popup_ends_with_a_blank(text: str) -> None:
    assert keystrokes(text, page_profile(), bracketed_paste=True).data == f"\x1b[200~{text} \x1b[201~".encode()


@pytest.mark.parametrize("text", ["mail me@example.org", "done.", "and/or", "see @codex please"])
def test_other_texts_are_typed_as_they_are(text: str) -> None:
    assert keystrokes(text, page_profile(), bracketed_paste=True).shown == text


@pytest.mark.parametrize(
    "hostile",
    ["a\x1b[201~\rrm -rf", "a\x1b]0;t\x07b", "a\x00b\x7f", "a\rb", "a\x9b201~b", "a\u202eb", "\x15\x03\x04a"],
)
@pytest.mark.parametrize("pastes", [True, False])
def test_nothing_in_a_text_acts_on_the_terminal(hostile: str, pastes: bool) -> None:
    data = keystrokes(hostile, page_profile() if pastes else line_profile(), bracketed_paste=pastes).data
    inner = data.removeprefix(b"\x1b[200~").removesuffix(b"\x1b[201~").decode()

    assert not [char for char in inner if (char < " " and char not in "\n\t") or "\x7f" <= char <= "\x9f"]
    assert "\u202e" not in inner
