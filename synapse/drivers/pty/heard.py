"""What a program said of its turn and nobody has taken yet."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from synapse.terminal.signals.report import Report, Saying, Told
from synapse.terminal.turn import Settled

SUBMITTED: Final = "submitted"
ANSWERED: Final = "answered"
"""What a structured signal may say besides a state: the message was taken; the turn is over, with this text."""
_MOST_SIGNALS: Final = 256


@dataclass(frozen=True, slots=True)
class Signal:
    """One thing that was said; `report` has the program's own words."""

    source: str
    kind: str
    detail: str
    report: Report | None = None

    @property
    def settled(self) -> Settled:
        """The end of the turn that it tells."""
        return Settled(self.source, self.detail, self.report.reason if self.report else "")

    def ends(self, turn: str) -> bool:
        """True if it ends the turn of that name; a name that is not known fits every turn."""
        names = {turn, self.report.turn if self.report else ""} - {""}
        return self.kind in (ANSWERED, Told.FAILED) and len(names) < 2


class Heard:
    """Keeps signals until the turn that they are about takes them."""

    def __init__(self) -> None:
        self._signals: deque[Signal] = deque(maxlen=_MOST_SIGNALS)
        self._turn = ""
        self.typed = ""
        """The message that was typed last, whole."""
        self.has_told = False
        """The program said something since."""
        self.told_last: Told | None = None
        """What the program said last since then."""
        self.passed_on = ""
        """How much of what it says in our turn was passed on."""
        self._saying: Saying | None = None

    def begin(self, typed: str) -> None:
        """A message is about to be typed; what was said before is not about it."""
        self._signals.clear()
        self.typed, self._turn, self.has_told = typed, "", False
        self._saying, self.passed_on, self.told_last = None, "", None

    def add(self, signal: Signal) -> None:
        self._signals.append(signal)

    def report(self, report: Report) -> None:
        self.has_told, self.told_last = True, report.told
        is_end = report.told in (Told.ANSWERED, Told.FAILED)
        self.add(Signal(report.source, report.told, report.text if is_end else report.detail, report))

    def say(self, saying: Saying) -> bool:
        """Take what it has said so far; True if everything before was passed on."""
        was_passed_on = self.said == self.passed_on
        self._saying = saying
        return was_passed_on

    @property
    def said(self) -> str:
        """What it has said so far in our turn."""
        if self._saying is None or len({self._turn, self._saying.turn} - {""}) > 1:
            return ""
        return self._saying.text

    def take_submission(self) -> Signal | None:
        """What says that our message was taken; a prompt of a person's own is left aside."""
        for told in tuple(self._signals):
            if told.kind != SUBMITTED:
                continue
            self._signals.remove(told)
            if told.report is None or told.report.is_about(self.typed):
                self._turn = told.report.turn if told.report else ""
                return told
        return None

    def end(self) -> Settled | None:
        """What says that our turn is over."""
        self.take_submission()
        return next((told.settled for told in self._signals if told.ends(self._turn)), None)
