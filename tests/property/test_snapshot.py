"""A terminal that is rebuilt from a snapshot shows the same, and goes on the same, wherever the output was cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse.terminal.screen import Screen
from synapse.terminal.snapshot import MAX_SNAPSHOT_BYTES

GOLDEN = Path(__file__).parent.parent / "golden"
SESSIONS = sorted(GOLDEN.glob("*/*.bin"))
COLUMNS, ROWS = 20, 6

TEXTS = st.sampled_from(["word ", "日本語", "e\u0301", "🎉", "x" * 25, "\r\n", "\r\n\r\n", "\t", "│", " "]).map(
    str.encode
)
SEQUENCES = st.sampled_from(
    [
        b"\x1b[1;31m",
        b"\x1b[0m",
        b"\x1b[48;5;4m",
        b"\x1b[48;2;9;8;7m",
        b"\x1b[4;9m",
        b"\x1b[K",
        b"\x1b[1K",
        b"\x1b[2J",
        b"\x1b[H",
        b"\x1b[3;5H",
        b"\x1b[6;20H",
        b"\x1b[2;4r",
        b"\x1b[r",
        b"\x1b[?6h",
        b"\x1b[?6l",
        b"\x1b[?7l",
        b"\x1b[?7h",
        b"\x1b[4h",
        b"\x1b[4l",
        b"\x1b[?25l",
        b"\x1b[?25h",
        b"\x1b[?2004h",
        b"\x1b[?1002h\x1b[?1006h",
        b"\x1b[?1h",
        b"\x1b[?1049h",
        b"\x1b[?1049l",
        b"\x1b[L",
        b"\x1b[M",
        b"\x1b[2P",
        b"\x1b[3@",
        b"\x1b[5X",
        b"\x1bM",
        b"\x1b[S",
        # Back at once: a wide character among line drawings is a wide blank, which no other output can make.
        b"\x1b(0lqqwqqk\x1b(B",
        b"\x1b]0;a title\x07",
        b"\x1b]8;;http://example.org\x1b\\link\x1b]8;;\x1b\\",
    ]
)
OUTPUTS = st.lists(st.one_of(TEXTS, SEQUENCES), max_size=60).map(b"".join)


def screen_after(data: bytes, columns: int = COLUMNS, rows: int = ROWS) -> Screen:
    screen = Screen(columns, rows)
    screen.feed(data)
    return screen


def assert_alike(copy: Screen, screen: Screen) -> None:
    shown, expected = copy.picture(), screen.picture()
    assert shown.lines == expected.lines
    assert shown.cursor == expected.cursor
    assert shown.alternate == expected.alternate
    assert copy.redraw() == screen.redraw()


@given(OUTPUTS, OUTPUTS, st.integers(0, 12))
def test_any_output_is_rebuilt_and_continued(before: bytes, after: bytes, cut: int) -> None:
    output = before + after
    at = max(len(before) - cut, 0)
    screen = screen_after(output[:at])

    copy = screen_after(screen.snapshot())

    assert_alike(copy, screen)
    for one in (copy, screen):
        one.feed(output[at:])
    assert_alike(copy, screen)


@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: f"{path.parent.name}-{path.stem}")
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (47, 11)])
def test_recorded_sessions_are_rebuilt_wherever_they_are_cut(path: Path, size: tuple[int, int]) -> None:
    session = path.read_bytes()
    for number in range(1, 24):
        cut = len(session) * number // 23
        screen = screen_after(session[:cut], *size)

        copy = screen_after(screen.snapshot(), *size)

        assert_alike(copy, screen)


def test_scrollback_comes_with_it_and_so_do_blank_rows_at_the_bottom() -> None:
    lines = "".join(f"line {number} {'x' * (number % 90)}\r\n" for number in range(300))
    screen = screen_after(lines.encode() + b"last\r\n\x1b[2A", 40, 10)

    copy = screen_after(screen.snapshot(), 40, 10)

    assert copy.history(1000) == screen.history(1000)
    assert_alike(copy, screen)


def test_the_screen_that_the_program_returns_to_is_kept() -> None:
    screen = screen_after(b"one\r\n" * 30 + b"\x1b[32mgreen \x1b[?1049h\x1b[44m\x1b[2Jfull screen")

    copy = screen_after(screen.snapshot())
    for one in (copy, screen):
        one.feed(b"\x1b[?1049l")

    assert copy.history(100) == screen.history(100)
    assert_alike(copy, screen)


def test_a_sequence_that_was_cut_goes_on() -> None:
    for begun, rest in ((b"\x1b[3", b"1mred"), ("日".encode()[:2], "日".encode()[2:]), (b"\x1b]0;ti", b"tle\x07")):
        screen = screen_after(b"text " + begun)
        copy = screen_after(screen.snapshot())
        copy.feed(rest)
        screen.feed(rest)

        assert_alike(copy, screen)
        assert copy.picture().title == screen.picture().title


def test_what_was_wrapped_is_still_one_line() -> None:
    screen = screen_after(b"https://example.org/a/long/address\r\n> ")

    assert screen_after(screen.snapshot()).history(10)[0] == "https://example.org/a/long/address"


def test_a_terminal_of_many_colours_is_rebuilt_without_its_scrollback() -> None:
    screen = Screen(200, 20)
    for number in range(1500):
        screen.feed(b"".join(b"\x1b[38;2;%d;%d;%dmx" % (number % 250, column, 7) for column in range(200)))

    data = screen.snapshot()
    copy = screen_after(data, 200, 20)

    assert len(data) < MAX_SNAPSHOT_BYTES
    assert_alike(copy, screen)
