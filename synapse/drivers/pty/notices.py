"""Words of ours on a person's screen, put there and taken away without breaking what the program has painted.

A program that reads lines in a cooked terminal gets a line of its own above its prompt; the screen keeps it like any
output. Every other program paints by position: there the words lie over the bottom row until the next key or for a few
seconds, and then the screen is painted again as the program left it.
"""

from __future__ import annotations

import re
import termios
from collections import deque
from typing import Final, Protocol

from synapse.core.clock import Clock
from synapse.core.envelope import sanitise
from synapse.drivers.pty.watched_screen import WatchedScreen
from synapse.terminal.picture import Picture
from synapse.terminal.reading import cells

_SHOWN_SECONDS: Final = 3.0
_CALM_SECONDS: Final = 0.015
"""No output for this long: the program is probably not in the middle of a sequence."""
_MOST_WAITING: Final = 8

# A sequence or a character that has begun and not ended: bytes of ours would become part of it.
_UNFINISHED: Final = re.compile(
    rb"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*|O)?"
    rb"|[\xc0-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf7][\x80-\xbf]{0,2})$"
)


class Shows(Protocol):
    """Where notices are shown: the person's terminal and those who watch."""

    last_output: float

    def show(self, data: bytes) -> None: ...

    def show_person(self, data: bytes) -> None:
        """Show it at the person's terminal alone."""
        ...


class Notices:
    """Shows one notice after the other. All calls come from the pump's thread."""

    def __init__(self, terminal: int, screen: WatchedScreen, clock: Clock, shows: Shows) -> None:
        self._terminal = terminal
        self._screen = screen
        self._clock = clock
        self._shows = shows
        self._waiting: deque[str] = deque(maxlen=_MOST_WAITING)
        self._shown_until: float | None = None
        self._tail = b""

    def add(self, text: str) -> None:
        """Show `text` as soon as it does no harm."""
        self._waiting.append(" ".join(sanitise(text).split()))

    def output_seen(self, data: bytes) -> None:
        self._tail = (self._tail + data[-256:])[-256:]

    def key_seen(self) -> None:
        """The person goes on: what lies over the screen goes."""
        if self._shown_until is not None:
            self._shown_until = self._clock.monotonic()

    def tick(self) -> float | None:
        """Show and take away what is due; return in how many seconds the next is."""
        now = self._clock.monotonic()
        if not self._waiting and self._shown_until is None:
            return None
        calm = self._calm_in(now)
        if calm > 0:
            return calm
        if self._shown_until is not None and (self._waiting or now >= self._shown_until):
            self._take_away()
        if self._waiting:
            self._put(self._waiting.popleft(), now)
        return None if self._shown_until is None else max(self._shown_until - now, 0.0)

    def _calm_in(self, now: float) -> float:
        if _UNFINISHED.search(self._tail):
            return _CALM_SECONDS
        return self._shows.last_output + _CALM_SECONDS - now

    def _put(self, text: str, now: float) -> None:
        picture = self._screen.picture()
        if picture is None:
            self._waiting.appendleft(text)
            self._shown_until = None
            return
        if self._reads_cooked_lines():
            data = line_above(text, picture)
            self._screen.feed(data)
            self._shows.show_person(data)
            return
        self._shows.show(overlay(text, picture))
        self._shown_until = now + _SHOWN_SECONDS

    def _take_away(self) -> None:
        # Saved and restored around the painting: colours and position belong to the program's next words.
        self._shows.show(b"\x1b7\x1b[?2026h" + self._screen.redraw() + b"\x1b[?2026l\x1b8")
        self._shown_until = None

    def _reads_cooked_lines(self) -> bool:
        try:
            return bool(termios.tcgetattr(self._terminal)[3] & termios.ICANON)
        except termios.error:
            return False


def line_above(text: str, picture: Picture) -> bytes:
    """Bytes that put `text` on a line of its own and the cursor's row below it, as it was."""
    row, column = picture.cursor
    below = picture.lines[row]
    return f"\r\x1b[K{text}\r\n{below}\x1b[{column + 1}G".encode()


def overlay(text: str, picture: Picture) -> bytes:
    """Bytes that lay `text` over the bottom row and leave the cursor and the colours as they are."""
    while cells(text) > picture.columns - 1:
        text = text[:-1]
    return f"\x1b7\x1b[{picture.rows};1H\x1b[0;7m{text}\x1b[0m\x1b[K\x1b8".encode()
