"""Says about one agent what a person has to know before a decision. Pure, and without Textual.

    codex asks · permission · task 1f3c9a20 from claude · 2m
      Run a command?
        rm -rf build
      in ~/project
      1 Yes   2 Yes, and don't ask again   3 No

Commands and answers are whole: the pane wraps and scrolls them, and nothing is cut here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from synapse.client.lines import first_line, width
from synapse.client.overview import WORDS, Need, Row
from synapse.client.times import lasting
from synapse.top.lines import Cell, Glyphs, folded

SHORT_ID: Final = 8
_INDENT: Final = "  "
_SHOWN_KINDS: Final = frozenset({"done", "failed", "in_doubt"})
"""Kinds of needs that the state of the agent names already."""

Line = list[Cell]


class KeyHint(NamedTuple):
    """A key that does something about the chosen agent now; `action` is the name of the app's action."""

    key: str
    word: str
    action: str


def detail_of(row: Row, position: int, columns: int, now: datetime, glyphs: Glyphs) -> list[Line]:
    """Returns the lines about an agent: its need at `position` of its needs, else what it does.

    No line is wider than `columns`, so that whoever shows them knows how many are in view.
    """
    if row["needs"]:
        return _wrapped(_need_lines(row, position, columns, now, glyphs), columns)
    return _wrapped(_agent_lines(row, columns, now, glyphs), columns)


def _wrapped(lines: list[Line], columns: int) -> list[Line]:
    """Returns the lines, each as several where it is wider than `columns`."""
    return [part for line in lines for part in folded(line, columns, "")]


def _question_lines(need: Need, columns: int, glyphs: Glyphs) -> list[Line]:
    """Returns all that a person has to read before a decision: the question, its subject, and where it applies."""
    # The title of an answer is its first line.
    is_repeated = bool(need["detail"]) and first_line(need["detail"]) == need["title"]
    lines = [] if is_repeated else text_lines(need["title"], columns, glyphs, role="title")
    if need["detail"].strip():
        lines += text_lines(need["detail"], columns, glyphs, indent=_INDENT * 2)
    if need["folder"]:
        lines.append([Cell(f"{_INDENT}in ", "label"), Cell(glyphs.line(need["folder"]))])
    return lines


def text_lines(text: str, columns: int, glyphs: Glyphs, *, role: str = "", indent: str = _INDENT) -> list[Line]:
    """Returns a text of others whole, wrapped to so many columns."""
    whole = text.expandtabs(4).strip("\n").split("\n")
    return [folded_line for line in whole for folded_line in folded(glyphs.cells(line, role), columns, indent)]


def told_need(row: Row) -> int:
    """Returns the position of the need that the row itself tells, which is not always the first of its needs."""
    told = (row["state"], row["since"])
    return next((place for place, need in enumerate(row["needs"]) if (_state_of(need), need["asked_at"]) == told), 0)


def keys_for(row: Row | None, need: Need | None, glyphs: Glyphs) -> list[KeyHint]:
    """Returns the keys that do something now, the most urgent first."""
    can = need["can"] if need else []
    hints = [
        KeyHint("a", "allow", "allow") if "allow" in can else None,
        KeyHint("d", "deny", "deny") if "deny" in can else None,
        KeyHint(option_keys(need), "choose", "") if need and "choose" in can else None,
        KeyHint("r", "answer", "answer") if "text" in can else None,
        *(_RESOLVING if "resolve" in can else ()),
        KeyHint(".", "seen", "seen") if "seen" in can else None,
        KeyHint(glyphs.enter, "attach", "attach") if row and row["has_terminal"] else None,
        KeyHint("s", "send", "send") if row else None,
        KeyHint("t", "timeline", "timeline") if row and task_in(row, need) else None,
        KeyHint("/", "filter", "filter"),
        KeyHint("x", "cancel", "cancel") if row and running_task_in(row, need) else None,
        KeyHint("?", "help", "help"),
        KeyHint("q", "quit", "quit"),
    ]
    return [hint for hint in hints if hint is not None]


_RESOLVING: Final = (
    KeyHint("D", "delivered", "resolve('delivered')"),
    KeyHint("R", "retry", "resolve('retry')"),
    KeyHint("F", "fail", "resolve('fail')"),
)


def option_keys(need: Need) -> str:
    """Returns the digits that choose an option: `1`, `1-3`."""
    digits = sorted(digit for digit in "123456789" if option_at(need, digit))
    return f"{digits[0]}-{digits[-1]}" if len(digits) > 1 else "".join(digits)


