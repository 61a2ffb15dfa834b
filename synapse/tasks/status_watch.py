"""Follows the whole status of an agent's host, for those who show it: an overview, a dashboard, notices.

    driver: another state or question ─┐
    journal: an event of a task ───────┼─► changed ─► read the status ─► send it, if it is another than the last
    host: the store failed or is back ─┘

Nothing looks while nothing changes. Three things that a status shows change without a word, so it is read again for as
long as they may: what an event began and the worker has not done yet, a dialog that has just opened and is not read
yet, and why messages are held.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Final

from synapse.core.agent import WAITING
from synapse.core.driver import AgentStatus, Driver
from synapse.core.events import ArtifactAdded, Update
from synapse.core.requests import HostStatus
from synapse.core.waiting import pause
from synapse.tasks.journal import Journal

GATHER_SECONDS: Final = 0.05
"""A status is sent at most this often. Within this time the worker has also done what an event began."""
PARTIAL_SECONDS: Final = 1.0
"""A growing answer is many events, and needs nobody at once."""
HELD_SECONDS: Final = 1.0
READ_SECONDS: Final = 0.25
"""How often a dialog that is not read yet is looked at."""
MOST_READS: Final = 12
"""After this many looks it will not be read."""


class StatusWatch:
    """Makes the streams of one agent's status."""

    def __init__(self, driver: Driver, journal: Journal) -> None:
        self._driver = driver
        self._journal = journal
        self._streams: set[_Changes] = set()

    def look_again(self) -> None:
        """Makes every stream read the status again."""
        for changes in self._streams:
            changes.note()

    async def statuses(self, read: Callable[[], Awaitable[HostStatus]]) -> AsyncGenerator[HostStatus, None]:
        """Yields the status, then each other one, until the reader leaves."""
        changes = _Changes()
        self._streams.add(changes)
        stop_driver = self._driver.watch(changes.on_status)
        stop_journal = self._journal.listen(changes.on_update)
        last: HostStatus | None = None
        unread = 0
        reads_again = True
        try:
            while True:
                changes.begin()
                status = await read()
                if status != last:
                    last = status
                    yield status
                await pause(GATHER_SECONDS)
                if changes.are_noted or reads_again:
                    reads_again = changes.are_noted
                    continue
                is_unread = status.view.state == WAITING and status.view.question is None
                unread = unread + 1 if is_unread else 0
                reads_soon = 0 < unread <= MOST_READS
                await changes.wait(READ_SECONDS if reads_soon else HELD_SECONDS if status.held else None)
                reads_again = True
        finally:
            changes.close()
            self._streams.discard(changes)
            stop_driver()
            stop_journal()


class _Changes:
    """Notes that the status may have changed since it was read; of a growing answer a little later."""

    def __init__(self) -> None:
        self._noted = asyncio.Event()
        self._later: asyncio.TimerHandle | None = None

    @property
    def are_noted(self) -> bool:
        return self._noted.is_set()

    def begin(self) -> None:
        """Forgets all changes: the status is about to be read."""
        self._noted.clear()
        self.close()

    def note(self) -> None:
        self._noted.set()

    def on_status(self, _status: AgentStatus) -> None:
        self.note()

    def on_update(self, update: Update) -> None:
        if not isinstance(update.event, ArtifactAdded):
            self.note()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(PARTIAL_SECONDS, self.note)

    async def wait(self, seconds: float | None) -> None:
        """Waits until a change is noted, at most for `seconds`; without end if that is None."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._noted.wait()

    def close(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
