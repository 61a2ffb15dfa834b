"""The screen rules of a profile, as values: where the input is, what a dialog looks like, what belongs to an answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from synapse.core.question import QuestionKind

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
    further: Pattern | None = None
    """Matches each further row of the input that is not blank. With it the input is found from the cursor: it begins at
    the nearest row at or above the cursor that matches `pattern`. Frames do not matter then, nor old rows below."""
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


class Choosing(StrEnum):
    """How an option of a dialog is chosen by keys."""

    NONE = ""
    """Not at all: what is highlighted cannot be seen, so nobody knows what Enter would choose."""
    DIGIT = "digit"
    """Its key chooses it at once."""
    ARROWS = "arrows"
    """The arrow keys move the highlight to it, then Enter."""
    LINE = "line"
    """Its key and Enter, as a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DialogRule:
    """A question of the program that only a person may answer, how it is read, and what that person should do."""

    name: str
    hint: str
    rule: ScreenRule
    kind: QuestionKind | None = QuestionKind.PERMISSION
    """None for a menu that a person opened: it asks nothing."""
    hides_prompt: bool = False
    """The dialog takes the place of the input, so it is history where the input is to be seen."""
    begin: Pattern | None = None
    """The dialog begins at the last row above its options that matches; without it, at the top of the screen."""
    title: Pattern | None = None
    """Matches the row that asks, and its first group is the question; without it, the last row above the options."""
    option: Pattern | None = None
    """Matches an option, with groups `key`, `label` and `mark` (of the highlighted one), each of which may be missing;
    without it, the options are numbered."""
    drop: tuple[Pattern, ...] = ()
    """Rows of the dialog that say nothing about what is asked."""
    choose: Choosing = Choosing.NONE
    text: Pattern | None = None
    """Matches the label of the option that takes words of one's own."""


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
