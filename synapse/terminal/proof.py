"""Finds proof on the screen that a program took a typed text.

A mere change of the screen is no proof: completion popups change it too. These are:

- a full-screen program began to work;
- the input no longer holds the text, and the message stands among the submitted ones;
- the input held the text and is empty after Enter;
- the cursor of a line program left the line that held the text.

Programs wrap, indent and frame what they show, so texts are compared without their blanks.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from synapse.core.agent import WORKING
from synapse.terminal.evidence import Look
from synapse.terminal.gate import dialog_open
from synapse.terminal.picture import Picture
from synapse.terminal.profile import Profile
from synapse.terminal.reading import compact, cursor_line, read_prompt

# Two texts may share fewer letters than this by chance.
_TELLING: Final = 8
# A text may be longer than the screen; then only its end is visible.
_TAIL: Final = 60
# This much of a text's beginning stands on one row, so no frame interrupts it.
_HEAD: Final = 40


class Shown(Enum):
    """What the input shows of our text."""

    WHOLE = auto()
    """All of it, or a mark that stands for it, or as much of its end as there is room for."""
    PART = auto()
    """Some of it: it is being painted, or letters were replaced."""
    NOTHING = auto()
    """The input is visible, and empty."""
    FOREIGN = auto()
    """The input holds something else."""
    HIDDEN = auto()
    """The input is not visible."""


class ProofSeeker:
    """Watches the screen after a text was typed."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._text = ""
        self._typed_at = 0.0
        self._submitted_before = 0
        self._was_seen = False
        self._entered = False
        self._at_enter: Picture | None = None
        """The screen when Enter was pressed."""
        self._saw_work = False
        self._sign_since: float | None = None

    def typed(self, text: str, before: Picture, now: float) -> None:
        """Notes that the text is being typed; `before` is the screen until now."""
        self._text = text
        self._typed_at = now
        self._submitted_before = count_submitted(before, self._profile, text)

    @property
    def was_seen(self) -> bool:
        """True once the input held the whole text."""
        return self._was_seen

    @property
    def has_entered(self) -> bool:
        """True once Enter was pressed."""
        return self._entered

    @property
    def saw_work(self) -> bool:
        """True once the program was seen to work after Enter."""
        return self._saw_work

    @property
    def due(self) -> float | None:
        """When a sign that is visible now will have lasted long enough."""
        return None if self._sign_since is None else self._sign_since + self._profile.times.quiet

    def shown(self, picture: Picture) -> Shown:
        """Returns what the input shows of the text."""
        seen = shown(picture, self._profile, self._text)
        self._was_seen = self._was_seen or seen is Shown.WHOLE
        return seen

    def entered(self, before: Picture) -> None:
        """Notes that Enter is pressed, so that an empty input counts from now on; `before` is the screen until now."""
        self._entered = True
        self._at_enter = before
        self._sign_since = None

    def person_typed(self, look: Look, now: float) -> bool:
        """Returns whether a person pressed a key after the text was typed: then they may have emptied the input."""
        return now - look.person_idle_for > self._typed_at

    def seek(self, look: Look, now: float) -> str:
        """Returns the proof of submission as a sentence, or an empty string."""
        if look.picture is None or look.is_half_painted:
            return ""
        if dialog_open(look) and not self._profile.reads_lines:
            # It covers the page. A line program asks below the line that it has read.
            return ""
        if self._profile.reads_lines:
            return self._line_sign(look, look.picture, now)
        works = self._entered and look.state == WORKING
        self._saw_work = self._saw_work or works
        seen = self.shown(look.picture)
        if works and seen in (Shown.NOTHING, Shown.HIDDEN) and not self.person_typed(look, now):
            # Half a frame may hide a mark of work but never makes one, so this sign need not last.
            return "the program began to work"
        return self._lasting(self._page_sign(seen, look, look.picture, now), now)

    def _lasting(self, sign: str, now: float) -> str:
        """Returns the sign once it has lasted.

        A full-screen program erases before it repaints, and a look may fall in between: absence has to last.
        """
        if not sign:
            self._sign_since = None
            return ""
        if self._sign_since is None:
            self._sign_since = now
        return sign if now >= self._sign_since + self._profile.times.quiet else ""

    def _page_sign(self, seen: Shown, look: Look, picture: Picture, now: float) -> str:
        # A person may have begun their next line already, so the input need not be empty; it must not be ours.
        if seen in (Shown.NOTHING, Shown.FOREIGN) and self._is_submitted(picture):
            return "the program shows the message as submitted"
        if self._entered and self._was_seen and seen is Shown.NOTHING and not self.person_typed(look, now):
            return "the prompt held the text and was cleared"
        return ""

    def _line_sign(self, look: Look, picture: Picture, now: float) -> str:
        seen = self.shown(picture)
        if not self._entered or not self._has_changed(picture):
            return ""
        if seen is Shown.NOTHING and self._is_submitted(picture):
            return "the prompt is back below the message"
        if not self._was_seen:
            return ""
        if seen is Shown.HIDDEN and _is_above_cursor(picture, self._profile, self._text):
            return "the cursor left the line that held the text"
        if seen is Shown.NOTHING and not self.person_typed(look, now):
            return "the prompt held the text and was cleared"
        return ""

    def _has_changed(self, picture: Picture) -> bool:
        """Returns whether the screen has changed since Enter was pressed.

        A program may print something, and its prompt again, below a text that waits for Enter. That does not prove
        that it took the text.
        """
        before = self._at_enter
        return before is None or (picture.lines, picture.cursor) != (before.lines, before.cursor)

    def _is_submitted(self, picture: Picture) -> bool:
        return count_submitted(picture, self._profile, self._text) > self._submitted_before


def shown(picture: Picture, profile: Profile, text: str) -> Shown:
    """Returns what the input shows of `text`."""
    prompt = read_prompt(picture, profile)
    if prompt is not None:
        return _compare(prompt.text, profile, text)
    if not profile.reads_lines:
        return Shown.HIDDEN
    # The prompt may be rows above (a paste of several lines), scrolled out, or unknown to the profile. If the cursor is
    # on a fresh row, none of the text is left in the input: the rows above only show what was submitted.
    if not picture.lines[picture.cursor[0]].strip():
        return Shown.HIDDEN
    above = compact("".join(picture.lines[: picture.cursor[0] + 1]))
    return Shown.WHOLE if above.endswith(compact(text)[-_TAIL:]) else Shown.HIDDEN


def count_submitted(picture: Picture, profile: Profile, text: str) -> int:
    """Returns how often the text's beginning stands outside of the input: programs show submitted messages."""
    prompt = read_prompt(picture, profile)
    first_row, last_row = (prompt.first_row, prompt.last_row) if prompt else (len(picture.lines), len(picture.lines))
    if prompt is None and profile.reads_lines:
        first_row, last_row = cursor_line(picture, profile)[0], picture.cursor[0]
    above = compact("".join(picture.lines[:first_row]))
    below = compact("".join(picture.lines[last_row + 1 :]))
    head = compact(text)[:_HEAD]
    return above.count(head) + below.count(head)


def _is_above_cursor(picture: Picture, profile: Profile, text: str) -> bool:
    """Returns whether the text's end stands above the cursor's line."""
    above = compact("".join(picture.lines[: cursor_line(picture, profile)[0]]))
    return compact(text)[-_TAIL:] in above


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
