"""The options of a question as a CLI's own signal tells them: people choose by number."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from synapse.core.question import Leaning, Option
from synapse.terminal.safe_text import safe_line

_MOST_OPTIONS: Final = 50


def numbered(options: Iterable[tuple[str, Leaning]]) -> tuple[Option, ...]:
    """The options with numbers from 1 as their keys, in the order in which the CLI shows them, safe to print."""
    return tuple(
        Option(key=str(number), label=safe_line(label), leaning=leaning)
        for number, (label, leaning) in enumerate(list(options)[:_MOST_OPTIONS], 1)
    )


def position(key: str, count: int) -> int | None:
    """The place of the option that has this key among `count`; None if none has."""
    return int(key) - 1 if key.isascii() and key.isdigit() and 1 <= int(key) <= count else None
