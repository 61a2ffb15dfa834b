"""The last output of a terminal by offset, for any number of readers, at a host and at a gateway.

One thread appends and never waits; the event loop reads. However many readers there are, a byte is kept once, and the
thread wakes the loop at most once for each time that readers had nothing left to read.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from bisect import bisect_right
from collections.abc import Callable
from typing import Final

KEPT_BYTES: Final = 256 * 1024
"""At least so much is kept for readers that reconnect."""
_MERGED_BYTES: Final = 512
"""Pieces are joined up to this size, so that a program that prints byte by byte costs no list entry for each."""
_DROP_STEP: Final = 32 * 1024
"""Surplus is dropped in steps: each look for it costs the appending thread time."""
_MAX_DROPPED: Final = 256
"""After so many dropped pieces the lists are shortened."""


class OutputRing:
    """Keeps the last output. Only `append` may be called in another thread than the loop's."""

    def __init__(self, start: int, *, kept: int = KEPT_BYTES) -> None:
        """`start` is the offset of the first byte to be appended."""
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._kept = kept
        self._end = start
        # The pieces as they came, so that keeping them costs the appending thread no copy; each with its offset.
        self._pieces: list[bytes] = []
        self._offsets: list[int] = []
        self._dropped = 0
        """How many pieces at the beginning of the lists are no longer kept."""
        self._drop_at = start + kept
        self._is_awaited = False
        self._waiters: set[Callable[[], None]] = set()

    @property
    def start(self) -> int:
        """The offset of the first byte that is kept."""
        with self._lock:
            return self._start

    @property
    def end(self) -> int:
        """The offset of the next byte."""
        return self._end

    def append(self, data: bytes) -> None:
        """Adds output; never waits."""
        with self._lock:
            if len(data) >= _MERGED_BYTES or not self._merge(data):
                self._pieces.append(data)
                self._offsets.append(self._end)
            self._end += len(data)
            if self._end > self._drop_at:
                self._drop_surplus()
            if not self._is_awaited:
                return
            self._is_awaited = False
        # The loop may be closed by now.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake)

    def restart(self, start: int) -> None:
        """Drops everything, because output is missing before `start`."""
        with self._lock:
            self._pieces.clear()
            self._offsets.clear()
            self._dropped = 0
            self._end = start
            self._drop_at = start + self._kept

    def holds(self, offset: int) -> bool:
        """Returns whether a reader can go on at `offset` without a gap."""
        with self._lock:
            return self._start <= offset <= self._end

    def read(self, offset: int, most: int) -> bytes | None:
        """Returns the output from `offset` on, empty if there is none yet, or None if it is no longer kept.

        After an empty result the next output calls every `notify` function once.
        """
        with self._lock:
            if offset < self._start:
                return None
            if offset >= self._end:
                self._is_awaited = True
                return b""
            number = bisect_right(self._offsets, offset, lo=self._dropped) - 1
            found = [self._pieces[number][offset - self._offsets[number] :][:most]]
            left = most - len(found[0])
            while left > 0 and (number := number + 1) < len(self._pieces):
                found.append(self._pieces[number][:left])
                left -= len(found[-1])
            return b"".join(found)

    def notify(self, waiter: Callable[[], None]) -> None:
        """Calls `waiter` in the loop's thread when there is output for readers that had none left."""
        self._waiters.add(waiter)

    def forget(self, waiter: Callable[[], None]) -> None:
        """Calls `waiter` no more."""
        self._waiters.discard(waiter)

    @property
    def _start(self) -> int:
        return self._offsets[self._dropped] if self._dropped < len(self._offsets) else self._end

    def _merge(self, data: bytes) -> bool:
        """Adds a small piece to the last one, if that is small too."""
        if not data:
            return True
        if self._dropped >= len(self._pieces) or len(self._pieces[-1]) >= _MERGED_BYTES:
            return False
        self._pieces[-1] += data
        return True

    def _drop_surplus(self) -> None:
        self._drop_at = self._end + _DROP_STEP
        first = self._dropped
        while first + 1 < len(self._offsets) and self._end - self._offsets[first + 1] >= self._kept:
            self._pieces[first] = b""
            first += 1
        self._dropped = first
        if first > _MAX_DROPPED:
            del self._pieces[:first], self._offsets[:first]
            self._dropped = 0

    def _wake(self) -> None:
        for waiter in tuple(self._waiters):
            waiter()
