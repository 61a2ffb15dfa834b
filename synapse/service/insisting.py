"""Doing what must not be left undone, again and again while the store fails: an agent outlives a full disk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final, TypeVar

from synapse.core.clock import Clock
from synapse.core.errors import StoreFailed

log = logging.getLogger(__name__)

T = TypeVar("T")

STORE_PAUSE: Final = 0.5
"""Seconds before a store that failed is asked again."""


class Insisting:
    """Retries for one agent, and knows whether its store fails now."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.trouble: StoreFailed | None = None
        """How the store failed last, until it works again."""
        self.since: datetime | None = None
        """Since when it fails."""

    async def insist(self, act: Callable[[], Awaitable[T]]) -> T:
        """Return what `act` does once the store lets it."""
        while True:
            try:
                done = await act()
            except StoreFailed as failure:
                self.since = self.since or self._clock.now()
                self.trouble = failure
                log.warning("store_failed", extra={"error": failure.code})
            else:
                self.trouble = self.since = None
                return done
            await asyncio.wait((asyncio.get_running_loop().create_future(),), timeout=STORE_PAUSE)
