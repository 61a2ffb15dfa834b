"""`@agent` lines: found only when they are certain, decided at Enter, and nothing else is touched."""

from __future__ import annotations

import pytest

from synapse.terminal.keys import KeyKind, KeyParser
from synapse.terminal.line_editor import EditedLine
from synapse.terminal.mention import Action, ClearLine, Forward, MentionLine, Notify, Send

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
            if key.kind is KeyKind.ENTER:
                self.submitted.append(self.line.text)
                self.line = EditedLine()
            elif key.raw == CLEAR and not self.clears:
                continue
            else:
                self.line = self.line.edited(key) or self.line


class PersonAtPrompt:
    """A person, a MentionLine and a program; time passes only in `wait`."""

    def __init__(self) -> None:
        self.program = LineProgram()
        self.mentions = MentionLine(lambda name: name if name in ("codex", "codex@box2") else "", CLEAR)
        self.sent: list[tuple[str, str]] = []
        self.notices: list[str] = []
        self.passed = bytearray()
        self.shown: str | None = ""
        self.now = 0.0

    def types(self, *chunks: bytes | str) -> None:
        """Types, and lets the screen show the result before the next chunk."""
        for chunk in chunks:
            data = chunk.encode() if isinstance(chunk, str) else chunk
            self.do(self.mentions.typed(data, lambda: self.shown, self.now))
            self.paint()

    def paint(self) -> None:
        self.shown = self.program.line.text
        while self.mentions.watches_screen:
            actions = self.mentions.look(self.shown, self.now)
            self.do(actions)
            self.shown = self.program.line.text
            if not actions:
                break

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.do(self.mentions.look(self.shown, self.now))

    def do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Forward(data) | ClearLine(data):
                    self.passed += data
                    self.program.get(data)
                case Send(target, text):
                    self.sent.append((target, text))
                case Notify(text):
                    self.notices.append(text)


def test_a_line_for_an_agent_is_sent_and_the_prompt_is_left_empty() -> None:
    person = PersonAtPrompt()

    person.types("@", "c", "odex", " review", " this", ENTER)

    assert person.sent == [("codex", "review this")]
    assert person.program.submitted == []
    assert person.program.line.text == ""


def test_a_line_for_an_agent_on_another_machine_is_sent() -> None:
    person = PersonAtPrompt()

    person.types("@codex@box2 review", " this", ENTER)
    person.types("@@codex@box2 is a name", ENTER)

    assert person.sent == [("codex@box2", "review this")]
    assert person.program.submitted == ["@codex@box2 is a name"]


def test_a_whole_line_in_one_read_waits_until_the_screen_shows_it() -> None:
    person = PersonAtPrompt()

    person.do(person.mentions.typed(b"@codex hi\r", lambda: person.shown, 0.0))
    assert person.sent == []
    assert person.program.line.text == "@codex hi"
    person.paint()

    assert person.sent == [("codex", "hi")]


@pytest.mark.parametrize(
    "line",
    ["hello", "mail me@codex hi", "@nobody hi", "@codex", "@codex ", "@", " @codex hi", "@codex@box9 hi", "@codex@ hi"],
)
def test_any_other_line_is_the_programs(line: str) -> None:
    person = PersonAtPrompt()

    person.types(line, ENTER)

    assert person.sent == []
    assert person.program.submitted == [line]


def test_a_line_in_a_prompt_that_is_not_empty_is_the_programs() -> None:
    person = PersonAtPrompt()
    person.types("x", "@codex hi", ENTER)

    assert person.sent == []
    assert person.program.submitted == ["x@codex hi"]


def test_without_a_visible_prompt_everything_passes() -> None:
    person = PersonAtPrompt()
    person.shown = None

    person.do(person.mentions.typed(b"@codex hi\r", lambda: None, 0.0))

    assert bytes(person.passed) == b"@codex hi\r"


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
    person = PersonAtPrompt()

    person.types(*keys, ENTER)

    assert person.sent == [("codex", "hi")]
    assert person.program.submitted == []


def test_characters_of_any_width_are_understood() -> None:
    person = PersonAtPrompt()

    person.types("@codex\u3000設計をレビューして👩\u200d🚀", ENTER)

    assert person.sent == [("codex", "設計をレビューして👩\u200d🚀")]


def test_enter_in_the_newer_encodings_counts_too() -> None:
    person = PersonAtPrompt()

    person.types("@codex hi", b"\x1b[13u")

    assert person.sent == [("codex", "hi")]


def test_an_enter_that_comes_in_two_reads_is_held_too() -> None:
    person = PersonAtPrompt()

    person.types("@codex hi", b"\x1b[1", b"3u")

    assert person.sent == [("codex", "hi")]
    assert person.program.submitted == []


@pytest.mark.parametrize("key", [b"\t", b"\x1b[A", b"\x1bb", b"\x12", b"\x1b[13;2u", b"\x1b[<0;1;1M"])
def test_a_key_that_may_do_anything_ends_the_model(key: bytes) -> None:
    person = PersonAtPrompt()

    person.types("@codex hi", key, ENTER)

    assert person.sent == []
    assert bytes(person.passed) == b"@codex hi" + key + ENTER


def test_a_lone_escape_passes_after_a_moment_and_ends_the_model() -> None:
    person = PersonAtPrompt()

    person.types("@codex hi", b"\x1b")
    assert bytes(person.passed) == b"@codex hi"
    person.wait(0.06)
    person.types(ENTER)

    assert bytes(person.passed) == b"@codex hi\x1b\r"
    assert person.sent == []


