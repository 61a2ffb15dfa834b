"""Handles Ctrl-Z on its way to the program: continues a program that has no shell, and repairs our screen.

Where the program has a person's shell behind it, the program stops, and `fg` brings it back. In the background there is
no shell: the kernel does not stop the program, but it may have left its full screen and wait for SIGCONT all the same.

If the kernel edits the program's lines, it drops the line that was being typed and echoes `^Z` after it; the program
does not know and paints nothing. So its input is empty although there is text after the prompt, and its next prompt
stands after the `^Z`. We paint the line on our screen as the program left it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Final

from synapse.core.types import Clock
from synapse.drivers.pty.pump import Pump
from synapse.drivers.pty.screen import LockedScreen
from synapse.drivers.pty.tty import SUSPEND_KEY, suspending_drops_line
from synapse.terminal.picture import Picture
from synapse.terminal.profile import Profile
from synapse.terminal.reading import cursor_line, read_prompt

_CTRL_Z: Final = re.compile(rb"\x1a|\x1b\[122;5u|\x1b\[27;5;122~")
"""The key, plain and in the newer encodings."""
_ECHO: Final = "^Z"
_ECHOED_SECONDS: Final = 0.02
"""No output for this long after the first: the key has been echoed."""
_RESUME_SECONDS: Final = (0.3, 1.0, 3.0)
"""When SIGCONT is sent after the key: a slow program may miss the first one, and more do no harm."""


class SuspendHandler:
    """Handles Ctrl-Z for one program. `resume` is None where the program has a shell. Call it in the pump's thread."""

    def __init__(
        self, pump: Pump, screen: LockedScreen, clock: Clock, profile: Profile, resume: Callable[[], None] | None
    ) -> None:
        self._pump = pump
        self._screen = screen
        self._clock = clock
        self._profile = profile
        self._resume = resume
        self._dropped: tuple[int, SuspendedLine] | None = None
        """The screen's version before the kernel drops the line, and that line."""
        self._resumes_at: deque[float] = deque()

    def before_forward(self, data: bytes) -> None:
        """Prepares for keys that are about to go to the program."""
        if not _CTRL_Z.search(data):
            return
        now = self._clock.monotonic()
        if self._resume is not None:
            self._resumes_at = deque(now + seconds for seconds in _RESUME_SECONDS)
        if SUSPEND_KEY not in data or not suspending_drops_line(self._pump.terminal):
            return
        # In the first moments there is no screen yet.
        self._screen.wait_loaded()
        picture = self._screen.picture()
        if picture is not None:
            self._dropped = self._screen.version, SuspendedLine(picture, self._profile)

    def tick(self) -> float | None:
        """Does what is due; returns in how many seconds to call again, or None."""
        now = self._clock.monotonic()
        echoed_at = self._remove_echo(now)
        if self._resume is not None and self._resumes_at and now >= self._resumes_at[0]:
            self._resumes_at.popleft()
            self._resume()
        moments = (echoed_at, self._resumes_at[0] if self._resumes_at else None)
        return min((moment - now for moment in moments if moment is not None), default=None)

    def _remove_echo(self, now: float) -> float | None:
        """Shows the input as empty on our screen once the key was echoed; returns when to try again, or None.

        The echo may come after `fg`.
        Leaves the person's terminal alone: the program has printed nothing, and they may have their shell by now.
        """
        if self._dropped is None:
            return None
        version, line = self._dropped
        if version == self._screen.version:
            return None
        echoed_at = self._pump.last_output + _ECHOED_SECONDS
        if now < echoed_at:
            return echoed_at
        self._dropped = None
        picture = self._screen.picture()
        painting = line.repainted(picture) if picture else b""
        if painting:
            self._screen.feed(painting)
        return None


class SuspendedLine:
    """The cursor's line when Ctrl-Z was pressed, and how to paint it without the echo."""

    def __init__(self, before: Picture, profile: Profile) -> None:
        self._profile = profile
        _, self._line = cursor_line(before, profile)
        prompt = read_prompt(before, profile)
        is_input = prompt is not None and prompt.text in self._line
        self._kept = self._line[: self._line.rindex(prompt.text)] if prompt and is_input else self._line

    def repainted(self, now: Picture) -> bytes:
        """Returns bytes that paint the line as the program left it; empty if it has no `^Z`."""
        row, line = cursor_line(now, self._profile)
        _, echo, since = line[len(self._line) :].rpartition(_ECHO)
        if not echo or not line.startswith(self._line):
            return b""
        rows_up = now.cursor[0] - row
        return ((f"\x1b[{rows_up}A" if rows_up else "") + f"\r\x1b[J{self._kept}{since}").encode()
