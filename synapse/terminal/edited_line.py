"""A line of input as a line editor keeps it: what each key makes of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from synapse.terminal.keys import Key, Kind

_BREAKS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class EditedLine:
    """The text on both sides of the cursor."""

    before: str = ""
    after: str = ""

    @property
    def text(self) -> str:
        return self.before + self.after

    def edited(self, key: Key) -> EditedLine | None:
        """Return the line after `key`, or None when line editors differ about that key."""
        if key.kind in (Kind.TEXT, Kind.PASTED):
            # A line break in a paste begins a second line, or submits the first.
            return EditedLine(self.before + key.text, self.after) if not _BREAKS.search(key.text) else None
        edit = _BY_LETTER.get(key.text) if key.kind is Kind.CONTROL else _BY_KIND.get(key.kind)
        return edit(self) if edit else None


def _unchanged(line: EditedLine) -> EditedLine:
    return line


def _left(line: EditedLine) -> EditedLine:
    return EditedLine(line.before[:-1], line.before[-1:] + line.after)


def _right(line: EditedLine) -> EditedLine:
    return EditedLine(line.before + line.after[:1], line.after[1:])


def _home(line: EditedLine) -> EditedLine:
    return EditedLine("", line.text)


def _end(line: EditedLine) -> EditedLine:
    return EditedLine(line.text, "")


def _erase(line: EditedLine) -> EditedLine:
    return EditedLine(line.before[:-1], line.after)


def _delete(line: EditedLine) -> EditedLine:
    return EditedLine(line.before, line.after[1:])


def _erase_word(line: EditedLine) -> EditedLine:
    return EditedLine(re.sub(r"\S*\s*$", "", line.before), line.after)


def _erase_to_start(line: EditedLine) -> EditedLine:
    return EditedLine("", line.after)


def _erase_to_end(line: EditedLine) -> EditedLine:
    return EditedLine(line.before, "")


_Edit = Callable[[EditedLine], EditedLine]
_BY_KIND: Final[Mapping[Kind, _Edit]] = {
    Kind.NEUTRAL: _unchanged,
    Kind.REPORT: _unchanged,
    Kind.LEFT: _left,
    Kind.RIGHT: _right,
    Kind.HOME: _home,
    Kind.END: _end,
    Kind.BACKSPACE: _erase,
    Kind.DELETE: _delete,
}
_BY_LETTER: Final[Mapping[str, _Edit]] = {
    "a": _home,
    "b": _left,
    "d": _delete,
    "e": _end,
    "f": _right,
    "h": _erase,
    "k": _erase_to_end,
    "l": _unchanged,  # it paints the screen anew
    "u": _erase_to_start,
    "w": _erase_word,
}
