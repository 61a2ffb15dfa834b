"""Puts rows of agents into lines of a given width, and names the keys. Pure, and without Textual: `--once` uses it.

    ? codex      asks     2m  run `rm -rf build`                   ~/project
    ◐ gemini     working  9m  "write the tests for parser"   +1    ~/other

A line is made of cells; each has a role, which decides its colour. Texts of agents and senders are revealed, so that
nothing in them can act on the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from synapse.client.lines import cut, width
from synapse.client.overview import MARKS, NEEDS_PERSON, WORDS, Row
from synapse.client.times import lasting
from synapse.core.reveal import reveal, revealed

NARROW: Final = 72
"""Below so many columns a line has no folder."""
_LONGEST_NAME: Final = 18
_SINCE_COLUMNS: Final = 4
_SHORTEST_WHY: Final = 10
_STATE_COLUMNS: Final = max(map(len, WORDS.values()))
_WORD: Final = re.compile(r"\S*\s*")
_ASCII_MARKS: Final = {
    "asks": "?",
    "in_doubt": "!",
    "failed": "x",
    "done": "*",
    "working": "~",
    "queued": ",",
    "starting": ":",
    "ready": "o",
    "away": "-",
}


class Cell(NamedTuple):
    """A piece of a line. Its `role` decides its style."""

    text: str
    role: str = ""


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters that a terminal can show: those of Unicode, or ASCII only."""

    marks: Mapping[str, str]
    rule: str
    dot: str
    enter: str
    ellipsis: str
    is_ascii: bool

    def shown(self, text: str) -> str:
        """Returns a text of others as this terminal can show it: odd characters become `<U+202E>`."""
        return self._drawable(revealed(text))

    def cells(self, text: str, role: str = "") -> list[Cell]:
        """Returns a line of others' text as `shown` does, with the role `odd` for the names of characters."""
        return [
            Cell(piece.text, "odd") if piece.is_mark else Cell(self._drawable(piece.text), role)
            for piece in reveal(text)
        ]

    def line(self, text: str) -> str:
        """Returns `shown` on one line; runs of whitespace become one space."""
        return self.shown(" ".join(text.split()))

    def fit(self, text: str, columns: int) -> str:
        """Returns `text` cut or filled to exactly so many columns."""
        short = cut(text, columns, self.ellipsis)
        return short + " " * (columns - width(short))

    def _drawable(self, text: str) -> str:
        if not self.is_ascii or text.isascii():
            return text
        return "".join(char if char.isascii() else f"<U+{ord(char):04X}>" for char in text)


UNICODE: Final = Glyphs(MARKS, rule="─", dot="·", enter="⏎", ellipsis="…", is_ascii=False)
ASCII: Final = Glyphs(_ASCII_MARKS, rule="-", dot="-", enter="Enter", ellipsis="~", is_ascii=True)


def glyphs_for(environ: Mapping[str, str]) -> Glyphs:
    """Returns the characters for the locale of `environ`."""
    # Python itself sets LC_CTYPE to C.UTF-8 where the locale is C, so that variable proves nothing beside such a LANG.
    language = environ.get("LC_ALL") or environ.get("LANG") or "C"
    if language not in ("C", "POSIX"):
        language = environ.get("LC_ALL") or environ.get("LC_CTYPE") or language
    return UNICODE if language.lower().replace("-", "").endswith("utf8") else ASCII


class Columns(NamedTuple):
    """The widths of those columns of a list that depend on its rows."""

    whole: int
    name: int
    folder: int


