"""Ctrl-Z on its way to the program: what it leaves on our screen, and a program that waits to be continued.

Where a person's shell stands behind the program, the program stops, and `fg` brings it back. In the background nobody
has a shell: the kernel then does not stop it, but a program may have left its page and wait for SIGCONT all the same.

What Ctrl-Z leaves on the screen of a program whose lines the kernel edits, and how a screen looks without it.

The kernel drops the line that was being typed and shows `^Z` behind it; the program does not know, and paints nothing.
So its input is empty although there is text behind the prompt, and a prompt that it prints next stands behind the `^Z`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from synapse.core.types import Clock
from synapse.drivers.pty.pump import SUSPEND_KEY, Pump, suspending_drops_line
from synapse.drivers.pty.screen import LockedScreen
from synapse.terminal.picture import Picture
from synapse.terminal.profile import Profile
from synapse.terminal.reading import cursor_line, read_prompt

_CTRL_Z: Final = re.compile(rb"\x1a|\x1b\[122;5u|\x1b\[27;5;122~")
"""The key, plain and in the newer encodings."""
_LOAD_SECONDS: Final = 1.0
_ECHOED_SECONDS: Final = 0.02
"""No output for this long after the first: the key has been echoed."""
_CONTINUED_SECONDS: Final = (0.3, 1.0, 3.0)
"""When the signal is sent after the key: a slow program may not listen for the first one yet, and more do no harm."""


@dataclass(frozen=True, slots=True)
class _Dropped:
    """A line that the kernel is dropping: the screen's version before that, and what stood there."""

    version: int
    line: SuspendedLine


class Suspending:
    """Follows the key for one program. `resume` is None where a shell stands behind it. The pump's thread only."""

    def __init__(
        self, pump: Pump, screen: LockedScreen, clock: Clock, profile: Profile, resume: Callable[[], None] | None
    ) -> None:
        self._pump = pump
        self._screen = screen
        self._clock = clock
        self._profile = profile
        self._resume = resume
        self._dropped: _Dropped | None = None
        self._resumes_at: deque[float] = deque()

    def forwarding(self, data: bytes) -> None:
        """These keys go to the program now."""
        if not _CTRL_Z.search(data):
            return
        now = self._clock.monotonic()
        if self._resume is not None:
            self._resumes_at = deque(now + seconds for seconds in _CONTINUED_SECONDS)
        if SUSPEND_KEY not in data or not suspending_drops_line(self._pump.terminal):
            return
        # In the first moments there is no screen yet.
        self._screen.wait_loaded(_LOAD_SECONDS)
        picture = self._screen.picture()
        if picture is not None:
            self._dropped = _Dropped(self._screen.version, SuspendedLine(picture, self._profile))

    def tick(self) -> float | None:
        """Do what is due; return in how many seconds something will be, or None."""
        now = self._clock.monotonic()
        moments = (self._wipe_echo(now), self._continue(now))
        return min((moment - now for moment in moments if moment is not None), default=None)

    def _continue(self, now: float) -> float | None:
        if self._resume is not None and self._resumes_at and now >= self._resumes_at[0]:
            self._resumes_at.popleft()
            self._resume()
        return self._resumes_at[0] if self._resumes_at else None

    def _wipe_echo(self, now: float) -> float | None:
        """Let our screen show the input empty, as it is, once the key was echoed; that may be after `fg`.

        Not the person's terminal: the program has printed nothing, and they may have their shell by now.
        """
        dropped, echoed_at = self._dropped, self._pump.last_output + _ECHOED_SECONDS
        if dropped is None or dropped.version == self._screen.version:
            return None
        if now < echoed_at:
            return echoed_at
        self._dropped = None
        picture = self._screen.picture()
        painting = dropped.line.repainted(picture) if picture else b""
        if painting:
            self._screen.feed(painting)
        return None


_ECHO: Final = "^Z"


class SuspendedLine:
    """The cursor's line when Ctrl-Z was pressed."""

    def __init__(self, before: Picture, profile: Profile) -> None:
        self._profile = profile
        _, self._line = cursor_line(before, profile)
        prompt = read_prompt(before, profile)
        is_input = prompt is not None and prompt.text in self._line
        self._kept = self._line[: self._line.rindex(prompt.text)] if prompt and is_input else self._line

    def repainted(self, now: Picture) -> bytes:
        """Return bytes that paint the line as the program left it; none if `^Z` does not stand in it."""
        row, line = cursor_line(now, self._profile)
        _, echo, since = line[len(self._line) :].rpartition(_ECHO)
        if not echo or not line.startswith(self._line):
            return b""
        rows_up = now.cursor[0] - row
        return ((f"\x1b[{rows_up}A" if rows_up else "") + f"\r\x1b[J{self._kept}{since}").encode()
