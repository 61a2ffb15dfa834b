"""Models a line of input: what each key does to it, and whether a person has left a half-typed line.

`EditedLine` applies keys as a line editor does. `PersonDraft` follows a person's keys; the gate adds what the screen
shows. Who edits the line decides what a key does to it:

- The kernel, for a program in cooked mode. Its rules are known exactly, but the screen does not show the line: text
  that is typed ahead while the program works is echoed somewhere above the prompt and waits in the kernel, and the
  prompt that comes then looks empty.
- The program itself. It shows the text in the line, but knows keys of its own: Up may recall a line from history, Tab
  may complete one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from synapse.terminal.keys import Key, KeyKind, KeyParser

_BREAKS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SUSPENDS: Final = "z"
# Ctrl-C and Ctrl-\ make a program drop its line.
_ENDS_LINE: Final = frozenset("c\\")
_NO_PRESS: Final = frozenset((KeyKind.REPORT, KeyKind.NEUTRAL))
# It may be the beginning of a report, but mostly it is the key.
_ESCAPE: Final = b"\x1b"
_CONTINUATION: Final = range(0x80, 0xC0)
# Linux takes each byte of the line for a character of Latin-1 when it erases a word.
_WORD: Final = frozenset(b"_") | {byte for byte in (*range(0x80), *range(0xC0, 0x100)) if chr(byte).isalnum()}


class Draft(Enum):
    """What a person's keys have left in the line."""

    NONE = auto()
    """Nothing: the line was submitted or emptied, or no key was pressed that puts text into it."""
    UNCERTAIN = auto()
    """No typed text, but a key was pressed that may put some there: the program's screen shows whether it did."""
    TYPED = auto()
    """Text, in a program that edits its own line, and so shows it once it has read the keys."""
    UNREAD = auto()
    """TYPED or UNCERTAIN, but the program has not read all keys yet, so it does not show what they did."""
    HIDDEN = auto()
    """Text in the kernel, which no screen shows reliably."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineKeys:
    """The bytes by which the kernel edits a program's line; the driver reads them from the terminal's settings."""

    erase: frozenset[int] = frozenset((0x7F,))
    kill: frozenset[int] = frozenset((0x15,))
    """They empty the line: the kill key, and those that send a signal, as Ctrl-C and Ctrl-Z do."""
    erase_word: frozenset[int] = frozenset((0x17,))
    literal: frozenset[int] = frozenset((0x16,))
    """The next byte is text, whatever it is."""
    end: frozenset[int] = frozenset((0x04, 0x0A, 0x0D))
    """They hand the line over to the program."""
    ignored: frozenset[int] = frozenset((0x11, 0x12, 0x13))
    """They are not part of the line: Ctrl-Q, Ctrl-R and Ctrl-S."""
    erases_characters: bool = True
    """The erase key removes a whole UTF-8 character, not only its last byte."""


@dataclass(frozen=True, slots=True)
class EditedLine:
    """The text on both sides of the cursor."""

    before: str = ""
    after: str = ""

    @property
    def text(self) -> str:
        return self.before + self.after

    def edited(self, key: Key) -> EditedLine | None:
        """Returns the line after `key`, or None if line editors treat that key differently."""
        if key.kind in (KeyKind.TEXT, KeyKind.PASTED):
            # A line break in a paste begins a second line, or submits the first.
            return EditedLine(self.before + key.text, self.after) if not _BREAKS.search(key.text) else None
        edit = _BY_LETTER.get(key.text) if key.kind is KeyKind.CONTROL else _BY_KIND.get(key.kind)
        return edit(self) if edit else None


class PersonDraft:
    """Follows a person's keys."""

    def __init__(self) -> None:
        self._keys = KeyParser()
        self._in_kernel = bytearray()
        self._is_next_literal = False
        self._line = EditedLine()
        """The line in the program's own editor, as far as the keys show it."""
        self._is_uncertain = False

    def state(self, *, kernel_edits: bool, has_unread: Callable[[], bool]) -> Draft:
        """Returns what is in the line.

        `kernel_edits` says whether the kernel edits the program's lines now. `has_unread` returns whether the program
        has yet to read something; it is called only if that matters.
        """
        if kernel_edits:
            # Text that a program read key by key is not in this line, whether a pager or another editor read it.
            return Draft.HIDDEN if self._in_kernel else Draft.NONE
        line, is_uncertain = _edited(self._line, self._handed_over(), is_uncertain=self._is_uncertain)
        if not line.text and not is_uncertain:
            return Draft.NONE
        if has_unread():
            return Draft.UNREAD
        return Draft.TYPED if line.text else Draft.UNCERTAIN

    def typed(self, data: bytes, kernel: LineKeys | None = None) -> bool:
        """Takes bytes from the person's terminal, cut anywhere; returns whether a key was pressed.

        `kernel` holds the kernel's keys if it edits the program's lines now. The terminal's answers to the program's
        queries and its focus reports come in the same stream; they are no key of the person.
        """
        keys = self._keys.feed(data)
        if kernel is None:
            self._edit_in_program(keys)
        else:
            self._edit_in_kernel(data, kernel)
        return self._keys.pending == _ESCAPE or any(key.kind not in _NO_PRESS for key in keys)

    def _edit_in_kernel(self, data: bytes, kernel: LineKeys) -> None:
        self._line, self._is_uncertain = EditedLine(), False
        line = self._in_kernel
        for byte in data:
            if self._is_next_literal:
                self._is_next_literal = False
                line.append(byte)
            elif byte in kernel.end or byte in kernel.kill:
                line.clear()
            elif byte in kernel.erase:
                del line[_last_character(line, whole_characters=kernel.erases_characters) :]
            elif byte in kernel.erase_word:
                _erase_last_word(line, whole_characters=kernel.erases_characters)
            elif byte in kernel.literal:
                self._is_next_literal = True
            elif byte not in kernel.ignored:
                # Also for arrows and function keys: the kernel does not know them, and keeps their bytes as text.
                line.append(byte)

    def _edit_in_program(self, keys: list[Key]) -> None:
        keys = self._handed_over() + keys
        self._in_kernel.clear()
        self._is_next_literal = False
        self._line, self._is_uncertain = _edited(self._line, keys, is_uncertain=self._is_uncertain)

    def _handed_over(self) -> list[Key]:
        """Returns the line in the kernel as the keys that a program gets once it begins to read key by key."""
        waiting = KeyParser()
        return waiting.feed(bytes(self._in_kernel)) + waiting.flush()


