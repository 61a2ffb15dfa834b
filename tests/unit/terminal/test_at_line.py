"""`@agent` lines: found only when they are certain, decided at Enter, and nothing else is touched."""

from __future__ import annotations

import pytest

from synapse.terminal.keys import KeyParser, Kind
from synapse.terminal.line_editor import EditedLine
from synapse.terminal.mention import Action, Clear, Forward, MentionLine, Say, Send

ENTER = b"\r"
CLEAR = b"\x15"


class LineProgram:
    """A program with a line editor; what it shows may lag behind what it got."""

    def __init__(self) -> None:
        self.line = EditedLine()
        self.submitted: list[str] = []
        self.clears = True
        self._parser = KeyParser()

    def get(self, data: bytes) -> None:
        for key in [*self._parser.feed(data), *self._parser.flush()]:
            if key.kind is Kind.ENTER:
                self.submitted.append(self.line.text)
                self.line = EditedLine()
            elif key.raw == CLEAR and not self.clears:
                continue
            else:
                self.line = self.line.edited(key) or self.line


class Desk:
    """A person, an MentionLine and a program, with time that only passes when told."""

    def __init__(self) -> None:
        self.program = LineProgram()
        self.at_line = MentionLine(lambda name: name if name == "codex" else "", CLEAR)
        self.sent: list[tuple[str, str]] = []
        self.said: list[str] = []
        self.passed = bytearray()
        self.shown: str | None = ""
        self.now = 0.0

    def types(self, *chunks: bytes | str) -> None:
        """Type, and let the screen show what came of it before the next chunk."""
        for chunk in chunks:
            data = chunk.encode() if isinstance(chunk, str) else chunk
            self.do(self.at_line.typed(data, lambda: self.shown, self.now))
            self.paint()

    def paint(self) -> None:
        self.shown = self.program.line.text
        while self.at_line.watches_screen:
            actions = self.at_line.look(self.shown, self.now)
            self.do(actions)
            self.shown = self.program.line.text
            if not actions:
                break

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.do(self.at_line.look(self.shown, self.now))

    def do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Forward(data) | Clear(data):
                    self.passed += data
                    self.program.get(data)
                case Send(target, text):
                    self.sent.append((target, text))
                case Say(text):
                    self.said.append(text)


def test_a_line_for_an_agent_is_sent_and_the_prompt_is_left_empty() -> None:
    desk = Desk()

    desk.types("@", "c", "odex", " review", " this", ENTER)

    assert desk.sent == [("codex", "review this")]
    assert desk.program.submitted == []
    assert desk.program.line.text == ""


def test_a_whole_line_in_one_read_waits_until_the_screen_shows_it() -> None:
    desk = Desk()

    desk.do(desk.at_line.typed(b"@codex hi\r", lambda: desk.shown, 0.0))
    assert desk.sent == []
    assert desk.program.line.text == "@codex hi"
    desk.paint()

    assert desk.sent == [("codex", "hi")]


@pytest.mark.parametrize("line", ["hello", "mail me@codex hi", "@nobody hi", "@codex", "@codex ", "@", " @codex hi"])
def test_any_other_line_is_the_programs(line: str) -> None:
    desk = Desk()

    desk.types(line, ENTER)

    assert desk.sent == []
    assert desk.program.submitted == [line]


def test_a_line_in_a_prompt_that_is_not_empty_is_the_programs() -> None:
    desk = Desk()
    desk.types("x", "@codex hi", ENTER)

    assert desk.sent == []
    assert desk.program.submitted == ["x@codex hi"]


def test_without_a_visible_prompt_everything_passes() -> None:
    desk = Desk()
    desk.shown = None

    desk.do(desk.at_line.typed(b"@codex hi\r", lambda: None, 0.0))

    assert bytes(desk.passed) == b"@codex hi\r"


