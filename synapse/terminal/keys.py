"""Keys as bytes: parses what a person types, and encodes a text as the keys that type it.

`KeyParser` reads the plain encodings and the two newer ones: kitty's `CSI code;modifiers u` and xterm's
`CSI 27;modifiers;code ~`. Every byte belongs to exactly one key, and the keys do not depend on how the bytes were cut
(only a run of text may come in pieces). Unknown bytes become a key of kind OTHER, never an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from synapse.core.text import sanitise
from synapse.terminal.profile import Profile, TypingStyle


class KeyKind(Enum):
    """What a key does to a line of input."""

    TEXT = auto()
    PASTED = auto()
    """Text between the marks of a bracketed paste."""
    ENTER = auto()
    BACKSPACE = auto()
    DELETE = auto()
    LEFT = auto()
    RIGHT = auto()
    HOME = auto()
    END = auto()
    CONTROL = auto()
    """Ctrl and the character in `text`."""
    NEUTRAL = auto()
    """Changes no line: a paste mark, a key released, the mouse moved, the window got the focus."""
    REPORT = auto()
    """No key: the terminal's answer to a query of the program."""
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class Key:
    """One key, or a run of text, with its bytes."""

    kind: KeyKind
    raw: bytes
    text: str = ""


# A text that ends like this opens a completion popup in all five CLIs; Enter then picks from it instead of submitting.
_OPENS_POPUP: Final = re.compile(r"(?:^|\s)[@/#$!]\S*$")

_PASTE_BEGIN: Final = b"\x1b[200~"
_PASTE_END: Final = b"\x1b[201~"
# No key and no report of a terminal is longer, so the parser waits for no more bytes than this.
_LONGEST: Final = 4096
_CSI: Final = re.compile(rb"\x1b\[([0-?]{0,64})([ -/]{0,8})([@-~]?)")
_STRING: Final = re.compile(rb"\x1b[\]PX^_].{0,4092}?(?:\x07|\x1b\\)", re.DOTALL)
_NUMBERS: Final = re.compile(r"[0-9;:]*")
_ALT: Final = re.compile(rb"\x1b(?:[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3})")
_CUT_ALT: Final = re.compile(rb"\x1b(?:[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})")
_PRINTABLE: Final = re.compile(rb"[^\x00-\x1f\x7f]+")

_BY_FINAL: Final = {b"C": KeyKind.RIGHT, b"D": KeyKind.LEFT, b"H": KeyKind.HOME, b"F": KeyKind.END}
_BY_NUMBER: Final = {1: KeyKind.HOME, 3: KeyKind.DELETE, 4: KeyKind.END, 7: KeyKind.HOME, 8: KeyKind.END}
_BY_CODE: Final = {13: KeyKind.ENTER, 57414: KeyKind.ENTER, 127: KeyKind.BACKSPACE, 8: KeyKind.BACKSPACE}
_REPORTS: Final = frozenset((b"c", b"n", b"R", b"t", b"x", b"y"))
"""Device attributes, status, cursor position, window, parameters, modes."""
_FOCUS: Final = frozenset((b"I", b"O"))

_SHIFT, _CONTROL = 1, 4
_LOCKS: Final = 64 | 128
_RELEASED: Final = 3
_MODIFIER_KEYS: Final = range(57441, 57455)
_PRIVATE_USE: Final = range(57344, 63744)


