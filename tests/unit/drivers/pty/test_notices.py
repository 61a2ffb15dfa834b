"""Notices on a screen: where they go, when they go away, and that nothing else changes."""

from __future__ import annotations

import os
import tty
from collections.abc import Iterator

import pytest

from synapse.drivers.pty.notices import Notice, Notices, beside_cursor, line_above, over_bottom_row
from synapse.drivers.pty.screen import LockedScreen
from synapse.terminal.picture import Picture
from synapse.terminal.screen import Screen
from tests.fakes.clock import FakeClock


class PaperTerminal:
    """Writes down what is shown."""

    def __init__(self) -> None:
        self.last_output = 0.0
        self.shown = bytearray()

    def show(self, data: bytes) -> None:
        self.shown += data

    def show_person(self, data: bytes) -> None:
        self.shown += data


class Bench:
    """Notices on a real screen and a real terminal's settings, with a clock that the test sets."""

    def __init__(self, terminal: int, *painted: bytes) -> None:
        self.clock = FakeClock()
        self.paper = PaperTerminal()
        self.screen = LockedScreen(40, 6)
        self.screen.load()
        self.notices = Notices(terminal, self.screen, self.clock, self.paper)
        self.prints(b"".join(painted))
        self.clock.advance(1)

    def prints(self, data: bytes) -> None:
        self.notices.before_output()
        self.screen.feed(data)
        self.paper.last_output = self.clock.monotonic()
        self.notices.after_output(data)

    def taken(self) -> bytes:
        shown = bytes(self.paper.shown)
        self.paper.shown.clear()
        return shown


@pytest.fixture(name="raw")
def a_raw_terminal() -> Iterator[int]:
    terminal, program_side = os.openpty()
    tty.setraw(program_side)
    yield terminal
    os.close(terminal)
    os.close(program_side)


@pytest.fixture(name="cooked")
def a_cooked_terminal() -> Iterator[int]:
    terminal, program_side = os.openpty()
    yield terminal
    os.close(terminal)
    os.close(program_side)


def picture_after(*data: bytes) -> Picture:
    screen = Screen(40, 6)
    for part in data:
        screen.feed(part)
    return screen.picture()


PAINTED = [
    b"\x1b[2;1Hhello\x1b[3;1H> ",
    b"> \x1b[2mType here\x1b[0m\x1b[1;3H",
    "│ 設計 │\x1b[1;8H".encode(),
    b"",
    b"x" * 39,
]


@pytest.mark.parametrize("painted", PAINTED)
def test_a_notice_beside_the_cursor_leaves_nothing_behind(painted: bytes) -> None:
    before = picture_after(painted)
    words, undo = beside_cursor(Notice("[→ codex] sent, and more than fits", "synapse show 54241e7e"), before)

    during, after = picture_after(painted, words), picture_after(painted, words, undo)

    assert during.cursor == after.cursor == before.cursor
    assert after.lines == before.lines


def test_a_notice_beside_the_cursor_is_readable() -> None:
    words, _ = beside_cursor(Notice("[→ codex] sent"), picture_after(b"> "))

    assert picture_after(b"> ", words).lines[0] == ">  [→ codex] sent"


@pytest.mark.parametrize("painted", PAINTED)
def test_a_notice_over_the_bottom_row_moves_nothing(painted: bytes) -> None:
    before = picture_after(painted)
    after = picture_after(painted, over_bottom_row(Notice("x" * 100), before))

    assert after.cursor == before.cursor
    assert after.lines[:-1] == before.lines[:-1]
    assert after.lines[-1] == "x" * 38 + "…"


def test_a_line_above_pushes_the_prompt_down_as_it_is() -> None:
    painted = b"hello\r\n> half a\x1b[D"
    before = picture_after(painted)
    after = picture_after(painted, line_above("[→ codex] sent", before))

    assert after.lines[:3] == ("hello", "[→ codex] sent", "> half a")
    assert after.cursor == (2, before.cursor[1])


def test_nothing_is_shown_into_a_sequence_that_is_not_finished(raw: int) -> None:
    bench = Bench(raw, b"> \x1b[3")
    bench.notices.add("[→ codex] sent")

    assert bench.notices.tick() is not None
    assert bench.taken() == b""
    bench.prints(b"1m")
    bench.clock.advance(0.1)
    bench.notices.tick()
    assert b"[\xe2\x86\x92 codex] sent" in bench.taken()


def test_a_notice_beside_the_cursor_goes_before_the_next_output_and_comes_back(raw: int) -> None:
    bench = Bench(raw, b"> ")
    bench.notices.add("note")
    bench.notices.tick()
    assert b"note" in bench.taken()

    bench.prints(b"x")
    assert bench.taken() == b"\x1b7\x1b[0;2m     \x1b[0m\x1b8"
    bench.clock.advance(0.1)
    bench.notices.tick()
    assert b"note" in bench.taken()


def test_a_notice_beside_the_cursor_goes_with_the_next_key_for_good(raw: int) -> None:
    bench = Bench(raw, b"> ")
    bench.notices.add("note")
    bench.notices.tick()
    bench.taken()

    bench.notices.key_typed()

    assert bench.taken() == b"\x1b7\x1b[0;2m     \x1b[0m\x1b8"
    assert bench.notices.tick() is None
    assert bench.taken() == b""


def test_a_notice_goes_after_a_few_seconds(raw: int) -> None:
    bench = Bench(raw, b"> ")
    bench.notices.add("note")
    wait = bench.notices.tick()
    bench.taken()
    assert wait == 3.0

    bench.clock.advance(3.0)
    assert bench.notices.tick() is None
    assert b"     " in bench.taken()