def _edited(line: EditedLine, keys: list[Key], *, is_uncertain: bool) -> tuple[EditedLine, bool]:
    """Returns the line in a program's own editor after `keys`, and whether it may hold other text."""
    for key in keys:
        if key.kind is KeyKind.PASTED:
            # The program keeps all lines of a paste: a line break in it submits nothing.
            line = EditedLine(line.before + key.text, line.after)
        # A line feed is Enter to a line program; other programs show what they make of it.
        elif key.kind is KeyKind.ENTER or key.raw == b"\n" or (key.kind is KeyKind.CONTROL and key.text in _ENDS_LINE):
            line, is_uncertain = EditedLine(), False
        elif not (key.kind is KeyKind.CONTROL and key.text == _SUSPENDS):
            edited = line.edited(key)
            line, is_uncertain = edited or line, is_uncertain or edited is None
    return line, is_uncertain


def _erase_last_word(line: bytearray, *, whole_characters: bool) -> None:
    """Erases back to the beginning of the last word, and everything behind the word, as Linux does."""
    is_in_word = False
    while line:
        at = _last_character(line, whole_characters=whole_characters)
        is_letter = at < len(line) and line[at] in _WORD
        if at == len(line) or (is_in_word and not is_letter):
            return
        is_in_word = is_letter
        del line[at:]


def _last_character(line: bytearray, *, whole_characters: bool) -> int:
    """Returns where the last character begins; the line's end if there is none, or only the rest of one."""
    if not whole_characters:
        return max(len(line) - 1, 0)
    begins = (at for at in range(len(line) - 1, -1, -1) if line[at] not in _CONTINUATION)
    return next(begins, len(line))


def _unchanged(line: EditedLine) -> EditedLine:
    return line


def _left(line: EditedLine) -> EditedLine:
    return EditedLine(line.before[:-1], line.before[-1:] + line.after)


def _right(line: EditedLine) -> EditedLine:
    return EditedLine(line.before + line.after[:1], line.after[1:])


def _home(line: EditedLine) -> EditedLine:
    return EditedLine("", line.text)


def _end(line: EditedLine) -> EditedLine:
    return EditedLine(line.text, "")


def _erase(line: EditedLine) -> EditedLine:
    return EditedLine(line.before[:-1], line.after)


def _delete(line: EditedLine) -> EditedLine:
    return EditedLine(line.before, line.after[1:])


def _erase_word(line: EditedLine) -> EditedLine:
    return EditedLine(re.sub(r"\S*\s*$", "", line.before), line.after)


def _erase_to_start(line: EditedLine) -> EditedLine:
    return EditedLine("", line.after)


def _erase_to_end(line: EditedLine) -> EditedLine:
    return EditedLine(line.before, "")


_Edit = Callable[[EditedLine], EditedLine]
_BY_KIND: Final[Mapping[KeyKind, _Edit]] = {
    KeyKind.NEUTRAL: _unchanged,
    KeyKind.REPORT: _unchanged,
    KeyKind.LEFT: _left,
    KeyKind.RIGHT: _right,
    KeyKind.HOME: _home,
    KeyKind.END: _end,
    KeyKind.BACKSPACE: _erase,
    KeyKind.DELETE: _delete,
}
_BY_LETTER: Final[Mapping[str, _Edit]] = {
    "a": _home,
    "b": _left,
    "d": _delete,
    "e": _end,
    "f": _right,
    "h": _erase,
    "k": _erase_to_end,
    "l": _unchanged,  # it repaints the screen
    "u": _erase_to_start,
    "w": _erase_word,
}
