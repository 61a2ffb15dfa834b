"""Brings one message from the gate to proof of submission.

Does no I/O: the driver takes looks, calls `advance`, and carries out the steps that it returns.

    GATED ──gate open: Intend──> INTENDING ──intent_recorded──> INTENDED ──gate still open: Write(text)──> TYPED
                                                                    │                                       │
                                                        gate shut: Withdrawn                 text seen: Write(Enter)
                                                                    ▼                                       ▼
                                                                WITHDRAWN                                ENTERED

    TYPED, ENTERED ──the program has it: Proven──> PROVEN
    TYPED, ENTERED ──it stays uncertain: Doubt──> DOUBTFUL ──a later proof: Proven──> PROVEN
    before Enter, also in doubt ──drop──> DROPPING ──the text is out, or not ours to clear: Dropped──> DROPPED
    in doubt after Enter, the text still in the input ──drop──> DROPPING

Nothing is written before the intent is durable, nothing while a dialog is open, and nothing twice: `Write` comes at
most once for the text and once for Enter, and in DOUBTFUL never again. In TYPED a missing echo is waited for as long as
the profile says; then Enter is pressed all the same, unless the input shows foreign text. In DROPPING the clearing keys
are pressed, and Enter never.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, assert_never

from synapse.core.agent import EXITED
from synapse.terminal.evidence import UPDATE_LIMIT, Look
from synapse.terminal.gate import UNSEEN, dialog_open, shut
from synapse.terminal.keys import keystrokes
from synapse.terminal.picture import Picture
from synapse.terminal.profile import Profile
from synapse.terminal.proof import ProofSeeker, Shown
from synapse.terminal.reading import read_prompt

_INTENT_SECONDS: Final = 1.0
"""How long a recorded intent waits for a gate that only time keeps shut, before it is withdrawn."""
_PRESS_SECONDS: Final = 0.25
"""How long pressing the clearing keys may take to show. Some programs clear one row of several for each press."""
_UNERASED_SECONDS: Final = 1.0
"""The longest that presses without effect go on in a line program."""


class Phase(Enum):
    """How far a message has come."""

    GATED = auto()
    INTENDING = auto()
    INTENDED = auto()
    TYPED = auto()
    ENTERED = auto()
    PROVEN = auto()
    DOUBTFUL = auto()
    WITHDRAWN = auto()
    DROPPING = auto()
    DROPPED = auto()


_NOTHING_TYPED: Final = (Phase.GATED, Phase.INTENDING, Phase.INTENDED)


@dataclass(frozen=True, slots=True)
class Closed:
    """The gate is shut; the message waits."""

    why: str


@dataclass(frozen=True, slots=True)
class Intend:
    """Make the intent to type durable, then call `intent_recorded`."""


@dataclass(frozen=True, slots=True)
class Write:
    """Write these bytes to the program, once, then call `written`."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Proven:
    """The program has taken the message."""

    source: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Doubt:
    """It is uncertain whether the program has taken the message. Nothing more is written."""

    why: str


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The gate closed between the intent and the first byte. Nothing was written; the message may be tried again."""

    why: str


@dataclass(frozen=True, slots=True)
class Clear:
    """Press the keys that clear the input."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """The message was canceled before Enter; the delivery is over."""


Step = Closed | Intend | Write | Proven | Doubt | Withdrawn | Clear | Dropped


class Delivery:
    """Brings one text into one program, at most once."""

    def __init__(self, text: str, profile: Profile) -> None:
        self._text = text
        self._profile = profile
        self._phase = Phase.GATED
        self._since = 0.0
        """When the phase began, or when its bytes were written."""
        self._wake_at: float | None = None
        self._seeker = ProofSeeker(profile)
        self._dialog_since: float | None = None
        self._after_dialog = False
        self._whole_since: float | None = None
        """Since when the input has shown the whole text."""
        self._removal: _TextRemoval | None = None

    @property
    def phase(self) -> Phase:
        return self._phase

    @property
    def deadline(self) -> float | None:
        """When to call `advance` again even if nothing happens."""
        return self._wake_at

    @property
    def saw_work(self) -> bool:
        """True once the program was seen to work after Enter; the turn's tracker starts from it."""
        return self._seeker.saw_work

    def advance(self, look: Look, now: float) -> tuple[Step, ...]:
        """Takes the latest look; returns the steps to carry out."""
        self._wake_at = None
        match self._phase:
            case Phase.GATED:
                steps = self._try_gate(look, now)
            case Phase.INTENDED:
                steps = self._type(look, now)
            case Phase.TYPED:
                steps = self._enter(look, now)
            case Phase.ENTERED:
                steps = self._await_proof(look, now)
            case Phase.DOUBTFUL:
                steps = self._prove(look, now)
            case Phase.DROPPING:
                steps = self._remove_text(look, now)
            case Phase.INTENDING | Phase.PROVEN | Phase.WITHDRAWN | Phase.DROPPED:
                steps = ()
            case _:
                assert_never(self._phase)
        return steps

    def intent_recorded(self, now: float) -> None:
        """Notes that the intent is durable: from now on bytes may be written."""
        if self._phase is Phase.INTENDING:
            self._go(Phase.INTENDED, now)

    def written(self, now: float) -> None:
        """Notes that the bytes of the last `Write` are written; a slow program's time begins only now."""
        if self._phase in (Phase.TYPED, Phase.ENTERED):
            self._since = now

    def drop(self, now: float) -> bool:
        """Cancels the message: never presses Enter, and clears the typed text. Returns False if it is too late."""
        # An Enter that the program took for a line break leaves the text in the input.
        is_still_there = self._phase is Phase.DOUBTFUL and self._whole_since is not None
        is_before_enter = self._phase in (Phase.TYPED, Phase.DOUBTFUL) and not self._seeker.has_entered
        is_in_the_input = is_before_enter or is_still_there
        if self._phase not in _NOTHING_TYPED and not is_in_the_input:
            return self._phase in (Phase.DROPPING, Phase.DROPPED)
        if is_in_the_input:
            self._removal = _TextRemoval(self._seeker, self._profile, now)
        self._go(Phase.DROPPING, now)
        return True

    def signalled(self, source: str, evidence: str, now: float) -> tuple[Step, ...]:
        """Takes a structured signal that proves the submission: a hook, the transcript."""
        is_being_removed = self._phase is Phase.DROPPING and self._removal is not None
        if self._phase not in (Phase.TYPED, Phase.ENTERED, Phase.DOUBTFUL) and not is_being_removed:
            return ()
        self._go(Phase.PROVEN, now)
        return (Proven(source, evidence),)

    def _try_gate(self, look: Look, now: float) -> tuple[Step, ...]:
        closed = shut(look, self._profile)
        if closed is None:
            self._go(Phase.INTENDING, now)
            return (Intend(),)
        if closed.opens_in is not None:
            self._wake(now + closed.opens_in)
        return (Closed(closed.why),)

    def _type(self, look: Look, now: float) -> tuple[Step, ...]:
        closed = shut(look, self._profile)
        if closed is not None or look.picture is None:
            closed = closed or UNSEEN
            if closed.opens_in is not None and now + closed.opens_in <= self._since + _INTENT_SECONDS:
                return self._wait(now + closed.opens_in)
            self._go(Phase.WITHDRAWN, now)
            return (Withdrawn(closed.why),)
        keys = keystrokes(self._text, self._profile, bracketed_paste=look.picture.bracketed_paste)
        self._seeker.typed(keys.shown, look.picture, now)
        self._go(Phase.TYPED, now)
        self._wake(now + self._profile.times.echo)
        return (Write(keys.data),)

    def _enter(self, look: Look, now: float) -> tuple[Step, ...]:
        """Presses Enter once the text is seen, never into a dialog or on foreign text."""
        if look.state == EXITED:
            return self._doubt("the program ended before Enter was pressed", now)
        if dialog_open(look):
            return self._wait_behind_dialog(look, now)
        if self._dialog_since is not None:
            self._dialog_since, self._after_dialog, self._since = None, True, now
        if look.picture is None or look.is_half_painted:
            return self._wait_for_whole_picture(now)
        proof = self._prove(look, now)
        if proof:
            return proof
        seen = self._seeker.shown(look.picture)
        if seen is not Shown.WHOLE or self._seeker.person_typed(look, now):
            return self._wait_for_echo(seen, look, look.picture, now)
        # A slow program may read the text long after it was written. It has read what it shows.
        may_enter_at = max(self._since, self._whole_since or now) + self._profile.times.enter
        return self._wait(may_enter_at) if now < may_enter_at else self._press_enter(look.picture, now)

    def _wait_behind_dialog(self, look: Look, now: float) -> tuple[Step, ...]:
        if self._dialog_since is None:
            self._dialog_since = now
        end = self._dialog_since + self._profile.times.dialog
        name = look.dialog or "the agent waits for a person"
        return self._wait(end) if now < end else self._doubt(f"a dialog came before Enter: {name}", now)

    def _wait_for_whole_picture(self, now: float) -> tuple[Step, ...]:
        end = self._since + self._profile.times.echo + self._profile.times.proof
        if now >= end:
            return self._doubt("the program never finished painting", now)
        return self._wait(min(end, now + UPDATE_LIMIT))

    def _wait_for_echo(self, seen: Shown, look: Look, picture: Picture, now: float) -> tuple[Step, ...]:
        end = self._since + self._profile.times.echo
        if now < end:
            return self._wait(end)
        why = self._why_not_enter(seen, look, now)
        return self._doubt(why, now) if why else self._press_enter(picture, now)

    def _why_not_enter(self, seen: Shown, look: Look, now: float) -> str:
        """Returns why Enter must not be pressed. TUIs may buffer a paste unseen: a missing echo alone is no reason."""
        if self._seeker.person_typed(look, now):
            return "a person typed before Enter was pressed"
        if self._after_dialog or (self._seeker.was_seen and seen is not Shown.PART):
            return "the text was in the prompt and is no longer there"
        if seen is Shown.FOREIGN:
            return "the prompt shows other text"
        if seen is Shown.HIDDEN and self._profile.prompt is not None:
            return "the prompt went away before Enter was pressed"
        return ""

    def _press_enter(self, picture: Picture, now: float) -> tuple[Step, ...]:
        self._seeker.entered(picture)
        self._go(Phase.ENTERED, now)
        self._wake(now + self._profile.times.proof)
        return (Write(self._profile.typing.enter),)

    def _await_proof(self, look: Look, now: float) -> tuple[Step, ...]:
        proof = self._prove(look, now)
        if proof:
            return proof
        if look.state == EXITED:
            return self._doubt("the program ended before it was seen to take the message", now)
        end = self._since + self._profile.times.proof
        return self._wait(end) if now < end else self._doubt("nothing shows that the program took the message", now)

    def _prove(self, look: Look, now: float) -> tuple[Step, ...]:
        if look.picture is not None and not look.is_half_painted:
            if self._seeker.shown(look.picture) is not Shown.WHOLE:
                self._whole_since = None
            elif self._whole_since is None:
                self._whole_since = now
        sign = self._seeker.seek(look, now)
        if sign:
            self._go(Phase.PROVEN, now)
            return (Proven("screen", sign),)
        due = self._seeker.due
        return self._wait(due) if due is not None else ()

    def _remove_text(self, look: Look, now: float) -> tuple[Step, ...]:
        removal = self._removal
        if removal is not None and self._seeker.has_entered and not removal.has_pressed:
            # Enter may have been slow: if the text left the input by itself, the program took it.
            proof = self._prove(look, now)
            if proof:
                return proof
        cleared: tuple[Step, ...] = (Clear(),) if removal is not None and removal.presses(look, now) else ()
        if removal is not None and not removal.is_over:
            self._wake(removal.deadline)
            return cleared
        self._go(Phase.DROPPED, now)
        return (*cleared, Dropped())

    def _doubt(self, why: str, now: float) -> tuple[Step, ...]:
        self._go(Phase.DOUBTFUL, now)
        return (Doubt(why),)

    def _wait(self, until: float) -> tuple[Step, ...]:
        self._wake(until)
        return ()

    def _wake(self, at: float) -> None:
        self._wake_at = at if self._wake_at is None else min(self._wake_at, at)

    def _go(self, phase: Phase, now: float) -> None:
        self._phase = phase
        self._since = now
        self._wake_at = None


