"""A person's keys on their way to the program: `@agent` lines are found here, everything else passes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, assert_never

from synapse.core.types import Clock
from synapse.drivers.pty.notices import Notices
from synapse.drivers.pty.pump import Pump, edits_lines
from synapse.drivers.pty.screen import LockedScreen
from synapse.drivers.pty.suspend import Suspending
from synapse.terminal.mention import Action, ClearLine, Forward, MentionLine, Notify, Resolve, Send
from synapse.terminal.picture import Picture
from synapse.terminal.profile import Profile
from synapse.terminal.reading import cursor_line, read_prompt

_MAY_BEGIN_LINE: Final = re.compile(rb"@|64")
"""An at sign, plain or as the number that the newer encodings have for it."""
_LOAD_SECONDS: Final = 1.0
_ERASED_SECONDS: Final = 0.02
"""No output for this long after the clearing keys: the terminal has erased what it erases."""
_LOOK_SECONDS: Final = 0.005
"""Reading the screen costs milliseconds."""


@dataclass(frozen=True, slots=True)
class LineRouting:
    """Where `@agent` lines go. Both are called in the pump's thread, so they must not wait."""

    resolve: Resolve
    send: Callable[[str, str], None]
    """Takes the agent and the text."""


@dataclass(frozen=True, slots=True)
class _Remnant:
    """A line that is being cleared: the screen's version before that, its first row, and what stands in front of it."""

    version: int
    row: int
    label: str
    until: float
    """What has not been erased by then is not erased."""


class PersonInput:
    """Implements the pump's InputHandler. Without a routing no line is looked at."""

    def __init__(
        self,
        pump: Pump,
        screen: LockedScreen,
        clock: Clock,
        profile: Profile,
        routing: LineRouting | None,
        suspending: Suspending,
    ) -> None:
        self._pump = pump
        self._screen = screen
        self._clock = clock
        self._profile = profile
        self._routing = routing
        self._notices = Notices(pump.terminal, screen, clock, pump)
        self._at_line = MentionLine(self._resolve, profile.clear_keys) if routing else None
        self._looked_at = (-1, 0.0)
        self._remnant: _Remnant | None = None
        self._suspending = suspending

    def say(self, text: str) -> None:
        """Tell the person something. Any thread."""
        self._pump.call_soon(lambda: self._notices.add(text))

    def clear(self, pressed: Callable[[], None]) -> None:
        """Press the keys that clear the input, and see to it that the screen shows it empty. Any thread.

        Calls `pressed` afterwards, in the pump's thread.
        """

        def press() -> None:
            self._perform([ClearLine(self._profile.clear_keys)])
            pressed()

        self._pump.call_soon(press)

    def typed(self, data: bytes) -> None:
        self._notices.key_seen()
        if self._at_line is None:
            self._forward(data)
            return
        if _MAY_BEGIN_LINE.search(data):
            # A line that is typed in the first moments is worth a short wait.
            self._screen.wait_loaded(_LOAD_SECONDS)
        self._perform(self._at_line.typed(data, self._prompt, self._clock.monotonic()))

    def output_comes(self) -> None:
        self._notices.output_comes()

    def output_seen(self, data: bytes) -> None:
        self._notices.output_seen(data)

    def tick(self) -> float | None:
        self._wipe_remnant(self._clock.monotonic())
        erasing = _LOOK_SECONDS if self._remnant is not None else None
        moments = (self._notices.tick(), self._look(), erasing, self._suspending.tick())
        waits = [wait for wait in moments if wait is not None]
        return min(waits, default=None)

    def _look(self) -> float | None:
        """Let an `@agent` line that is being decided see the screen; return in how many seconds to come again."""
        if self._at_line is None:
            return None
        now = self._clock.monotonic()
        deadline = self._at_line.deadline
        if deadline is None:
            return None
        version, at = self._looked_at
        is_changed = self._at_line.watches_screen and (version != self._screen.version or self._remnant is not None)
        if now < deadline and (not is_changed or now < at + _LOOK_SECONDS):
            return min(deadline - now, _LOOK_SECONDS if is_changed else deadline - now)
        self._wipe_remnant(now)
        self._looked_at = self._screen.version, now
        self._perform(self._at_line.look(self._prompt(), now))
        return _LOOK_SECONDS if self._at_line.deadline is not None else None

    def _resolve(self, name: str) -> str:
        try:
            return self._routing.resolve(name) if self._routing else ""
        except OSError:
            # Who is here cannot be read: then the line is the program's. The pump must not end for it.
            return ""

    def _prompt(self) -> str | None:
        picture = self._screen.picture()
        if picture is None or picture.updating:
            return None
        prompt = read_prompt(picture, self._profile)
        return None if prompt is None else prompt.text

    def _find_remnant(self) -> _Remnant | None:
        """What may stay on the screen when the input is cleared.

        A cooked terminal erases one column for each character, and only on the last row: wide characters and wrapped
        lines stay on the screen although the input is empty.
        """
        picture = self._screen.picture()
        found = self._find_label(picture) if picture and edits_lines(self._pump.terminal) else None
        return _Remnant(self._screen.version, *found, self._clock.monotonic() + _LOAD_SECONDS) if found else None

    def _find_label(self, picture: Picture) -> tuple[int, str] | None:
        """The row that the input begins on, and what stands in front of it there."""
        prompt = read_prompt(picture, self._profile)
        if prompt is not None:
            row, line = cursor_line(picture, self._profile)
            return row, line[: line.rindex(prompt.text)] if prompt.text in line else ""
        # A line that was wrapped at a blank does not look like one line.
        rule, rows = self._profile.prompt, range(picture.cursor[0], -1, -1)
        matches = ((row, rule.pattern.search(picture.lines[row])) for row in rows) if rule else ()
        return next(((row, match.string[: match.start("text")]) for row, match in matches if match), None)

    def _wipe_remnant(self, now: float) -> None:
        if self._remnant is None or now < self._pump.last_output + _ERASED_SECONDS:
            return
        remnant, picture = self._remnant, self._screen.picture()
        if (remnant.version == self._screen.version and now < remnant.until) or picture is None:
            return
        self._remnant = None
        if self._prompt() == "":
            return
        # By steps from where the cursor is: the person's terminal may have begun further down than our screen.
        rows_up = picture.cursor[0] - remnant.row
        painting = (f"\x1b[{rows_up}A" if rows_up > 0 else "") + f"\r\x1b[J{remnant.label}"
        self._screen.feed(painting.encode())
        self._pump.show_person(painting.encode())

    def _forward(self, data: bytes) -> None:
        self._suspending.forwarding(data)
        self._pump.input.write(data)

    def _perform(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Forward(data):
                    self._forward(data)
                case ClearLine(data):
                    self._remnant = self._find_remnant()
                    self._pump.input.write(data)
                case Send(target, text):
                    if self._routing is not None:
                        self._routing.send(target, text)
                case Notify(text):
                    self._notices.add(text)
                case _:
                    assert_never(action)
