"""The screen rules of a profile, as values: where the input is, what a dialog looks like, what belongs to an answer."""

from __future__ import annotations

import re
from dataclasses import dataclass

Pattern = re.Pattern[str]

SCREEN_REGION = "screen"
"""The region that every profile has: all rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A named part of the screen. Each limit that is set narrows what the ones before have left, in this order."""

    above: Pattern | None = None
    """The rows above the last row that matches."""
    below: Pattern | None = None
    """The rows below the last row that matches."""
    begin: Pattern | None = None
    """The rows from the last row that matches, that row included."""
    between: Pattern | None = None
    """The rows between the last two rows that match."""
    last: int = 0
    """The last so many rows that are not blank, and what is between and below them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRule:
    """How the input is found on the screen, and what is in it."""

    pattern: Pattern
    """Matches the row where the input begins; its group `text` is what is in it. The region's first match counts."""
    region: str = SCREEN_REGION
    at_cursor: bool = False
    """The cursor's row is the one that must match: the rule for programs that read a line."""
    holds_cursor: bool = False
    """The input counts only if the cursor stands in it: in a dialog it stands elsewhere."""
    until: Pattern | None = None
    """The input ends above the first row below that matches; without it, at the end of the region."""
    margin: Pattern | None = None
    """What to cut from each further row of the input: indentation, a border."""
    placeholders: tuple[Pattern, ...] = ()
    """Texts that mean that the input is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenRule:
    """Holds when each of `every` is found in the region, one of `some` is (if there are any), and none of `never`."""

    every: tuple[Pattern, ...] = ()
    some: tuple[Pattern, ...] = ()
    never: tuple[Pattern, ...] = ()
    region: str = SCREEN_REGION


@dataclass(frozen=True, slots=True, kw_only=True)
class DialogRule:
    """A question of the program that only a person may answer, and what that person should do."""

    name: str
    hint: str
    rule: ScreenRule


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingRule:
    """A mark that is on the screen while the program works."""

    name: str
    rule: ScreenRule


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRule:
    """How an answer is cut out of the screen."""

    echo: Pattern | None = None
    """Matches what stands in front of a submitted message where the program shows it again."""
    end: tuple[Pattern, ...] = ()
    """The answer ends above the first row below the message that matches one of these."""
    drop: tuple[Pattern, ...] = ()
    """Rows that are not part of an answer: spinners, statistics, borders."""
    strip: tuple[Pattern, ...] = ()
    """What is cut from each row: bullets, borders."""
