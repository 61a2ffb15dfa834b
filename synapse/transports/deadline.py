"""A time limit that is moved often: with each request of a connection. Moving it costs no timer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

_NEVER: Final = math.inf


def _nothing() -> None:
    """What a deadline that is closed calls."""


class Deadline:
    """Calls `expired` when the time that was set last has come. One timer runs at most; it is put off when it rings."""

    __slots__ = ("_at", "_expired", "_loop", "_rings_at", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, expired: Callable[[], None]) -> None:
        self._loop = loop
        self._expired = expired
        self._at = _NEVER
        self._rings_at = _NEVER
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float) -> None:
        """The time is over in so many seconds from now, whatever was set before."""
        self._at = at = self._loop.time() + seconds
        if at < self._rings_at:
            self._ring_at(at)

    def clear(self) -> None:
        """There is no limit until the next one is set."""
        self._at = _NEVER

    def close(self) -> None:
        """End for good: no timer is left, and nobody is held on to."""
        self._at = _NEVER
        self._expired = _nothing
        self._stop()

    def _ring_at(self, at: float) -> None:
        self._stop()
        self._rings_at = at
        self._timer = self._loop.call_at(at, self._ring)

    def _stop(self) -> None:
        self._rings_at = _NEVER
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        self._rings_at = _NEVER
        if self._at == _NEVER:
            return
        # Timers of the loop have a resolution of a millisecond; what is due in less is due.
        if self._at - self._loop.time() > 0.001:
            self._ring_at(self._at)
            return
        self._at = _NEVER
        self._expired()