@pytest.mark.parametrize(
    "keys",
    [
        [b"@codez", b"\x7f", b"x review", b"\x17", b"hi"],
        [b"@codx hi", b"\x1b[D" * 4, b"e", b"\x05"],
        [b"codex hi", b"\x01", b"\x15", b"\x0b", b"@codex hi"],
        [b"@wrong", b"\x15", b"@codex hi"],
        [b"@codex hii", b"\x1b[D", b"\x1b[3~"],
        [b"@codex h", b"\x1b[H", b"\x1b[F", b"i"],
        [b"@codex h", b"\x1b[D", b"\x1b[C", b"i"],
        [b"\x1b[200~@codex hi\x1b[201~"],
        [b"@codex ", b"\x1b[200~hi\x1b[201~"],
        [b"\x1b[50:64;2u", b"codex hi"],
        [b"@codex h", b"\x1b[105u", b"\x1b[105;1:3u"],
        [b"@codex hi", b"\x1b[I", b"\x1b[<35;3;3M"],
        [b"@codex hix", b"\x08"],
        [b"@codex hi there", b"\x02" * 6, b"\x0b"],
    ],
)
def test_line_editing_is_understood(keys: list[bytes]) -> None:
    desk = Desk()

    desk.types(*keys, ENTER)

    assert desk.sent == [("codex", "hi")]
    assert desk.program.submitted == []


def test_characters_of_any_width_are_understood() -> None:
    desk = Desk()

    desk.types("@codex\u3000設計をレビューして👩\u200d🚀", ENTER)

    assert desk.sent == [("codex", "設計をレビューして👩\u200d🚀")]


def test_enter_in_the_newer_encodings_counts_too() -> None:
    desk = Desk()

    desk.types("@codex hi", b"\x1b[13u")

    assert desk.sent == [("codex", "hi")]


def test_an_enter_that_is_cut_is_held_all_the_same() -> None:
    desk = Desk()

    desk.types("@codex hi", b"\x1b[1", b"3u")

    assert desk.sent == [("codex", "hi")]
    assert desk.program.submitted == []


@pytest.mark.parametrize("key", [b"\t", b"\x1b[A", b"\x1bb", b"\x12", b"\x1b[13;2u", b"\x1b[<0;1;1M"])
def test_a_key_that_may_do_anything_ends_the_model(key: bytes) -> None:
    desk = Desk()

    desk.types("@codex hi", key, ENTER)

    assert desk.sent == []
    assert bytes(desk.passed) == b"@codex hi" + key + ENTER


def test_a_lone_escape_passes_after_a_moment_and_ends_the_model() -> None:
    desk = Desk()

    desk.types("@codex hi", b"\x1b")
    assert bytes(desk.passed) == b"@codex hi"
    desk.wait(0.06)
    desk.types(ENTER)

    assert bytes(desk.passed) == b"@codex hi\x1b\r"
    assert desk.sent == []


def test_a_paste_of_two_lines_is_the_programs() -> None:
    desk = Desk()

    desk.types(b"\x1b[200~@codex hi\nthere\x1b[201~", ENTER)

    assert desk.sent == []
    assert desk.passed.endswith(ENTER)


def test_after_a_line_that_was_lost_the_next_one_is_found() -> None:
    desk = Desk()

    desk.types("@codex no", b"\t", ENTER, "@codex yes", ENTER)

    assert desk.sent == [("codex", "yes")]


def test_when_the_screen_shows_something_else_enter_passes_after_a_moment() -> None:
    desk = Desk()
    desk.types("@codex hi")
    desk.shown = "@codex hi (completed)"
    desk.do(desk.at_line.typed(ENTER + b"more", lambda: desk.shown, desk.now))
    assert desk.at_line.watches_screen

    desk.wait(0.31)

    assert desk.sent == []
    assert bytes(desk.passed) == b"@codex hi\rmore"
    assert not desk.at_line.watches_screen


def test_a_line_that_the_prompt_has_wrapped_is_the_same_line() -> None:
    desk = Desk()
    desk.types("@codex a line that is long")
    desk.shown = "@codex a line\nthat is\nlong"

    desk.do(desk.at_line.typed(ENTER, lambda: desk.shown, desk.now))
    desk.paint()

    assert desk.sent == [("codex", "a line that is long")]


