"""What a question says is safe to print, whatever a model has put into it."""

from __future__ import annotations

import pytest

from synapse.core.question import Leaning
from synapse.terminal.signals.asking import numbered, position, safe_line, safe_text


def test_nothing_in_a_question_acts_on_a_terminal() -> None:
    assert safe_line("rm\x1b[2J -rf\nall\u202e") == "rm[2J -rf all"
    assert safe_text("\x1b]0;title\x07one\r\ntwo\n") == "]0;titleone\ntwo"


def test_a_question_has_an_end() -> None:
    assert len(safe_line("x" * 10_000)) <= 300
    assert len(safe_text("x" * 10_000)) == 4000
    assert len(numbered([("x", Leaning.OTHER)] * 1000)) == 50


@pytest.mark.parametrize(("key", "place"), [("1", 0), ("3", 2), ("4", None), ("0", None), ("", None), ("²", None)])
def test_an_option_is_found_by_its_number(key: str, place: int | None) -> None:
    assert position(key, 3) == place
