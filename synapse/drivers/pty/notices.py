"""Shows our notices on a person's screen without breaking what the program has painted.

Where a notice is shown depends on the program:

    cooked lines     on a line of its own above the prompt, where it stays like any output
    full screen      over the bottom row; afterwards the screen is painted again as the program left it
    anything else    in the blank cells right of the cursor, until the next output or key

On the ordinary screen a person's terminal may have begun further down than ours, so nothing is placed by position
there.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final, Protocol

from synapse.core.text import sanitise
from synapse.core.types import Clock
from synapse.drivers.pty.screen import LockedScreen
from synapse.drivers.pty.tty import edits_lines
from synapse.terminal.picture import Picture
from synapse.terminal.reading import cells

_SHOWN_SECONDS: Final = 3.0
_CALM_SECONDS: Final = 0.015
"""No output for this long: the program is probably not in the middle of a sequence."""
_MAX_WAITING: Final = 8

# A sequence or a character that has begun and not ended: our bytes would become part of it.
_UNFINISHED: Final = re.compile(
    rb"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*|O)?"
    rb"|[\xc0-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf7][\x80-\xbf]{0,2})$"
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
        self._waiting: deque[str] = deque(maxlen=_MAX_WAITING)
        self._shown = ""
        self._until = 0.0
        self._undo: bytes | None = None
        """The bytes that remove the notice; None when it is not on the screen, or lies over a full screen."""
        self._is_overlay = False
        self._tail = b""

    def add(self, text: str) -> None:
        """Shows `text` as soon as that does no harm."""
        self._waiting.append(" ".join(sanitise(text).split()))

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
        self._until = 0.0

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
        if self._shown and (self._waiting or now >= self._until):
            self._remove()
        if self._waiting:
            self._shown, self._until = self._waiting.popleft(), now + _SHOWN_SECONDS
        if self._shown and self._undo is None and not self._is_overlay:
            self._put()
        return max(self._until - now, 0.0) if self._shown else None

    def _put(self) -> None:
        picture = self._screen.picture()
        if picture is None:
            return
        if edits_lines(self._terminal):
            line = line_above(self._shown, picture)
            self._screen.feed(line)
            self._output.show_person(line)
            self._shown = ""
        elif picture.alternate:
            self._output.show(over_bottom_row(self._shown, picture))
            self._is_overlay = True
        else:
            words, self._undo = beside_cursor(self._shown, picture)
            self._output.show(words)

    def _remove(self) -> None:
        self.before_output()
        if self._is_overlay:
            # Saved and restored around the painting: the program goes on with its colours and position.
            self._output.show(b"\x1b7\x1b[?2026h" + self._screen.redraw() + b"\x1b[?2026l\x1b8")
        self._shown, self._is_overlay = "", False


def line_above(text: str, picture: Picture) -> bytes:
    """Returns bytes that put `text` on a line of its own and repaint the cursor's row below it."""
    row, column = picture.cursor
    below = picture.lines[row]
    below += " " * (column - cells(below))
    return f"\r\x1b[K{text}\r\n{below}\x1b[{column + 1}G".encode()


def over_bottom_row(text: str, picture: Picture) -> bytes:
    """Returns bytes that paint `text` over the bottom row and leave the cursor and the colours as they are."""
    words = _cut(text, picture.columns - 1)
    return f"\x1b7\x1b[{picture.rows};1H\x1b[0;7m{words}\x1b[0m\x1b[K\x1b8".encode()


def beside_cursor(text: str, picture: Picture) -> tuple[bytes, bytes]:
    """Returns bytes that put `text` right of the cursor, and bytes that restore the blanks or the faint hint there."""
    row, column = picture.cursor
    _, there = _split(picture.lines[row], column)
    words = _cut(" " + text, picture.columns - 1 - column)
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


def _cut(text: str, columns: int) -> str:
    while cells(text) > columns:
        text = text[:-1]
    return text
