"""What is typed into a program: written at once as far as its terminal takes it, and kept in order beyond that."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable


class ProgramInput:
    """The way into a terminal. Any thread may write; nobody ever waits for a program that does not read."""

    def __init__(self, terminal: int, wake: Callable[[], None]) -> None:
        self._terminal = terminal
        self._wake = wake
        self._lock = threading.Lock()
        self._pending = bytearray()
        self._closed = False

    @property
    def pending(self) -> int:
        """How many bytes wait for the program to read."""
        return len(self._pending)

    def write(self, data: bytes) -> None:
        """Type these bytes after all that were written before; those of a program that is gone are dropped."""
        with self._lock:
            self._pending += data
            self._push()
            is_stuck = bool(self._pending)
        if is_stuck:
            self._wake()

    def flush(self) -> None:
        """Write what waits, as far as the terminal takes it."""
        with self._lock:
            self._push()

    def close(self) -> None:
        """Drop what waits and whatever comes."""
        with self._lock:
            self._closed = True
            self._pending.clear()

    def _push(self) -> None:
        if self._closed:
            self._pending.clear()
            return
        try:
            while self._pending:
                del self._pending[: os.write(self._terminal, self._pending)]
        except BlockingIOError:
            return
        except OSError:
            # EIO: the program is gone; its exit is reported elsewhere.
            self._pending.clear()
