"""Reads a picture by a profile's rules: the prompt and its text, an open dialog, a mark that the program works."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from synapse.terminal.picture import Picture
from synapse.terminal.profile import DialogRule, Pattern, Profile, PromptRule, Region, ScreenRule, WorkingRule


@dataclass(frozen=True, slots=True)
class Prompt:
    """The input on the screen: its first and last row, and the text in it. A placeholder is no text."""

    text: str
    first_row: int
    last_row: int

    @property
    def is_empty(self) -> bool:
        return not self.text


def read_prompt(picture: Picture, profile: Profile) -> Prompt | None:
    """Returns the input, or None if the screen does not show it."""
    rule = profile.prompt
    if rule is None:
        return None
    if rule.at_cursor:
        return _prompt_at_cursor(picture, rule, profile)
    if rule.further is not None:
        return _prompt_around_cursor(picture, rule, rule.further, rows_of(picture.lines, profile, rule.region))
    return _prompt_in_region(picture, rule, rows_of(picture.lines, profile, rule.region))


def find_dialog(picture: Picture, profile: Profile) -> DialogRule | None:
    """Returns the rule of the open dialog; the profile's first rule that holds wins."""
    held = (dialog for dialog in profile.dialogs if _holds(dialog.rule, picture, profile))
    return next((dialog for dialog in held if not (dialog.hides_prompt and read_prompt(picture, profile))), None)


def find_working(picture: Picture, profile: Profile) -> WorkingRule | None:
    """Returns the rule whose mark shows that the program works."""
    return next((working for working in profile.working if _holds(working.rule, picture, profile)), None)


def cursor_line(picture: Picture, profile: Profile) -> tuple[int, str]:
    """Returns the first row of the line that the cursor stands on, and that line, joined where the terminal wrapped it.

    Some line editors switch the terminal's wrapping off and break the line themselves. Then only full rows show that
    the line goes on. So full rows are joined as well, but only if the prompt is found that way and in no other: the
    answer above a prompt may fill its last row too.
    """
    row = picture.cursor[0]
    begin = row if picture.line_begin is None else picture.line_begin
    wrapped = line = _joined(picture, begin)
    rule = profile.prompt
    if rule is None or not rule.at_cursor or rule.pattern.search(line):
        return begin, line
    full = begin
    while full > 0 and line and cells(picture.lines[full - 1]) >= picture.columns - 1:
        full -= 1
        line = picture.lines[full] + line
    return (full, line) if rule.pattern.search(line) else (begin, wrapped)


def rows_of(lines: Sequence[str], profile: Profile, name: str) -> range:
    """Returns the rows of a named region."""
    region = profile.regions.get(name)
    return range(len(lines)) if region is None else _narrowed(range(len(lines)), lines, region)


