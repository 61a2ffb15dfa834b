"""Doing what must not be left undone, again and again while the store fails: an agent outlives a full disk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from synapse.core.errors import StoreFailed

log = logging.getLogger(__name__)

T = TypeVar("T")

STORE_PAUSE: Final = 0.5
"""Seconds before a store that failed is asked again."""


async def insist(act: Callable[[], Awaitable[T]]) -> T:
    """Return what `act` does once the store lets it."""
    while True:
        try:
            return await act()
        except StoreFailed as failure:
            log.warning("store_failed", extra={"error": failure.code})
        await asyncio.wait((asyncio.get_running_loop().create_future(),), timeout=STORE_PAUSE)
