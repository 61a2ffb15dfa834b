"""Reads an open dialog: its question, its options, and which keys choose one. Pure; never fails on any screen."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from synapse.core.question import Option, OptionEffect, QuestionKind
from synapse.core.text import safe_line, safe_lines
from synapse.terminal.picture import Picture
from synapse.terminal.profile import SCREEN_REGION, Choosing, DialogRule, Profile
from synapse.terminal.reading import cells, compact, find_dialog, rows_of

_NUMBERED: Final = re.compile(r"^\s*(?P<mark>[\u276f\u203a●>])?\s*(?P<key>\d{1,2})\.\s+(?P<label>\S.*)$")
_FRAME_LEFT: Final = re.compile(r"^[\s│┃]+")
_FRAME_RIGHT: Final = re.compile(r"[\s│┃]+$")
_RULE: Final = re.compile(r"^[\s─━═╌╍┄┅▀▄█╭╮╰╯├┤┌┐└┘╹╻]+$")
_COLUMN_GAP: Final = re.compile(r"\s{2,}")
_CHECKBOX: Final = re.compile(r"^(?:\[.?\]|[☐☑☒◯◉])\s*")
_FRAME_CELLS: Final = 6
"""How many columns of a row a frame and its padding take."""

_DENY: Final = re.compile(r"^(?:no?\b|deny|reject|decline|don.t\b|quit|cancel|exit|continue without)", re.IGNORECASE)
_ALLOW: Final = re.compile(
    r"^(?:y(?:es)?\b|(?:always )?allow|approve|accept|proceed|trust|ok\b|use this\b)", re.IGNORECASE
)
_ALWAYS: Final = re.compile(
    r"\b(?:always|auto|all|parent|remember|session|switch)\b|don.t ask|auto-|for these files", re.IGNORECASE
)

_NAMED_KEYS: Final = {"enter": b"\r", "esc": b"\x1b", "shift+tab": b"\x1b[Z"}
_UP: Final = b"\x1b[A"
_DOWN: Final = b"\x1b[B"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialog:
    """A dialog on the screen. All texts are safe to print."""

    name: str
    kind: QuestionKind
    hint: str
    title: str
    detail: str
    options: tuple[Option, ...]
    choose: Choosing
    marked: int | None = None
    """The index of the highlighted option, if the screen shows it."""
    text_option: int | None = None
    """The index of the option that takes free text."""
    digest: str = ""
    """Identifies the question; it does not depend on the highlight, the typed text or the terminal's width."""

    def moves_to(self, index: int) -> bytes:
        """Returns the arrow keys that move the highlight to another option."""
        distance = index - (self.marked or 0)
        return _DOWN * distance if distance > 0 else _UP * -distance

    def named_key(self, index: int) -> bytes:
        """Returns the key that an option names (`Choosing.KEY`)."""
        return _NAMED_KEYS[self.options[index].key.lower()]


@dataclass(frozen=True, slots=True)
class _Found:
    """An option on its row, with the rows below that continue or explain it."""

    row: int
    match: re.Match[str]
    below: tuple[int, ...] = ()


