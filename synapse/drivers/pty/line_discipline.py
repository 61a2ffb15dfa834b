"""What the kernel does with the lines of a program, by the settings of its terminal."""

from __future__ import annotations

import termios
from typing import Final

SUSPEND_KEY: Final = b"\x1a"
_COOKED_SIGNALS: Final = termios.ICANON | termios.ISIG


def edits_lines(terminal: int) -> bool:
    """True if the kernel edits the program's lines, and hands them over whole."""
    try:
        return bool(termios.tcgetattr(terminal)[3] & termios.ICANON)
    except termios.error:
        return False


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
