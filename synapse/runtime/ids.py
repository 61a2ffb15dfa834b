"""Where ids come from."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Final

_AT_ONCE: Final = 256
_VARIANTS: Final = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}


def new_id() -> str:
    """Return an id that nothing else has: of a message, or whatever else. A UUID of version 4."""
    return next(_IDS)


def new_task_id() -> str:
    """Return the id of a new task: a UUID of version 8, which begins at random and ends with the time.

    People type its beginning. And what is kept in the order of its end is kept in the order in which it came.
    """
    noise = next(_IDS)
    return f"{noise[:14]}8{noise[15:24]}{_now()}"


def new_context_id() -> str:
    """Return the id of a new conversation: a UUID of version 7, which begins with the time.

    Nobody types one, so its beginning need not be its own; and what is kept in the order of its id is then kept in the
    order in which it came.
    """
    when = _now()
    return f"{when[:8]}-{when[8:]}-7{next(_IDS)[15:]}"


def _now() -> str:
    """Milliseconds since 1970."""
    return f"{time.time_ns() // 1_000_000:012x}"


def _mint() -> Iterator[str]:
    while True:
        # One call for many ids. Asking the system lets go of the interpreter, and while the store writes it takes
        # fifty times as long to get it back as the call takes.
        noise = os.urandom(16 * _AT_ONCE).hex()
        for start in range(0, len(noise), 32):
            digits = noise[start : start + 32]
            yield (f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{_VARIANTS[digits[16]]}{digits[17:20]}-{digits[20:]}")


_IDS: Final = _mint()
