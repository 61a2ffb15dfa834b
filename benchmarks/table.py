"""The rows as a table: for a terminal, and for docs/benchmarks.md."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence

from benchmarks.rows import TIMES, Row

BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
HEADINGS = ("what", "measured", "beside it", "ratio", "target", "reached")
_ANSWERS = {True: "yes", False: "no", None: ""}


def as_text(title: str, rows: Sequence[Row]) -> str:
    """One section for a terminal."""
    table = [HEADINGS, *map(_cells, rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return "\n".join(["", title, *lines])


def into_document(document: str, sections: Iterable[tuple[str, Sequence[Row]]], loads: Sequence[str]) -> str:
    """The document with the figures between its two marks replaced; the words around them stay."""
    before, _, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"the document must have the marks {BEGIN} and {END}")
    figures = [f"Measured on {_machine()}; load average before, between and after: {', '.join(loads)}."]
    for title, rows in sections:
        lines = [HEADINGS, ["---"] * len(HEADINGS), *map(_cells, rows)]
        figures.append("\n".join([f"### {title}", "", *map(_line, lines)]))
    return "\n\n".join([before + BEGIN, *figures, END + after])


def load_average() -> str:
    """Of the last minute."""
    return f"{os.getloadavg()[0]:.2f}"


def _cells(row: Row) -> tuple[str, ...]:
    ratio = "" if row.ratio is None else f"{row.ratio:.2f} {TIMES}"
    return row.what, row.measured, row.beside, ratio, row.target, _ANSWERS[row.reached]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _machine() -> str:
    cores = os.cpu_count()
    return f"{platform.system()} {platform.machine()}, {cores} cores, CPython {platform.python_version()}"
