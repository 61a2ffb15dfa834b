"""Follows the transcript that a CLI writes while it runs, from its first line to its last."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from synapse.drivers.pty.signals.tail import Tail, size_of, tail_from_now
from synapse.drivers.pty.signals.ticker import Ticker
from synapse.terminal.signals.report import Record

_BUSY_SECONDS: Final = 0.02
_IDLE_SECONDS: Final = 0.5
_TICKS_PER_SEARCH: Final = 10
_QUIET_SECONDS: Final = 2.0
"""A program that is silent for so long writes nothing that matters; its file is looked at less often."""
_LARGEST_WHOLE: Final = 1024 * 1024
"""A longer transcript is an old conversation that goes on: only what is added is of interest."""


class Follower:
    """Calls `take` for each record of the file that `find` names; another file there means another conversation."""

    def __init__(
        self, find: Callable[[], Path | None], take: Callable[[Record], None], quiet_for: Callable[[], float]
    ) -> None:
        self._find = find
        self._take = take
        self._quiet_for = quiet_for
        self._tail: Tail | None = None
        self._tails: dict[Path, Tail] = {}
        """One for each conversation so far: going back to one reads only what is new."""
        self._ticks = 0
        self._ticker = Ticker(_BUSY_SECONDS, self._tick)

    def start(self) -> None:
        self._ticker.start()

    def stop(self) -> None:
        self._ticker.stop()

    def look(self) -> None:
        """Read what is there now, and keep a close eye on it for a while."""
        self._search()
        self._read()
        self._ticker.start()

    def _tick(self) -> float | None:
        self._ticks += 1
        if self._quiet_for() > _QUIET_SECONDS:
            self._read()
            return _IDLE_SECONDS
        if self._ticks % _TICKS_PER_SEARCH == 0:
            self._search()
        self._read()
        return _BUSY_SECONDS

    def _search(self) -> None:
        path = self._find()
        if path is None or (self._tail is not None and self._tail.path == path):
            return
        if path not in self._tails:
            self._tails[path] = Tail(path) if size_of(path) < _LARGEST_WHOLE else tail_from_now(path)
        self._tail = self._tails[path]

    def _read(self) -> None:
        if self._tail is not None:
            for record in self._tail.read():
                self._take(record)
