"""Passes a person's keys to the program, except `@agent` lines, which go to the named agent."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, assert_never

from synapse.core.types import Clock
from synapse.drivers.pty.notices import Notices
from synapse.drivers.pty.pump import Pump
from synapse.drivers.pty.screen import LockedScreen
from synapse.drivers.pty.suspend import SuspendHandler
from synapse.drivers.pty.tty import edits_lines
from synapse.terminal.mention import Action, ClearLine, Forward, MentionLine, Notify, Resolve, Send
from synapse.terminal.picture import Picture
from synapse.terminal.profile import Profile
from synapse.terminal.reading import cursor_line, read_prompt

_AT_SIGN: Final = re.compile(rb"@|64")
"""An at sign, plain or as its number in the newer encodings."""
_ERASE_SECONDS: Final = 1.0
"""How long a terminal may take to erase a line."""
_ERASED_SECONDS: Final = 0.02
"""No output for this long after the clearing keys: the terminal has erased what it erases."""
_LOOK_SECONDS: Final = 0.005
"""Reading the screen costs milliseconds."""


@dataclass(frozen=True, slots=True)
class LineRouting:
    """Where `@agent` lines go. Both functions are called in the pump's thread, so they must not wait."""

    resolve: Resolve
    send: Callable[[str, str], None]
    """Takes the agent and the text."""


@dataclass(frozen=True, slots=True)
class _Remnant:
    """A line that is being cleared, and what may remain of it on the screen."""

    version: int
    """The version of the screen before."""
    row: int
    """The first row of the line."""
    label: str
    """The text before the input in that row."""
    until: float
    """When the terminal has had enough time to erase."""


class PersonInput:
    """Implements the pump's InputHandler. Without a routing all keys go to the program."""

    def __init__(
        self,
        pump: Pump,
        screen: LockedScreen,
        clock: Clock,
        profile: Profile,
        routing: LineRouting | None,
        suspend: SuspendHandler,
    ) -> None:
        self._pump = pump
        self._screen = screen
        self._clock = clock
        self._profile = profile
        self._routing = routing
        self._notices = Notices(pump.terminal, screen, clock, pump)
        self._mention = MentionLine(self._resolve, profile.clear_keys) if routing else None
        self._last_key = float("-inf")
        self._looked_at = (-1, 0.0)
        self._remnant: _Remnant | None = None
        self._suspend = suspend

    def say(self, text: str, command: str = "") -> None:
        """Shows the person a notice, and a command that they can type. Call it in any thread."""
        self._pump.call_soon(lambda: self._notices.add(text, command))

    def clear(self, pressed: Callable[[], None]) -> None:
        """Presses the keys that clear the input, and erases what remains of it on the screen. Call it in any thread.

        Calls `pressed` afterwards, in the pump's thread.
        """

        def press() -> None:
            self._perform([ClearLine(self._profile.clear_keys)])
            pressed()

        self._pump.call_soon(press)

    def typed(self, data: bytes) -> None:
        # The pump tells keys from the terminal's own reports: a person who moves the mouse has not read the notice.
        if self._pump.last_key != self._last_key:
            self._last_key = self._pump.last_key
            self._notices.key_typed()
        if self._mention is None:
            self._forward(data)
            return
        if _AT_SIGN.search(data):
            # For a line that is typed in the first moments, wait a little for the screen.
            self._screen.wait_loaded()
        self._perform(self._mention.typed(data, self._prompt, self._clock.monotonic()))

    def before_output(self) -> None:
        self._notices.before_output()

    def after_output(self, data: bytes) -> None:
        self._notices.after_output(data)

    def tick(self) -> float | None:
        self._erase_remnant(self._clock.monotonic())
        erasing = _LOOK_SECONDS if self._remnant is not None else None
        moments = (self._notices.tick(), self._look(), erasing, self._suspend.tick())
        waits = [wait for wait in moments if wait is not None]
        return min(waits, default=None)

    def _look(self) -> float | None:
        """Shows the screen to an undecided `@agent` line; returns in how many seconds to call again, or None."""
        if self._mention is None:
            return None
        now = self._clock.monotonic()
        deadline = self._mention.deadline
        if deadline is None:
            return None
        version, at = self._looked_at
        is_changed = self._mention.watches_screen and (version != self._screen.version or self._remnant is not None)
        if now < deadline and (not is_changed or now < at + _LOOK_SECONDS):
            return min(deadline - now, _LOOK_SECONDS if is_changed else deadline - now)
        self._erase_remnant(now)
        self._looked_at = self._screen.version, now
        self._perform(self._mention.look(self._prompt(), now))
        return _LOOK_SECONDS if self._mention.deadline is not None else None

    def _resolve(self, name: str) -> str:
        try:
            return self._routing.resolve(name) if self._routing else ""
        except OSError:
            # The registry cannot be read: then the line is the program's. The pump must not end because of it.
            return ""

    def _prompt(self) -> str | None:
        picture = self._screen.picture()
        if picture is None or picture.updating:
            return None
        prompt = read_prompt(picture, self._profile)
        return None if prompt is None else prompt.text

    def _find_remnant(self) -> _Remnant | None:
        """Returns what may remain on the screen when the input is cleared, if the kernel edits the line.

        A cooked terminal erases one column for each character, and only on the last row: wide characters and wrapped
        lines stay on the screen although the input is empty.
        """
        picture = self._screen.picture()
        found = self._find_label(picture) if picture and edits_lines(self._pump.terminal) else None
        return _Remnant(self._screen.version, *found, self._clock.monotonic() + _ERASE_SECONDS) if found else None

    def _find_label(self, picture: Picture) -> tuple[int, str] | None:
        """Returns the row in which the input begins, and the text before it there."""
        prompt = read_prompt(picture, self._profile)
        if prompt is not None:
            row, line = cursor_line(picture, self._profile)
            return row, line[: line.rindex(prompt.text)] if prompt.text in line else ""
        # A line that was wrapped at a blank does not look like one line.
        rule, rows = self._profile.prompt, range(picture.cursor[0], -1, -1)
        matches = ((row, rule.pattern.search(picture.lines[row])) for row in rows) if rule else ()
        return next(((row, match.string[: match.start("text")]) for row, match in matches if match), None)

    def _erase_remnant(self, now: float) -> None:
        if self._remnant is None or now < self._pump.last_output + _ERASED_SECONDS:
            return
        remnant, picture = self._remnant, self._screen.picture()
        if (remnant.version == self._screen.version and now < remnant.until) or picture is None:
            return
        self._remnant = None
        if self._prompt() == "":
            return
        # Relative to the cursor: the person's terminal may have begun further down than our screen.
        rows_up = picture.cursor[0] - remnant.row
        painting = (f"\x1b[{rows_up}A" if rows_up > 0 else "") + f"\r\x1b[J{remnant.label}"
        self._screen.feed(painting.encode())
        self._pump.show_person(painting.encode())

    def _forward(self, data: bytes) -> None:
        self._suspend.before_forward(data)
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
