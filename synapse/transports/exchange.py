"""One request and how it ended, for whoever counts: no text of it, no query, no header."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

NO_DIALECT: Final = "none"
"""Of what was refused before it was known what it speaks."""
CALLER_LEFT: Final = "caller_left"


class Exchange(NamedTuple):
    """How one request went."""

    method: str
    path: str
    dialect: str
    seconds: float
    error: str = ""
    """The code of the error that it was answered with, or empty."""
    is_stream: bool = False


Observe = Callable[[Exchange], None]
"""Is told of each request when it has been answered."""
