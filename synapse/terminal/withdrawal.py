"""Taking a typed text out of the input again: its message was canceled before Enter, or Enter did not submit it.

The clearing keys are pressed only on what is ours. Where a person came in, or something else is in the input, it is
left alone: Enter does not follow, and the gate lets nothing be typed behind it.
"""

from __future__ import annotations

from typing import Final

from synapse.core.agent import EXITED
from synapse.terminal.echo import Shown
from synapse.terminal.evidence import Look
from synapse.terminal.gate import dialog_open
from synapse.terminal.picture import Picture
from synapse.terminal.profile import Profile
from synapse.terminal.proof import ProofSeeker
from synapse.terminal.reading import read_prompt

_AGAIN_SECONDS: Final = 0.25
"""How long a press may take to show. Some programs clear one row of several for each press."""
_UNERASED_SECONDS: Final = 1.0


class Withdrawal:
    """Decides when to press the clearing keys."""

    def __init__(self, seeker: ProofSeeker, profile: Profile, now: float) -> None:
        self._seeker = seeker
        self._profile = profile
        self._since = self._undisturbed_since = now
        self._pressed_at: float | None = None
        self._left = ""
        """What the input showed when the keys were pressed last."""
        self.is_over = False
        """True once nothing more is done."""
        self.deadline = now
        """When `presses` is next worth asking even if nothing happens."""

    @property
    def has_pressed(self) -> bool:
        """True once the keys were pressed."""
        return self._pressed_at is not None

    def presses(self, look: Look, now: float) -> bool:
        """Take what is seen now; return whether to press the clearing keys."""
        if dialog_open(look):
            # The text may wait behind it, and keys would answer it.
            return self._wait_behind(now)
        if look.picture is None or look.is_half_painted:
            return self._wait_until(self._undisturbed_since + self._profile.times.echo, now)
        if look.state == EXITED or self._seeker.person_came_in(look, now):
            self.is_over = True
            return False
        return self._judge(look.picture, now)

    def _judge(self, picture: Picture, now: float) -> bool:
        seen = self._seeker.shown(picture)
        if seen in (Shown.WHOLE, Shown.PART):
            return self._press_again(picture, now)
        if seen is Shown.HIDDEN and not self._profile.reads_lines:
            # A page is over the input, and the text may be under it. Nothing is typed meanwhile anyway.
            return self._wait_behind(now)
        if self.has_pressed:
            self.is_over = True
            return False
        # The text may still come, and a page that is being painted may hide it.
        self._wait_until(self._undisturbed_since + self._profile.times.echo, now)
        return self.is_over and self._may_be_ours(seen)

    @property
    def _patience(self) -> float:
        """How long presses that take nothing away go on.

        A kernel that edits the line empties it at once, but erases one column for each wide letter: its rest stays on
        the screen for good.
        """
        echo = self._profile.times.echo
        return min(echo, _UNERASED_SECONDS) if self._profile.reads_lines else echo

    def _wait_behind(self, now: float) -> bool:
        self._undisturbed_since = now
        return self._wait_until(self._since + self._profile.times.dialog, now)

    def _may_be_ours(self, seen: Shown) -> bool:
        """A program may have taken the text and not shown it; on an empty input the keys do nothing."""
        return seen is Shown.NOTHING or (seen is Shown.HIDDEN and self._profile.prompt is None)

    def _press_again(self, picture: Picture, now: float) -> bool:
        """Press until nothing is left, for as long as each press takes something away."""
        prompt = read_prompt(picture, self._profile)
        left = prompt.text if prompt is not None else ""
        if self._pressed_at is None or left != self._left:
            self._undisturbed_since = now
        elif now < self._pressed_at + _AGAIN_SECONDS:
            return self._wait_until(self._pressed_at + _AGAIN_SECONDS, now)
        elif now >= self._undisturbed_since + self._patience:
            self.is_over = True
            return False
        self._pressed_at, self._left = now, left
        self.deadline = now + _AGAIN_SECONDS
        return True

    def _wait_until(self, end: float, now: float) -> bool:
        self.deadline = end
        self.is_over = now >= end
        return False
