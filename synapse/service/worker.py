"""One agent, one turn at a time: takes the next message when the driver can, and records what comes back.

    idle → (a message waits, the driver is ready) → turn → idle

A message of priority 5 interrupts the turn that runs and goes first. The worker types nothing itself: the driver does,
and only after the intent is durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from synapse.core.clock import Clock
from synapse.core.driver import (
    Answered,
    Asked,
    Driver,
    Failed,
    Handed,
    NotNow,
    Progress,
    Refused,
    Submitted,
    Turn,
    TurnEvent,
    TurnStarted,
)
from synapse.core.errors import AgentExited, AgentFailed
from synapse.core.message import Message
from synapse.core.task import INTERRUPT_PRIORITY, Task, TaskId
from synapse.service import outcomes
from synapse.service.journal import Journal
from synapse.service.origin import envelope_line
from synapse.service.queue import Queue, Queued

log = logging.getLogger(__name__)

_NOBODY_WAITS_FOR = (Submitted, TurnStarted, Progress, Handed)
"""Facts that are committed in groups behind the turn."""
_ENDS = (Asked, Answered, Refused, Failed)


@dataclass(slots=True)
class _Running:
    item: Queued
    interrupted: bool = False
    abandoned: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)


class AgentWorker:
    """Delivers an agent's queue. `finished` hears of every task whose turn has ended."""

    def __init__(self, driver: Driver, journal: Journal, clock: Clock, finished: Callable[[Task], None]) -> None:
        self._driver = driver
        self._journal = journal
        self._clock = clock
        self._finished = finished
        self._queue = Queue()
        self._running: _Running | None = None
        self._changed = asyncio.Event()

    @property
    def current(self) -> TaskId | None:
        """The task whose turn runs."""
        return self._running.item.task_id if self._running else None

    @property
    def waiting(self) -> tuple[TaskId, ...]:
        """The queued tasks, in the order of their delivery."""
        return tuple(item.task_id for item in self._queue)

    async def enqueue(self, task: Task, message: Message, *, first: bool = True) -> None:
        """Put a message in the queue; one of priority 5 interrupts the turn that runs."""
        if task.priority == INTERRUPT_PRIORITY:
            # Before it is in the queue: an interrupt that came later could hit the message itself.
            if self._running is not None:
                self._running.interrupted = True
            await self._driver.interrupt()
        self._queue.add(task.id, message, task.priority, first=first)
        self._changed.set()

    def withdraw(self, task_id: TaskId) -> bool:
        """Take a task out of the queue; False when it was not in it."""
        self._changed.set()
        return self._queue.remove(task_id)

    async def interrupt(self) -> None:
        """Ask the agent to drop the turn that runs."""
        await self._driver.interrupt()

    async def abandon(self, task_id: TaskId) -> None:
        """Stop following the turn of a task, if it runs; the agent is left alone."""
        running = self._running
        if running is not None and running.item.task_id == task_id:
            running.abandoned.set()
            await running.over.wait()

    async def run(self) -> None:
        """Deliver until the agent exits; what is still queued then stays durable for the next start.

        Raises AgentExited.
        """
        while True:
            await self._take_turn(await self._next())

    async def _next(self) -> Queued:
        """Wait until there is a message and the driver can take it."""
        while True:
            self._changed.clear()
            if self._queue.head() is None:
                await self._changed.wait()
            elif await self._ready_before_change() and len(self._queue) > 0:
                return self._queue.take()

    async def _ready_before_change(self) -> bool:
        """Wait for the driver; False when the queue changed first, so that the choice is made anew."""
        ready = asyncio.ensure_future(self._driver.wait_ready())
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait({ready, changed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            ready.cancel()
        if not ready.done() or ready.cancelled():
            return False
        ready.result()
        return True

    async def _take_turn(self, item: Queued) -> None:
        task = await self._journal.load(item.task_id)
        if task.state.is_terminal:
            return
        running = self._running = _Running(item)
        try:
            taken = await self._follow(self._turn(task, item), running)
        except AgentExited as gone:
            await self._record(task.id, Failed(outcomes.AGENT_EXITED, str(gone)))
            self._finished(await self._journal.load(task.id))
            raise
        except AgentFailed as failure:
            await self._record(task.id, Failed(failure.code, str(failure)))
            taken = True
        finally:
            self._running = None
            running.over.set()
        if taken:
            self._finished(await self._journal.load(task.id))
        else:
            self._queue.put_back(item)

    async def _follow(self, turn: Turn, running: _Running) -> bool:
        """Record what the driver yields; False when it could not begin."""
        abandoned = asyncio.ensure_future(running.abandoned.wait())
        try:
            async with aclosing(self._driver.take_turn(turn)) as events:
                while (event := await _next_of(events, abandoned)) is not None:
                    if isinstance(event, NotNow):
                        return False
                    await self._record(turn.task_id, event)
        finally:
            abandoned.cancel()
        return True

    async def _record(self, task_id: TaskId, event: TurnEvent) -> None:
        """Record what `event` means, unless the task has ended meanwhile (canceled, or answered by a reply)."""
        task = await self._journal.load(task_id)
        if task.state.is_terminal:
            return
        now = self._clock.now()
        if self._running is not None and self._running.interrupted and isinstance(event, _ENDS):
            facts = outcomes.interrupted(task, now, event)
        else:
            facts = outcomes.facts(task, event, now)
        if isinstance(event, _NOBODY_WAITS_FOR):
            self._journal.record_soon(*facts).add_done_callback(_note_failure)
        else:
            await self._journal.record(*facts)

    def _turn(self, task: Task, item: Queued) -> Turn:
        return Turn(task_id=task.id, message=item.message, text=envelope_line(task, item.message), first=item.first)


async def _next_of(events: AsyncIterator[TurnEvent], abandoned: asyncio.Future[Any]) -> TurnEvent | None:
    """The next event; None when there is none or the turn was abandoned first."""
    coming: asyncio.Future[TurnEvent | None] = asyncio.ensure_future(_following(events))
    try:
        await asyncio.wait({coming, abandoned}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not coming.done():
            # The generator must have stopped before it can be closed.
            coming.cancel()
            await asyncio.wait({coming})
    return None if coming.cancelled() else coming.result()


async def _following(events: AsyncIterator[TurnEvent]) -> TurnEvent | None:
    return await anext(events, None)


def _note_failure(recorded: asyncio.Future[Task]) -> None:
    if not recorded.cancelled() and (error := recorded.exception()) is not None:
        log.warning("fact_not_recorded", extra={"error": getattr(error, "code", type(error).__name__)})