def cells(text: str) -> int:
    """Returns how many columns a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(_cells_of(char) for char in text)


def compact(text: str) -> str:
    """Returns the text without blanks: programs wrap and indent what they show, so texts are compared without them."""
    return "".join(text.split())


def _joined(picture: Picture, begin: int) -> str:
    """Joins the rows from `begin` to the cursor's, with the trailing blanks that a picture's rows have lost."""
    row, column = picture.cursor
    line = picture.lines[row] + " " * (column - cells(picture.lines[row]))
    for above in reversed(picture.lines[begin:row]):
        # A wide character that did not fit leaves the last column empty.
        width = picture.columns - 1 if _cells_of(line[:1] or " ") > 1 else picture.columns
        line = above + " " * (width - cells(above)) + line
    return line


def _cells_of(char: str) -> int:
    if unicodedata.east_asian_width(char) in "WF":
        return 2
    return 0 if unicodedata.category(char) in ("Mn", "Me", "Cf") else 1


def _prompt_at_cursor(picture: Picture, rule: PromptRule, profile: Profile) -> Prompt | None:
    row, line = cursor_line(picture, profile)
    match = rule.pattern.search(line)
    if match is None:
        return None
    return Prompt(_typed_text(picture, rule, row, match.start("text"), match["text"] or ""), row, picture.cursor[0])


def _prompt_in_region(picture: Picture, rule: PromptRule, rows: range) -> Prompt | None:
    for row in rows:
        match = rule.pattern.search(picture.lines[row])
        if match is not None:
            break
    else:
        return None
    last = _last_input_row(picture, rule, range(row, rows.stop))
    if rule.holds_cursor and not row <= picture.cursor[0] <= last:
        return None
    return _prompt_of_rows(picture, rule, match, range(row, last + 1))


def _last_input_row(picture: Picture, rule: PromptRule, rows: range) -> int:
    if rule.until is None:
        return rows.stop - 1
    # The cursor's row is input, whatever the rows above it look like: a message may hold empty lines.
    first = picture.cursor[0] if picture.cursor[0] in rows else rows.start
    below = (row for row in range(first + 1, rows.stop) if rule.until.search(picture.lines[row]))
    return next(below, rows.stop) - 1


def _prompt_around_cursor(picture: Picture, rule: PromptRule, further: Pattern, rows: range) -> Prompt | None:
    """Finds the input by the cursor alone: old frames and footers may stand above and below it."""
    lines, cursor = picture.lines, picture.cursor[0]
    if cursor not in rows:
        return None
    for first in range(cursor, rows.start - 1, -1):
        match = rule.pattern.search(lines[first])
        if match is not None:
            return _prompt_of_rows(picture, rule, match, range(first, _end_of_input(lines, further, cursor, rows)))
        if lines[first] and not further.search(lines[first]):
            return None
    return None


def _end_of_input(lines: Sequence[str], further: Pattern, cursor: int, rows: range) -> int:
    """Returns the row below the input; blank rows at its end are not part of it."""
    end = cursor + 1
    for row in range(cursor + 1, rows.stop):
        if lines[row] and not further.search(lines[row]):
            break
        end = row + 1 if lines[row] else end
    return end


def _prompt_of_rows(picture: Picture, rule: PromptRule, match: re.Match[str], rows: range) -> Prompt:
    below = [picture.lines[row] for row in rows[1:]]
    if rule.margin is not None:
        below = [rule.margin.sub("", line, count=1) for line in below]
    text = "\n".join([match["text"] or "", *(line.strip() for line in below)])
    typed = _typed_text(picture, rule, rows.start, match.start("text"), text)
    return Prompt(typed, rows.start, rows.stop - 1)


def _typed_text(picture: Picture, rule: PromptRule, row: int, start: int, text: str) -> str:
    """Returns the typed text: empty for a placeholder or a suggestion, which stand behind the cursor."""
    text = text.strip()
    line = picture.lines[row]
    start = max(start, 0)
    first = start + len(line[start:]) - len(line[start:].lstrip())
    if picture.cursor[0] == row and picture.cursor[1] > cells(line[:first]):
        return text
    is_placeholder = any(placeholder.fullmatch(text) for placeholder in rule.placeholders)
    return "" if is_placeholder or _is_faint(picture, row, first) else text


def _is_faint(picture: Picture, row: int, first: int) -> bool:
    """Returns whether the text that begins at `first` is painted faint.

    The first letter does not count: programs that draw their own cursor paint it there, in reverse and not faint.
    """
    line, firm = picture.lines[row], picture.firm_line
    if firm is None or row != picture.cursor[0]:
        return False
    return bool(line[first + 1 :].strip()) and not firm[first + 1 :].strip()


def _holds(rule: ScreenRule, picture: Picture, profile: Profile) -> bool:
    rows = rows_of(picture.lines, profile, rule.region)
    lines = picture.lines[rows.start : rows.stop]
    return (
        all(_found(pattern, lines) for pattern in rule.every)
        and (not rule.some or any(_found(pattern, lines) for pattern in rule.some))
        and not any(_found(pattern, lines) for pattern in rule.never)
    )


def _found(pattern: Pattern, lines: Sequence[str]) -> bool:
    return any(pattern.search(line) for line in lines)


def _narrowed(rows: range, lines: Sequence[str], region: Region) -> range:
    if region.above is not None:
        frames = _matching(region.above, rows, lines)
        rows = range(rows.start, frames[-1]) if frames else range(0)
    if region.below is not None:
        frames = _matching(region.below, rows, lines)
        rows = range(frames[-1] + 1, rows.stop) if frames else range(0)
    if region.begin is not None:
        frames = _matching(region.begin, rows, lines)
        rows = range(frames[-1], rows.stop) if frames else range(0)
    if region.between is not None:
        frames = _matching(region.between, rows, lines)
        rows = range(frames[-2] + 1, frames[-1]) if len(frames) > 1 else range(0)
    if region.last:
        filled = [row for row in rows if lines[row]]
        rows = range(filled[-region.last :][0], rows.stop) if filled else range(0)
    return rows


def _matching(pattern: Pattern, rows: range, lines: Sequence[str]) -> list[int]:
    return [row for row in rows if pattern.search(lines[row])]