def test_a_paste_of_two_lines_is_the_programs() -> None:
    person = PersonAtPrompt()

    person.types(b"\x1b[200~@codex hi\nthere\x1b[201~", ENTER)

    assert person.sent == []
    assert person.passed.endswith(ENTER)


def test_after_a_line_that_was_lost_the_next_one_is_found() -> None:
    person = PersonAtPrompt()

    person.types("@codex no", b"\t", ENTER, "@codex yes", ENTER)

    assert person.sent == [("codex", "yes")]


def test_when_the_screen_shows_something_else_enter_passes_after_a_moment() -> None:
    person = PersonAtPrompt()
    person.types("@codex hi")
    person.shown = "@codex hi (completed)"
    person.do(person.mentions.typed(ENTER + b"more", lambda: person.shown, person.now))
    assert person.mentions.watches_screen

    person.wait(0.31)

    assert person.sent == []
    assert bytes(person.passed) == b"@codex hi\rmore"
    assert not person.mentions.watches_screen


def test_a_line_that_the_prompt_has_wrapped_is_the_same_line() -> None:
    person = PersonAtPrompt()
    person.types("@codex a line that is long")
    person.shown = "@codex a line\nthat is\nlong"

    person.do(person.mentions.typed(ENTER, lambda: person.shown, person.now))
    person.paint()

    assert person.sent == [("codex", "a line that is long")]


def test_keys_typed_during_the_decision_come_after_it_in_order() -> None:
    person = PersonAtPrompt()

    person.do(person.mentions.typed(b"@codex one\rnext", lambda: "", 0.0))
    person.do(person.mentions.typed(b" line", lambda: "", 0.1))
    person.paint()

    assert person.sent == [("codex", "one")]
    assert person.program.line.text == "next line"


def test_two_lines_typed_ahead_are_both_sent() -> None:
    person = PersonAtPrompt()

    person.do(person.mentions.typed(b"@codex one\r@codex two\r", lambda: "", 0.0))
    person.paint()
    person.paint()

    assert person.sent == [("codex", "one"), ("codex", "two")]
    assert person.program.submitted == []


def test_if_the_input_cannot_be_cleared_the_person_is_notified_and_nothing_is_sent() -> None:
    person = PersonAtPrompt()
    person.program.clears = False

    person.types("@codex hi", ENTER, "x")
    for _ in range(3):
        person.wait(0.31)

    assert person.sent == []
    assert person.program.submitted == []
    assert person.notices == ["not sent to codex: the input line could not be cleared"]
    assert person.program.line.text == "@codex hix"


def test_an_input_that_is_cleared_late_is_cleared_again_and_sent_once() -> None:
    person = PersonAtPrompt()
    person.program.clears = False
    person.types("@codex hi", ENTER)
    person.program.clears = True

    person.wait(0.31)
    person.paint()

    assert person.sent == [("codex", "hi")]


@pytest.mark.parametrize(("typed", "submitted"), [("@@codex hi", "@codex hi"), ("@@codex", "@codex ")])
def test_two_at_signs_mean_one_that_is_the_programs(typed: str, submitted: str) -> None:
    person = PersonAtPrompt()

    person.types(typed, ENTER)

    assert person.sent == []
    assert person.program.submitted == [submitted]


def test_two_at_signs_before_an_unknown_name_pass_as_they_are() -> None:
    person = PersonAtPrompt()

    person.types("@@nobody hi", ENTER)

    assert person.program.submitted == ["@@nobody hi"]


def test_a_literal_line_is_submitted_even_if_it_is_not_seen_again() -> None:
    person = PersonAtPrompt()
    person.types("@@codex hi")
    person.do(person.mentions.typed(ENTER, lambda: person.shown, person.now))
    person.do(person.mentions.look("", person.now))
    person.shown = None

    person.wait(0.31)

    assert person.program.submitted == ["@codex hi"]


def test_a_flood_of_keys_during_the_decision_is_let_through() -> None:
    person = PersonAtPrompt()
    person.do(person.mentions.typed(b"@codex hi\r", lambda: "", 0.0))

    person.do(person.mentions.typed(b"x" * 70000, lambda: "", 0.0))

    assert bytes(person.passed) == b"@codex hi\r" + b"x" * 70000


def test_there_is_a_deadline_only_while_something_is_awaited() -> None:
    person = PersonAtPrompt()
    deadlines = [person.mentions.deadline]
    for keys in (b"@codex hi", b"\x1b", b"[C"):
        person.types(keys)
        deadlines.append(person.mentions.deadline)
    person.shown = "not yet"
    person.do(person.mentions.typed(ENTER, lambda: person.shown, person.now))
    deadlines.append(person.mentions.deadline)

    assert deadlines == [None, None, 0.05, None, 0.3]


def test_nothing_is_decided_before_its_time() -> None:
    person = PersonAtPrompt()
    person.types("@codex hi", b"\x1b")

    assert person.mentions.look("@codex hi", 0.01) == []


def test_an_escape_that_was_followed_by_nothing_is_no_part_of_the_next_key() -> None:
    person = PersonAtPrompt()
    person.types(b"\x1b")
    person.now = 1.0

    person.types("@codex hi", ENTER)

    assert person.sent == [("codex", "hi")]
    assert person.passed.startswith(b"\x1b@codex hi")
