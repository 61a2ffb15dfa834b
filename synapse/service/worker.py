"""One agent, one turn at a time: takes the next message when the driver can, and records what comes back.

    idle → (a message waits, the driver is ready) → turn → idle

A message of priority 5 interrupts the turn that runs and goes first. The worker types nothing itself: the driver does,
and only after the intent is durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from synapse.core.clock import Clock
from synapse.core.driver import (
    Answered,
    Asked,
    Driver,
    Failed,
    NotNow,
    Progress,
    Refused,
    Submitted,
    Turn,
    TurnEvent,
    TurnStarted,
    Typing,
)
from synapse.core.errors import AgentExited, AgentFailed, IllegalTransition, StoreFailed, TaskFinished
from synapse.core.events import TaskEvent
from synapse.core.message import Message
from synapse.core.task import INTERRUPT_PRIORITY, Task, TaskId
from synapse.service import outcomes
from synapse.service.journal import Journal
from synapse.service.origin import envelope_line
from synapse.service.queue import Queue, Queued
from synapse.service.recovery import is_waiting_in_queue

log = logging.getLogger(__name__)

T = TypeVar("T")

_NOBODY_WAITS_FOR = (Submitted, TurnStarted, Progress)
"""Facts that are committed in groups behind the turn."""
_ENDS = (Asked, Answered, Refused, Failed)
STORE_PAUSE: Final = 0.5
"""Seconds before a store that failed is asked again."""


@dataclass(slots=True)
class _Running:
    item: Queued
    is_in_the_way: bool = False
    """A message of priority 5 waits for its end."""
    interrupted: bool = False
    proven: bool = False
    """The agent has the message, so there is something to interrupt, and no doubt to end."""
    abandoned: asyncio.Event = field(default_factory=asyncio.Event)
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """It is over, or there is proof."""


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

    @property
    def queue_length(self) -> int:
        """How many messages wait."""
        return len(self._queue)

    async def enqueue(self, task: Task, message: Message, *, first: bool = True) -> None:
        """Put a message in the queue; one of priority 5 interrupts the turn that runs."""
        if task.priority == INTERRUPT_PRIORITY:
            # Before it is in the queue: an interrupt that came later could hit the message itself.
            await self._make_way()
        self._queue.add(task.id, message, task.priority, first=first)
        self._changed.set()

    def withdraw(self, task_id: TaskId) -> bool:
        """Take a task out of the queue; False when it was not in it."""
        self._changed.set()
        return self._queue.remove(task_id)

    async def interrupt(self) -> None:
        """Ask the agent to drop the turn that runs."""
        await self._driver.interrupt()

    def drop(self) -> bool:
        """Forget the message that is just being typed; True when it will not be submitted."""
        return self._driver.drop()

    async def abandon(self, task_id: TaskId) -> bool:
        """Stop following the turn of a task in doubt, if it runs; the agent is left alone.

        False when there is proof meanwhile that the agent has the message: then the turn goes on.
        """
        running = self._running
        if running is None or running.item.task_id != task_id:
            return True
        running.abandoned.set()
        await running.settled.wait()
        return not running.proven

    def confirm(self, task_id: TaskId) -> None:
        """A person saw that the agent has the message: the turn, if it runs, is followed to its end."""
        if self.current == task_id:
            self._driver.confirm()

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
        task = await self._insist(lambda: self._journal.load(item.task_id))
        if task.state.is_terminal:
            return
        running = self._running = _Running(item)
        try:
            is_over = await self._follow(self._turn(task, item), running)
        except AgentExited as gone:
            await self._end_with_agent(running, gone)
            raise
        except AgentFailed as failure:
            await self._keep(task.id, Failed(failure.code, str(failure)))
            is_over = True
        except Exception:
            # The worker's loop: one bad message must not end the agent, nor come back at its next start.
            log.exception("turn_failed", extra={"task": task.id})
            await self._keep(task.id, Failed("internal", "a defect of Synapse ended the turn; the host's log has it"))
            is_over = True
        finally:
            self._running = None
            running.settled.set()
        if is_over:
            self._finished(await self._insist(lambda: self._journal.load(item.task_id)))
        else:
            self._queue.put_back(item)

    async def _follow(self, turn: Turn, running: _Running) -> bool:
        """Record what the driver yields; False when nothing was typed, so that it is tried again."""
        abandoned = asyncio.ensure_future(running.abandoned.wait())
        try:
            async with aclosing(self._driver.take_turn(turn)) as events:
                while (event := await _next_of(events, None if running.proven else abandoned)) is not None:
                    is_open = await self._keep(turn.task_id, event)
                    if isinstance(event, NotNow):
                        return False
                    if isinstance(event, Typing) and not is_open:
                        return True  # canceled or too late: not a byte of it is typed
                    if isinstance(event, Submitted | TurnStarted):
                        running.proven = True
                        running.settled.set()
                        # It was canceled while it was typed, and the agent has it all the same.
                        running.is_in_the_way = running.is_in_the_way or not is_open
                        await self._clear_way(running)
        finally:
            abandoned.cancel()
        return True

    async def _make_way(self) -> None:
        """Interrupt what the agent does."""
        if self._running is None:
            await self._driver.interrupt()
        else:
            self._running.is_in_the_way = True
            await self._clear_way(self._running)

    async def _clear_way(self, running: _Running) -> None:
        # What is just being typed cannot be stopped: half a line would stay. It is once the agent has it.
        if running.is_in_the_way and running.proven and not running.interrupted:
            running.interrupted = await self._driver.interrupt()

    async def _end_with_agent(self, running: _Running, gone: AgentExited) -> None:
        """What it worked on has failed; what was not typed yet stays queued for the next start."""
        task_id = running.item.task_id
        # Proof may still be on its way to the store, where the message then looks queued.
        if not running.proven and is_waiting_in_queue(await self._insist(lambda: self._journal.load(task_id))):
            return
        await self._keep(task_id, Failed(outcomes.AGENT_EXITED, str(gone)))
        self._finished(await self._insist(lambda: self._journal.load(task_id)))

    async def _keep(self, task_id: TaskId, event: TurnEvent) -> bool:
        """Record what `event` means; False when the task has ended (by this, canceled, or answered by a reply)."""
        return await self._insist(lambda: self._record(task_id, event))

    async def _record(self, task_id: TaskId, event: TurnEvent) -> bool:
        task = await self._journal.load(task_id)
        facts = () if task.state.is_terminal else self._facts(task, event)
        if facts and isinstance(event, _NOBODY_WAITS_FOR):
            self._journal.record_soon(*facts).add_done_callback(_note_failure)
        elif facts:
            # It may have ended while this was on its way to the store.
            with suppress(IllegalTransition, TaskFinished):
                await self._journal.record(*facts)
        return not (await self._journal.load(task_id)).state.is_terminal

    def _facts(self, task: Task, event: TurnEvent) -> tuple[TaskEvent, ...]:
        now = self._clock.now()
        if isinstance(event, Typing) and task.deadline is not None and task.deadline <= now:
            return outcomes.expired(task, now)
        if self._running is not None and self._running.interrupted and isinstance(event, _ENDS):
            return outcomes.interrupted(task, now, event)
        return outcomes.facts(task, event, now)

    async def _insist(self, act: Callable[[], Awaitable[T]]) -> T:
        """Do what must not be left undone, again and again while the store fails: an agent outlives a full disk."""
        while True:
            try:
                return await act()
            except StoreFailed as failure:
                log.warning("store_failed", extra={"error": failure.code})
            await asyncio.wait((asyncio.get_running_loop().create_future(),), timeout=STORE_PAUSE)

    def _turn(self, task: Task, item: Queued) -> Turn:
        return Turn(task_id=task.id, message=item.message, text=envelope_line(task, item.message), first=item.first)


async def _next_of(events: AsyncIterator[TurnEvent], abandoned: asyncio.Future[Any] | None) -> TurnEvent | None:
    """The next event; None when there is none or the turn was abandoned first."""
    coming: asyncio.Future[TurnEvent | None] = asyncio.ensure_future(_following(events))
    try:
        await asyncio.wait({coming, *((abandoned,) if abandoned else ())}, return_when=asyncio.FIRST_COMPLETED)
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
