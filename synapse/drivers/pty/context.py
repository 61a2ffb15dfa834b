"""What the parts of a driver share: the program, how it is seen, and what it says.

What a program said of its turn and nobody has taken yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from synapse.core.agent import WAITING
from synapse.core.errors import AgentExited
from synapse.core.types import Clock
from synapse.drivers.pty.program import RunningProgram
from synapse.drivers.pty.watcher import ScreenWatcher
from synapse.terminal.evidence import Look, Source
from synapse.terminal.profile import Profile
from synapse.terminal.questions import OpenQuestion, QuestionTracker
from synapse.terminal.signals.report import SignalKind, SignalReport, TextSoFar
from synapse.terminal.turn import InterruptRetry, Settled

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
    report: SignalReport | None = None

    @property
    def settled(self) -> Settled:
        """The end of the turn that it tells."""
        return Settled(self.source, self.detail, self.report.reason if self.report else "")

    def ends(self, turn: str) -> bool:
        """True if it ends the turn of that name; a name that is not known fits every turn."""
        names = {turn, self.report.turn if self.report else ""} - {""}
        return self.kind in (ANSWERED, SignalKind.FAILED) and len(names) < 2


class SignalBuffer:
    """Keeps signals until the turn that they are about takes them."""

    def __init__(self) -> None:
        self._signals: deque[Signal] = deque(maxlen=_MOST_SIGNALS)
        self._turn = ""
        self.typed = ""
        """The message that was typed last, whole."""
        self.has_told = False
        """The program said something since."""
        self.told_last: SignalKind | None = None
        """What the program said last since then."""
        self.passed_on = ""
        """How much of what it says in our turn was passed on."""
        self._saying: TextSoFar | None = None

    def begin(self, typed: str) -> None:
        """A message is about to be typed; what was said before is not about it."""
        self._signals.clear()
        self.typed, self._turn, self.has_told = typed, "", False
        self._saying, self.passed_on, self.told_last = None, "", None

    def add(self, signal: Signal) -> None:
        self._signals.append(signal)

    def report(self, report: SignalReport) -> None:
        self.has_told, self.told_last = True, report.kind
        is_end = report.kind in (SignalKind.ANSWERED, SignalKind.FAILED)
        self.add(Signal(report.source, report.kind, report.text if is_end else report.detail, report))

    def say(self, saying: TextSoFar) -> bool:
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


@dataclass(slots=True, kw_only=True)
class PtyContext:
    """One program and everything that is known of it."""

    program: RunningProgram
    profile: Profile
    clock: Clock
    lookout: ScreenWatcher
    asking: QuestionTracker
    heard: SignalBuffer = field(default_factory=SignalBuffer)
    insistence: InterruptRetry = field(default_factory=InterruptRetry)
    """Whether the turn was interrupted, and has to be once more."""
    expected: Source | None = None
    """The source that should say something."""
    recheck: Callable[[], None] = lambda: None
    """Reads what the program has told by now; called when it is typed into, and before its screen is believed to say
    that a turn is over."""
    _told_open: OpenQuestion | None = None

    def now(self) -> float:
        return self.clock.monotonic()

    def look(self) -> Look:
        """Look at the screen now.

        Raises AgentExited.
        """
        if self.program.exited.done():
            raise AgentExited(end_of(self.program.exited.result()))
        return self.lookout.look()

    def asked(self, look: Look) -> OpenQuestion | None:
        """What is asked, by what is seen now."""
        claims = self.lookout.evidence.claims
        title_says_waiting = any(claim.source is Source.TITLE and claim.state == WAITING for claim in claims)
        opened = self.asking.observe(look, self.now(), title_says_waiting=title_says_waiting)
        self._note_closed(opened, look)
        return opened

    def _note_closed(self, opened: OpenQuestion | None, look: Look) -> None:
        """That a dialog was answered is told by nobody at once; it is seen to be gone."""
        before, self._told_open = self._told_open, opened
        if before is None or before.report is None or before.dialog is None:
            return
        if (opened is None or opened.dialog is None) and look.state == WAITING:
            self.lookout.evidence.report(before.report.source, "", "the dialog that it told of is gone", self.now())


def end_of(status: int) -> str:
    """How a program ended, as a sentence."""
    if status > 128:
        return f"the program was ended by signal {status - 128}"
    return f"the program ended with status {status}"
