"""The prompt of a line program, read from what a real emulator makes of its bytes."""

from __future__ import annotations

import pytest

from synapse.terminal.profile import Profile
from synapse.terminal.reading import cells, cursor_line, read_prompt
from synapse.terminal.screen import Screen
from tests.unit.terminal.scenes import line_profile, quiet_profile

COLUMNS = 20
NO_WRAPPING = b"\x1b[?7l"


def prompt_after(data: bytes, columns: int = COLUMNS) -> str | None:
    """What the prompt holds once the program has printed `data`; None if it is not visible."""
    screen = Screen(columns, 8)
    screen.feed(data)
    prompt = read_prompt(screen.picture(), line_profile())
    return None if prompt is None else prompt.text


def line_after(data: bytes, profile: Profile) -> tuple[int, str]:
    screen = Screen(COLUMNS, 8)
    screen.feed(data)
    return cursor_line(screen.picture(), profile)


@pytest.mark.parametrize("width", range(COLUMNS - 2, COLUMNS + 3))
@pytest.mark.parametrize("letter", ["a", "日", "e\u0301", "> ", "👩\u200d🚀"])
def test_an_answer_that_fills_its_last_row_is_not_part_of_the_prompt_below(width: int, letter: str) -> None:
    row = letter * (width // cells(letter))
    row += "b" * (width - cells(row))

    assert prompt_after(f"{row}\r\n> ".encode()) == ""
    assert prompt_after(f"{row}\r\n> half a line".encode()) == "half a line"


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("x" * 50, "x" * 50),
        ("x" * 18, "x" * 18),
        ("word " * 9 + "end", "word " * 9 + "end"),
        # The wide character does not fit into the last column, which stays empty.
        ("a" + "日" * 12, "a" + "日" * 12),
        ("日" * 12, "日" * 12),
    ],
)
def test_a_line_that_the_terminal_wrapped_is_read_as_it_was_typed(typed: str, wanted: str) -> None:
    assert prompt_after(f"> {typed}".encode()) == wanted


def test_a_line_that_ends_at_the_edge_goes_on_below_where_its_editor_put_the_cursor() -> None:
    # Readline writes a blank and a carriage return, so that the cursor stands on the next row.
    assert prompt_after(b"> " + b"x" * 18 + b" \r") == "x" * 18


def test_a_line_editor_that_wraps_by_itself_has_its_full_rows_joined() -> None:
    rows = b"> " + b"x" * 18 + b"\r\n" + b"y" * 5

    assert prompt_after(NO_WRAPPING + rows) == "x" * 18 + "y" * 5


def test_full_rows_that_belong_to_no_prompt_are_not_joined() -> None:
    printed = b"a" * COLUMNS + b"\r\nworking"

    assert prompt_after(printed) is None
    assert line_after(printed, line_profile()) == (1, "working")
    assert line_after(printed, quiet_profile()) == (1, "working")
