"""State shared by the parts of a PtyDriver: the program, its screen, its questions and its signals."""

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
"""The kind of a signal that says that the message was taken."""
ANSWERED: Final = "answered"
"""The kind of a signal that says that the turn is over; its detail is the answer."""
_MAX_SIGNALS: Final = 256


@dataclass(frozen=True, slots=True)
class Signal:
    """One signal about a turn; `report` has the program's own words, if they came from the program."""

    source: str
    kind: str
    detail: str
    report: SignalReport | None = None

    @property
    def settled(self) -> Settled:
        """The end of the turn that the signal reports."""
        return Settled(self.source, self.detail, self.report.reason if self.report else "")

    @property
    def turn(self) -> str:
        """The program's name of the turn; empty if it is unknown."""
        return self.report.turn if self.report else ""

    @property
    def is_end(self) -> bool:
        return self.kind in (ANSWERED, SignalKind.FAILED)


class SignalBuffer:
    """Keeps signals until the turn that they are about takes them."""

    def __init__(self) -> None:
        self._signals: deque[Signal] = deque(maxlen=_MAX_SIGNALS)
        self._turn = ""
        self._saying: TextSoFar | None = None
        self.typed = ""
        """The last message that was typed, whole."""
        self.key = ""
        """The key by which that message was sent, if it was sent by an API."""
        self.has_reported = False
        """Whether the program has reported anything since then."""
        self.last_kind: SignalKind | None = None
        """The kind of its last report since then."""
        self.passed_on = ""
        """How much of `said` was passed on."""

    def begin(self, typed: str) -> None:
        """Forgets all signals: a message is about to be typed, and they are about an earlier one."""
        self._signals.clear()
        self.typed, self.key, self._turn, self.has_reported = typed, "", "", False
        self._saying, self.passed_on, self.last_kind = None, "", None

    def add(self, signal: Signal) -> None:
        self._signals.append(signal)

    def report(self, report: SignalReport) -> None:
        self.has_reported, self.last_kind = True, report.kind
        is_end = report.kind in (SignalKind.ANSWERED, SignalKind.FAILED)
        self.add(Signal(report.source, report.kind, report.text if is_end else report.detail, report))

    def say(self, saying: TextSoFar) -> bool:
        """Keeps what the program has said so far in its turn; True if everything before was passed on."""
        was_passed_on = self.said == self.passed_on
        self._saying = saying
        return was_passed_on

    @property
    def said(self) -> str:
        """What the program has said so far in our turn."""
        return self._saying.text if self._saying is not None and self._is_ours(self._saying.turn) else ""

    @property
    def turn(self) -> str:
        """The program's own name of our turn; empty until it has reported that it took the message."""
        return self._turn

    def take_submission(self) -> Signal | None:
        """Returns and removes the signal that our message was taken; drops those about a person's own prompts."""
        for signal in tuple(self._signals):
            if signal.kind != SUBMITTED:
                continue
            self._signals.remove(signal)
            if signal.report is None or signal.report.is_about(self.typed, self.key):
                self._turn = signal.report.turn if signal.report else ""
                return signal
        return None

    def end(self) -> Settled | None:
        """Returns the end of our turn, if a signal reports it."""
        self.take_submission()
        return next((signal.settled for signal in self._signals if signal.is_end and self._is_ours(signal.turn)), None)

    def _is_ours(self, turn: str) -> bool:
        """Returns whether the turn of that name is ours; an unknown name fits every turn."""
        if self.key and not self._turn:
            # A message that was sent may have waited in the program for another turn, of which we hear first.
            return not turn
        return len({self._turn, turn} - {""}) < 2


@dataclass(slots=True, kw_only=True)
class PtyContext:
    """State shared by the parts of one PtyDriver."""

    program: RunningProgram
    profile: Profile
    clock: Clock
    watcher: ScreenWatcher
    questions: QuestionTracker
    signals: SignalBuffer = field(default_factory=SignalBuffer)
    interrupt_retry: InterruptRetry = field(default_factory=InterruptRetry)
    """Whether the turn was interrupted, and whether the keys must be pressed again."""
    expected: Source | None = None
    """The source that should report the program's turns."""
    recheck: Callable[[], None] = lambda: None
    """Reads what the program has reported by now. Called when it was typed into, and before its screen is believed to
    show the end of a turn."""
    _last_open: OpenQuestion | None = None

    def now(self) -> float:
        return self.clock.monotonic()

    def look(self) -> Look:
        """Looks at the screen now.

        Raises AgentExited.
        """
        if self.program.exited.done():
            raise AgentExited(describe_exit(self.program.exited.result()))
        return self.watcher.look()

    def open_question(self, look: Look) -> OpenQuestion | None:
        """Returns the question that is open according to `look`."""
        evidence = self.watcher.evidence
        title_says_waiting = any(claim.source is Source.TITLE and claim.state == WAITING for claim in evidence.claims)
        opened = self.questions.observe(look, self.now(), title_says_waiting=title_says_waiting)
        before, self._last_open = self._last_open, opened
        if before is None or before.report is None or before.dialog is None:
            return opened
        if (opened is None or opened.dialog is None) and look.state == WAITING:
            # No signal reports at once that a dialog was answered; the screen shows that it is gone.
            evidence.report(before.report.source, "", "the dialog that it reported is gone", self.now())
        return opened


def describe_exit(status: int) -> str:
    """Returns a sentence about how a program ended."""
    if status > 128:
        return f"the program was ended by signal {status - 128}"
    return f"the program ended with status {status}"