def columns_for(rows: Iterable[Row], whole: int) -> Columns:
    """Returns the columns of a list that is `whole` columns wide."""
    names, folders = [1], [0]
    for row in rows:
        names.append(width(row["name"]))
        folders.append(width(row["folder"]))
    name = min(max(names), _LONGEST_NAME, max(6, whole // 4))
    return Columns(whole, name, min(max(folders), whole // 5) if whole >= NARROW else 0)


def cells_of(row: Row, columns: Columns, now: datetime, glyphs: Glyphs) -> list[Cell]:
    """Returns the line of a row, exactly as wide as `columns` says."""
    state = row["state"]
    begin = [
        Cell(" "),
        Cell(glyphs.marks.get(state, "?"), "mark"),
        Cell(" "),
        Cell(glyphs.fit(glyphs.line(row["name"]), columns.name), "name"),
        Cell("  "),
        Cell(glyphs.fit(WORDS.get(state, state), _STATE_COLUMNS), "state"),
        Cell(" "),
        Cell(lasting(row["since"], now).rjust(_SINCE_COLUMNS), "since"),
        Cell("  "),
    ]
    count = counts_of(row, glyphs)
    why = row["why"].replace("→ ", "-> ", 1) if glyphs.is_ascii else row["why"]
    folder = f"  {glyphs.fit(glyphs.line(row['folder']), columns.folder)}" if columns.folder else ""
    room = columns.whole - sum(width(cell.text) for cell in begin) - 1
    end = [Cell(f" {count}" if count else "", "count"), Cell(folder, "folder")]
    while end and room - sum(width(cell.text) for cell in end) < _SHORTEST_WHY:
        end.pop()
    room -= sum(width(cell.text) for cell in end)
    cells = [*begin, Cell(glyphs.fit(glyphs.line(why), max(0, room)), "why"), *end, Cell(" ")]
    return _cropped(cells, columns.whole)


def counts_of(row: Row, glyphs: Glyphs) -> str:
    """Returns queued messages and unseen answers: `+1`, `●2`; one unseen answer is the row itself."""
    queued = f"+{row['queue']}" if row["queue"] else ""
    unread = f"{glyphs.marks['done']}{row['unread']}" if row["unread"] > 1 else ""
    return " ".join(part for part in (queued, unread) if part)


def summary(rows: Sequence[Row], glyphs: Glyphs) -> str:
    """Returns `8 agents · 2 need you`."""
    asking = sum(row["state"] in NEEDS_PERSON for row in rows)
    agents = "1 agent" if len(rows) == 1 else f"{len(rows)} agents"
    needing = "1 needs you" if asking == 1 else f"{asking} need you" if asking else "nobody needs you"
    return f"{agents} {glyphs.dot} {needing}"


def matches(row: Row, wanted: str) -> bool:
    """Decides whether each word of the filter is in the row: in its name, type, state, folder or text."""
    searched = " ".join(
        (row["name"], row["agent_type"], WORDS.get(row["state"], ""), row["folder"], row["why"])
    ).lower()
    return all(word in searched for word in wanted.lower().split())


def folded(cells: Sequence[Cell], columns: int, indent: str) -> list[list[Cell]]:
    """Wraps a line: every character stays, each line begins with `indent`, and names of characters are not split."""
    lines, room = [[Cell(indent)]], columns - len(indent)
    for cell in cells:
        # A long word of a command is cut anywhere: there is no better place.
        for piece in [cell.text] if cell.role == "odd" else _WORD.findall(cell.text):
            rest = piece
            while rest:
                if width(rest.rstrip()) <= room:
                    lines[-1].append(Cell(rest, cell.role))
                    room -= width(rest)
                    break
                if room < columns - len(indent) and width(piece) <= columns - len(indent):
                    part = ""
                else:
                    part = cut(rest, max(room, 1), "")
                    lines[-1].append(Cell(part, cell.role))
                rest = rest[len(part) :]
                lines.append([Cell(indent)])
                room = columns - len(indent)
    return lines


def _cropped(cells: list[Cell], columns: int) -> list[Cell]:
    """Cuts a line that is too long for a very narrow terminal."""
    kept: list[Cell] = []
    for cell in cells:
        left = columns - sum(width(one.text) for one in kept)
        if left <= 0:
            break
        kept.append(cell if width(cell.text) <= left else Cell(cut(cell.text, left, ""), cell.role))
    return kept
