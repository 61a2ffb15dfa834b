"""What other processes record, as it becomes durable: the end of the shared log, read once for all who follow.

    nobody follows ─► the first comes: where does the log end? ─► looking, a few ms apart ─► the last leaves

A gateway hears of everything in this way, also of what it records itself: one order for all, that of the seqs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Final, Protocol

from synapse.core.errors import SynapseError
from synapse.core.events import Recorded, Update
from synapse.core.store import TaskStore
from synapse.core.task import TaskId
from synapse.service.journal import Journal, Listener
from synapse.service.log_reader import LogReader

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.005
RECOVERY_SECONDS: Final = 1.0


class TailedStore(TaskStore, Protocol):
    """A store whose log others write too."""

    async def last_seq(self) -> int:
        """The seq of the newest event; 0 when there is none."""
        ...


class StoreTail:
    """Tells listeners of every update in the store, while anybody wants it."""

    def __init__(self, store: TailedStore, journal: Journal, *, look_seconds: float = LOOK_SECONDS) -> None:
        self._store = store
        self._journal = journal
        self._look_seconds = look_seconds
        self._listeners: list[Listener] = []
        self._event_listeners: list[Callable[[Recorded], None]] = []
        self._wanted: Callable[[TaskId], bool] = lambda _task_id: True
        self._followers = 0
        self._starting = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with each update, in the order of the seqs; return how to stop that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def hear_events(self, listener: Callable[[Recorded], None]) -> None:
        """Call `listener` with each event alone, wanted or not: that costs next to nothing."""
        self._event_listeners.append(listener)

    def only(self, wanted: Callable[[TaskId], bool]) -> None:
        """Tell only of the tasks for which `wanted` is true; the others cost next to nothing."""
        self._wanted = wanted

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Look until the block ends. Whatever becomes durable once the block has begun is told, if it is wanted then.

        Raises StoreFailed.
        """
        self._followers += 1
        try:
            async with self._starting:
                if self._looking is None:
                    self._looking = asyncio.create_task(self._look(await self._store.last_seq()))
            yield
        finally:
            self._followers -= 1
            if not self._followers and self._looking is not None:
                looking, self._looking = self._looking, None
                looking.cancel()
                await asyncio.wait({looking})

    async def _look(self, seq: int) -> None:
        reader = LogReader(self._journal, self._store)
        reader.seq = seq
        never = asyncio.Event()
        while True:
            pause = self._look_seconds
            try:
                async with aclosing(reader.after(reader.seq, self._heard)) as updates:
                    async for update in updates:
                        self._tell(update)
            except SynapseError as error:
                # Those who follow miss nothing: it goes on where it was.
                log.warning("log_not_read", extra={"error": error.code})
                pause = RECOVERY_SECONDS
            with suppress(TimeoutError):
                await asyncio.wait_for(never.wait(), pause)

    def _heard(self, recorded: Recorded) -> bool:
        for listener in self._event_listeners:
            listener(recorded)
        return self._wanted(recorded.event.task_id)

    def _tell(self, update: Update) -> None:
        for listener in tuple(self._listeners):
            listener(update)
