"""The words of a question as a CLI's own signal tells it, made safe to print, whatever the model has put into them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from synapse.core.envelope import sanitise
from synapse.core.question import Leaning, Option
from synapse.terminal.signals.report import shortened

_LONGEST_DETAIL: Final = 4000
_MOST_OPTIONS: Final = 50


def safe_line(text: str) -> str:
    """One line that can be printed anywhere."""
    return shortened(sanitise(text))


def safe_text(text: str) -> str:
    """Lines that can be printed anywhere."""
    text = sanitise(text).strip("\n")
    return text if len(text) <= _LONGEST_DETAIL else f"{text[: _LONGEST_DETAIL - 1]}…"


def numbered(options: Iterable[tuple[str, Leaning]]) -> tuple[Option, ...]:
    """The options with numbers from 1 as their keys, in the order in which the CLI shows them."""
    return tuple(
        Option(key=str(number), label=safe_line(label), leaning=leaning)
        for number, (label, leaning) in enumerate(list(options)[:_MOST_OPTIONS], 1)
    )


def position(key: str, count: int) -> int | None:
    """The place of the option that has this key among `count`; None if none has."""
    return int(key) - 1 if key.isascii() and key.isdigit() and 1 <= int(key) <= count else None
