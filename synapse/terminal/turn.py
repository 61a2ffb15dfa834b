"""Follows a turn from proof of submission to its end, and decides when to repeat an interrupt.

Does no I/O; callers pass the time.

SUBMITTED ──a mark, or no prompt: Working──> WORKING ──prompt back, quiet: Settled──> SETTLED
    │  ▲                                       │  ▲
    │  └──────────── dialog gone ──────┐       │  └── dialog gone: Working
    │                                  │       ▼
    └──dialog: Waiting──────────────> WAITING <┘ dialog: Waiting

SUBMITTED ──prompt back, quiet for longer: Settled──> SETTLED   (it was never seen to work)
SETTLED ──it was not over: go_on──> SUBMITTED, WORKING
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from synapse.core.agent import READY, WORKING
from synapse.terminal.evidence import Look
from synapse.terminal.gate import GRAIN, dialog_open
from synapse.terminal.profile import Profile
from synapse.terminal.reading import read_prompt

PATIENCE: Final = 2.0
"""How long an interrupted program may go on working; programs take up to a second to stop, and to show it."""
MOST_PRESSES: Final = 4
"""How often one turn's interrupt is tried."""


class Stage(Enum):
    """How far a turn has come."""

    SUBMITTED = auto()
    WORKING = auto()
    WAITING = auto()
    SETTLED = auto()


@dataclass(frozen=True, slots=True)
class Working:
    """The program was seen to work on the message."""

    source: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """A dialog asks a person; the turn goes on once it is answered."""

    dialog: str
    hint: str


@dataclass(frozen=True, slots=True)
class Settled:
    """The turn is over. `reason` is a stable code if it ended without an answer."""

    source: str
    evidence: str
    reason: str = ""


TurnStep = Working | Waiting | Settled


class TurnTracker:
    """Follows one turn."""

    def __init__(self, profile: Profile, now: float, *, has_worked: bool = False) -> None:
        """Starts after the proof of submission; `has_worked` if the delivery has already seen the program work."""
        self._profile = profile
        self._stage = Stage.SUBMITTED
        self._has_worked = has_worked
        self._dialog = ""
        self._since = now
        self._wake_at: float | None = None

    @property
    def deadline(self) -> float | None:
        """When to call `advance` again even if nothing happens."""
        return self._wake_at

    def advance(self, look: Look, now: float) -> tuple[TurnStep, ...]:
        """Takes the latest look; returns what has happened."""
        self._wake_at = None
        if self._stage is Stage.SETTLED or look.picture is None or look.is_half_painted:
            return ()
        if dialog_open(look):
            return self._wait(look)
        if look.state == WORKING:
            return self._work()
        begun = self._work() if self._has_worked and self._stage is Stage.SUBMITTED else ()
        has_prompt = self._profile.prompt is not None
        if look.state != READY or (has_prompt and read_prompt(look.picture, self._profile) is None):
            return begun
        return begun + self._settle(look, now)

    def ended(self, source: str, evidence: str, reason: str = "") -> tuple[TurnStep, ...]:
        """Takes a structured signal that the turn is over."""
        if self._stage is Stage.SETTLED:
            return ()
        self._stage = Stage.SETTLED
        return (Settled(source, evidence, reason),)

    def go_on(self, now: float) -> None:
        """Continues a turn that was not over after all: looks for its end again, a while later."""
        self._stage = Stage.WORKING if self._has_worked else Stage.SUBMITTED
        self._since = now
        self._wake_at = now + self._profile.times.settle

    def _wait(self, look: Look) -> tuple[TurnStep, ...]:
        if self._stage is Stage.WAITING and self._dialog == look.dialog:
            return ()
        self._stage, self._dialog = Stage.WAITING, look.dialog
        # A signal may report a dialog before the screen shows which one it is.
        return (Waiting(look.dialog or "question", look.hint or "look at its terminal"),)

    def _work(self) -> tuple[TurnStep, ...]:
        self._has_worked = True
        if self._stage is Stage.WORKING:
            return ()
        self._stage = Stage.WORKING
        return (Working("screen", "the program works"),)

    def _settle(self, look: Look, now: float) -> tuple[TurnStep, ...]:
        # Silence from before the submission does not count.
        quiet_since = max(now - look.quiet_for, self._since)
        done_at = quiet_since + self._silence_needed(look)
        if done_at - now > GRAIN:
            self._wake_at = done_at
            return ()
        self._stage = Stage.SETTLED
        if self._profile.prompt is None:
            return (Settled("quiet", f"no output for {look.quiet_for:.1f} s, and the profile has no prompt rule"),)
        return (Settled("screen", "the prompt is back, and output has stopped"),)

    def _silence_needed(self, look: Look) -> float:
        times = self._profile.times
        if self._has_worked and look.picture is not None and look.picture.program_status:
            # It reports its own status: it has said that it works, and now that it is ready.
            return times.quiet
        # Right after the submission the prompt is empty and no mark of work is there yet, so wait longer. A line
        # program shows its prompt only when it reads again, so there the prompt is enough.
        shows_prompt_when_done = self._profile.prompt is not None and self._profile.reads_lines
        return times.settle if self._has_worked or shows_prompt_when_done else max(times.settle, times.unseen)


class InterruptRetry:
    """Decides when to repeat the interrupt of one turn, because the program may have missed it.

    A busy program reads two Escapes in a row as one key, Alt-Escape, and does nothing. Seen on Copilot and OpenCode, on
    an overloaded machine.
    """

    def __init__(self) -> None:
        self._presses = 0
        self._next: float | None = None

    @property
    def deadline(self) -> float | None:
        """When to ask `is_due` again, or None."""
        return self._next

    def pressed(self, now: float) -> None:
        """Notes that the keys were pressed."""
        self._presses += 1
        self._next = now + PATIENCE if self._presses < MOST_PRESSES else None

    def is_due(self, look: Look, now: float) -> bool:
        """Returns whether the program was interrupted, has had its time to stop, and still works."""
        if self._next is None or now < self._next:
            return False
        # In any other state the keys do something else: they answer a dialog, or open a menu.
        is_missed = look.state == WORKING and not dialog_open(look)
        if not is_missed:
            self._next = None
        return is_missed
