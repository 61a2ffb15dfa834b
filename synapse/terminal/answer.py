"""The answer as the screen shows it: what stands below our message and above the prompt.

This is the last resort: it is what was painted, not what was meant. Callers mark it as taken from the screen.

The text of an answer while it grows on a screen: what two looks in a row show alike. Pure.

What still moves (a spinner, a clock, the line that is being written) is not told; what has come to rest is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, takewhile
from typing import Final, NamedTuple

from synapse.terminal.keys import keystrokes
from synapse.terminal.profile import Pattern, Profile
from synapse.terminal.proof import compact
from synapse.terminal.reading import rows_of

# At most so many letters of frame stand before and after a row of a message; one CLI puts the time of day there.
_FRAME_BEFORE: Final = 3
_FRAME_AFTER: Final = 8
# Fewer letters than this may begin both a message and another row by chance.
_TELLING: Final = 8
# So many letters at its end tell a message from anything else.
_TELLING_END: Final = 40


class _Place(NamedTuple):
    """Where the program shows the message: its row, the row below it, and whether that is just the message."""

    row: int
    below: int
    is_exact: bool


def count_shown(lines: Sequence[str], text: str, profile: Profile) -> int:
    """How often `lines` show `text` before it is typed: those places are of earlier messages that said the same.

    With a rule for the echo nobody has to know: the last echo is ours.
    """
    return 0 if profile.answer.echo is not None else len(_places(lines, _forms(text, profile), profile))


def answer_text(lines: Sequence[str], text: str, profile: Profile, *, earlier: int = 0) -> str:
    """Return what the program showed after `text`, from `lines` of scrollback and screen; empty if it is not found.

    `earlier` is what `count_shown` said before the text was typed.
    """
    forms = _forms(text, profile)
    found = _places(lines, forms, profile)
    # Fewer than that are left where the screen was cleared.
    ours = found[earlier:] or found[-1:]
    if profile.answer.echo is None and not profile.envelope:
        # It was typed where it is first shown; whatever is like it further down (`tools` below `ls`) is the answer's.
        starts = [max(place.below for place in ours if place.row == ours[0].row)] if ours else []
    else:
        exact = [place for place in ours if place.is_exact]
        starts = sorted({place.below for place in exact or ours}, reverse=True)
    starts = starts or _places_below_end(lines, forms, profile) or _places_without_message(lines, profile)
    answers = [_answer_from(lines, start, profile) for start in starts]
    if profile.answer.echo is not None:
        return next(iter(answers), "")
    # A program may repeat the message in its answer. Without a rule for the first place, it is where something follows.
    return next((answer for answer in answers if answer), "")


def _answer_from(lines: Sequence[str], start: int, profile: Profile) -> str:
    end = _first_match(lines, profile.answer.end, start, _above_prompt(lines, profile, start))
    kept = [line for line in lines[start:end] if not _matches(profile.answer.drop, line)]
    return _dedented([_blanked(line, profile.answer.strip) for line in kept])


def _forms(text: str, profile: Profile) -> set[str]:
    """The message as it is shown, without blanks: pasted, and by plain keys."""
    return {compact(keystrokes(text, profile, bracketed_paste=pasted).shown) for pasted in (False, True)}


def _places(lines: Sequence[str], forms: Iterable[str], profile: Profile) -> list[_Place]:
    """Return where the program shows the message, from the top."""
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
    """Where in the row, its blanks left out, a message with this header begins; -1 if it does not."""
    if profile.answer.echo is not None and not profile.answer.echo.search(lines[row]):
        return -1
    # The header itself may be wrapped on a narrow screen.
    at = compact("".join(lines[row : row + 2])).find(header)
    return at if at < len(compact(lines[row])) else -1


def _bare_beginnings(lines: Sequence[str], wanted: str, profile: Profile) -> list[tuple[int, int, bool]]:
    """Where rows begin with a message that has no header, behind the prompt alone, and where they end with it."""
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
    """Whether the rows below go on with the message to its very end, as those of a paste do."""
    while begun and len(begun) < len(wanted) and wanted.startswith(begun) and row + 1 < len(lines):
        row += 1
        begun += compact(lines[row])
    return begun == wanted


def _places_below_end(lines: Sequence[str], forms: Iterable[str], profile: Profile) -> list[int]:
    """Return the row below the message's end, when its beginning has scrolled away; an answer may repeat it later."""
    shown = [compact(_blanked(line, profile.answer.strip)) for line in lines]
    tails = tuple(form[-_TELLING_END:] for form in forms if len(form) >= _TELLING_END)
    ends = (
        row for row in range(len(lines)) if shown[row] and "".join(shown[max(row - 4, 0) : row + 1]).endswith(tails)
    )
    return [row + 1 for row in islice(ends, 1)]