def test_keys_typed_during_the_decision_come_after_it_in_order() -> None:
    desk = Desk()

    desk.do(desk.at_line.typed(b"@codex one\rnext", lambda: "", 0.0))
    desk.do(desk.at_line.typed(b" line", lambda: "", 0.1))
    desk.paint()

    assert desk.sent == [("codex", "one")]
    assert desk.program.line.text == "next line"


def test_two_lines_typed_ahead_are_both_sent() -> None:
    desk = Desk()

    desk.do(desk.at_line.typed(b"@codex one\r@codex two\r", lambda: "", 0.0))
    desk.paint()
    desk.paint()

    assert desk.sent == [("codex", "one"), ("codex", "two")]
    assert desk.program.submitted == []


def test_an_input_that_cannot_be_cleared_is_told_and_nothing_is_sent() -> None:
    desk = Desk()
    desk.program.clears = False

    desk.types("@codex hi", ENTER, "x")
    for _ in range(3):
        desk.wait(0.31)

    assert desk.sent == []
    assert desk.program.submitted == []
    assert desk.said == ["not sent to codex: the input line could not be cleared"]
    assert desk.program.line.text == "@codex hix"


def test_an_input_that_is_cleared_late_is_cleared_again_and_sent_once() -> None:
    desk = Desk()
    desk.program.clears = False
    desk.types("@codex hi", ENTER)
    desk.program.clears = True

    desk.wait(0.31)
    desk.paint()

    assert desk.sent == [("codex", "hi")]


@pytest.mark.parametrize(("typed", "submitted"), [("@@codex hi", "@codex hi"), ("@@codex", "@codex ")])
def test_two_at_signs_mean_one_that_is_the_programs(typed: str, submitted: str) -> None:
    desk = Desk()

    desk.types(typed, ENTER)

    assert desk.sent == []
    assert desk.program.submitted == [submitted]


def test_two_at_signs_before_an_unknown_name_pass_as_they_are() -> None:
    desk = Desk()

    desk.types("@@nobody hi", ENTER)

    assert desk.program.submitted == ["@@nobody hi"]


def test_a_literal_line_is_submitted_even_if_it_is_not_seen_again() -> None:
    desk = Desk()
    desk.types("@@codex hi")
    desk.do(desk.at_line.typed(ENTER, lambda: desk.shown, desk.now))
    desk.do(desk.at_line.look("", desk.now))
    desk.shown = None

    desk.wait(0.31)

    assert desk.program.submitted == ["@codex hi"]


def test_a_flood_of_keys_during_the_decision_is_let_through() -> None:
    desk = Desk()
    desk.do(desk.at_line.typed(b"@codex hi\r", lambda: "", 0.0))

    desk.do(desk.at_line.typed(b"x" * 70000, lambda: "", 0.0))

    assert bytes(desk.passed) == b"@codex hi\r" + b"x" * 70000


def test_there_is_a_deadline_only_while_something_is_awaited() -> None:
    desk = Desk()
    deadlines = [desk.at_line.deadline]
    for keys in (b"@codex hi", b"\x1b", b"[C"):
        desk.types(keys)
        deadlines.append(desk.at_line.deadline)
    desk.shown = "not yet"
    desk.do(desk.at_line.typed(ENTER, lambda: desk.shown, desk.now))
    deadlines.append(desk.at_line.deadline)

    assert deadlines == [None, None, 0.05, None, 0.3]


def test_nothing_is_decided_before_its_time() -> None:
    desk = Desk()
    desk.types("@codex hi", b"\x1b")

    assert desk.at_line.look("@codex hi", 0.01) == []


def test_an_escape_that_was_followed_by_nothing_is_no_part_of_the_next_key() -> None:
    desk = Desk()
    desk.types(b"\x1b")
    desk.now = 1.0

    desk.types("@codex hi", ENTER)

    assert desk.sent == [("codex", "hi")]
    assert desk.passed.startswith(b"\x1b@codex hi")
