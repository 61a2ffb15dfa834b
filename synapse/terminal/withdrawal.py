"""Taking a typed text out of the input again: its message was canceled before Enter.

The clearing keys are pressed only on what is ours. Where a person came in, or something else is in the input, it is
left alone: Enter does not follow, and the gate lets nothing be typed behind it.
"""

from __future__ import annotations

from typing import Final

from synapse.core.agent import EXITED
from synapse.terminal.echo import Shown
from synapse.terminal.evidence import Look
from synapse.terminal.gate import dialog_open
from synapse.terminal.profile import Profile
from synapse.terminal.proof import ProofSeeker

_AGAIN_SECONDS: Final = 0.25
"""Some programs clear one line of several for each press."""


class Withdrawal:
    """Decides when to press the clearing keys."""

    def __init__(self, seeker: ProofSeeker, profile: Profile, now: float) -> None:
        self._seeker = seeker
        self._profile = profile
        self._since = self._undisturbed_since = now
        self._pressed_at: float | None = None
        self.is_over = False
        """True once nothing more is done."""
        self.deadline = now
        """When `presses` is next worth asking even if nothing happens."""

    def presses(self, look: Look, now: float) -> bool:
        """Take what is seen now; return whether to press the clearing keys."""
        if dialog_open(look):
            # The text may wait behind it, and keys would answer it.
            self._undisturbed_since = now
            return self._wait_until(self._since + self._profile.times.dialog, now)
        end = self._undisturbed_since + self._profile.times.echo
        if look.picture is None or look.is_half_painted:
            return self._wait_until(end, now)
        if look.state == EXITED or self._seeker.person_came_in(look, now):
            self.is_over = True
            return False
        seen = self._seeker.shown(look.picture)
        if seen in (Shown.WHOLE, Shown.PART):
            return self._press_again(end, now)
        if self._pressed_at is not None:
            self.is_over = True
            return False
        # The text may still come, and a page that is being painted may hide it.
        self._wait_until(end, now)
        return self.is_over and self._may_be_ours(seen)

    def _may_be_ours(self, seen: Shown) -> bool:
        """A program may have taken the text and not shown it; on an empty input the keys do nothing."""
        return seen is Shown.NOTHING or (seen is Shown.HIDDEN and self._profile.prompt is None)

    def _press_again(self, end: float, now: float) -> bool:
        if self._pressed_at is not None and now < self._pressed_at + _AGAIN_SECONDS:
            return self._wait_until(self._pressed_at + _AGAIN_SECONDS, now)
        if self._pressed_at is not None and now >= end:
            self.is_over = True
            return False
        self._pressed_at = now
        self.deadline = now + _AGAIN_SECONDS
        return True

    def _wait_until(self, end: float, now: float) -> bool:
        self.deadline = end
        self.is_over = now >= end
        return False
