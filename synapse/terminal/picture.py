"""What is on a screen at one moment: the value that all judgement is made of."""

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
    """The cursor's line with spaces for what is painted faint, as placeholders and suggestions are; None if unknown."""
    program_status: str = ""
    """What the program last said of itself by OSC 7501: `idle`, `working`, `blocked`, `done`, `error`, or nothing."""
