"""A time limit for whoever does not read what was written: it is moved as long as something of it is read."""

from __future__ import annotations

import asyncio

from synapse.transports.deadline import Deadline


class UnreadLimit:
    """Hangs up when nothing was read for the time that was set last."""

    __slots__ = ("_deadline", "_seconds", "_transport", "_unsent")

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self._deadline = Deadline(loop, self._look)
        self._seconds = 0.0
        self._unsent = 0

    def set(self, seconds: float) -> None:
        """Something of what is written by now must be read in so many seconds; and then again, until all of it is."""
        self._seconds = seconds
        self._unsent = self._transport.get_write_buffer_size()
        self._deadline.set(seconds)

    def clear(self) -> None:
        """There is no limit until the next one is set."""
        self._deadline.clear()

    def close(self) -> None:
        """End for good: no timer is left."""
        self._deadline.close()

    def _look(self) -> None:
        before = self._unsent
        self.set(self._seconds)
        if self._unsent >= before:
            self._transport.abort()
