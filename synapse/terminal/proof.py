"""Signs on the screen that a program took a typed text.

A mere change of the screen is none: completion popups change it too. What counts, strongest first: the input is empty
and the message stands among what was submitted; the input held the text and is empty after Enter; the cursor of a line
program left the line that held the text; a full-screen program began to work.
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

    def __init__(self, text: str, profile: Profile, before: Picture, now: float) -> None:
        self._text = text
        self._profile = profile
        self._submitted_before = count_submitted(before, profile, text)
        self._typed_at = now
        self._was_seen = False
        self._entered = False
        self._sign_since: float | None = None

    @property
    def was_seen(self) -> bool:
        """True once the input held the whole text."""
        return self._was_seen

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
        seen = self.shown(look.picture)
        sign = self._line_sign(look, seen, now) if self._profile.reads_lines else self._page_sign(look, seen, now)
        if not sign:
            self._sign_since = None
            return ""
        if self._sign_since is None:
            self._sign_since = now
        due = self._sign_since + self._profile.times.quiet
        # A full-screen program erases before it repaints, and a look may fall in between: its signs have to last.
        return sign if now >= due or self._profile.reads_lines else ""

    def _page_sign(self, look: Look, seen: Shown, now: float) -> str:
        # A person may have begun their next line already, so the input need not be empty; it must not be ours.
        if seen in (Shown.NOTHING, Shown.FOREIGN) and self._is_submitted(look):
            return "the program shows the message as submitted"
        if not self._entered or self.person_came_in(look, now):
            return ""
        if seen is Shown.NOTHING and self._was_seen:
            return "the prompt held the text and was cleared"
        if seen in (Shown.NOTHING, Shown.HIDDEN) and look.state == WORKING:
            return "the program began to work"
        return ""

    def _line_sign(self, look: Look, seen: Shown, now: float) -> str:
        if not self._entered or look.picture is None:
            return ""
        if seen is Shown.NOTHING and self._is_submitted(look):
            return "the prompt is back below the message"
        if not self._was_seen:
            return ""
        if seen is Shown.HIDDEN and is_above_cursor(look.picture, self._text):
            return "the cursor left the line that held the text"
        if seen is Shown.NOTHING and not self.person_came_in(look, now):
            return "the prompt held the text and was cleared"
        return ""

    def _is_submitted(self, look: Look) -> bool:
        if look.picture is None:
            return False
        return count_submitted(look.picture, self._profile, self._text) > self._submitted_before
