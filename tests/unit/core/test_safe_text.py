"""What a program says is safe to print, whatever a model has put into it, and says where it was cut."""

from __future__ import annotations

from synapse.core.text import LONGEST_DETAIL, LONGEST_LINE, safe_line, safe_lines


def test_nothing_in_it_acts_on_a_terminal() -> None:
    assert safe_line("rm\x1b[2J -rf\nall\u202e") == "rm[2J -rf all"
    assert safe_lines("\x1b]0;title\x07one\r\ntwo\n") == "]0;titleone\ntwo"


def test_it_has_an_end_and_says_so() -> None:
    assert len(safe_line("x" * 10_000)) == LONGEST_LINE
    assert len(safe_lines("x" * 10_000)) == LONGEST_DETAIL
    assert safe_lines("rm a\n" * 100).endswith("rm a\n… (there is more of it: look at its terminal)")
