"""A person's keys on their way to the program: `@agent` lines are found here, everything else passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, assert_never

from synapse.core.clock import Clock
from synapse.drivers.pty.notices import Notices
from synapse.drivers.pty.pump import Pump
from synapse.drivers.pty.watched_screen import WatchedScreen
from synapse.terminal.at_line import Action, AtLine, Forward, Resolve, Say, Send
from synapse.terminal.profile import Profile
from synapse.terminal.reading import read_prompt

_LOAD_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.005
"""Reading the screen costs milliseconds."""


@dataclass(frozen=True, slots=True)
class LineRouting:
    """Where `@agent` lines go. Both are called in the pump's thread, so they must not wait."""

    resolve: Resolve
    send: Callable[[str, str], None]
    """Takes the agent and the text."""


class Desk:
    """Implements the pump's PersonDesk. Without a routing no line is looked at."""

    def __init__(
        self, pump: Pump, screen: WatchedScreen, clock: Clock, profile: Profile, routing: LineRouting | None
    ) -> None:
        self._pump = pump
        self._screen = screen
        self._clock = clock
        self._profile = profile
        self._routing = routing
        self._notices = Notices(pump.terminal, screen, clock, pump)
        self._at_line = AtLine(routing.resolve, profile.clear_keys) if routing else None
        self._looked_at = (-1, 0.0)

    def say(self, text: str) -> None:
        """Tell the person something. Any thread."""
        self._pump.call_soon(lambda: self._notices.add(text))

    def typed(self, data: bytes) -> None:
        self._notices.key_seen()
        if self._at_line is None:
            self._pump.input.write(data)
            return
        self._perform(self._at_line.typed(data, self._prompt, self._clock.monotonic()))

    def output_seen(self, data: bytes) -> None:
        self._notices.output_seen(data)

    def tick(self) -> float | None:
        waits = [wait for wait in (self._notices.tick(), self._look()) if wait is not None]
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
        is_changed = self._at_line.watches_screen and version != self._screen.version
        if now < deadline and (not is_changed or now < at + _LOOK_SECONDS):
            return min(deadline - now, _LOOK_SECONDS if is_changed else deadline - now)
        self._looked_at = self._screen.version, now
        self._perform(self._at_line.look(self._prompt(), now))
        return 0.0 if self._at_line.deadline is not None else None

    def _prompt(self) -> str | None:
        # A line typed in the first moments is worth the wait; it is asked for only after an `@`.
        self._screen.wait_loaded(_LOAD_SECONDS)
        picture = self._screen.picture()
        if picture is None or picture.updating:
            return None
        prompt = read_prompt(picture, self._profile)
        return None if prompt is None else prompt.text

    def _perform(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Forward(data):
                    self._pump.input.write(data)
                case Send(target, text):
                    if self._routing is not None:
                        self._routing.send(target, text)
                case Say(text):
                    self._notices.add(text)
                case _:
                    assert_never(action)
