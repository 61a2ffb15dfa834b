"""The ends of turns on their way to the store, while the agent goes on with its next message.

    added ─► on its way ─durable─► told
                  └─ failed ─► recorded once more, until the store lets it      (no turn begins meanwhile)

Who waits for an answer hears of it when it is durable, as always: only the agent does not wait for that.

Doing what must not be left undone, again and again while the store fails: an agent outlives a full disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

from synapse.core.errors import Conflict, IllegalTransition, StoreFailed, TaskFinished
from synapse.core.events import TaskEvent
from synapse.core.task import Task, TaskState
from synapse.core.types import Clock
from synapse.tasks import outcomes
from synapse.tasks.journal import Journal

log = logging.getLogger(__name__)

MOST_ON_THEIR_WAY: Final = 32
"""More turns do not begin before the store has some of them: what it does not have is lost when the process dies."""


INTERNAL: Final = ("internal", "a defect of Synapse ended the turn; the host's log has it")


class TurnRecorder:
    """Records how turns ended, behind them. `finished` hears of each task once the end of its turn is durable."""

    def __init__(self, journal: Journal, clock: Clock, finished: Callable[[Task], None], insisting: Insisting) -> None:
        self._journal = journal
        self._insisting = insisting
        self._clock = clock
        self._finished = finished
        self._on_their_way = 0
        self._repairs: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        self._room.set()
        self._all_durable = asyncio.Event()
        self._all_durable.set()

    def add(self, *facts: TaskEvent) -> None:
        """Record `facts`, which end a turn."""
        self._on_their_way += 1
        self._all_durable.clear()
        if self._on_their_way >= MOST_ON_THEIR_WAY:
            self._room.clear()
        self._journal.record_nowait(*facts).add_done_callback(partial(self._settle, facts))

    @property
    def has_room(self) -> bool:
        """Whether another turn may begin."""
        return self._room.is_set()

    async def wait_for_room(self) -> None:
        """Return when another turn may begin."""
        await self._room.wait()

    async def drain(self, seconds: float) -> None:
        """Wait at most so long until all are durable."""
        if self._on_their_way:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_durable.wait(), seconds)

    async def close(self, seconds: float) -> None:
        """The same, and then give up: a store that still fails will have a restart say what became of the turns."""
        try:
            await self.drain(seconds)
        finally:
            for repair in self._repairs:
                repair.cancel()

    def _settle(self, facts: Sequence[TaskEvent], recorded: asyncio.Future[Task]) -> None:
        if not recorded.cancelled() and recorded.exception() is None:
            self._leave()
            self._finished(recorded.result())
            return
        self._room.clear()
        repair = asyncio.ensure_future(self._repair(facts))
        self._repairs.add(repair)
        repair.add_done_callback(self._repaired)

    async def _repair(self, facts: Sequence[TaskEvent]) -> None:
        """Record what could not be recorded; when that can never be, say so."""
        task_id = facts[0].task_id
        try:
            await self._insisting.insist(lambda: self._journal.record(*facts))
        except (IllegalTransition, TaskFinished):
            pass  # it has ended meanwhile: canceled, or answered by a reply
        except Exception:
            # As in a turn: an answer that cannot be stored must not end the agent, nor come back at its next start.
            log.exception("turn_end_not_recorded", extra={"task": task_id})
            task = await self._insisting.insist(lambda: self._journal.load(task_id))
            failed = outcomes.ended(task, self._clock.now(), TaskState.FAILED, *INTERNAL)
            with suppress(Conflict):
                await self._insisting.insist(lambda: self._journal.record(*failed))
        self._finished(await self._insisting.insist(lambda: self._journal.load(task_id)))

    def _repaired(self, repair: asyncio.Task[None]) -> None:
        self._repairs.discard(repair)
        self._leave()

    def _leave(self) -> None:
        self._on_their_way -= 1
        if not self._on_their_way:
            self._all_durable.set()
        if self._on_their_way < MOST_ON_THEIR_WAY and not self._repairs:
            self._room.set()


T = TypeVar("T")

STORE_PAUSE: Final = 0.5
"""Seconds before a store that failed is asked again."""


class Insisting:
    """Retries for one agent, and knows whether its store fails now."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.trouble: StoreFailed | None = None
        """How the store failed last, until it works again."""
        self.since: datetime | None = None
        """Since when it fails."""

    async def insist(self, act: Callable[[], Awaitable[T]]) -> T:
        """Return what `act` does once the store lets it."""
        while True:
            try:
                done = await act()
            except StoreFailed as failure:
                self.since = self.since or self._clock.now()
                self.trouble = failure
                log.warning("store_failed", extra={"error": failure.code})
            else:
                self.trouble = self.since = None
                return done
            await asyncio.wait((asyncio.get_running_loop().create_future(),), timeout=STORE_PAUSE)