def read_dialog(picture: Picture, profile: Profile) -> Dialog | None:
    """Returns the open dialog; None if none is open, or only a menu, which asks nothing."""
    rule = find_dialog(picture, profile)
    if rule is None or rule.kind is None:
        return None
    # Without the frame around them; the text stays in its column.
    rows = [_FRAME_RIGHT.sub("", _FRAME_LEFT.sub(lambda left: " " * len(left[0]), line)) for line in picture.lines]
    found = _find_options(rows, rule)
    if not found and rule.title is None:
        return _unread(rule, [rows[row] for row in rows_of(picture.lines, profile, rule.rule.region)])
    end = _end(rows, rule, found)
    begins = (row for row in range(end - 1, -1, -1) if rule.begin and rule.begin.search(picture.lines[row]))
    begin = next(begins, 0)
    asking = _title_rows(rows, rule, range(begin, end), picture.columns)
    title = _title(rows, rule, asking)
    # If the title is only a part of its row, the detail shows the whole row.
    title_rows = asking if len(asking) > 1 or (asking and title == safe_line(rows[asking[0]])) else range(0)
    body = [rows[row] for row in range(begin, end) if row not in title_rows and _is_content(rows[row], rule)]
    indent = min((len(row) - len(row.lstrip()) for row in body), default=0)
    detail = safe_lines("\n".join(row[indent:] for row in body))
    options, notes = _read_options(rows, found, rule, picture.columns)
    has_checkboxes = any(_CHECKBOX.match(option.label) for option in options)
    return Dialog(
        name=rule.name,
        kind=rule.kind,
        hint=rule.hint,
        title=title,
        detail=safe_lines("\n".join(filter(None, (detail, *notes)))),
        options=options,
        choose=Choosing.NONE if has_checkboxes else rule.choose,
        marked=next((index for index, option in enumerate(found) if _group(option.match, "mark").strip()), None),
        text_option=next(
            (index for index, option in enumerate(options) if rule.text and rule.text.search(option.label)), None
        ),
        digest=_digest(rule.name, title, detail, str(len(options))),
    )


def effect_of(label: str) -> OptionEffect:
    """Returns what choosing an option with that label does."""
    if _DENY.match(label):
        return OptionEffect.DENY
    if not _ALLOW.match(label):
        return OptionEffect.OTHER
    return OptionEffect.ALLOW_ALWAYS if _ALWAYS.search(label) else OptionEffect.ALLOW


def _unread(rule: DialogRule, region: list[str]) -> Dialog:
    """Returns a dialog that the profile only recognises: the rows of its region are its detail."""
    detail = "\n".join(row for row in region if _is_content(row, rule)) if rule.rule.region != SCREEN_REGION else ""
    return Dialog(
        name=rule.name,
        kind=rule.kind or QuestionKind.PERMISSION,
        hint=rule.hint,
        title=safe_line(f"a dialog is open: {rule.name}"),
        detail=safe_lines(detail),
        options=(),
        choose=Choosing.NONE,
        digest=_digest(rule.name, detail),
    )


def _end(rows: Sequence[str], rule: DialogRule, found: list[_Found]) -> int:
    """Returns the row where the options begin; the question may stand on that row too."""
    if not found:
        return next((row + 1 for row in range(len(rows) - 1, -1, -1) if rows[row]), 0)
    is_one_row = len(found) > 1 and found[0].row == found[1].row
    is_beside = is_one_row and rule.title is not None and rule.title.search(rows[found[0].row])
    return found[0].row + 1 if is_beside else found[0].row


def _find_options(rows: Sequence[str], rule: DialogRule) -> list[_Found]:
    """Returns the options of the dialog, which is the last thing on the screen."""
    if rule.choose is Choosing.NONE and rule.option is None:
        return []
    pattern = rule.option or _NUMBERED
    matches = [_Found(row, match) for row, line in enumerate(rows) for match in pattern.finditer(line)]
    if rule.choose is Choosing.KEY:
        return _keys_named_last(matches)
    if not matches:
        return []
    row = matches[-1].row
    beside = [found for found in matches if found.row == row]
    if len(beside) > 1:
        return beside
    block = _numbered(matches) if _group(matches[-1].match, "key").isdigit() else _block(matches)
    return [_with_rows_below(rows, found, block) for found in block]


def _keys_named_last(matches: list[_Found]) -> list[_Found]:
    """Returns the last options that name a key: several stand on a row, and a narrow terminal wraps that row."""
    named = [found for found in matches if _group(found.match, "key").lower() in _NAMED_KEYS]
    rows = {found.row for found in named}
    first = max(rows, default=0)
    while first - 1 in rows:
        first -= 1
    return [found for found in named if found.row >= first]


def _numbered(matches: list[_Found]) -> list[_Found]:
    """Returns the last options that count up from 1."""
    block = [matches[-1]]
    for found in reversed(matches[:-1]):
        number = int(_group(block[0].match, "key"))
        if number == 1:
            break
        if _group(found.match, "key") == str(number - 1):
            block.insert(0, found)
    return block


