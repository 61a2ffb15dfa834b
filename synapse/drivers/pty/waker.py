"""Wakes a thread that polls files."""

from __future__ import annotations

import contextlib
import os
import threading


class Waker:
    """A pipe that one thread polls and any other may write to, also after it was closed."""

    def __init__(self) -> None:
        self.number, self._bell = os.pipe()
        os.set_blocking(self.number, False)
        os.set_blocking(self._bell, False)
        # Guards the number of a closed file: another file may have it by then.
        self._lock = threading.Lock()
        self._is_open = True

    def wake(self) -> None:
        # A full pipe is full of wakes that were not seen yet.
        with self._lock, contextlib.suppress(BlockingIOError):
            if self._is_open:
                os.write(self._bell, b"w")

    def drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.number, 4096)

    def close(self) -> None:
        with self._lock:
            self._is_open = False
            os.close(self.number)
            os.close(self._bell)
