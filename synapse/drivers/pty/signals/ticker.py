"""Does something again and again, as long as that is worth it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Ticker:
    """Calls `act` every `seconds` once started, until it returns False. Files tell nobody that they have grown."""

    def __init__(self, seconds: float, act: Callable[[], bool]) -> None:
        self._seconds = seconds
        self._act = act
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = None
        if self._act():
            self.start()
