"""An input that is found from the cursor: frames change with the terminal's colours, and old rows stay around it."""

from __future__ import annotations

import pytest

from synapse.core.agent import READY, WAITING
from synapse.terminal.answer import answer_text
from synapse.terminal.evidence import Evidence
from synapse.terminal.profile import Profile
from synapse.terminal.reading import Prompt, read_prompt
from tests.unit.terminal.bundled import bundled
from tests.unit.terminal.golden_screens import picture
from tests.unit.terminal.scenes import RULE, page_profile, screen_of

OLD_ROWS = (RULE, " workspace", RULE, " workspace")
OPTION = "│ 1. allow"


def profile() -> Profile:
    return page_profile(
        prompt={"pattern": "^ >(?: (?P<text>.*))?$", "further": "^ {3}", "placeholders": ["Say something"]},
        dialogs=[{"name": "permission", "hint": "look", "every": ["^│ 1. allow"], "hides_prompt": True}],
    )


@pytest.mark.parametrize("frame", [RULE, "", "▄" * 60])
def test_the_frame_does_not_matter_nor_what_is_left_below(frame: str) -> None:
    seen = screen_of(" > an old message", "an answer", frame, " > hello", frame, *OLD_ROWS, cursor=(3, 8))

    assert read_prompt(seen, profile()) == Prompt("hello", 3, 3)


def test_rows_of_the_input_may_be_blank_and_the_cursor_may_stand_in_any() -> None:
    lines = (" > one", "", "   three", "", " workspace")

    for cursor in ((0, 3), (1, 3), (2, 8)):
        assert read_prompt(screen_of(*lines, cursor=cursor), profile()) == Prompt("one\n\nthree", 0, 2)


def test_a_text_below_an_empty_first_row_is_text() -> None:
    seen = screen_of(" >", "", "   hello", " workspace", cursor=(0, 3))

    assert read_prompt(seen, profile()) == Prompt("hello", 0, 2)


def test_a_placeholder_is_no_text() -> None:
    seen = screen_of(" >   Say something", "", " workspace", cursor=(0, 3))

    assert read_prompt(seen, profile()) == Prompt("", 0, 0)


def test_without_the_cursor_there_is_no_input() -> None:
    shown = (" > an old message", "", "an answer", "", " >", RULE)

    assert read_prompt(screen_of(*shown, cursor=(5, 0)), profile()) is None
    assert read_prompt(screen_of(*shown, cursor=(2, 0)), profile()) is None
    assert read_prompt(screen_of("", "   ", cursor=(1, 0)), profile()) is None


def test_a_dialog_above_the_input_is_history_and_one_above_old_rows_of_it_is_open() -> None:
    above = screen_of("╭───", OPTION, "╰───", " >", RULE, cursor=(3, 3))
    over_old_rows = screen_of("╭───", OPTION, "╰───", "", RULE, " >", cursor=(3, 0))

    assert Evidence(profile(), 0.0).look(above, quiet_for=9.0, now=9.0).state == READY
    assert Evidence(profile(), 0.0).look(over_old_rows, quiet_for=9.0, now=9.0).state == WAITING


@pytest.mark.parametrize("colours", ["256_colours", "no_colour"])
def test_an_answer_is_cut_out_whatever_the_frame(colours: str) -> None:
    screen = picture(f"gemini/ready_after_tool_{colours}")

    assert answer_text(screen.lines, "calibrate:approve:2 please", bundled("gemini")) == "The tool has run."