def _block(matches: list[_Found]) -> list[_Found]:
    """Returns the options around the highlighted one that stand on consecutive rows."""
    marked = next((found for found in reversed(matches) if _group(found.match, "mark").strip()), matches[-1])
    by_row = {found.row: found for found in matches}
    first = last = marked.row
    while first - 1 in by_row:
        first -= 1
    while last + 1 in by_row:
        last += 1
    return [by_row[row] for row in range(first, last + 1)]


def _with_rows_below(rows: Sequence[str], found: _Found, block: list[_Found]) -> _Found:
    """Returns the option with the rows under it that continue its label or explain it."""
    taken = {other.row for other in block}
    start = max(found.match.start("label") if "label" in found.match.re.groupindex else 0, 0)
    below: list[int] = []
    for row in range(found.row + 1, len(rows)):
        indent = len(rows[row]) - len(rows[row].lstrip())
        if row in taken or not rows[row] or indent < start or _RULE.match(rows[row]):
            break
        below.append(row)
    return _Found(found.row, found.match, tuple(below))


def _read_options(
    rows: Sequence[str], found: list[_Found], rule: DialogRule, columns: int
) -> tuple[tuple[Option, ...], list[str]]:
    """Returns the options, and the notes that the dialog shows about them."""
    options: list[Option] = []
    notes: list[str] = []
    for number, option in enumerate(found, 1):
        key = _group(option.match, "key") or str(number)
        shown, *aside = _COLUMN_GAP.split(_group(option.match, "label") or key, maxsplit=1)
        last = option.row
        for row in option.below:
            if not aside and _is_wrapped(rows, last, row, columns):
                shown += ("" if shown.endswith("-") else " ") + rows[row].strip()
                last = row
            else:
                aside.append(rows[row].strip())
        label = safe_line(shown)
        effect = OptionEffect.OTHER if rule.kind is QuestionKind.CHOICE else effect_of(label)
        if rule.allow and rule.allow.search(label):
            effect = OptionEffect.ALLOW
        options.append(Option(key=safe_line(key), label=label, effect=effect))
        if aside:
            notes.append(safe_line(f"{key}. {shown}: {' '.join(aside)}"))
    return tuple(options), notes


def _is_wrapped(rows: Sequence[str], above: int, row: int, columns: int) -> bool:
    """Returns whether the row continues the text above: its first word had no room there."""
    word = rows[row].split(maxsplit=1)[0]
    return cells(rows[above]) + 1 + cells(word) > columns - _FRAME_CELLS


def _title_rows(rows: Sequence[str], rule: DialogRule, within: range, columns: int) -> range:
    """Returns the rows that ask."""
    above = [row for row in reversed(within) if _is_content(rows[row], rule)]
    first = next((row for row in above if rule.title is None or rule.title.search(rows[row])), None)
    if first is None:
        return range(0)
    match = rule.title.search(rows[first]) if rule.title else None
    last = first
    if match and match.end() < len(rows[first]):
        return range(first, first + 1)
    while last + 1 in within and _is_content(rows[last + 1], rule) and _is_wrapped(rows, last, last + 1, columns):
        last += 1
    return range(first, last + 1)


def _title(rows: Sequence[str], rule: DialogRule, asking: range) -> str:
    if not asking:
        return safe_line(rule.name.replace("_", " "))
    first = rows[asking[0]]
    match = rule.title.search(first) if rule.title else None
    question = (match[1] if match.re.groups else match[0]) if match else first
    return safe_line(" ".join((question, *(rows[row] for row in asking[1:])))) or safe_line(rule.name)


def _is_content(row: str, rule: DialogRule) -> bool:
    return bool(row.strip()) and not _RULE.match(row) and not any(drop.search(row) for drop in rule.drop)


def _group(match: re.Match[str], name: str) -> str:
    return (match[name] or "") if name in match.re.groupindex else ""


def _digest(*words: str) -> str:
    """Returns a name for the question that does not depend on the terminal's width."""
    text = "\0".join(compact(word) for word in words)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
