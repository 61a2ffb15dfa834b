"""Formats results for a terminal: aligned columns, colours, and text that cannot act on the terminal."""

import os
import sys

from synapse.client.lines import cut, cut_path, plain, width

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

COLOURS = {"starting": "36", "ready": "32", "working": "33", "waiting": "31;1", "exited": "2"}
NARROWEST = 40
ELASTIC_LEAST = 20
"""Below this, the other columns are shortened before the elastic one."""
COLUMN_LEAST = 8
SHORT = 12
"""Ids, states and times: a column that is no wider is shortened last."""
PATH_TITLES = ("FOLDER", "PATH")


def table(titles: "Sequence[str]", rows: "Sequence[Sequence[str]]", *, elastic: int, whole: "int | None" = None) -> str:
    """Formats rows as aligned columns, each line within the terminal.

    Where there is too little room, the column `elastic` is shortened first, then the widest ones, but never the column
    `whole`. Of a path the end is kept.
    """
    cells = [[plain(cell) for cell in row] for row in rows]
    widths = _widths(titles, cells)
    _fit(widths, line_width() - _gaps(widths), [len(title) for title in titles], elastic, whole)
    paths = [title in PATH_TITLES for title in titles]
    return "\n".join((_line(titles, widths, [False] * len(titles)), *(_line(row, widths, paths) for row in cells)))


def table_with_notes(
    titles: "Sequence[str]", rows: "Sequence[Sequence[str]]", *, elastic: int, whole: "int | None" = None
) -> str:
    """Formats rows as `table` does; the last column, of notes, is never shortened.

    Where there is too little room for that column, the notes stand below their rows.
    """
    widths = _widths(titles, [[plain(cell) for cell in row] for row in rows])
    if sum(widths) + _gaps(widths) <= line_width():
        return table(titles, rows, elastic=elastic, whole=whole)
    head, *lines = table(titles[:-1], [row[:-1] for row in rows], elastic=elastic, whole=whole).split("\n")
    shown = [head]
    for line, row in zip(lines, rows, strict=True):
        shown += [line, *(f"  {piece}" for piece in wrapped(plain(row[-1]), line_width() - 2))]
    return "\n".join(shown)


def wrapped(text: str, columns: int) -> "list[str]":
    """Returns the lines of a text; `textwrap` counts characters and not columns."""
    lines = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}".lstrip()
        if width(joined) <= columns:
            lines[-1] = joined
            continue
        lines.append("")
        for char in word:
            if width(lines[-1] + char) > columns:
                lines.append("")
            lines[-1] += char
    return [line for line in lines if line]


def _widths(titles: "Sequence[str]", cells: "Sequence[Sequence[str]]") -> "list[int]":
    return [max(map(width, column)) for column in zip(titles, *cells, strict=True)]


def _gaps(widths: "Sequence[int]") -> int:
    return 2 * (len(widths) - 1)


def _fit(widths: "list[int]", room: int, titles: "Sequence[int]", elastic: int, whole: "int | None") -> None:
    """Shortens columns until all of them fit into `room`."""
    every = [column for column in range(len(widths)) if column != whole]
    stages = (
        ((elastic,), [max(title, ELASTIC_LEAST) for title in titles]),
        (every, [one if one <= SHORT else max(title, COLUMN_LEAST) for one, title in zip(widths, titles, strict=True)]),
        (every, [1 for _ in titles]),
    )
    for columns, least in stages:
        while (excess := sum(widths) - room) > 0:
            wide = [column for column in columns if widths[column] > least[column]]
            if not wide:
                break
            most = max(widths[column] for column in wide)
            equals = [column for column in wide if widths[column] == most]
            lower = max((widths[column] for column in wide if widths[column] < most), default=0)
            one = equals[-1]
            widths[one] -= max(1, min(excess // len(equals), most - max(lower, least[one])))


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


def _line(cells: "Sequence[str]", widths: "Sequence[int]", paths: "Sequence[bool]") -> str:
    fitted = [
        cut_path(cell, columns) if is_path else cut(cell, columns)
        for cell, columns, is_path in zip(cells, widths, paths, strict=True)
    ]
    padded = [cell + " " * (columns - width(cell)) for cell, columns in zip(fitted, widths, strict=True)]
    return "  ".join(painted(cell, cell.strip()) for cell in padded).rstrip()
