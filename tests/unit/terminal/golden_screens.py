"""Screens of real CLIs, captured once and kept as text: `tests/golden/<cli>/<name>.txt`."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from synapse.terminal.picture import Picture
from tests.unit.terminal.bundled import bundled_names

FOLDER = Path(__file__).resolve().parents[2] / "golden"
_FIELD = re.compile(r"# (\w+): ?(.*)")

# The text files cannot say what is painted faint; these prompts show a suggestion after the cursor.
FIRM_LINES = {"claude/ready_suggestion": "\u276f r"}


def names() -> list[str]:
    """Returns every golden screen as `cli/name`; other golden files stand beside the CLIs' folders."""
    return sorted(f"{cli}/{path.stem}" for cli in bundled_names() for path in (FOLDER / cli).glob("*.txt"))


def picture(name: str) -> Picture:
    """Returns the screen as a picture."""
    lines = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").split("\n")
    fields: dict[str, str] = {}
    while (field := _FIELD.fullmatch(lines[0])) is not None:
        fields[field[1]] = field[2]
        lines.pop(0)
    columns, rows = (int(number) for number in fields["size"].split("x"))
    row, column = (int(number) for number in fields["cursor"].split(","))
    seen = Picture(
        lines=tuple(line.rstrip() for line in lines[:rows]),
        cursor=(row, column),
        columns=columns,
        rows=rows,
        alternate=fields["alternate"] == "yes",
        bracketed_paste=fields["bracketed_paste"] == "yes",
        title=fields["title"],
        cursor_visible=fields["cursor_visible"] == "yes",
    )
    return replace(seen, firm_line=FIRM_LINES[name]) if name in FIRM_LINES else seen
