"""Signs on the screen that a program took a typed text.

A mere change of the screen is none: completion popups change it too. What counts: a full-screen program began to work;
the input is empty and the message stands among what was submitted; the input held the text and is empty after Enter;
the cursor of a line program left the line that held the text.
"""

from __future__ import annotations

from synapse.core.agent import WORKING
from synapse.terminal.echo import Shown, count_submitted, is_above_cursor, shown
from synapse.terminal.evidence import Look
from synapse.terminal.gate import dialog_open
from synapse.terminal.picture import Picture
from synapse.terminal.profile import Profile


class ProofSeeker:
    """Watches the screen after a text was typed."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._text = ""
        self._typed_at = 0.0
        self._submitted_before = 0
        self._was_seen = False
        self._entered = False
        self._saw_work = False
        self._sign_since: float | None = None

    def typed(self, text: str, before: Picture, now: float) -> None:
        """The text is being typed; `before` is what the screen showed until now."""
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
        """When a sign that is there now will have lasted long enough."""
        return None if self._sign_since is None else self._sign_since + self._profile.times.quiet

    def shown(self, picture: Picture) -> Shown:
        """Return what the input shows of the text."""
        seen = shown(picture, self._profile, self._text)
        self._was_seen = self._was_seen or seen is Shown.WHOLE
        return seen

    def entered(self) -> None:
        """Enter is pressed; from now on an empty input means something."""
        self._entered = True
        self._sign_since = None

    def person_came_in(self, look: Look, now: float) -> bool:
        """True if a person pressed a key after the text was typed: then an empty input may be their doing."""
        return now - look.person_idle_for > self._typed_at

    def seek(self, look: Look, now: float) -> str:
        """Return what proves the submission, as a sentence, or nothing."""
        if look.picture is None or look.is_half_painted:
            return ""
        if dialog_open(look) and not self._profile.reads_lines:
            # It covers the page. A line program asks below the line that it has read.
            return ""
        if self._profile.reads_lines:
            return self._line_sign(look, look.picture, now)
        self._saw_work = self._saw_work or (self._entered and look.state == WORKING)
        if self._began_to_work(look, look.picture, now):
            return "the program began to work"
        return self._lasting(self._page_sign(look, look.picture, now), now)

    def _began_to_work(self, look: Look, picture: Picture, now: float) -> bool:
        """Half a frame may hide a mark, but it does not make one, so this is believed at once."""
        is_gone = self.shown(picture) in (Shown.NOTHING, Shown.HIDDEN)
        return self._entered and is_gone and look.state == WORKING and not self.person_came_in(look, now)

    def _lasting(self, sign: str, now: float) -> str:
        """A full-screen program erases before it repaints, and a look may fall in between: absence has to last."""
        if not sign:
            self._sign_since = None
            return ""
        if self._sign_since is None:
            self._sign_since = now
        return sign if now >= self._sign_since + self._profile.times.quiet else ""

    def _page_sign(self, look: Look, picture: Picture, now: float) -> str:
        seen = self.shown(picture)
        # A person may have begun their next line already, so the input need not be empty; it must not be ours.
        if seen in (Shown.NOTHING, Shown.FOREIGN) and self._is_submitted(picture):
            return "the program shows the message as submitted"
        if self._entered and self._was_seen and seen is Shown.NOTHING and not self.person_came_in(look, now):
            return "the prompt held the text and was cleared"
        return ""

    def _line_sign(self, look: Look, picture: Picture, now: float) -> str:
        seen = self.shown(picture)
        if not self._entered:
            return ""
        if seen is Shown.NOTHING and self._is_submitted(picture):
            return "the prompt is back below the message"
        if not self._was_seen:
            return ""
        if seen is Shown.HIDDEN and is_above_cursor(picture, self._profile, self._text):
            return "the cursor left the line that held the text"
        if seen is Shown.NOTHING and not self.person_came_in(look, now):
            return "the prompt held the text and was cleared"
        return ""

    def _is_submitted(self, picture: Picture) -> bool:
        return count_submitted(picture, self._profile, self._text) > self._submitted_before