class _TextRemoval:
    """Decides when to press the clearing keys, to remove a typed text whose message was canceled.

    The keys are pressed only on our own text. If a person has typed, or the input holds something else, it is left
    alone: Enter does not follow, and the gate lets nothing be typed behind it.
    """

    def __init__(self, seeker: ProofSeeker, profile: Profile, now: float) -> None:
        self._seeker = seeker
        self._profile = profile
        self._since = self._undisturbed_since = now
        self._pressed_at: float | None = None
        self._left = ""
        """The text that the input showed when the keys were last pressed."""
        self.is_over = False
        """True once the keys will not be pressed again."""
        self.deadline = now
        """When to ask `presses` again even if nothing happens."""

    @property
    def has_pressed(self) -> bool:
        """True once the keys were pressed."""
        return self._pressed_at is not None

    def presses(self, look: Look, now: float) -> bool:
        """Takes the latest look; returns whether to press the clearing keys."""
        if dialog_open(look):
            # The text may wait behind the dialog, and keys would answer it.
            return self._wait_behind(now)
        if look.picture is None or look.is_half_painted:
            return self._wait_until(self._undisturbed_since + self._profile.times.echo, now)
        if look.state == EXITED or self._seeker.person_typed(look, now):
            return self._end()
        seen = self._seeker.shown(look.picture)
        if seen in (Shown.WHOLE, Shown.PART):
            return self._press_again(look.picture, now)
        if seen is Shown.HIDDEN and not self._profile.reads_lines:
            # A page covers the input, and the text may be under it. Nothing is typed meanwhile anyway.
            return self._wait_behind(now)
        return self._end() if self.has_pressed else self._press_unseen(seen, now)

    def _press_again(self, picture: Picture, now: float) -> bool:
        """Presses until nothing is left, for as long as each press takes something away."""
        prompt = read_prompt(picture, self._profile)
        left = prompt.text if prompt is not None else ""
        if self._pressed_at is None or left != self._left:
            self._undisturbed_since = now
        elif now < self._pressed_at + _PRESS_SECONDS:
            return self._wait_until(self._pressed_at + _PRESS_SECONDS, now)
        elif now >= self._undisturbed_since + self._patience:
            return self._end()
        self._pressed_at, self._left = now, left
        self.deadline = now + _PRESS_SECONDS
        return True

    @property
    def _patience(self) -> float:
        """How long presses that take nothing away go on.

        A kernel that edits the line empties it at once, but erases one column for each wide letter: the rest stays on
        the screen for good.
        """
        echo = self._profile.times.echo
        return min(echo, _UNERASED_SECONDS) if self._profile.reads_lines else echo

    def _press_unseen(self, seen: Shown, now: float) -> bool:
        """Waits for the text, then presses once: the program may hold it unseen or just paint another page."""
        self._wait_until(self._undisturbed_since + self._profile.times.echo, now)
        # On an empty input the keys do nothing.
        may_be_ours = seen is Shown.NOTHING or (seen is Shown.HIDDEN and self._profile.prompt is None)
        return self.is_over and may_be_ours

    def _wait_behind(self, now: float) -> bool:
        self._undisturbed_since = now
        return self._wait_until(self._since + self._profile.times.dialog, now)

    def _wait_until(self, end: float, now: float) -> bool:
        self.deadline = end
        self.is_over = now >= end
        return False

    def _end(self) -> bool:
        self.is_over = True
        return False
