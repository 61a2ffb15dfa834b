"""The screen shows what a terminal would, and can be painted again elsewhere."""

from __future__ import annotations

import pytest

from synapse.terminal.picture import Picture
from synapse.terminal.screen import PLAIN_TERMINAL, Screen
from synapse.terminal.theme import Theme


def screen_after(data: bytes, columns: int = 40, rows: int = 8) -> Screen:
    screen = Screen(columns, rows)
    screen.feed(data)
    return screen


def test_a_picture_has_one_line_for_each_row_and_the_cursor() -> None:
    picture = screen_after("hello \x1b[1;31mred\x1b[0m  \r\n日本語\r\n> ".encode()).picture()

    assert picture.lines == ("hello red", "日本語", ">", "", "", "", "", "")
    assert picture.cursor == (2, 2)
    assert (picture.columns, picture.rows) == (40, 8)


def test_modes_and_the_title_are_seen() -> None:
    picture = screen_after(b"\x1b[?2004h\x1b[?1049h\x1b[?25l\x1b[?2026h\x1b]0;a title\x07").picture()

    assert picture.bracketed_paste
    assert picture.alternate
    assert picture.updating
    assert not picture.cursor_visible
    assert picture.title == "a title"


def test_modes_that_are_switched_off_again_are_off() -> None:
    screen = screen_after(b"\x1b[?2004h\x1b[?1049h\x1b[?25l\x1b[?2026h")

    screen.feed(b"\x1b[?2004l\x1b[?1049l\x1b[?25h\x1b[?2026l")

    assert screen.picture() == Picture(("",) * 8, (0, 0), 40, 8, line_begin=0, firm_line="")


@pytest.mark.parametrize(
    ("painted", "firm"),
    [
        ("▸ \x1b[7mr\x1b[0;2mun the tests\x1b[0m", "▸ r"),
        ("▸ \x1b[2mAsk anything\x1b[22m", "▸"),
        ("▸ \x1b[2;31mfaint and red\x1b[0m not", "▸               not"),
        ("▸ \x1b[2m\x1b]8;;http://example.org\x1b\\a link\x1b]8;;\x1b\\\x1b[0m", "▸"),
        ("▸ typed", "▸ typed"),
    ],
)
def test_faint_text_is_left_out_of_the_firm_line(painted: str, firm: str) -> None:
    assert screen_after(painted.encode()).picture().firm_line == firm


def test_queries_of_the_program_are_answered_once() -> None:
    screen = screen_after(b"ab\x1b[6n\x1b[c\x1b]11;?\x1b\\")

    assert screen.take_replies() == b"\x1b[1;3R\x1b[?62;22c\x1b]11;rgb:0000/0000/0000\x1b\\"
    assert screen.take_replies() == b""


def test_history_holds_what_has_scrolled_away_and_joins_what_was_wrapped() -> None:
    lines = [f"line {number}" for number in range(300)]
    screen = screen_after("\r\n".join([*lines, "x" * 100, "> "]).encode())

    assert screen.history(1000)[-303:-1] == (*lines, "x" * 100)[-302:]
    assert screen.history(5) == ("line 297", "line 298", "line 299", "x" * 100, ">")


def test_history_is_bounded() -> None:
    screen = Screen(20, 5, scrollback_lines=500)

    for number in range(20_000):
        screen.feed(b"line %d\r\n" % number)

    # The emulator keeps whole pages of lines, so it is more than was asked for.
    assert len(screen.history(100_000)) < 5000


def test_a_resize_changes_the_picture() -> None:
    screen = screen_after(b"one\r\ntwo")

    screen.resize(100, 30)
    picture = screen.picture()

    assert (picture.columns, picture.rows, len(picture.lines)) == (100, 30, 30)
    assert picture.lines[:2] == ("one", "two")


def test_a_size_of_zero_is_not_an_error() -> None:
    screen = Screen(0, 0)

    screen.resize(0, 0)
    screen.feed(b"x")

    assert screen.picture().rows == 1


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n\x1b[1;44mblue\x1b[0m and \x1b[38;2;1;2;3mtrue colour\x1b[0m\x1b[4;9Hcursor",
        b"\x1b[?1049h\x1b[2J\x1b[3;3Hon the alternate screen\x1b[?25l\x1b[?2004h\x1b[?1000h\x1b[?1006h",
        b"\x1b[>5u\x1b[?1h\x1b[?1004hkeys of kitty",
        "日本語 🎉 e\u0301".encode() + b"\r\n" + b"=" * 40 + b"\r\nfull row above",
        b"\x1b[?7lno wrap \x1b[2;5r\x1b[?6horigin",
    ],
)
def test_a_redraw_paints_the_same_screen_in_a_fresh_terminal(data: bytes) -> None:
    screen = screen_after(data)
    copy = screen_after(screen.redraw())

    assert copy.picture() == screen.picture()
    assert copy.redraw() == screen.redraw()


def test_a_plain_terminal_is_what_it_was_before_a_redraw() -> None:
    screen = screen_after(b"\x1b[?1049h\x1b[?2004h\x1b[?1003h\x1b[?1006h\x1b[?1h\x1b[>7u\x1b[?25l\x1b[?1007l")
    elsewhere = screen_after(b"before")

    elsewhere.feed(screen.redraw() + PLAIN_TERMINAL)

    assert elsewhere.redraw() == screen_after(b"before").redraw()


def test_broken_utf_8_is_not_an_error() -> None:
    assert "bad" in screen_after(b"\xff\xfe\x80 bad \xe3\x81").picture().lines[0]


def test_a_picture_has_the_status_that_the_program_reports() -> None:
    screen = screen_after(b"\x1b]7501;app=codex:state=working\x1b\\")
    assert screen.picture().program_status == "working"

    screen.feed(b"\x1b]7501;state=blocked:app=codex:kind=permission\x07\x1b]7501;app=codex\x07\x1b]1234;state=idle\x07")

    assert screen.picture().program_status == "blocked"


def test_a_program_that_asks_whether_its_status_is_wanted_gets_the_question_back() -> None:
    screen = screen_after(b"\x1b]7501;?\x07\x1b]7501;?\x1b\\")

    assert screen.take_replies() == b"\x1b]7501;?\x07\x1b]7501;?\x1b\\"
    assert screen.picture().program_status == ""


@pytest.mark.parametrize(
    ("theme", "foreground", "background", "scheme"),
    [
        (Theme.DARK, b"\x1b]10;rgb:cccc/cccc/cccc\x07", b"\x1b]11;rgb:0000/0000/0000\x07", b"\x1b[?997;1n"),
        (Theme.LIGHT, b"\x1b]10;rgb:3333/3333/3333\x07", b"\x1b]11;rgb:ffff/ffff/ffff\x07", b"\x1b[?997;2n"),
        (Theme.NONE, b"", b"", b""),
    ],
)
def test_a_program_that_queries_the_colours_gets_the_theme(
    theme: Theme, foreground: bytes, background: bytes, scheme: bytes
) -> None:
    screen = Screen(40, 8, theme=theme)

    screen.feed(b"\x1b]10;?\x07\x1b]11;?\x07\x1b[?996n")

    assert screen.take_replies() == foreground + background + scheme
