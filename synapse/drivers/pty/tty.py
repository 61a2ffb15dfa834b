"""Asks the kernel about a terminal and changes its settings: size, unread input, and how lines are edited."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from typing import Any, Final

from synapse.terminal.line_editor import LineKeys

SUSPEND_KEY: Final = b"\x1a"
# Python's termios has no name for it; Linux and macOS share the value.
IUTF8: Final = 0x4000
_COOKED_SIGNALS: Final = termios.ICANON | termios.ISIG
_DISABLED: Final = b"\0"
"""A key that a terminal does not have."""
_RETURN: Final = frozenset(b"\r")
_NONE: Final[frozenset[int]] = frozenset()

TerminalSettings = list[Any]
"""What `termios.tcgetattr` returns."""


def apply_settings(terminal: int, settings: TerminalSettings | None) -> None:
    """Gives a new terminal these settings, or the kernel's own with UTF-8."""
    if settings is None:
        settings = termios.tcgetattr(terminal)
        # Backspace in a cooked terminal erases a whole character, not its last byte.
        settings[0] |= IUTF8
    termios.tcsetattr(terminal, termios.TCSANOW, settings)


def set_size(terminal: int, columns: int, rows: int) -> None:
    """Sets a terminal's size; the kernel tells its foreground programs."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def drop_unread(tty: str) -> bool:
    """Drops typed bytes that the program has not read yet; False if it edits its own line and may have them there."""
    side = os.open(tty, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        if not termios.tcgetattr(side)[3] & termios.ICANON:
            return False
        termios.tcflush(side, termios.TCIFLUSH)
        return True
    finally:
        os.close(side)


def count_unread(tty: str) -> int:
    """Returns how many typed bytes the program could read now and has not read yet."""
    side = os.open(tty, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        return int(struct.unpack("i", fcntl.ioctl(side, termios.FIONREAD, b"\0" * 4))[0])
    finally:
        os.close(side)


def edits_lines(terminal: int) -> bool:
    """Returns whether the kernel edits the program's lines and hands them over whole."""
    try:
        return bool(termios.tcgetattr(terminal)[3] & termios.ICANON)
    except termios.error:
        return False


def line_keys(terminal: int) -> LineKeys | None:
    """Returns the keys by which the kernel edits the program's line; None if the program edits it."""
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


def end_of_file_key(terminal: int) -> bytes:
    """Returns the key that ends the input (Ctrl-D), or nothing if the terminal is gone."""
    try:
        return bytes(termios.tcgetattr(terminal)[6][termios.VEOF])
    except termios.error:
        return b""


def suspending_drops_line(terminal: int) -> bool:
    """Returns whether the kernel acts on Ctrl-Z: it drops the line, echoes `^Z` after it, and stops the program.

    It drops and echoes also when the program ignores the signal or has no shell behind it, and so is not stopped.
    """
    try:
        settings = termios.tcgetattr(terminal)
    except termios.error:
        return False
    flags, is_key = settings[3], settings[6][termios.VSUSP] == SUSPEND_KEY
    return is_key and flags & _COOKED_SIGNALS == _COOKED_SIGNALS and not flags & termios.NOFLSH


def _keys(settings: TerminalSettings, *indexes: int, when: int = True) -> frozenset[int]:
    """Returns the bytes of the keys at these indexes, without disabled keys; none if `when` is false."""
    keys: list[bytes] = settings[6]
    return frozenset(keys[index][0] for index in indexes if when and keys[index] != _DISABLED)
