"""Waiting for what happens in another process or thread, where no event tells of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

BOUND = 30.0
TICK = 0.01

Found = TypeVar("Found")


def until(
    condition: Callable[[], Found | None], what: str, seen: Callable[[], object] = lambda: "", bound: float = BOUND
) -> Found:
    """Return the first result of `condition` that is true. Fails after `bound` seconds and shows `seen()`."""
    end = time.monotonic() + bound
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {bound:.0f} s for {what}; there is {seen()!r}"
        time.sleep(TICK)
    return found