class KeyParser:
    """Cuts a person's bytes into keys. The bytes of an unfinished key wait in `pending`."""

    def __init__(self) -> None:
        self.pending = b""
        self._pasting = False

    def feed(self, data: bytes) -> list[Key]:
        """Returns the keys that are complete now."""
        data, self.pending = self.pending + data, b""
        keys: list[Key] = []
        while data:
            key = self._next(data)
            if key is None and len(data) < _LONGEST:
                self.pending = data
                break
            key = key or Key(KeyKind.OTHER, data[:1])
            keys.append(key)
            data = data[len(key.raw) :]
        return keys

    def flush(self) -> list[Key]:
        """Returns the pending bytes as a key: no more of them will come, as after a lone Escape."""
        data, self.pending = self.pending, b""
        return [Key(KeyKind.OTHER, data)] if data else []

    def _next(self, data: bytes) -> Key | None:
        if self._pasting:
            return self._pasted(data)
        if data[0] == 0x1B:
            key = _escape(data)
            self._pasting = key is not None and key.raw == _PASTE_BEGIN
            return key
        run = _PRINTABLE.match(data)
        if run is None:
            return _control(data[0])
        return _text(run[0], KeyKind.TEXT, more_may_come=len(run[0]) == len(data))

    def _pasted(self, data: bytes) -> Key | None:
        if data.startswith(_PASTE_END):
            self._pasting = False
            return Key(KeyKind.NEUTRAL, _PASTE_END)
        end = data.find(_PASTE_END)
        if end < 0:
            # The mark at the end may be cut.
            end = len(data) - next(n for n in range(5, -1, -1) if data.endswith(_PASTE_END[:n]))
        if end == 0:
            return None
        return _text(data[:end], KeyKind.PASTED, more_may_come=end == len(data))


@dataclass(frozen=True, slots=True)
class Keystrokes:
    """The bytes that put a text into the input, without Enter, and the text that the input should then show."""

    data: bytes
    shown: str


def keystrokes(text: str, profile: Profile, *, bracketed_paste: bool) -> Keystrokes:
    """Returns the bytes that type `text`: a paste if the program takes pastes, else plain keys on one line."""
    # The envelope is clean already. It is cleaned again because an ESC in a paste would end the paste, and this is the
    # last place that can prevent it.
    text = sanitise(text).strip()
    if not bracketed_paste and profile.typing.style is TypingStyle.LINE:
        # A line break would submit, and a tab would complete.
        text = profile.typing.newline.join(line.strip() for line in text.split("\n")).replace("\t", " ")
    shown = text + " " if _OPENS_POPUP.search(text) else text
    data = shown.encode()
    if bracketed_paste or profile.typing.style is TypingStyle.PASTE:
        data = _PASTE_BEGIN + data + _PASTE_END
    return Keystrokes(data, shown)


def _text(run: bytes, kind: KeyKind, *, more_may_come: bool) -> Key | None:
    try:
        return Key(kind, run, run.decode())
    except UnicodeDecodeError as error:
        if error.start > 0:
            return Key(kind, run[: error.start], run[: error.start].decode())
        if error.reason == "unexpected end of data" and more_may_come:
            return None
        return Key(KeyKind.OTHER, run[: error.end])


def _control(byte: int) -> Key:
    raw = bytes((byte,))
    if byte == 0x0D:
        return Key(KeyKind.ENTER, raw)
    if byte in (0x08, 0x7F):
        return Key(KeyKind.BACKSPACE, raw)
    if byte in (0x09, 0x0A):
        # Tab completes and a line feed begins another line: their result is unknown.
        return Key(KeyKind.OTHER, raw)
    return Key(KeyKind.CONTROL, raw, chr(byte | 0x40).lower())


def _escape(data: bytes) -> Key | None:
    if len(data) == 1:
        return None
    match data[1:2]:
        case b"[":
            return _csi(data)
        case b"O":
            return _ss3(data[:3]) if len(data) > 2 else None
        case b"]" | b"P" | b"X" | b"^" | b"_":
            string = _STRING.match(data)
            return Key(KeyKind.REPORT, string[0]) if string else None
        case b"\x1b":
            return Key(KeyKind.OTHER, data[:1])
        case _:
            return _with_alt(data)


def _with_alt(data: bytes) -> Key | None:
    if _CUT_ALT.fullmatch(data):
        return None
    whole = _ALT.match(data)
    return Key(KeyKind.OTHER, whole[0] if whole else data[:2])


