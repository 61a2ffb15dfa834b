"""Records the ends of turns in the background, while the agent starts its next turn; retries while the store fails.

    added ─► being stored ─durable─► reported to `finished`
                  └─ failed ─► retried until the store works      (no turn starts meanwhile)

Callers that wait for an answer still get it only when it is durable; only the agent does not wait for the store.
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
from synapse.core.waiting import pause
from synapse.tasks import outcomes
from synapse.tasks.journal import Journal

log = logging.getLogger(__name__)

MOST_PENDING: Final = 32
"""How many ends may be pending before no further turn starts: a pending end is lost when the process dies."""
INTERNAL: Final = ("internal", "a defect of Synapse ended the turn; the host's log has the details")
"""Reason and note of a task that failed by an unexpected exception."""
RETRY_SECONDS: Final = 0.5
"""The pause before a failed store is tried again."""
T = TypeVar("T")


class StoreRetry:
    """Retries the operations of one agent while its store fails, as on a full disk, and knows whether it fails now."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.failure: StoreFailed | None = None
        """The last failure, until the store works again."""
        self.failing_since: datetime | None = None

    async def retry_until_stored(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Runs `operation`; repeats it every RETRY_SECONDS while it raises StoreFailed."""
        while True:
            try:
                result = await operation()
            except StoreFailed as failure:
                self.failing_since = self.failing_since or self._clock.now()
                self.failure = failure
                log.warning("store_failed", extra={"error": failure.code})
            else:
                self.failure = self.failing_since = None
                return result
            await pause(RETRY_SECONDS)


class TurnRecorder:
    """Records how turns ended. Calls `finished` with each task once the end of its turn is durable."""

    def __init__(
        self, journal: Journal, clock: Clock, finished: Callable[[Task], None], store_retry: StoreRetry
    ) -> None:
        self._journal = journal
        self._store_retry = store_retry
        self._clock = clock
        self._finished = finished
        self._pending = 0
        self._repairs: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        self._room.set()
        self._all_durable = asyncio.Event()
        self._all_durable.set()

    def add(self, *events: TaskEvent) -> None:
        """Records the events that end a turn, without waiting for the store."""
        self._pending += 1
        self._all_durable.clear()
        if self._pending >= MOST_PENDING:
            self._room.clear()
        self._journal.record_nowait(*events).add_done_callback(partial(self._on_recorded, events))

    @property
    def has_room(self) -> bool:
        """Whether another turn may start."""
        return self._room.is_set()

    async def wait_for_room(self) -> None:
        """Waits until another turn may start."""
        await self._room.wait()

    async def drain(self, seconds: float) -> None:
        """Waits until all added ends are durable, at most for `seconds`."""
        if self._pending:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_durable.wait(), seconds)

    async def close(self, seconds: float) -> None:
        """Drains, then stops retrying: recovery at the next start decides about turns whose end was not stored."""
        try:
            await self.drain(seconds)
        finally:
            for repair in self._repairs:
                repair.cancel()

    def _on_recorded(self, events: Sequence[TaskEvent], recorded: asyncio.Future[Task]) -> None:
        if not recorded.cancelled() and recorded.exception() is None:
            self._remove_pending()
            self._finished(recorded.result())
            return
        self._room.clear()
        repair = asyncio.ensure_future(self._repair(events))
        self._repairs.add(repair)
        repair.add_done_callback(self._on_repaired)

    async def _repair(self, events: Sequence[TaskEvent]) -> None:
        """Records events that could not be recorded; fails the task when they never can be."""
        task_id = events[0].task_id
        retry = self._store_retry.retry_until_stored
        try:
            await retry(lambda: self._journal.record(*events))
        except (IllegalTransition, TaskFinished):
            pass  # the task has ended meanwhile: canceled, or answered by a reply
        except Exception:
            # As in a turn: an answer that cannot be stored must not end the agent, nor come back at its next start.
            log.exception("turn_end_not_recorded", extra={"task": task_id})
            task = await retry(lambda: self._journal.load(task_id))
            failed = outcomes.ended(task, self._clock.now(), TaskState.FAILED, *INTERNAL)
            with suppress(Conflict):
                await retry(lambda: self._journal.record(*failed))
        self._finished(await retry(lambda: self._journal.load(task_id)))

    def _on_repaired(self, repair: asyncio.Task[None]) -> None:
        self._repairs.discard(repair)
        self._remove_pending()

    def _remove_pending(self) -> None:
        self._pending -= 1
        if not self._pending:
            self._all_durable.set()
        if self._pending < MOST_PENDING and not self._repairs:
            self._room.set()
