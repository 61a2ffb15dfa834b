"""What Ctrl-Z leaves on the screen of a program whose lines the kernel edits, and how a screen looks without it.

The kernel drops the line that was being typed and shows `^Z` behind it; the program does not know, and paints nothing.
So its input is empty although there is text behind the prompt, and a prompt that it prints next stands behind the `^Z`.
"""

from __future__ import annotations

from typing import Final

from synapse.terminal.picture import Picture
from synapse.terminal.profile import Profile
from synapse.terminal.reading import cursor_line, read_prompt

_ECHO: Final = "^Z"


class SuspendedLine:
    """The cursor's line when Ctrl-Z was pressed."""

    def __init__(self, before: Picture, profile: Profile) -> None:
        self._profile = profile
        _, self._line = cursor_line(before, profile)
        prompt = read_prompt(before, profile)
        is_input = prompt is not None and prompt.text in self._line
        self._kept = self._line[: self._line.rindex(prompt.text)] if prompt and is_input else self._line

    def repainted(self, now: Picture) -> bytes:
        """Return bytes that paint the line as the program left it; none if `^Z` does not stand in it."""
        row, line = cursor_line(now, self._profile)
        _, echo, since = line[len(self._line) :].rpartition(_ECHO)
        if not echo or not line.startswith(self._line):
            return b""
        rows_up = now.cursor[0] - row
        return ((f"\x1b[{rows_up}A" if rows_up else "") + f"\r\x1b[J{self._kept}{since}").encode()
