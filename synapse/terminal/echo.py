"""Where a typed text is on the screen: in the input, among what was submitted, or nowhere.

Programs wrap, indent and frame what they show, so texts are compared without their blanks.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from synapse.terminal.picture import Picture
from synapse.terminal.profile import Profile
from synapse.terminal.reading import cursor_line, read_prompt

# Fewer letters than this may be in both texts by chance.
_TELLING: Final = 8
# A text may be longer than the screen, and then only its end is there.
_TAIL: Final = 60
# As much of the beginning as stands on one row, so that no frame comes in between.
_HEAD: Final = 40


class Shown(Enum):
    """What the input shows of our text."""

    WHOLE = auto()
    """All of it, or a mark that stands for it, or as much of its end as there is room for."""
    PART = auto()
    """Some of it: it is being painted, or letters were replaced."""
    NOTHING = auto()
    """The input is there, and empty."""
    FOREIGN = auto()
    """The input holds something else."""
    HIDDEN = auto()
    """The input is not to be seen."""


def shown(picture: Picture, profile: Profile, text: str) -> Shown:
    """Return what the input shows of `text`."""
    prompt = read_prompt(picture, profile)
    if prompt is not None:
        return _compare(prompt.text, profile, text)
    if not profile.reads_lines:
        return Shown.HIDDEN
    # The prompt may be rows above (a paste of several lines), scrolled out, or not known to the profile at all. On a
    # fresh row nothing is left of the text: the rows above only show what was submitted.
    if not picture.lines[picture.cursor[0]].strip():
        return Shown.HIDDEN
    above = compact("".join(picture.lines[: picture.cursor[0] + 1]))
    return Shown.WHOLE if above.endswith(compact(text)[-_TAIL:]) else Shown.HIDDEN


def count_submitted(picture: Picture, profile: Profile, text: str) -> int:
    """How often the text's beginning stands outside of the input: programs show what was submitted."""
    prompt = read_prompt(picture, profile)
    first_row, last_row = (prompt.first_row, prompt.last_row) if prompt else (len(picture.lines), len(picture.lines))
    if prompt is None and profile.reads_lines:
        first_row = last_row = cursor_line(picture, profile)[0]
        last_row = picture.cursor[0]
    above = compact("".join(picture.lines[:first_row]))
    below = compact("".join(picture.lines[last_row + 1 :]))
    head = compact(text)[:_HEAD]
    return above.count(head) + below.count(head)


def is_above_cursor(picture: Picture, profile: Profile, text: str) -> bool:
    """True if the text's end stands above the cursor's line."""
    above = compact("".join(picture.lines[: cursor_line(picture, profile)[0]]))
    return compact(text)[-_TAIL:] in above


def compact(text: str) -> str:
    """The text without blanks."""
    return "".join(text.split())


def _compare(found: str, profile: Profile, text: str) -> Shown:
    got, wanted = compact(found), compact(text)
    if not got:
        return Shown.NOTHING
    if got == wanted or any(mark.fullmatch(found) for mark in profile.typing.paste_marks):
        return Shown.WHOLE
    if len(got) >= _TELLING and wanted.endswith(got):
        return Shown.WHOLE
    header = wanted[: wanted.find("]") + 1] or wanted[:_TELLING]
    if wanted.startswith(got) or got.startswith(header) or (len(got) >= _TELLING and got in wanted):
        return Shown.PART
    return Shown.FOREIGN
