"""The last output of a terminal by offset, for any number of readers, at a host and at a gateway.

One thread appends and never waits; the event loop reads. However many readers there are, a byte is kept once, and the
thread wakes the loop at most once for each time that readers had nothing left to read.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Final

KEPT_BYTES: Final = 256 * 1024
"""At least so much is kept for readers that reconnect, and at most twice as much."""


class OutputRing:
    """Keeps the last output. Only `append` may be called in another thread than the loop's."""

    def __init__(self, start: int, *, kept: int = KEPT_BYTES) -> None:
        """`start` is the offset of the first byte to be appended."""
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._kept = kept
        self._start = start
        self._data = bytearray()
        self._is_awaited = False
        self._waiters: set[Callable[[], None]] = set()

    @property
    def start(self) -> int:
        """The offset of the first byte that is kept."""
        return self._start

    @property
    def end(self) -> int:
        """The offset of the next byte."""
        with self._lock:
            return self._start + len(self._data)

    def append(self, data: bytes) -> None:
        """Adds output; never waits."""
        with self._lock:
            self._data += data
            surplus = len(self._data) - self._kept
            if surplus > self._kept:
                # Not for each piece: the rest has to be moved.
                del self._data[:surplus]
                self._start += surplus
            if not self._is_awaited:
                return
            self._is_awaited = False
        # The loop may be closed by now.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake)

    def restart(self, start: int) -> None:
        """Drops everything, because output is missing before `start`."""
        with self._lock:
            self._data.clear()
            self._start = start

    def holds(self, offset: int) -> bool:
        """Returns whether a reader can go on at `offset` without a gap."""
        with self._lock:
            return self._start <= offset <= self._start + len(self._data)

    def read(self, offset: int, most: int) -> bytes | None:
        """Returns the output from `offset` on, empty if there is none yet, or None if it is no longer kept.

        After an empty result the next output calls every `notify` function once.
        """
        with self._lock:
            if offset < self._start:
                return None
            first = offset - self._start
            data = bytes(self._data[first : first + most])
            if not data:
                self._is_awaited = True
            return data

    def notify(self, waiter: Callable[[], None]) -> None:
        """Calls `waiter` in the loop's thread when there is output for readers that had none left."""
        self._waiters.add(waiter)

    def forget(self, waiter: Callable[[], None]) -> None:
        """Calls `waiter` no more."""
        self._waiters.discard(waiter)

    def _wake(self) -> None:
        for waiter in tuple(self._waiters):
            waiter()
