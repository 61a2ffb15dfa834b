"""What the kernel does with the lines of a program, by the settings of its terminal."""

from __future__ import annotations

import termios
from typing import Any, Final

from synapse.terminal.draft import LineKeys

SUSPEND_KEY: Final = b"\x1a"
_COOKED_SIGNALS: Final = termios.ICANON | termios.ISIG
# Python's termios has no name for it; Linux and macOS share the value.
IUTF8: Final = 0x4000
_DISABLED: Final = b"\0"
"""A key that a terminal does not have."""
_RETURN: Final = frozenset(b"\r")
_NONE: Final[frozenset[int]] = frozenset()


def edits_lines(terminal: int) -> bool:
    """True if the kernel edits the program's lines, and hands them over whole."""
    try:
        return bool(termios.tcgetattr(terminal)[3] & termios.ICANON)
    except termios.error:
        return False


def line_keys(terminal: int) -> LineKeys | None:
    """Return the keys by which the kernel edits the program's line; None if the program edits it."""
    try:
        settings = termios.tcgetattr(terminal)
    except termios.error:
        return None
    flags: int = settings[3]
    if not flags & termios.ICANON:
        return None
    takes: int = settings[0]
    is_extended = bool(flags & termios.IEXTEN)
    signals = _keys(settings, termios.VINTR, termios.VQUIT, termios.VSUSP, when=flags & termios.ISIG)
    pauses = _keys(settings, termios.VSTART, termios.VSTOP, when=takes & termios.IXON)
    reprint = _keys(settings, termios.VREPRINT, when=is_extended and flags & termios.ECHO)
    end = _keys(settings, termios.VEOF, termios.VEOL, termios.VEOL2) | {ord("\n")}
    return LineKeys(
        erase=_keys(settings, termios.VERASE),
        kill=_keys(settings, termios.VKILL) | (_NONE if flags & termios.NOFLSH else signals),
        erase_word=_keys(settings, termios.VWERASE, when=is_extended),
        literal=_keys(settings, termios.VLNEXT, when=is_extended),
        end=end | _RETURN if takes & termios.ICRNL else end,
        ignored=pauses | reprint | signals | (_RETURN if takes & termios.IGNCR else _NONE),
        erases_characters=bool(takes & IUTF8),
    )


def suspending_drops_line(terminal: int) -> bool:
    """True if the kernel itself acts on Ctrl-Z: it drops the line, shows `^Z` where it stood, and stops the program.

    It does so also when the program ignores the signal, or has no shell behind it, and so is not stopped.
    """
    try:
        settings = termios.tcgetattr(terminal)
    except termios.error:
        return False
    flags, is_key = settings[3], settings[6][termios.VSUSP] == SUSPEND_KEY
    return is_key and flags & _COOKED_SIGNALS == _COOKED_SIGNALS and not flags & termios.NOFLSH


def _keys(settings: list[Any], *indexes: int, when: int = True) -> frozenset[int]:
    """The bytes of the keys at these places of a terminal's settings, unless something has switched them off."""
    keys: list[bytes] = settings[6]
    return frozenset(keys[index][0] for index in indexes if when and keys[index] != _DISABLED)
