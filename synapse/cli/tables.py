"""Formats results for a terminal: aligned columns, colours, and text that cannot act on the terminal."""

import os
import sys
from unicodedata import category, east_asian_width

from synapse.client.lines import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

COLOURS = {"starting": "36", "ready": "32", "working": "33", "waiting": "31;1", "exited": "2"}
NARROWEST = 40


def table(titles: "Sequence[str]", rows: "Sequence[Sequence[str]]", *, elastic: int) -> str:
    """Formats rows as aligned columns; shortens the column `elastic` so that a line fits the terminal."""
    cells = [[plain(cell) for cell in row] for row in rows]
    widths = [max(map(width, column)) for column in zip(titles, *cells, strict=True)]
    room = line_width() - sum(widths) - 2 * (len(widths) - 1) + widths[elastic]
    widths[elastic] = max(len(titles[elastic]), min(widths[elastic], room))
    return "\n".join(_line(row, widths) for row in ([*titles], *cells))


def painted(text: str, state: str) -> str:
    """Returns `text` in the colour of an agent state, if colours are in use."""
    if not in_colour() or state not in COLOURS:
        return text
    return f"\x1b[{COLOURS[state]}m{text}\x1b[0m"


def split_colours(text: str) -> "list[tuple[str, bool]]":
    """Splits `text` into pieces, each with whether it is one of our own colour codes."""
    import re

    codes = "|".join(re.escape(code) for code in ("0", *COLOURS.values()))
    pieces = re.split(rf"(\x1b\[(?:{codes})m)", text)
    return [(piece, number % 2 == 1) for number, piece in enumerate(pieces)]


def in_colour() -> bool:
    """Returns whether to print colours: on a terminal, unless NO_COLOR is set."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and sys.stdout.isatty()


def line_width() -> int:
    """Returns the columns of the terminal; practically unlimited when stdout is not a terminal."""
    try:
        return max(NARROWEST, os.get_terminal_size(sys.stdout.fileno()).columns)
    except (OSError, ValueError):
        return 10_000


def safe(text: str) -> str:
    """Returns an agent's text unchanged, or sanitised when stdout is a terminal."""
    if not sys.stdout.isatty():
        return text
    from synapse.core.text import sanitise

    return sanitise(text)


def cut(text: str, columns: int) -> str:
    """Shortens `text` to so many columns, with an ellipsis."""
    if width(text) <= columns:
        return text
    kept = ""
    for char in text:
        if width(kept + char) > columns - 1:
            break
        kept += char
    return kept + "…"


def width(text: str) -> int:
    """Returns how many columns `text` takes in a terminal."""
    return sum(0 if category(char) in ("Mn", "Me") else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def _line(cells: "Sequence[str]", widths: "Sequence[int]") -> str:
    fitted = [cut(cell, columns) for cell, columns in zip(cells, widths, strict=True)]
    padded = [cell + " " * (columns - width(cell)) for cell, columns in zip(fitted, widths, strict=True)]
    return "  ".join(painted(cell, cell.strip()) for cell in padded).rstrip()
