"""The text of an answer while it grows on a screen: what two looks in a row show alike. Pure.

What still moves (a spinner, a clock, the line that is being written) is not told; what has come to rest is.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Final

_MOST_REWRITES: Final = 20
"""A program that repaints what it had shown again and again has no text that grows."""


class Growth:
    """Follows one answer, look by look."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._told = ""
        self._rewrites = 0

    def receive(self, shown: str) -> str:
        """Take what is shown now; return the text as far as it rests, or nothing when that is not news."""
        before, self._lines = self._lines, shown.split("\n")
        alike = takewhile(lambda pair: pair[0] == pair[1], zip(before, self._lines, strict=False))
        text = "\n".join(line for line, _ in alike).rstrip()
        if not any(char.isalnum() for char in text) or self._told.startswith(text):
            return ""  # a bullet alone is not a word yet
        if not text.startswith(self._told):
            self._rewrites += 1
            if self._rewrites > _MOST_REWRITES:
                return ""
        self._told = text
        return text
