"""The answer to one message as the screen shows it. It is made before the message is typed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from synapse.drivers.pty.station import Station
from synapse.terminal.answer import answer_text, count_shown

_ANSWER_LINES: Final = 5000


class ShownAnswer:
    """Reads what stands below a message, and not what stands below an earlier one that said the same."""

    def __init__(self, station: Station, text: str) -> None:
        self._station = station
        self._text = text
        has_rule = station.profile.answer.echo is not None
        self._earlier = 0 if has_rule else count_shown(self._lines(), text, station.profile)

    def read(self) -> str:
        """What is shown now; empty if the message is not found."""
        return self.within(self._lines())

    def within(self, lines: Sequence[str]) -> str:
        """The same of the last lines alone, which somebody has read already."""
        return answer_text(lines, self._text, self._station.profile, earlier=self._earlier)

    def _lines(self) -> tuple[str, ...]:
        return self._station.program.screen.history(_ANSWER_LINES)