def test_on_a_full_screen_the_notice_is_painted_over_again(raw: int) -> None:
    bench = Bench(raw, b"\x1b[?1049h\x1b[6;1Hbottom\x1b[1;1H> ")
    bench.notices.add("note")
    bench.notices.tick()
    assert bench.taken().startswith(b"\x1b7\x1b[6;1H")

    bench.notices.key_typed()
    bench.notices.tick()

    assert b"bottom" in bench.taken()


def test_on_a_full_screen_the_notice_is_shown_again_when_the_program_paints(raw: int) -> None:
    bench = Bench(raw, b"\x1b[?1049h\x1b[6;1Hbottom\x1b[1;1H> ")
    bench.notices.add("note", "synapse show 1")
    bench.notices.tick()
    bench.taken()
    bench.notices.tick()
    assert bench.taken() == b""

    bench.clock.advance(1)
    bench.prints(b"\x1b[6;3Hpainted\x1b[1;1H> ")
    bench.clock.advance(1)
    bench.notices.tick()
    assert b"\x1b[6;1H\x1b[0;7mnote  (synapse show 1)" in bench.taken()

    bench.clock.advance(20)
    assert bench.notices.tick() is None
    assert b"bopainted" in bench.taken()


def test_a_notice_follows_a_program_that_leaves_its_full_screen(raw: int) -> None:
    bench = Bench(raw, b"> \x1b[?1049h\x1b[6;1Hbottom")
    bench.notices.add("note", "synapse show 1")
    bench.notices.tick()
    bench.taken()

    bench.clock.advance(1)
    bench.prints(b"\x1b[?1049l")
    bench.clock.advance(1)
    bench.notices.tick()

    assert bench.taken().startswith(b"\x1b7\x1b[0;7m note  (synapse show 1)")


def test_one_notice_follows_the_other(raw: int) -> None:
    bench = Bench(raw, b"> ")
    bench.notices.add("one")
    bench.notices.add("two")
    bench.notices.tick()
    assert b"one" in bench.taken()
    bench.notices.tick()
    assert b"two" in bench.taken()


def test_at_a_cooked_prompt_a_notice_is_output_like_any_other(cooked: int) -> None:
    bench = Bench(cooked, b"> ")
    bench.notices.add("note \x1b[31m\n of ours")

    assert bench.notices.tick() is None

    picture = bench.screen.picture()
    assert picture is not None
    assert picture.lines[:2] == ("note [31m of ours", ">")
    assert bench.taken() == b"\r\x1b[Knote [31m of ours\r\n> \x1b[3G"


def test_a_notice_waits_for_the_emulator(raw: int) -> None:
    clock, paper, screen = FakeClock(), PaperTerminal(), LockedScreen(40, 6)
    notices = Notices(raw, screen, clock, paper)
    clock.advance(1)
    notices.add("note")
    notices.tick()
    assert not paper.shown

    screen.load()
    notices.tick()

    assert b"note" in paper.shown


ANSWER = ("[← codex] 設計 is done, and all of the tests pass now", "synapse show 54241e7e")


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (79, "[← codex] 設計 is done, and all of the tests pass now  (synapse show 54241e7e)"),
        (50, "[← codex] 設計 is done, …  (synapse show 54241e7e)"),
        (30, "[← codex] 設計 is done, and a…"),
        (5, "[← c…"),
        (0, ""),
    ],
)
def test_a_notice_is_cut_so_that_its_command_fits_or_loses_the_command_first(columns: int, shown: str) -> None:
    assert Notice(*ANSWER).fitted(columns) == shown


def test_a_notice_with_a_command_stays_until_it_was_read(raw: int) -> None:
    bench = Bench(raw, b"> ")
    bench.notices.add(*ANSWER)

    assert bench.notices.tick() == 20.0
    bench.clock.advance(19)
    bench.notices.tick()
    assert bench.taken().count(b"codex") == 1
    bench.clock.advance(1)
    assert bench.notices.tick() is None


def test_an_answer_replaces_what_was_sent_at_once_and_the_next_answer_waits_for_it(raw: int) -> None:
    bench = Bench(raw, b"> ")
    bench.notices.add("sent")
    bench.notices.tick()
    bench.notices.add("first", "look")
    bench.notices.add("second", "look")
    bench.taken()

    bench.notices.tick()
    assert b"first" in bench.taken()
    assert bench.notices.tick() == 3.0
    assert b"second" not in bench.taken()
    bench.clock.advance(3.0)
    bench.notices.tick()
    assert b"second" in bench.taken()


def test_a_key_brings_the_next_answer(raw: int) -> None:
    bench = Bench(raw, b"> ")
    bench.notices.add("first", "look")
    bench.notices.add("second", "look")
    bench.notices.tick()

    bench.notices.key_typed()
    bench.notices.tick()

    assert b"second" in bench.taken()


def test_at_a_cooked_prompt_an_answer_takes_one_row_and_the_persons_own_text_is_never_cut(cooked: int) -> None:
    bench = Bench(cooked, b"> ")
    bench.notices.add("x" * 90, "look")
    bench.notices.add("y" * 50)
    bench.notices.tick()
    assert bench.notices.tick() is None

    picture = bench.screen.picture()
    assert picture is not None
    assert picture.lines[:4] == ("x" * 30 + "…  (look)", "y" * 40, "y" * 10, ">")
