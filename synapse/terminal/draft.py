"""Is a person's line half typed? Judged by their keys alone.

The screen does not tell for a line program: what is typed ahead, while it works, is echoed somewhere above the prompt,
and waits in the kernel; the prompt that comes then looks empty. A message typed now would be glued to it.
"""

from __future__ import annotations

from typing import Final

from synapse.terminal.edited_line import EditedLine
from synapse.terminal.keys import Key, KeyParser, Kind

_SUSPENDS: Final = "z"
# Ctrl-C and Ctrl-\ also throw away what waits in the kernel; Ctrl-D hands it over.
_ENDS_LINE: Final = frozenset("cd\\")
_UNKNOWN: Final = EditedLine("?")
_NO_PRESS: Final = frozenset((Kind.REPORT, Kind.NEUTRAL))
# It may be the beginning of a report, but mostly it is the key.
_ESCAPE: Final = b"\x1b"


class PersonDraft:
    """Follows a person's keys."""

    def __init__(self) -> None:
        self._keys = KeyParser()
        self._line = EditedLine()

    @property
    def is_open(self) -> bool:
        """True if a line was begun and not ended; a key whose effect is not known counts as a beginning."""
        return bool(self._line.text)

    def typed(self, data: bytes, *, suspending_drops_line: bool = False) -> bool:
        """Take what came from the person's terminal, cut anywhere; False if no key was pressed.

        A terminal answers the program's queries on the same line, and tells of its focus: that is not the person.
        """
        keys = self._keys.feed(data)
        for key in keys:
            if key.kind is Kind.CONTROL and key.text == _SUSPENDS:
                # A program that edits its own line has it still when it goes on.
                self._line = EditedLine() if suspending_drops_line else self._line
            else:
                self._line = self._after(key)
        return self._keys.pending == _ESCAPE or any(key.kind not in _NO_PRESS for key in keys)

    def _after(self, key: Key) -> EditedLine:
        # A line feed is Enter to a line program; what others make of it they show.
        if key.kind is Kind.ENTER or key.raw == b"\n" or (key.kind is Kind.CONTROL and key.text in _ENDS_LINE):
            return EditedLine()
        if key.kind is Kind.PASTED:
            # A line break in a paste ends what came before it.
            return EditedLine(key.text.replace("\r", "\n").rpartition("\n")[2])
        return self._line.edited(key) or _UNKNOWN
