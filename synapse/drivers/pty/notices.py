"""Shows our notices on a person's screen without breaking what the program has painted.

Where a notice is shown depends on the program:

    cooked lines     on a line of its own above the prompt, where it stays like any output
    full screen      over the bottom row; afterwards the screen is painted again as the program left it
    anything else    in the blank cells right of the cursor, until the next output or key

A notice that names a command stays longer, and its text is cut so that the command fits.

On the ordinary screen a person's terminal may have begun further down than ours, so nothing is placed by position
there.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import Final, Protocol

from synapse.core.text import sanitise
from synapse.core.types import Clock
from synapse.drivers.pty.screen import LockedScreen
from synapse.drivers.pty.tty import edits_lines
from synapse.terminal.picture import Picture
from synapse.terminal.reading import cells

_SHOWN_SECONDS: Final = 3.0
_COMMAND_SECONDS: Final = 20.0
"""How long a notice that names a command is shown, unless a key is pressed."""
_LEAST_TEXT: Final = 16
"""Columns of text below which a command is left out."""
_CALM_SECONDS: Final = 0.015
"""No output for this long: the program is probably not in the middle of a sequence."""
_MAX_WAITING: Final = 8

# A sequence or a character that has begun and not ended: our bytes would become part of it.
_UNFINISHED: Final = re.compile(
    rb"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*|O)?"
    rb"|[\xc0-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf7][\x80-\xbf]{0,2})$"
)


@dataclass(frozen=True, slots=True)
class Notice:
    """One notice on one line."""

    text: str
    command: str = ""
    """What the person can type about it."""

    def fitted(self, columns: int) -> str:
        """Returns the notice in at most so many columns."""
        ending = f"  ({self.command})" if self.command else ""
        room = columns - cells(ending)
        return (
            _cut(self.text, room) + ending if room >= min(_LEAST_TEXT, cells(self.text)) else _cut(self.text, columns)
        )


class NoticeOutput(Protocol):
    """Where notices are shown: the person's terminal and the viewers. The pump is one."""

    last_output: float

    def show(self, data: bytes) -> None: ...

    def show_person(self, data: bytes) -> None:
        """Writes to the person's terminal alone."""
        ...


