"""The options that a CLI's signal tells are numbered, safe to print, and found by their number."""

from __future__ import annotations

import pytest

from synapse.core.question import OptionEffect
from synapse.terminal.signals.report import numbered, position


def test_options_are_numbered_and_safe_to_print() -> None:
    one, two = numbered([("Yes\x1b[2J", OptionEffect.ALLOW), ("No\nway", OptionEffect.DENY)])

    assert (one.key, one.label, one.leaning) == ("1", "Yes[2J", OptionEffect.ALLOW)
    assert (two.key, two.label, two.leaning) == ("2", "No way", OptionEffect.DENY)


def test_there_is_an_end_to_the_options() -> None:
    assert len(numbered([("x", OptionEffect.OTHER)] * 1000)) == 50


@pytest.mark.parametrize(("key", "place"), [("1", 0), ("3", 2), ("4", None), ("0", None), ("", None), ("²", None)])
def test_an_option_is_found_by_its_number(key: str, place: int | None) -> None:
    assert position(key, 3) == place
