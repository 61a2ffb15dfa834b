"""Does something again and again, as long as that is worth it: files tell nobody that they have grown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Ticker:
    """Calls `act` after `seconds` once started, and again after as many seconds as it returns; None ends it."""

    def __init__(self, seconds: float, act: Callable[[], float | None]) -> None:
        self._seconds = seconds
        self._act = act
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin, or go on sooner."""
        self.stop()
        self._plan(self._seconds)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _plan(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._tick)

    def _tick(self) -> None:
        self._timer = None
        seconds = self._act()
        if seconds is not None and self._timer is None:
            self._plan(seconds)
