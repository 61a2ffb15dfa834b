"""What an agent has said so far in a turn, told now and then: in its own words, else as its screen shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from synapse.core.agent import WORKING
from synapse.core.driver import Said
from synapse.drivers.pty.shown_answer import ShownAnswer
from synapse.drivers.pty.station import Station
from synapse.terminal.evidence import Look, Source
from synapse.terminal.growth import Growth

OWN_WORDS_SECONDS: Final = 0.25
"""Each word on the way is made durable like everything else, so a few letters do not go alone."""
SCREEN_SECONDS: Final = 1.0
"""Reading an answer off the screen costs milliseconds, and what rests is known only from one look to the next."""
_LINES: Final = 1000
_TELLING: Final = 30
"""So many letters of a message tell its row from others."""


class PartialText:
    """Follows the text of one turn. `reads_screen` is for programs that do not tell what they say."""

    def __init__(self, station: Station, text: str, shown: ShownAnswer, *, reads_screen: bool) -> None:
        self._station = station
        self._text = text
        self._shown_answer = shown
        self._reads_screen = reads_screen
        self._growth = Growth()
        # A turn that is over soon costs no look.
        self._next = station.now() + SCREEN_SECONDS if reads_screen else 0.0
        self._seen_version = -1

    @property
    def deadline(self) -> float | None:
        """When `events` is next worth asking, even if nothing happens."""
        if self._reads_screen:
            return self._next if self._station.program.screen.version != self._seen_version else None
        heard = self._station.heard
        return self._next if heard.said != heard.passed_on else None

    def events(self, look: Look) -> Iterator[Said]:
        """What is to be told now."""
        now = self._station.now()
        if now < self._next:
            return
        if not self._reads_screen:
            yield from self._own_words(now)
        elif look.state == WORKING and not self._station.asking.is_open:
            yield from self._shown(now)

    def _own_words(self, now: float) -> Iterator[Said]:
        heard = self._station.heard
        if heard.said and heard.said != heard.passed_on:
            heard.passed_on, self._next = heard.said, now + OWN_WORDS_SECONDS
            yield Said(heard.said, Source.SIGNAL)

    def _shown(self, now: float) -> Iterator[Said]:
        self._next = now + SCREEN_SECONDS
        screen = self._station.program.screen
        self._seen_version = screen.version
        lines = screen.history(_LINES)
        beginning = self._text.partition("]")[0][:_TELLING]
        if not any(beginning in line for line in lines):
            return  # what stands there may be anything
        if text := self._growth.receive(self._shown_answer.within(lines)):
            yield Said(text, Source.SCREEN)
