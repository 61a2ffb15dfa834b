"""Cuts an answer out of the screen: the text below our message and above the prompt.

This is the last resort: it is what the program painted, not what it meant. Callers mark it as taken from the screen.
While the answer grows, `StableText` returns the part of it that no longer moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, takewhile
from typing import Final, NamedTuple

from synapse.terminal.keys import keystrokes
from synapse.terminal.profile import Pattern, Profile
from synapse.terminal.reading import compact, rows_of

# A frame puts at most this many letters before and after a row of a message; one CLI puts the time of day there.
_FRAME_BEFORE: Final = 3
_FRAME_AFTER: Final = 8
# A message and another row may begin with fewer letters than this in common by chance.
_TELLING: Final = 8
# This many letters at its end tell a message from anything else.
_TELLING_END: Final = 40
_MOST_REWRITES: Final = 20
"""A program that repaints what it has shown more often than this has no text that grows."""


class _Place(NamedTuple):
    """A place where the program shows the message: its row, the row below it, and whether it shows nothing else."""

    row: int
    below: int
    is_exact: bool


def count_shown(lines: Sequence[str], text: str, profile: Profile) -> int:
    """Returns how often `lines` show `text` before it is typed: earlier messages with identical text.

    Returns 0 if the profile has a rule for the echo, since the last echo is then ours.
    """
    return 0 if profile.answer.echo is not None else len(_places(lines, _forms(text, profile), profile))


def answer_text(lines: Sequence[str], text: str, profile: Profile, *, earlier: int = 0) -> str:
    """Returns what the program showed after `text`, from `lines` of scrollback and screen; empty if it is not found.

    `earlier` is the result of `count_shown` before the text was typed.
    """
    forms = _forms(text, profile)
    found = _places(lines, forms, profile)
    # Fewer than `earlier` are left if the screen was cleared.
    ours = found[earlier:] or found[-1:]
    if profile.answer.echo is None and not profile.envelope:
        # The first place is where it was typed; similar rows further down (`tools` below `ls`) belong to the answer.
        starts = [max(place.below for place in ours if place.row == ours[0].row)] if ours else []
    else:
        exact = [place for place in ours if place.is_exact]
        starts = sorted({place.below for place in exact or ours}, reverse=True)
    starts = starts or _rows_below_end(lines, forms, profile) or _rows_without_message(lines, profile)
    answers = [_answer_from(lines, start, profile) for start in starts]
    if profile.answer.echo is not None:
        return next(iter(answers), "")
    # A program may repeat the message in its answer. Without an echo rule, the place with text below it counts.
    return next((answer for answer in answers if answer), "")


class StableText:
    """Follows an answer that grows on the screen, and returns the text that two looks in a row show alike.

    A spinner, a clock or the line that is being written still moves, so it is left out.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._returned = ""
        self._rewrites = 0

    def receive(self, shown: str) -> str:
        """Takes the text that is shown now; returns the stable part of it, or an empty string if that is no news."""
        before, self._lines = self._lines, shown.split("\n")
        alike = takewhile(lambda pair: pair[0] == pair[1], zip(before, self._lines, strict=False))
        text = "\n".join(line for line, _ in alike).rstrip()
        if not any(char.isalnum() for char in text) or self._returned.startswith(text):
            return ""  # a bullet alone is not a word yet
        if not text.startswith(self._returned):
            self._rewrites += 1
            if self._rewrites > _MOST_REWRITES:
                return ""
        self._returned = text
        return text


def _answer_from(lines: Sequence[str], start: int, profile: Profile) -> str:
    end = _above_prompt(lines, profile, start)
    end = next((row for row in range(start, end) if _matches(profile.answer.end, lines[row])), end)
    kept = [
        _blanked(line, profile.answer.strip) for line in lines[start:end] if not _matches(profile.answer.drop, line)
    ]
    margin = min((len(line) - len(line.lstrip()) for line in kept if line), default=0)
    return "\n".join(line[margin:] for line in kept).strip("\n")


def _forms(text: str, profile: Profile) -> set[str]:
    """Returns how the message may be shown, without blanks: pasted, and typed as plain keys."""
    return {compact(keystrokes(text, profile, bracketed_paste=pasted).shown) for pasted in (False, True)}


def _places(lines: Sequence[str], forms: Iterable[str], profile: Profile) -> list[_Place]:
    """Returns where the program shows the message, from the top."""
    found = set[_Place]()
    for wanted in forms:
        if profile.envelope:
            header = wanted[: wanted.find("]") + 1] or wanted
            begins = [(row, _beginning(lines, row, header, profile), True) for row in range(len(lines))]
        else:
            begins = _bare_beginnings(lines, wanted, profile)
        found |= {
            _Place(row, _message_end(lines, row, at, wanted, profile.answer.strip), is_exact)
            for row, at, is_exact in begins
            if at >= 0
        }
    return sorted(found)


def _beginning(lines: Sequence[str], row: int, header: str, profile: Profile) -> int:
    """Returns where in the row, blanks not counted, a message with this header begins; -1 if none does."""
    if profile.answer.echo is not None and not profile.answer.echo.search(lines[row]):
        return -1
    # The header itself may be wrapped on a narrow screen.
    at = compact("".join(lines[row : row + 2])).find(header)
    return at if at < len(compact(lines[row])) else -1


