"""When something that failed is tried again: later each time, never all at once, and not for ever. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySchedule:
    """Exponential backoff with jitter; `attempts` is how often something is tried in all."""

    attempts: int = 12
    first: float = 1.0
    factor: float = 2.0
    longest: float = 300.0

    def pause(self, failed: int, chance: float, asked: float | None = None) -> float | None:
        """Seconds until the next try after `failed` ones, or None when that was the last.

        `chance`, from 0 to 1, spreads those who failed together; whoever `asked` for a pause gets at least that, within
        the longest.
        """
        if failed >= self.attempts:
            return None
        # Beyond this the power is larger than any pause, and soon than any float.
        growing = self.first * self.factor ** min(failed - 1, 64)
        spread = min(growing, self.longest) * (0.5 + chance / 2)
        return min(max(spread, asked or 0.0), self.longest)
