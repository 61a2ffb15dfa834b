"""Small pure models of terminal programs that behave, and that misbehave on purpose. Bytes in, timed bytes out.

Each character in an input has an author, so that a test knows whose text a program got.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from synapse.terminal.reading import cells

PERSON: Final = "person"
SYNAPSE: Final = "synapse"
COLUMNS: Final = 60
ROWS: Final = 14

QUESTION: Final = "Do you want to proceed? [y/n] "
_KEY: Final = re.compile(r"\x1b\[[0-9;<]*[A-Za-z~]|\x1bO.|.", re.DOTALL)
_TOKEN: Final = re.compile(r"\x1b\[200~(?P<paste>.*?)\x1b\[201~|(?P<key>\x1b\[[0-9;<]*[A-Za-z~]|.)", re.DOTALL)

Typed = list[tuple[str, str]]
"""Characters with their authors."""
Output = tuple[float, Callable[[], "bytes | Iterator[Output]"]]
"""A delay after the input, and a function that returns bytes or more output."""


@dataclass(frozen=True)
class Submission:
    """The text that a program got by one Enter."""

    text: str
    authors: frozenset[str]
    enter_by: str


class Quirk(Enum):
    """How a program misbehaves."""

    NONE = auto()
    DRAWS_NO_INPUT = auto()
    DROPS_INPUT = auto()
    IGNORES_ENTER = auto()
    ENTER_IS_NEWLINE = auto()
    POPUP = auto()
    REWRITES_INPUT = auto()
    HANGS = auto()


@dataclass
class Model:
    """State that all programs have in common."""

    quirk: Quirk = Quirk.NONE
    lag: float = 0.0
    """How long it takes to react to input."""
    work: float = 0.5
    """How long it works on a message."""
    asks: bool = False
    """It asks for permission while it works on a message."""
    columns: int = COLUMNS
    says: str = "an answer"
    """What it prints above its first prompt, and as its answer to each message."""
    draft: Typed = field(default_factory=Typed)
    has_unread: bool = False
    """Keys wait in its terminal."""
    submissions: list[Submission] = field(default_factory=list[Submission])
    dialog: bool = False

    def submit(self, enter_by: str) -> None:
        text = "".join(char for char, _ in self.draft)
        self.submissions.append(Submission(text, frozenset(author for _, author in self.draft), enter_by))
        self.draft = []


@dataclass
class LineProgram(Model):
    """A program in cooked mode: the kernel echoes and collects lines, whether the program reads or not."""

    waiting_lines: list[Submission] = field(default_factory=list[Submission])
    busy: bool = False

    def start(self) -> Iterator[Output]:
        yield _bytes(f"{self.says}\r\n> ".encode())

    def receive(self, data: bytes, author: str) -> Iterator[Output]:
        for char in data.decode():
            yield from self._key(char, author)

    def open_dialog(self) -> Iterator[Output]:
        if not self.busy:
            self.dialog = True
            yield _bytes(b"\r\n" + QUESTION.encode())

    def chatter(self) -> Iterator[Output]:
        yield _bytes(b"a notice from nowhere\r\n")

    def _key(self, char: str, author: str) -> Iterator[Output]:
        if char in "\r\n":
            self.submit(author)
            self.waiting_lines.append(self.submissions[-1])
            yield _bytes(b"\r\n")
            yield self.lag, self._read
        elif char == "\x15":
            erased = len(self.draft)
            self.draft = []
            yield _bytes(b"\b \b" * erased)
        elif char == "\x7f":
            if self.draft:
                erased_char = self.draft.pop()[0]
                yield _bytes(b"\b \b" * (cells(erased_char) if erased_char >= " " else 2))
        else:
            # All other keys are text to the kernel, and echoed as such.
            self.draft.append((char, author))
            if self.quirk is not Quirk.DRAWS_NO_INPUT:
                yield _bytes(char.encode() if char >= " " else b"^" + bytes((ord(char) | 0x40,)))

    def _read(self) -> Iterator[Output]:
        if self.busy or not self.waiting_lines or self.quirk is Quirk.HANGS:
            return
        line = self.waiting_lines.pop(0)
        if self.dialog:
            self.dialog = False
            yield _bytes(b"so be it\r\n> ")
        elif not line.text:
            yield _bytes(b"> ")
        elif self.asks:
            self.dialog = True
            yield _bytes(QUESTION.encode())
        else:
            self.busy = True
            yield _bytes(b"working\r\n")
            yield self.work, self._finish
        yield 0.0, self._read

    def _finish(self) -> Iterator[Output]:
        self.busy = False
        yield _bytes(f"{self.says}\r\n> ".encode())
        yield 0.0, self._read


@dataclass
class EditorProgram(Model):
    """A program that edits its line itself, at the cursor: Up recalls, Tab completes, Ctrl-Y yanks, others do nothing.

    It reads its keys late, and not at all while it works.
    """

    unread: list[tuple[bytes, str]] = field(default_factory=list[tuple[bytes, str]])
    busy: bool = False

    def start(self) -> Iterator[Output]:
        yield _bytes(f"{self.says}\r\n> ".encode())

    def receive(self, data: bytes, author: str) -> Iterator[Output]:
        self.unread.append((data, author))
        self.has_unread = True
        yield self.lag, self._read

    def open_dialog(self) -> Iterator[Output]:
        """Do nothing: this program has no dialogs."""
        return iter(())

    def chatter(self) -> Iterator[Output]:
        yield _bytes(b"\r\x1b[Ka notice from nowhere\r\n")
        yield 0.0, self._line

    def _read(self) -> Iterator[Output]:
        while self.unread and self._reads():
            data, author = self.unread.pop(0)
            keys = list(_KEY.finditer(data.decode()))
            for number, key in enumerate(keys):
                yield from self._press(key[0], author)
                if not self._reads():
                    rest = "".join(later[0] for later in keys[number + 1 :])
                    self.unread[:0] = [(rest.encode(), author)] if rest else []
                    break
        self.has_unread = bool(self.unread)

    def _reads(self) -> bool:
        return not self.busy and self.quirk is not Quirk.HANGS

    def _press(self, key: str, author: str) -> Iterator[Output]:
        recalled = {"\x1b[A": "a line from before", "\t": "completed", "\x19": "yanked"}.get(key, "")
        if recalled:
            self.draft = [(char, PERSON) for char in recalled]
        elif key in "\x15\x03":
            self.draft = []
        elif key == "\x7f":
            self.draft = self.draft[:-1]
        elif key == "\r":
            yield from self._enter(author)
            return
        elif key < " ":
            return  # it paints nothing for them
        else:
            self.draft.append((key, author))
        yield 0.0, self._line

    def _enter(self, author: str) -> Iterator[Output]:
        if not self.draft:
            yield _bytes(b"\r\n> ")
            return
        self.submit(author)
        self.busy = True
        yield _bytes(b"\r\nworking\r\n")
        yield self.work, self._finish

    def _finish(self) -> Iterator[Output]:
        self.busy = False
        yield _bytes(f"{self.says}\r\n> ".encode())
        yield self.lag, self._read

    def _line(self) -> bytes:
        """Repaint the line; one that has become longer than a row pushes the rows above up."""
        text = "".join(char for char, _ in self.draft).replace("\n", " ")
        rows_up = max(self._rows_shown - 1, 0)
        self._rows_shown = -(-cells("> " + text + " ") // self.columns)
        return (f"\x1b[{rows_up}A" if rows_up else "").encode() + f"\r\x1b[J> {text}".encode()

    _rows_shown: int = 1


@dataclass
class PageProgram(Model):
    """A full-screen program: it takes pastes, and paints whole pages."""

    shown: list[str] = field(default_factory=list[str])
    working: bool = False
    popup: bool = False
    erases_page: bool = True
    """It erases the page before it paints; otherwise each row."""

    def start(self) -> Iterator[Output]:
        yield _bytes(b"\x1b[?1049h\x1b[?2004h")
        yield 0.0, self._page

    def receive(self, data: bytes, author: str) -> Iterator[Output]:
        for token in _TOKEN.finditer(data.decode()):
            if token["paste"] is not None:
                self._paste(token["paste"], author)
            else:
                yield from self._key(token["key"], author)
        if self.quirk is not Quirk.HANGS:
            yield self.lag, self._page

    def open_dialog(self) -> Iterator[Output]:
        self.dialog = True
        yield 0.0, self._page

    def chatter(self) -> Iterator[Output]:
        self.shown.append("● a notice from nowhere")
        yield 0.0, self._page

    def _paste(self, text: str, author: str) -> None:
        if self.dialog or self.quirk is Quirk.DROPS_INPUT:
            return
        typed = "a program's own idea" if self.quirk is Quirk.REWRITES_INPUT else text
        self.draft += [(char, author) for char in typed]
        self.popup = self.quirk is Quirk.POPUP

    def _key(self, key: str, author: str) -> Iterator[Output]:
        if self.dialog:
            self.dialog = key not in "yn\r"
        elif key == "\r":
            yield from self._enter(author)
        elif key == "\x15":
            self.draft = []
        elif key == "\x1b[A":
            self.draft = [(char, PERSON) for char in "a line from before"]
        elif key == "\x7f":
            self.draft = self.draft[:-1]
        elif key >= " ":
            self.draft.append((key, author))

    def _enter(self, author: str) -> Iterator[Output]:
        if self.quirk in (Quirk.IGNORES_ENTER, Quirk.HANGS) or not self.draft:
            return
        if self.quirk is Quirk.ENTER_IS_NEWLINE:
            self.draft.append(("\n", author))
        elif self.popup:
            self.popup = False
            self.draft = [(char, author) for char in "a picked file"]
        else:
            self.submit(author)
            self.shown.append("▸ " + self.submissions[-1].text.replace("\n", " "))
            self.working = True
            yield self.lag + self.work, self._finish

    def _finish(self) -> Iterator[Output]:
        self.working = False
        self.dialog = self.dialog or self.asks
        self.shown.append(f"● {self.says}")
        yield 0.0, self._page

    def _page(self) -> bytes:
        body = [row for line in self.shown for row in _wrapped(line, self.columns)]
        lines = body + ([self._rule, " May I?", " [y] allow  [n] deny"] if self.dialog else self._box())
        lines = lines[-ROWS:]
        # A look may fall on an empty page, an empty row, or half of one.
        erase_page, erase_row = (b"\x1b[2J", b"") if self.erases_page else (b"", b"\x1b[K")
        rows = b"".join(b"\x1b[%d;1H%s%s" % (row, erase_row, line.encode()) for row, line in enumerate(lines, start=1))
        column = 2 if self.dialog else 3 + cells(self._input_rows()[-1])
        cursor = len(lines) if self.dialog else len(lines) - 2
        return erase_page + rows + b"\x1b[J\x1b[%d;%dH" % (cursor, column)

    def _box(self) -> list[str]:
        rows = self._input_rows()
        popup = ["  a list to pick from", "  with two things"] if self.popup else []
        status = "  esc to interrupt" if self.working else "  ? for help"
        return [*popup, self._rule, "▸ " + rows[0], *("  " + row for row in rows[1:]), self._rule, status]

    @property
    def _rule(self) -> str:
        return "─" * self.columns

    def _input_rows(self) -> list[str]:
        # It hides only the paste; a person would not use a program that hides their own keys.
        hides_paste = self.quirk is Quirk.DRAWS_NO_INPUT
        text = "".join(char for char, author in self.draft if author == PERSON or not hides_paste)
        if text.count("\n") > 3:
            return [f"[Pasted {text.count(chr(10))} lines]"]
        return [row for line in text.split("\n") for row in _wrapped(line, self.columns - 4)]


def _bytes(data: bytes) -> Output:
    return 0.0, lambda: data


def _wrapped(line: str, width: int) -> list[str]:
    rows = [""]
    for char in line:
        if cells(rows[-1] + char) > width:
            rows.append("")
        rows[-1] += char
    return rows