class Notices:
    """Shows one notice after the other. Call it in the pump's thread."""

    def __init__(self, terminal: int, screen: LockedScreen, clock: Clock, output: NoticeOutput) -> None:
        self._terminal = terminal
        self._screen = screen
        self._clock = clock
        self._output = output
        self._waiting: deque[Notice] = deque(maxlen=_MAX_WAITING)
        self._shown: Notice | None = None
        self._until = 0.0
        self._replaceable_at = 0.0
        """When the next notice may take the place of the one that is shown."""
        self._undo: bytes | None = None
        """The bytes that remove the notice; None when it is not on the screen, or lies over a full screen."""
        self._is_overlay = False
        self._painted_at = 0.0
        self._tail = b""

    def add(self, text: str, command: str = "") -> None:
        """Shows `text`, and the command that the person can type, as soon as that does no harm."""
        self._waiting.append(Notice(_one_line(text), _one_line(command)))

    def before_output(self) -> None:
        """Removes a notice beside the cursor: the program's output goes there."""
        if self._undo is not None:
            self._output.show(self._undo)
            self._undo = None

    def after_output(self, data: bytes) -> None:
        self._tail = (self._tail + data[-256:])[-256:]

    def key_typed(self) -> None:
        """Removes the notice: a person who types has read it."""
        self.before_output()
        self._until = self._replaceable_at = 0.0

    def tick(self) -> float | None:
        """Shows and removes notices that are due; returns in how many seconds to call again, or None."""
        if not self._waiting and not self._shown:
            return None
        now = self._clock.monotonic()
        calm_in = self._output.last_output + _CALM_SECONDS - now
        if _UNFINISHED.search(self._tail):
            calm_in = _CALM_SECONDS
        if calm_in > 0:
            return calm_in
        is_due = bool(self._waiting) and now >= self._replaceable_at
        if self._shown and (is_due or now >= self._until):
            self._remove()
        if self._waiting and self._shown is None:
            self._begin(self._waiting.popleft(), now)
        # The program may have painted over its bottom row.
        is_visible = self._output.last_output <= self._painted_at if self._is_overlay else self._undo is not None
        if self._shown and not is_visible:
            self._put(self._shown)
        if self._shown is None:
            return 0.0 if self._waiting else None
        return max(min(self._until, self._replaceable_at if self._waiting else self._until) - now, 0.0)

    def _begin(self, notice: Notice, now: float) -> None:
        self._shown = notice
        self._until = now + (_COMMAND_SECONDS if notice.command else _SHOWN_SECONDS)
        # What has a command is to be read; `sent` gives way to the answer at once.
        self._replaceable_at = now + (_SHOWN_SECONDS if notice.command else 0.0)

    def _put(self, notice: Notice) -> None:
        picture = self._screen.picture()
        if picture is None:
            return
        self._is_overlay, self._painted_at = False, self._clock.monotonic()
        if edits_lines(self._terminal):
            # What has no command is not cut: it may be the person's own text, which is nowhere else.
            line = line_above(notice.fitted(picture.columns - 1) if notice.command else notice.text, picture)
            self._screen.feed(line)
            self._output.show_person(line)
            self._shown = None
        elif picture.alternate:
            self._output.show(over_bottom_row(notice, picture))
            self._is_overlay = True
        else:
            words, self._undo = beside_cursor(notice, picture)
            self._output.show(words)

    def _remove(self) -> None:
        self.before_output()
        if self._is_overlay:
            # Saved and restored around the painting: the program goes on with its colours and position.
            self._output.show(b"\x1b7\x1b[?2026h" + self._screen.redraw() + b"\x1b[?2026l\x1b8")
        self._shown, self._is_overlay = None, False


def line_above(text: str, picture: Picture) -> bytes:
    """Returns bytes that put `text` on a line of its own and repaint the cursor's row below it."""
    row, column = picture.cursor
    below = picture.lines[row]
    below += " " * (column - cells(below))
    return f"\r\x1b[K{text}\r\n{below}\x1b[{column + 1}G".encode()


def over_bottom_row(notice: Notice, picture: Picture) -> bytes:
    """Returns bytes that paint the notice over the bottom row and leave the cursor and the colours as they are."""
    words = notice.fitted(picture.columns - 1)
    return f"\x1b7\x1b[{picture.rows};1H\x1b[0;7m{words}\x1b[0m\x1b[K\x1b8".encode()


def beside_cursor(notice: Notice, picture: Picture) -> tuple[bytes, bytes]:
    """Returns bytes that put the notice right of the cursor, and bytes that restore the blanks or the faint hint."""
    row, column = picture.cursor
    _, there = _split(picture.lines[row], column)
    words = _cut(" " + notice.fitted(picture.columns - 2 - column), picture.columns - 1 - column)
    was, _ = _split(there, cells(words))
    was += " " * (cells(words) - cells(was))
    return f"\x1b7\x1b[0;7m{words}\x1b[0m\x1b8".encode(), f"\x1b7\x1b[0;2m{was}\x1b[0m\x1b8".encode()


def _split(line: str, column: int) -> tuple[str, str]:
    """Cuts a row at a column."""
    at = 0
    for index, char in enumerate(line):
        if at >= column:
            return line[:index], line[index:]
        at += cells(char)
    return line, ""


def _one_line(text: str) -> str:
    return " ".join(sanitise(text).split())


def _cut(text: str, columns: int) -> str:
    if cells(text) <= columns:
        return text
    while text and cells(text) > columns - 1:
        text = text[:-1]
    return f"{text}…" if columns > 0 else ""
