"""A screen as runs of text with one style each."""

from __future__ import annotations

import pytest

from synapse.core.overview import Run, StyledScreen
from synapse.terminal.runs import runs_of, styled
from synapse.terminal.screen import Screen


def screen_of(*fed: bytes, columns: int = 20, rows: int = 3, scrollback: int = 0) -> StyledScreen:
    screen = Screen(columns, rows)
    for data in fed:
        screen.feed(data)
    return styled(screen.painted(scrollback), "1.1")


def first_line(data: bytes) -> tuple[Run, ...]:
    return screen_of(data).lines[0]


@pytest.mark.parametrize(
    ("sgr", "style"),
    [
        (b"1", {"b": 1}),
        (b"2", {"d": 1}),
        (b"3", {"i": 1}),
        (b"4", {"u": 1}),
        (b"4:3", {"u": 1}),
        (b"7", {"r": 1}),
        (b"9", {"s": 1}),
        (b"31", {"fg": 1}),
        (b"92", {"fg": 10}),
        (b"44", {"bg": 4}),
        (b"38;5;200", {"fg": 200}),
        (b"48;2;1;20;255", {"bg": "#0114ff"}),
        (b"1;3;38;2;10;20;30;48;5;7", {"b": 1, "i": 1, "fg": "#0a141e", "bg": 7}),
        (b"5", {}),
        (b"53", {}),
    ],
)
def test_each_style_is_data(sgr: bytes, style: dict[str, object]) -> None:
    assert first_line(b"\x1b[%bmtext\x1b[0m!" % sgr) == (Run("text", style), Run("!"))  # type: ignore[arg-type]  # as told


def test_plain_text_is_one_run_without_the_blanks_at_its_end() -> None:
    assert first_line(b"hello   ") == (Run("hello"),)
    assert first_line(b"") == ()
    assert first_line(b"a\x1b[44m  \x1b[0m  ") == (Run("a"), Run("  ", {"bg": 4}))


def test_a_style_ends_where_the_next_one_begins() -> None:
    assert first_line(b"\x1b[1mbold\x1b[22mplain\x1b[31mred\x1b[3mboth") == (
        Run("bold", {"b": 1}),
        Run("plain"),
        Run("red", {"fg": 1}),
        Run("both", {"fg": 1, "i": 1}),
    )


def test_hidden_text_stays_hidden() -> None:
    assert first_line(b"key: \x1b[8msecret\x1b[28m.") == (Run("key: "), Run("      "), Run("."))


def test_links_and_wide_characters_are_text() -> None:
    shown = "".join(run.text for run in first_line("\x1b]8;;http://x/\x1b\\日本\x1b]8;;\x1b\\ é".encode()))

    assert shown == "日本 é"


def test_markup_and_escapes_are_text() -> None:
    hostile = b"<script>\x1b]0;<b>t</b>\x07 &amp; \x1bP1;2|x\x1b\\"

    screen = screen_of(hostile)

    assert screen.lines[0] == (Run("<script> &amp;"),)
    assert screen.title == "<b>t</b>"


def test_the_screen_has_all_its_rows_and_its_cursor() -> None:
    screen = screen_of(b"one\r\n\r\n", columns=20, rows=4)

    assert (screen.columns, screen.rows, screen.alternate, screen.version) == (20, 4, False, "1.1")
    assert screen.lines == ((Run("one"),), (), (), ())
    assert screen.cursor == (2, 0)
    assert screen_of(b"\x1b[?25l").cursor is None


def test_scrollback_comes_before_the_screen_and_moves_the_cursor() -> None:
    lines = [b"line %d \x1b[3%dmx\x1b[0m\r\n" % (number, number) for number in range(6)]

    screen = screen_of(*lines, b"end", rows=3, scrollback=2)

    texts = ["".join(run.text for run in line) for line in screen.lines]
    assert texts == ["line 2 x", "line 3 x", "line 4 x", "line 5 x", "end"]
    assert screen.lines[0][1] == Run("x", {"fg": 2})
    assert (screen.rows, screen.cursor) == (3, (4, 3))
    whole = screen_of(*lines, b"end", rows=3, scrollback=1000)
    assert len(whole.lines) == 7


def test_blank_scrollback_keeps_its_rows() -> None:
    screen = screen_of(b"first\r\n\r\n\r\n\r\nlast", rows=2, scrollback=10)

    assert ["".join(run.text for run in line) for line in screen.lines] == ["first", "", "", "", "last"]


def test_the_alternate_screen_has_no_scrollback() -> None:
    screen = screen_of(b"1\r\n2\r\n3\r\n4\r\n\x1b[?1049h\x1b[Hmenu", rows=3, scrollback=5)

    assert screen.alternate
    assert [line[0].text for line in screen.lines if line] == ["menu"]
    assert len(screen.lines) == 3


def test_a_row_without_sequences_is_read_as_it_is() -> None:
    assert runs_of("plain text") == (Run("plain text"),)
