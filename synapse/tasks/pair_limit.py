"""Limits the messages between two agents, so that a pair cannot thank each other for ever."""

from __future__ import annotations

from collections import deque
from typing import Final

_WINDOW_SECONDS: Final = 60.0


class PairRateLimit:
    """Limits the messages per minute between each pair of agents, counting both directions."""

    def __init__(self, limit_per_minute: int) -> None:
        self.limit = limit_per_minute
        self._recent: dict[frozenset[str], deque[float]] = {}

    def admit(self, one: str, other: str, now: float) -> bool:
        """Counts a message between the two at monotonic time `now`; returns False when it has to be held."""
        if self.limit <= 0:
            return True
        self._forget(now)
        times = self._recent.setdefault(frozenset((one, other)), deque(maxlen=self.limit))
        if len(times) == self.limit:
            return False
        times.append(now)
        return True

    def _forget(self, now: float) -> None:
        for pair, times in list(self._recent.items()):
            while times and times[0] <= now - _WINDOW_SECONDS:
                times.popleft()
            if not times:
                del self._recent[pair]
