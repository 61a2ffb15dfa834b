"""Small screens for tests: a line program at `> `, and a full-screen program with a box at the bottom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from synapse.core.agent import READY
from synapse.terminal.evidence import Look
from synapse.terminal.picture import Picture
from synapse.terminal.profile import Profile, parse_profile

COLUMNS, ROWS = 60, 12
RULE = "─" * COLUMNS
TEXT = "[A2A:1a2b3c4d:synapse-codex-8120:R] please review this"


def line_profile(**more: object) -> Profile:
    """A program that reads a line at `> `."""
    return parse_profile(
        {
            "command": ["lines"],
            "prompt": {"pattern": "^> (?P<text>.*)$", "at_cursor": True},
            "interrupt": {"signal": "SIGINT"},
            "times": {"quiet": 0.02, "settle": 0.03, "person": 1.0, "echo": 1.0, "proof": 3.0},
            "answer": {"echo": "^> "},
            **more,
        },
        "lines",
    )


def page_profile(**more: object) -> Profile:
    """A program that paints a page with its input in a box at the bottom."""
    return parse_profile(
        {
            "command": ["pages"],
            "typing": {"style": "paste", "paste_marks": [r"\[Pasted \d+ lines\]"]},
            "interrupt": {"keys": ["esc"]},
            "times": {"quiet": 0.15, "settle": 0.5, "echo": 2.0, "proof": 5.0, "dialog": 60.0},
            "regions": {"input": {"between": "^─{10,}"}, "bottom": {"last": 1}},
            "prompt": {
                "region": "input",
                "pattern": "^▸ ?(?P<text>.*)$",
                "holds_cursor": True,
                "placeholders": ["Say something"],
            },
            "working": [{"name": "spinner", "region": "bottom", "some": ["esc to interrupt"]}],
            "dialogs": [{"name": "permission", "hint": "allow or deny it", "every": [r"^ \[y\] allow"]}],
            "titles": {"working": "^◐"},
            "answer": {"echo": "^▸ ", "end": ["^─{10,}"], "strip": ["^● "], "drop": ["^✻ "]},
            **more,
        },
        "pages",
    )


def quiet_profile(**more: object) -> Profile:
    """A program of which nothing is known but how to start it."""
    return parse_profile({"command": ["quiet"], **more}, "quiet")


def screen_of(*lines: str, cursor: tuple[int, int] | None = None, **more: Any) -> Picture:
    """A picture; by default the cursor stands behind the last line."""
    at = cursor or (len(lines) - 1, len(lines[-1]))
    rows = tuple(line.rstrip() for line in lines) + ("",) * (ROWS - len(lines))
    seen = Picture(lines=rows, cursor=at, columns=COLUMNS, rows=ROWS)
    return replace(seen, **more)


def page(
    typed: str = "",
    *,
    above: tuple[str, ...] = (),
    status: str = "? for help",
    title: str = "",
    updating: bool = False,
) -> Picture:
    """A page with the input at the bottom; `above` is what it shows of the conversation."""
    typed_rows = [typed[:54], *(typed[i : i + 54] for i in range(54, len(typed), 54))]
    box = [RULE, "▸ " + typed_rows[0], *("  " + row for row in typed_rows[1:]), RULE, "  " + status]
    filling = [""] * (ROWS - len(above) - len(box))
    lines = [*above, *filling, *box]
    cursor = (ROWS - 3, 2 + len(typed_rows[-1]))
    return screen_of(*lines, cursor=cursor, bracketed_paste=True, alternate=True, title=title, updating=updating)


def dialog_page(*above: str) -> Picture:
    """A page that asks for a permission in place of its input."""
    lines = [*above, RULE, " May I?", " [y] allow  [n] deny"]
    return screen_of(*lines, cursor=(len(lines) - 1, 1), bracketed_paste=True, alternate=True)


def look_at(picture: Picture | None, state: str = READY, **more: Any) -> Look:
    """A look at a calm moment: no output and no key for long."""
    return replace(Look(picture=picture, state=state, quiet_for=60.0), **more)