def option_at(need: Need, digit: str) -> str:
    """Returns the key of the option that a digit chooses: the one with that key, else the one in that place."""
    keys = [option["key"] for option in need["options"]]
    if any(key.isdigit() for key in keys):
        return digit if digit in keys else ""
    return keys[int(digit) - 1] if 0 < int(digit) <= len(keys) else ""


def task_in(row: Row, need: Need | None) -> str:
    """Returns the id of the task that a person sees: that of the need, else the current one; empty if there is none."""
    return (need["task_id"] or "" if need else "") or (row["task"]["id"] if row["task"] else "")


def running_task_in(row: Row, need: Need | None) -> str:
    """Returns the id of the task that can be canceled; empty if there is none."""
    if need and need["task_id"] and "cancel" in need["can"]:
        return need["task_id"]
    return row["task"]["id"] if row["task"] else ""


def _state_of(need: Need) -> str:
    return need["kind"] if need["kind"] in _SHOWN_KINDS else "asks"


def _need_lines(row: Row, position: int, columns: int, now: datetime, glyphs: Glyphs) -> list[Line]:
    need = row["needs"][position]
    more = f"{position + 1} of {len(row['needs'])}, Tab for the next" if len(row["needs"]) > 1 else ""
    facts = [
        "" if need["kind"] in _SHOWN_KINDS else need["kind"],
        _task_words(need["task_id"] or "", need["from"], glyphs),
        lasting(need["asked_at"], now),
        more,
    ]
    lines: list[Line] = [
        _head(glyphs.line(row["name"]), _state_of(need), facts, glyphs),
        *_question_lines(need, columns, glyphs),
    ]
    lines += _option_lines(need, columns, glyphs)
    if need["kind"] == "in_doubt":
        lines.append([Cell(f"{_INDENT}Look at its terminal: was this message taken?", "label")])
    if need["hint"]:
        lines += text_lines(need["hint"], columns, glyphs, role="label")
    if not need["can"] and need["next"]:
        lines.append([Cell(f"{_INDENT}next: ", "label"), Cell(glyphs.line(need["next"]))])
    return lines


def _option_lines(need: Need, columns: int, glyphs: Glyphs) -> list[Line]:
    """Returns the options on one line if they fit, else one per line; a click on one chooses it."""
    digits = [
        next((digit for digit in "123456789" if option_at(need, digit) == one["key"]), "") for one in need["options"]
    ]
    shown = [
        f"{digit or glyphs.line(option['key'])} {glyphs.line(option['label'])}"
        for digit, option in zip(digits, need["options"], strict=True)
    ]
    cells = [Cell(text, f"option:{number}") for number, text in enumerate(shown)]
    if not cells:
        return []
    if sum(width(text) + 3 for text in shown) + len(_INDENT) <= columns:
        return [[Cell(_INDENT), *(part for cell in cells for part in (cell, Cell("   ")))]]
    return [[Cell(_INDENT), cell] for cell in cells]


def _agent_lines(row: Row, columns: int, now: datetime, glyphs: Glyphs) -> list[Line]:
    task = row["task"]
    facts = [
        _task_words(task["id"], task["from"], glyphs) if task else "",
        task["receipt"].replace("_", " ") if task else "",
        lasting(row["since"], now),
        f"says the {row['source']}" if row["source"] else "",
    ]
    lines: list[Line] = [_head(glyphs.line(row["name"]), row["state"], facts, glyphs)]
    text = task["text"] if task else row["why"]
    lines += text_lines(text, columns, glyphs) if text else []
    lines += [
        [Cell(f"{_INDENT}owes {glyphs.line(one['to'])} an answer: ", "label"), Cell(glyphs.line(one["text"]))]
        for one in row["owes"]
    ]
    if row["queue"]:
        lines.append([Cell(f"{_INDENT}{row['queue']} queued", "label")])
    if row["role"]:
        lines.append([Cell(f"{_INDENT}role ", "label"), Cell(glyphs.line(row["role"]))])
    lines.append([Cell(f"{_INDENT}in ", "label"), Cell(glyphs.line(row["folder"]))])
    return lines


def _head(name: str, state: str, facts: Sequence[str], glyphs: Glyphs) -> Line:
    told = "".join(f" {glyphs.dot} {fact}" for fact in facts if fact)
    return [Cell(f"{name} ", "name"), Cell(WORDS.get(state, state), f"state:{state}"), Cell(told)]


def _task_words(task_id: str, sender: str, glyphs: Glyphs) -> str:
    if not task_id:
        return ""
    return f"task {glyphs.line(task_id[:SHORT_ID])}" + (
        f" from {glyphs.line(sender.removeprefix('synapse-'))}" if sender else ""
    )
