"""Waiting for what happens on another machine, while links and servers may be starting again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from synapse.client.http import NoAnswer
from tests.integration import waiting

Found = TypeVar("Found")
NOT_YET = (NoAnswer, AssertionError, LookupError, OSError)
"""What a look may raise until the link, the server or the stream is there: no answer, an error, a missing field."""
RELAYED = 90.0
"""Only for what hangs. On a busy machine a kept message may have to be repeated, each time after a longer pause."""


def until(
    condition: Callable[[], Found | None],
    what: str,
    seen: Callable[[], object] = lambda: "",
    bound: float = waiting.BOUND,
) -> Found:
    """Return the first result of `condition` that is true. Fails after `bound` seconds, also if it still raises."""
    raised: list[BaseException] = []

    def look() -> Found | None:
        try:
            found = condition()
        except NOT_YET as error:
            raised[:] = [error]
            return None
        raised.clear()
        return found

    return waiting.until(look, what, lambda: raised or seen(), bound)
