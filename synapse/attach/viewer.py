"""One who looks at an agent's terminal: a bounded buffer between the pump and a connection."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Final

MOST_WAITING: Final = 256 * 1024
"""A viewer that is further behind than this gets a fresh picture instead of what it has missed."""


class Viewer:
    """Takes bytes from the pump's thread and hands them to the loop's."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._waiting = bytearray()
        self._is_behind = False
        self._there = asyncio.Event()
        self._is_told = False
        self._is_over = False

    @property
    def is_behind(self) -> bool:
        """True if it has missed something: then only a fresh picture helps."""
        return self._is_behind

    def receive(self, data: bytes) -> None:
        """Take what the program printed; never waits. The pump's thread."""
        with self._lock:
            if len(self._waiting) + len(data) > MOST_WAITING:
                self._waiting.clear()
                self._is_behind = True
            elif not self._is_behind:
                self._waiting += data
            if self._is_told:
                return
            self._is_told = True
        # The loop may be closed by now.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._there.set)

    def begin(self, picture: bytes) -> None:
        """Start anew with a picture; what was waiting is older than it. The loop's thread."""
        with self._lock:
            self._waiting[:] = picture
            self._is_behind = False
        self._there.set()

    def end(self, _reason: object = None) -> None:
        """Nothing more will come. The loop's thread."""
        self._is_over = True
        self._there.set()

    async def take(self) -> bytes | None:
        """Wait for bytes and return all that are there: none when the viewer is behind, None after the last."""
        while True:
            with self._lock:
                data = bytes(self._waiting)
                self._waiting.clear()
                if data or self._is_behind:
                    return data
                if self._is_over:
                    return None
                self._there.clear()
                self._is_told = False
            await self._there.wait()
