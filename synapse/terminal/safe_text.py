"""Text of a program as people may be shown it elsewhere: without what acts on a terminal, and of bounded length."""

from __future__ import annotations

from typing import Final

from synapse.core.envelope import one_line, sanitise

LONGEST_LINE: Final = 300
LONGEST_DETAIL: Final = 4000
_MOST_LINES: Final = 60
_CUT: Final = "\n… (there is more of it: look at its terminal)"


def safe_line(text: str) -> str:
    """One line; runs of blanks are one."""
    line = one_line(text)
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"


def safe_lines(text: str) -> str:
    """Several lines; indentation stays."""
    lines = [line.rstrip() for line in sanitise(text).expandtabs(4).split("\n")]
    kept = "\n".join(lines[:_MOST_LINES]).strip("\n")
    is_whole = len(lines) <= _MOST_LINES and len(kept) <= LONGEST_DETAIL
    return kept if is_whole else kept[: LONGEST_DETAIL - len(_CUT)] + _CUT
