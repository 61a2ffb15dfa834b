"""Puts a person's terminal into raw mode while Synapse uses it, and restores it on every way out.

Normal end, exception, SIGTERM, SIGHUP and `sys.exit` are covered here. After `kill -9` of a host the session leader of
the CLI restores it (drivers/pty/session_leader.py); after `kill -9` of `synapse attach` nothing does, and the person
needs `reset`.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import signal
import termios
import threading
import tty
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

_FATAL: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_FALLBACK_SIZE: Final = (80, 24)


class PersonTerminal:
    """The terminal that this process was started in. If `source` is a pipe, nothing is changed."""

    def __init__(self, source: int = 0, sink: int = 1) -> None:
        self.source = source
        self.sink = sink
        self.is_terminal = os.isatty(source)
        self.settings: list[Any] | None = termios.tcgetattr(source) if self.is_terminal else None
        """The terminal's settings before raw mode."""
        self._is_raw = False
        self._leaving = b""
        self._size_changed: Callable[[int, int], None] | None = None

    def size(self) -> tuple[int, int]:
        """Returns columns and rows; 80x24 if there is no terminal."""
        for number in (self.sink, self.source):
            with contextlib.suppress(OSError):
                found = os.get_terminal_size(number)
                if found.columns and found.lines:
                    return found.columns, found.lines
        return _FALLBACK_SIZE

    def enter(self, leaving: bytes = b"") -> None:
        """Switches to raw mode. Writes `leaving` when raw mode ends, however it ends."""
        self._leaving = leaving
        if not self.is_terminal or self._is_raw:
            return
        atexit.register(self.restore)
        if threading.current_thread() is threading.main_thread():
            for number in _FATAL:
                if signal.getsignal(number) is signal.SIG_DFL:
                    signal.signal(number, self._die)
        self._is_raw = True
        tty.setraw(self.source, termios.TCSADRAIN)

    def restore(self, leaving: bytes = b"") -> None:
        """Writes `leaving` and restores the terminal. Safe to call twice, and while another job has the terminal."""
        leaving = leaving or self._leaving
        if not self._is_raw or self.settings is None:
            return
        self._is_raw = False
        atexit.unregister(self.restore)
        if not self._is_foreground():
            # The shell has the terminal; changing it from the background would suspend us.
            return
        with contextlib.suppress(OSError, termios.error):
            if leaving:
                os.write(self.sink, leaving)
            termios.tcsetattr(self.source, termios.TCSANOW, self.settings)

    def suspend(self, leaving: bytes = b"") -> None:
        """Gives the terminal to the shell and suspends, as Ctrl-Z does; returns in raw mode after `fg`."""
        kept = self._leaving
        self.restore(leaving)
        previous = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
        try:
            # Suspends the whole job, as the terminal would: also the other end of a pipe, or a script around us.
            os.killpg(os.getpgrp(), signal.SIGTSTP)
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            # To this thread, so that it is suspended before the next line. Without a shell that could continue us, the
            # kernel does nothing.
            signal.raise_signal(signal.SIGTSTP)
        finally:
            signal.signal(signal.SIGTSTP, previous)
        self.enter(kept)
        self._report_size()

    def follow_size(self, loop: asyncio.AbstractEventLoop, changed: Callable[[int, int], None]) -> None:
        """Calls `changed` with columns and rows, now and whenever the terminal's size changes."""
        self._size_changed = changed
        if self.is_terminal:
            loop.add_signal_handler(signal.SIGWINCH, self._report_size)
            loop.add_signal_handler(signal.SIGCONT, self._continued)
            self._report_size()

    def _report_size(self) -> None:
        if self._size_changed is not None:
            self._size_changed(*self.size())

    def _continued(self) -> None:
        """Returns to raw mode after a SIGSTOP from outside: the shell has changed the terminal meanwhile."""
        if self._is_raw and self._is_foreground():
            tty.setraw(self.source, termios.TCSADRAIN)
        self._report_size()

    def _is_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self.source) == os.getpgrp()
        except OSError:
            return False

    def _die(self, number: int, _frame: FrameType | None) -> None:
        self.restore()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
