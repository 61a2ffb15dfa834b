"""How often somebody may ask: a bucket of tokens for each key, filled at a steady rate. Pure; time is an argument.

A request takes a token. An empty bucket says how long it takes until there is one again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

MOST_KEYS: Final = 10_000


class RateLimit:
    """Buckets that hold `burst` tokens and get `per_minute` new ones; a rate of 0 limits nothing.

    The buckets that were used last are kept, `most_keys` of them: a forgotten one is a full one.
    """

    def __init__(self, *, per_minute: float, burst: int, most_keys: int = MOST_KEYS) -> None:
        self._per_second = per_minute / 60
        self._burst = float(max(1, burst))
        self._most_keys = most_keys
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str, now: float) -> float:
        """Take a token and return 0, or take none and return the seconds until there is one."""
        if not self._per_second:
            return 0.0
        tokens = self._tokens(key, now)
        wait = self._wait(tokens)
        self._keep(key, tokens if wait else tokens - 1, now)
        return wait

    def wait(self, key: str, now: float) -> float:
        """The seconds until a token can be taken; nothing is taken."""
        return self._wait(self._tokens(key, now)) if self._per_second else 0.0

    def _tokens(self, key: str, now: float) -> float:
        tokens, at = self._buckets.get(key, (self._burst, now))
        return min(self._burst, tokens + (now - at) * self._per_second)

    def _wait(self, tokens: float) -> float:
        return 0.0 if tokens >= 1 else (1 - tokens) / self._per_second

    def _keep(self, key: str, tokens: float, now: float) -> None:
        self._buckets[key] = (tokens, now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._most_keys:
            self._buckets.popitem(last=False)
