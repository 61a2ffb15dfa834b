"""What a terminal shows at one moment: the value by which the state of an agent is judged.

`Screen` takes pictures. They live in a module of their own because importing the emulator costs a fifth of a second.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Picture:
    """The screen at one moment. Rows and columns count from zero; `lines` has one entry for each row."""

    lines: tuple[str, ...]
    cursor: tuple[int, int]
    """(row, column)"""
    columns: int
    rows: int
    line_begin: int | None = None
    """The first row of the cursor's line, which the terminal wrapped from there down to the cursor; None if unknown."""
    alternate: bool = False
    bracketed_paste: bool = False
    title: str = ""
    cursor_visible: bool = True
    updating: bool = False
    """The program is inside a synchronized update (DECSET 2026): half a frame may be on the screen."""
    firm_line: str | None = None
    """The cursor's line with faint text, such as placeholders and suggestions, replaced by spaces; None if unknown."""
    program_status: str = ""
    """The status that the program last reported by OSC 7501: `idle`, `working`, `blocked`, `done`, `error`, or ""."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaintedScreen:
    """The screen at one moment, as bytes that paint its rows with their colours; see `runs.runs_of`."""

    columns: int
    rows: int
    above: int
    """How many rows of scrollback are in `history`."""
    cursor: tuple[int, int] | None
    """(row, column) of the screen; None if it is hidden."""
    alternate: bool
    title: str
    history: bytes
    screen: bytes
    """The rows are separated by CR LF; blank ones at the end may be missing, here and in `history`."""