def _places_without_message(lines: Sequence[str], profile: Profile) -> list[int]:
    """Where the answer begins when the message itself is not shown: below a mark for it, or above all that is left."""
    echo = profile.answer.echo
    if echo is None:
        return []
    end = _above_prompt(lines, profile, 0)
    echoes = [(row, match) for row, line in enumerate(lines[:end]) if (match := echo.search(line)) is not None]
    if not echoes:
        # The message has scrolled away, so all that is left came after it.
        return [0]
    row, match = echoes[-1]
    is_mark = any(mark.fullmatch(lines[row][match.end() :].strip()) for mark in profile.typing.paste_marks)
    return [row + 1] if is_mark else []


def _message_end(lines: Sequence[str], row: int, at: int, wanted: str, strip: Sequence[Pattern]) -> int:
    """Walk down while the rows go on with the message; frames and indentation around its words do not matter."""
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
    """How many letters of `left` the line goes on with, between at most a few letters of frame."""
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
    # The lines have lost their trailing blanks, and with them the one behind an empty prompt.
    prompts = (row for row in range(len(lines) - 1, start - 1, -1) if rule.pattern.search(lines[row] + " "))
    return next(prompts, len(lines))


def _above_region(lines: Sequence[str], profile: Profile, name: str) -> int:
    rows = rows_of(lines, profile, name)
    if not rows:
        return len(lines)
    frame = profile.regions[name].between if name in profile.regions else None
    return rows.start - 1 if frame is not None and frame.search(lines[rows.start - 1]) else rows.start


def _above_likely_prompt(lines: Sequence[str], start: int) -> int:
    """Without a prompt rule: the last line is the prompt if the line of the message begins with just that."""
    filled = [row for row in range(start, len(lines)) if lines[row].strip()]
    if start and filled and lines[start - 1].startswith(lines[filled[-1]].strip() + " "):
        return filled[-1]
    return len(lines)


def _first_match(lines: Sequence[str], patterns: Sequence[Pattern], start: int, end: int) -> int:
    return next((row for row in range(start, end) if _matches(patterns, lines[row])), end)


def _matches(patterns: Sequence[Pattern], line: str) -> bool:
    return any(pattern.search(line) for pattern in patterns)


def _blanked(line: str, patterns: Sequence[Pattern]) -> str:
    """Blanks in place of bullets and frames, so that what is below a bullet stays in line with what is beside it."""
    for pattern in patterns:
        line = pattern.sub(lambda match: " " * len(match[0]), line)
    return line.rstrip()


def _dedented(lines: list[str]) -> str:
    filled = [line for line in lines if line]
    margin = min((len(line) - len(line.lstrip()) for line in filled), default=0)
    return "\n".join(line[margin:] for line in lines).strip("\n")


_MOST_REWRITES: Final = 20
"""A program that repaints what it had shown again and again has no text that grows."""


class StableText:
    """Follows one answer, look by look."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._told = ""
        self._rewrites = 0

    def receive(self, shown: str) -> str:
        """Take what is shown now; return the text as far as it rests, or nothing when that is not news."""
        before, self._lines = self._lines, shown.split("\n")
        alike = takewhile(lambda pair: pair[0] == pair[1], zip(before, self._lines, strict=False))
        text = "\n".join(line for line, _ in alike).rstrip()
        if not any(char.isalnum() for char in text) or self._told.startswith(text):
            return ""  # a bullet alone is not a word yet
        if not text.startswith(self._told):
            self._rewrites += 1
            if self._rewrites > _MOST_REWRITES:
                return ""
        self._told = text
        return text