def _ss3(raw: bytes) -> Key:
    if raw[2:] == b"M":
        return Key(KeyKind.ENTER, raw)
    if not 0x40 <= raw[2] <= 0x7E:
        return Key(KeyKind.OTHER, raw[:2])
    return Key(_BY_FINAL.get(raw[2:], KeyKind.OTHER), raw)


def _csi(data: bytes) -> Key | None:
    found = _CSI.match(data)
    if found is None or not found[3]:
        begun = found[0] if found else data
        return None if len(begun) == len(data) else Key(KeyKind.OTHER, begun)
    raw, parameters, final = found[0], found[1].decode("ascii"), found[3]
    if final == b"M" and not parameters:
        # The oldest mouse encoding: three more bytes, whatever they are.
        return Key(KeyKind.OTHER, data[:6]) if len(data) >= 6 else None
    if final in b"Mm" and parameters.startswith("<"):
        return Key(_mouse(parameters[1:]), raw)
    if found[2] or parameters[:1] in ("?", ">", "<", "=") or final in _REPORTS:
        return Key(KeyKind.REPORT, raw)
    if not _NUMBERS.fullmatch(parameters):
        return Key(KeyKind.OTHER, raw)
    # An empty field, or sub-field, is zero.
    fields = [[int(part or 0) for part in field.split(":")] for field in parameters.split(";")]
    return _function_key(raw, fields, final)


def _mouse(parameters: str) -> KeyKind:
    button = parameters.partition(";")[0]
    moved_or_scrolled = button.isdigit() and int(button) & (32 | 64)
    # A click may have put the cursor elsewhere.
    return KeyKind.NEUTRAL if moved_or_scrolled else KeyKind.OTHER


def _function_key(raw: bytes, fields: list[list[int]], final: bytes) -> Key:
    if final == b"~" and fields[0][0] == 27 and len(fields) == 3:
        return _coded(raw, fields[2], _modifiers(fields), "")
    if final == b"~" and fields[0][0] == 200:
        return Key(KeyKind.NEUTRAL if raw == _PASTE_BEGIN else KeyKind.OTHER, raw)
    is_release = len(fields) > 1 and len(fields[1]) > 1 and fields[1][1] == _RELEASED
    if is_release or final in _FOCUS:
        return Key(KeyKind.NEUTRAL, raw)
    if final == b"u":
        return _coded(raw, fields[0], _modifiers(fields), _chars(fields[2]) if len(fields) > 2 else "")
    kind = _BY_NUMBER.get(fields[0][0], KeyKind.OTHER) if final == b"~" else _BY_FINAL.get(final, KeyKind.OTHER)
    return Key(KeyKind.OTHER if _modifiers(fields) else kind, raw)


def _modifiers(fields: list[list[int]]) -> int:
    """Returns the held modifier keys as bits, without Caps Lock and Num Lock."""
    given = fields[1][0] if len(fields) > 1 else 0
    return max(given - 1, 0) & ~_LOCKS


def _coded(raw: bytes, codes: list[int], modifiers: int, text: str) -> Key:
    code = codes[0]
    if code in _BY_CODE:
        return Key(KeyKind.OTHER if modifiers else _BY_CODE[code], raw)
    if code in _MODIFIER_KEYS:
        return Key(KeyKind.NEUTRAL, raw)
    if code in _PRIVATE_USE or code < 0x20 or not (char := _chars([code])):
        return Key(KeyKind.OTHER, raw)
    if modifiers == _CONTROL:
        return Key(KeyKind.CONTROL, raw, char.lower())
    if modifiers == _SHIFT:
        return Key(KeyKind.TEXT, raw, text or (_chars(codes[1:2]) or char.upper()))
    return Key(KeyKind.OTHER, raw) if modifiers else Key(KeyKind.TEXT, raw, text or char)


def _chars(codes: list[int]) -> str:
    return "".join(chr(code) for code in codes if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000)