def _bare_beginnings(lines: Sequence[str], wanted: str, profile: Profile) -> list[tuple[int, int, bool]]:
    """Returns the rows that begin with a message without header, behind the prompt alone, or that end with it."""
    begins = list[tuple[int, int, bool]]()
    for row, line in enumerate(lines):
        echo = profile.answer.echo.search(line) if profile.answer.echo else None
        if profile.answer.echo is not None and echo is None:
            continue
        shown, at = compact(line), len(compact(line[: echo.end()])) if echo else 0
        is_wrapped = len(shown) - at >= _TELLING and wanted.startswith(shown[at:])
        if shown[at:] == wanted or is_wrapped or _goes_on(lines, row, shown[at:], wanted):
            begins.append((row, at, True))
        elif shown.endswith(wanted):
            begins.append((row, len(shown) - len(wanted), False))
    return begins


def _goes_on(lines: Sequence[str], row: int, begun: str, wanted: str) -> bool:
    """Returns whether the rows below continue the message to its very end, as those of a paste do."""
    while begun and len(begun) < len(wanted) and wanted.startswith(begun) and row + 1 < len(lines):
        row += 1
        begun += compact(lines[row])
    return begun == wanted


def _rows_below_end(lines: Sequence[str], forms: Iterable[str], profile: Profile) -> list[int]:
    """Returns the row below the message's end if its beginning has scrolled away.

    The first place counts: the answer may repeat the message later.
    """
    shown = [compact(_blanked(line, profile.answer.strip)) for line in lines]
    tails = tuple(form[-_TELLING_END:] for form in forms if len(form) >= _TELLING_END)
    ends = (
        row for row in range(len(lines)) if shown[row] and "".join(shown[max(row - 4, 0) : row + 1]).endswith(tails)
    )
    return [row + 1 for row in islice(ends, 1)]


def _rows_without_message(lines: Sequence[str], profile: Profile) -> list[int]:
    """Returns where the answer begins if the message itself is not shown: below its paste mark, or at the top."""
    echo = profile.answer.echo
    if echo is None:
        return []
    end = _above_prompt(lines, profile, 0)
    echoes = [(row, match) for row, line in enumerate(lines[:end]) if (match := echo.search(line)) is not None]
    if not echoes:
        # The message has scrolled away, so everything that is left came after it.
        return [0]
    row, match = echoes[-1]
    is_mark = any(mark.fullmatch(lines[row][match.end() :].strip()) for mark in profile.typing.paste_marks)
    return [row + 1] if is_mark else []


def _message_end(lines: Sequence[str], row: int, at: int, wanted: str, strip: Sequence[Pattern]) -> int:
    """Returns the row below the message: walks down while rows continue it, whatever frames and indents they have."""
    left = wanted[_same_letters(compact(lines[row])[at:], wanted) :]
    row += 1
    while row < len(lines) and left:
        line = compact(_blanked(lines[row], strip))
        taken = _overlap(line, left)
        if line and not taken:
            break
        left = left[taken:]
        row += 1
    return row


def _overlap(line: str, left: str) -> int:
    """Returns how many letters of `left` the line continues with, between at most a few letters of frame."""
    for begin in range(min(len(line), _FRAME_BEFORE + 1)):
        if begin and line[begin - 1].isalnum():
            break
        length = _same_letters(line[begin:], left)
        if length == len(left) or length >= max(len(line) - begin - _FRAME_AFTER, (len(line) - begin) // 2, 1):
            return length
    return 0


def _same_letters(line: str, left: str) -> int:
    shorter = min(len(line), len(left))
    return next((at for at in range(shorter) if line[at] != left[at]), shorter)


def _above_prompt(lines: Sequence[str], profile: Profile, start: int) -> int:
    rule = profile.prompt
    if rule is None:
        return _above_likely_prompt(lines, start)
    if not rule.at_cursor and rule.further is None:
        return max(_above_region(lines, profile, rule.region), start)
    # The lines have lost their trailing blanks, and with them the blank behind an empty prompt.
    prompts = (row for row in range(len(lines) - 1, start - 1, -1) if rule.pattern.search(lines[row] + " "))
    return next(prompts, len(lines))


def _above_region(lines: Sequence[str], profile: Profile, name: str) -> int:
    rows = rows_of(lines, profile, name)
    if not rows:
        return len(lines)
    frame = profile.regions[name].between if name in profile.regions else None
    return rows.start - 1 if frame is not None and frame.search(lines[rows.start - 1]) else rows.start


def _above_likely_prompt(lines: Sequence[str], start: int) -> int:
    """Guesses without a prompt rule: the last line is the prompt if the message's line begins with exactly that."""
    filled = [row for row in range(start, len(lines)) if lines[row].strip()]
    if start and filled and lines[start - 1].startswith(lines[filled[-1]].strip() + " "):
        return filled[-1]
    return len(lines)


def _matches(patterns: Sequence[Pattern], line: str) -> bool:
    return any(pattern.search(line) for pattern in patterns)


def _blanked(line: str, patterns: Sequence[Pattern]) -> str:
    """Replaces bullets and frames by blanks, so that text below a bullet stays aligned with the text beside it."""
    for pattern in patterns:
        line = pattern.sub(lambda match: " " * len(match[0]), line)
    return line.rstrip()
