"""Turns the emulator's painted rows into runs of text with one style each, for those who draw a screen themselves.

    ok ␛[0m␛[1m␛[38;5;2mdone␛[0m   ─►   Run("ok "), Run("done", {"b": 1, "fg": 2})

A run is data, never markup: a page makes elements of it. The emulator paints the rows itself, so they have none of the
program's own sequences. Each style begins with a reset, then has one sequence for each attribute.
"""

from __future__ import annotations

import re
from typing import Final

from synapse.core.overview import Run, RunStyle, StyledScreen
from synapse.terminal.picture import PaintedScreen

_PIECE: Final = re.compile(r"\x1b\[([\d;:]*)m|\x1b\]8;.*?(?:\x1b\\|\x07)|([^\x1b]+)", re.DOTALL)
_RESET: Final = "0"
_HIDDEN: Final = "8"
_ATTRIBUTES: Final = {"1": "b", "2": "d", "3": "i", "4": "u", "7": "r", "9": "s"}
_GROUNDS: Final = {"38": "fg", "48": "bg"}
_PALETTE: Final = "5"


def runs_of(painted: str) -> tuple[Run, ...]:
    """Returns the runs of one painted row, without the blank cells at its end. Hidden text becomes blank."""
    runs: list[Run] = []
    style: RunStyle = {}
    is_hidden = False
    for sgr, text in _PIECE.findall(painted):
        if sgr:
            is_hidden = sgr == _HIDDEN or (is_hidden and sgr != _RESET)
            style = {} if sgr == _RESET else {**style, **_attribute(sgr)}
        elif text:
            runs.append(Run(" " * len(text) if is_hidden else text, style))
    if runs and not runs[-1].style:
        last = runs.pop().text.rstrip()
        runs += [Run(last)] if last else []
    return tuple(runs)


def styled(painted: PaintedScreen, version: str) -> StyledScreen:
    """Returns the painted screen as runs."""
    above = _lines(painted.history, painted.above)
    cursor = None if painted.cursor is None else (len(above) + painted.cursor[0], painted.cursor[1])
    return StyledScreen(
        version=version,
        columns=painted.columns,
        rows=painted.rows,
        cursor=cursor,
        alternate=painted.alternate,
        title=painted.title,
        lines=(*above, *_lines(painted.screen, painted.rows)),
    )


def _lines(painted: bytes, count: int) -> list[tuple[Run, ...]]:
    lines = [runs_of(line) for line in painted.decode(errors="replace").split("\r\n")[:count]]
    return lines + [()] * (count - len(lines))


def _attribute(sgr: str) -> RunStyle:
    """Returns what one sequence sets; nothing for attributes that are not shown, such as blinking."""
    code, *values = sgr.split(";")
    if code in _GROUNDS:
        colour = int(values[1]) if values[0] == _PALETTE else "#{:02x}{:02x}{:02x}".format(*map(int, values[1:4]))
        return {_GROUNDS[code]: colour}
    # Underlines of several kinds are `4:1` to `4:5`.
    name = _ATTRIBUTES.get(code.partition(":")[0])
    return {name: 1} if name else {}
