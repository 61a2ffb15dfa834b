"""One agent, one turn at a time: takes the next message when the driver can, and records what comes back.

    idle → (a message waits, the driver is ready) → turn → idle

A message of priority 5 interrupts the turn that runs and goes first. The worker types nothing itself: the driver does,
and only after the intent is durable. How a turn ended that typed nothing is recorded behind it: the next one begins
meanwhile, and whoever waits for the answer hears of it when it is durable.

The order in which an agent's messages are delivered: higher priority first, then first in, first out.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import insort
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum, auto
from operator import attrgetter
from typing import Any, Final

from synapse.core.agent import STARTING, WAITING, WORKING
from synapse.core.driver import (
    AgentView,
    Answered,
    Deferred,
    Driver,
    Failed,
    Hold,
    HoldReason,
    InputRequested,
    Progress,
    Refused,
    Resumed,
    Submitted,
    Turn,
    TurnEvent,
    TurnStarted,
    Typing,
)
from synapse.core.errors import AgentExited, AgentFailed, IllegalTransition, TaskFinished
from synapse.core.events import TaskEvent
from synapse.core.message import Message
from synapse.core.question import Choice, Question
from synapse.core.task import INTERRUPT_PRIORITY, Task, TaskId
from synapse.core.trace import trace_headers
from synapse.core.types import Clock
from synapse.tasks import outcomes
from synapse.tasks.admission import envelope_line
from synapse.tasks.journal import Journal
from synapse.tasks.recovery import is_waiting_in_queue
from synapse.tasks.turn_recorder import INTERNAL, Insisting, TurnRecorder

log = logging.getLogger(__name__)

_NOBODY_WAITS_FOR = (Submitted, TurnStarted, Progress)
"""What becomes of them is committed in groups behind the turn."""
_PROOFS = (Submitted, TurnStarted)
_ENDS = (InputRequested, Answered, Refused, Failed)
AnswerAtOnce = Callable[[Message], Sequence[TurnEvent] | None]
"""All that comes of a first message, from an agent that needs nothing else for it: no time, nobody, and nothing that is
seen outside. None when it is not so, or when it cannot answer now."""


def never_at_once(_message: Message) -> None:
    """For agents that have to be given their messages."""


HOLD_PATIENCE: Final = timedelta(seconds=30)
"""How long messages may be held before a person should look, unless the settings say otherwise."""
_REASONS: Final = {
    STARTING: HoldReason.STARTING,
    WORKING: HoldReason.WORKING,
    WAITING: HoldReason.DIALOG,
}
"""For drivers that do not say it more exactly."""
_FAREWELL_SECONDS: Final = 2.0
"""How long the worker's own end waits for the ends of turns to be durable."""


class _Ended(Enum):
    """How far a turn has come when the next one may begin."""

    DURABLY = auto()
    WITH_ITS_END_ON_ITS_WAY = auto()
    TO_BE_TRIED_AGAIN = auto()
    """Nothing was typed."""


@dataclass(slots=True)
class _Running:
    item: Queued
    is_in_the_way: bool = False
    """A message of priority 5 waits for its end."""
    interrupted: bool = False
    proven: bool = False
    """The agent has the message, so there is something to interrupt, and no doubt to end."""
    typed: bool = False
    """The driver said that it would type, now or before a restart, so the end of the turn is waited for."""
    unrecorded: list[TaskEvent] = field(default_factory=list[TaskEvent])
    """Facts that nobody waits for: they go to the store with the next ones, or when the loop comes round."""
    is_abandoned: bool = False
    waiter: asyncio.Task[Any] | None = None
    """Who waits for the driver, while that can be abandoned."""
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """It is over, or there is proof."""
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    def begin(cls, item: Queued) -> _Running:
        """The turn of a message; the agent is known to have one that is resumed."""
        running = cls(item, proven=item.resumed, typed=item.resumed)
        if item.resumed:
            running.settled.set()
        return running

    def abandon(self) -> None:
        """Let nobody wait for the driver any more: what it does is cancelled where it waits, once."""
        if self.waiter is not None and not self.is_abandoned:
            self.waiter.cancel()
        self.is_abandoned = True

    def takes_back_the_cancellation(self) -> bool:
        """Whether the wait was cancelled by `abandon` and by nobody else: then the worker itself goes on."""
        return self.is_abandoned and self.waiter is not None and self.waiter.uncancel() == 0


class AgentWorker:
    """Delivers an agent's queue. `finished` hears of every task whose turn has ended."""

    def __init__(
        self,
        driver: Driver,
        journal: Journal,
        clock: Clock,
        finished: Callable[[Task], None],
        answer_at_once: AnswerAtOnce = never_at_once,
        *,
        patience: timedelta = HOLD_PATIENCE,
    ) -> None:
        """`patience` is how long messages may be held before a person should look."""
        self._driver = driver
        self._answer_at_once = answer_at_once
        self._journal = journal
        self._clock = clock
        self._finished = finished
        self._patience = patience
        self._insisting = Insisting(clock)
        self._ends = TurnRecorder(journal, clock, finished, self._insisting)
        self._queue = Queue()
        self._running: _Running | None = None
        self._waits_since: datetime | None = None
        """Since when the next message could be delivered, were it not for the agent or the store."""
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

    def held(self) -> Hold | None:
        """Return why messages wait; None when none does, or the agent is at work on one of this queue."""
        now, view = self._clock.now(), self._driver.view()
        found = self._store_hold(now) or (self._turn_hold(view) if self._is_in_turn else self._gate_hold(now, view))
        if found is None:
            return None
        is_late = now - found.since >= self._patience and found.reason is not HoldReason.WORKING
        return replace(found, is_overdue=is_late)

    @property
    def _is_in_turn(self) -> bool:
        """Whether something of a message may have reached the agent."""
        return self._running is not None and self._running.typed

    def _store_hold(self, now: datetime) -> Hold | None:
        trouble = self._insisting.trouble
        if trouble is None:
            return None
        return Hold(
            reason=HoldReason.STORE,
            why=f"the store cannot be written: {trouble}",
            since=self._insisting.since or now,
            messages=len(self._queue) + (self._running is not None),
            task_id=self.current or "",
            hint=trouble.hint,
        )

    def _turn_hold(self, view: AgentView) -> Hold | None:
        """What keeps the turn that runs from going on, for those that wait behind it."""
        running, waiting = self._running, len(self._queue)
        task = self._journal.known(running.item.task_id) if running else None
        if running is None or task is None:
            return None
        if view.gate_reason is HoldReason.UNREACHABLE:
            # Nobody but us asks the agent again, so the turn's own message waits too.
            why, since, reason, waiting = view.gate, view.since, HoldReason.UNREACHABLE, waiting + 1
        elif task.attention and task.receipt is not None and not running.proven:
            why = f"task {task.short_id} is in doubt: {task.attention}"
            since, reason = task.receipt.at, HoldReason.IN_DOUBT
        elif view.state == WAITING:
            why, since, reason = view.why, view.since, HoldReason.DIALOG
        elif view.restless_since is not None:
            why = f"the program prints again and again, so the turn of task {task.short_id} does not end"
            since, reason = view.restless_since, HoldReason.NEVER_RESTS
        else:
            return None
        return Hold(reason=reason, why=why, since=since, messages=waiting, task_id=task.id) if waiting else None

    def _gate_hold(self, now: datetime, view: AgentView) -> Hold | None:
        """What keeps the next message from being typed."""
        reason = view.gate_reason or _REASONS.get(view.state)
        head = self._running.item if self._running else self._queue.head()
        if head is None or reason is None:
            return None
        # The agent may have been at work, by right, until a moment ago.
        since = max(self._waits_since or now, view.since)
        waiting = len(self._queue) + (self._running is not None)
        return Hold(reason=reason, why=view.gate or view.why, since=since, messages=waiting, task_id=head.task_id)

    def resume(self, task: Task, message: Message, *, first: bool = True) -> None:
        """Follow a message that the agent took before this process started, ahead of everything that waits."""
        self._queue.add(task.id, message, task.priority, first=first, resumed=True)
        self._changed.set()

    async def enqueue(self, task: Task, message: Message, *, first: bool = True) -> None:
        """Put a message in the queue; one of priority 5 interrupts the turn that runs."""
        if task.priority == INTERRUPT_PRIORITY:
            # Before it is in the queue: an interrupt that came later could hit the message itself.
            await self._make_way()
        self._queue.add(task.id, message, task.priority, first=first)
        self._changed.set()

    def taken_at_once(self, opened: Task) -> tuple[TaskEvent, ...]:
        """What the first message of a task comes to, if the agent can tell that now, before anything is recorded.

        Nothing when the message has to be queued. As no effect comes of it, message and answer are made durable
        together, and a crash before that leaves nothing behind.
        """
        if self._running is not None or self._queue or not self._ends.has_room:
            return ()
        try:
            events = self._answer_at_once(opened.message) or ()
            return tuple([fact for event in events for fact in outcomes.events_for(opened, event, opened.created_at)])
        except Exception:
            # As in a turn, which it gets now: one bad message must not end the agent.
            log.exception("not_answered_at_once", extra={"task": opened.id})
            return ()

    def withdraw(self, task_id: TaskId) -> bool:
        """Take a task out of the queue; False when it was not in it."""
        self._changed.set()
        return self._queue.remove(task_id)

    async def interrupt(self) -> None:
        """Ask the agent to drop the turn that runs."""
        await self._driver.interrupt()

    @property
    def question(self) -> Question | None:
        """What the agent's program asks now, in a turn or without one."""
        return self._driver.view().question

    async def answer(self, question_id: str, choice: Choice) -> str:
        """Answer it; see `Driver.answer`."""
        return await self._driver.answer(question_id, choice)

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
        running.abandon()
        await running.settled.wait()
        return not running.proven

    async def settled(self, task_id: TaskId) -> None:
        """Wait until the turn of a task, if it runs, is over, or there is proof that the agent has the message."""
        if self._running is not None and self._running.item.task_id == task_id:
            await self._running.settled.wait()

    def confirm(self, task_id: TaskId) -> None:
        """A person saw that the agent has the message: the turn, if it runs, is followed to its end."""
        if self.current == task_id:
            self._driver.confirm()

    async def turn_over(self, seconds: float) -> None:
        """Wait at most so long until the turn that runs, if one does, is over and recorded."""
        if self._running is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._running.over.wait(), seconds)

    async def drain(self, seconds: float) -> None:
        """Wait at most so long until the ends of all turns that ended are durable."""
        await self._ends.drain(seconds)

    async def run(self) -> None:
        """Deliver until the agent exits; what is still queued then stays durable for the next start.

        Raises AgentExited.
        """
        try:
            while True:
                await self._take_turn(await self._next())
        finally:
            await self._ends.close(_FAREWELL_SECONDS)

    async def _next(self) -> Queued:
        """Wait until there is a message, the store has caught up, and the driver can take it."""
        while True:
            self._changed.clear()
            if self._queue.head() is None:
                self._waits_since = None
                await self._changed.wait()
                continue
            self._waits_since = self._waits_since or self._clock.now()
            await self._driver.wait_ready()
            if not self._ends.has_room:
                await self._ends.wait_for_room()
            # What waits may have changed meanwhile: the choice is made now.
            elif self._queue.head() is not None:
                return self._queue.take()

    async def _take_turn(self, item: Queued) -> None:
        task = await self._load(item.task_id)
        if task.state.is_terminal:
            return
        running = self._running = _Running.begin(item)
        try:
            ended = await self._follow(self._turn(task, item), running)
        except AgentExited as gone:
            await self._end_with_agent(running, gone)
            raise
        except AgentFailed as failure:
            await self._keep(task.id, Failed(failure.code, str(failure)))
            ended = _Ended.DURABLY
        except Exception:
            # The worker's loop: one bad message must not end the agent, nor come back at its next start.
            log.exception("turn_failed", extra={"task": task.id})
            await self._keep(task.id, Failed(*INTERNAL))
            ended = _Ended.DURABLY
        finally:
            self._running = None
            running.settled.set()
            running.over.set()
        if ended is not _Ended.TO_BE_TRIED_AGAIN:
            self._waits_since = None
        if ended is _Ended.DURABLY:
            self._finished(await self._load(item.task_id))
        elif ended is _Ended.TO_BE_TRIED_AGAIN:
            self._queue.put_back(item)

    async def _follow(self, turn: Turn, running: _Running) -> _Ended:
        """Record what the driver yields, until there is no more of it."""
        async with aclosing(self._driver.take_turn(turn)) as events:
            while (event := await _next_of(events, running)) is not None:
                if isinstance(event, _ENDS) and not running.typed:
                    return await self._end_behind(running, event)
                is_open = await self._keep(turn.task_id, event)
                if isinstance(event, Deferred):
                    running.typed = False
                    return _Ended.TO_BE_TRIED_AGAIN
                if isinstance(event, Typing):
                    running.typed = True
                    if not is_open:
                        break  # canceled or too late: not a byte of it is typed
                if isinstance(event, _PROOFS):
                    running.proven = True
                    running.settled.set()
                    # It was canceled while it was typed, and the agent has it all the same.
                    running.is_in_the_way = running.is_in_the_way or not is_open
                if isinstance(event, (*_PROOFS, Resumed)):
                    # Nothing is interrupted while a dialog is open, so it is tried again behind it.
                    await self._clear_way(running)
        return _Ended.DURABLY

    async def _end_behind(self, running: _Running, event: TurnEvent) -> _Ended:
        """Nothing was typed that a crash could leave in doubt, so the next turn need not wait for the store."""
        task = await self._load(running.item.task_id)
        if task.state.is_terminal:
            return _Ended.DURABLY
        facts = (*running.unrecorded, *self._facts(task, event))
        running.unrecorded.clear()
        self._ends.add(*facts)
        return _Ended.WITH_ITS_END_ON_ITS_WAY

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
        if not running.proven and is_waiting_in_queue(await self._load(task_id)):
            return
        await self._keep(task_id, Failed(outcomes.AGENT_EXITED, str(gone)))
        self._finished(await self._load(task_id))

    async def _keep(self, task_id: TaskId, event: TurnEvent) -> bool:
        """Record what `event` means; False when the task has ended (by this, canceled, or answered by a reply)."""
        running = self._running
        if running is not None and isinstance(event, _NOBODY_WAITS_FOR):
            task = await self._load(task_id)
            if not task.state.is_terminal:
                self._record_soon(running, self._facts(task, event))
            return not task.state.is_terminal
        if running is not None:
            self._flush(running)
        return await self._insisting.insist(lambda: self._record(task_id, event))

    async def _record(self, task_id: TaskId, event: TurnEvent) -> bool:
        task = await self._journal.load(task_id)
        facts = () if task.state.is_terminal else self._facts(task, event)
        if facts:
            # It may have ended while this was on its way to the store.
            with suppress(IllegalTransition, TaskFinished):
                await self._journal.record(*facts)
        return not (await self._journal.load(task_id)).state.is_terminal

    def _record_soon(self, running: _Running, facts: tuple[TaskEvent, ...]) -> None:
        if facts and not running.unrecorded:
            asyncio.get_running_loop().call_soon(self._flush, running)
        running.unrecorded += facts

    def _flush(self, running: _Running) -> None:
        if running.unrecorded:
            self._journal.record_nowait(*running.unrecorded).add_done_callback(_note_failure)
            running.unrecorded.clear()

    async def _load(self, task_id: TaskId) -> Task:
        known = self._journal.known(task_id)
        return await self._insisting.insist(lambda: self._journal.load(task_id)) if known is None else known

    def _facts(self, task: Task, event: TurnEvent) -> tuple[TaskEvent, ...]:
        now = self._clock.now()
        if isinstance(event, Typing) and task.is_overdue(self._clock):
            return outcomes.expired(task, now)
        is_interrupted = self._running is not None and self._running.interrupted
        if is_interrupted and isinstance(event, _ENDS) and not outcomes.is_whole(event):
            return outcomes.interrupted(task, now, event)
        return outcomes.events_for(task, event, now)

    def _turn(self, task: Task, item: Queued) -> Turn:
        return Turn(
            task_id=task.id,
            message=item.message,
            text=envelope_line(task, item.message),
            first=item.first,
            trace=tuple(trace_headers(task.metadata)),
            resumed=item.resumed,
        )


async def _next_of(events: AsyncIterator[TurnEvent], running: _Running) -> TurnEvent | None:
    """The next event; None when there is none, or the turn was abandoned before there was proof."""
    if running.proven:
        return await anext(events, None)
    if not running.is_abandoned:
        running.waiter = asyncio.current_task()
        try:
            return await anext(events, None)
        except asyncio.CancelledError:
            if not running.takes_back_the_cancellation():
                raise
        finally:
            running.waiter = None
    return None


def _note_failure(recorded: asyncio.Future[Task]) -> None:
    if not recorded.cancelled() and (error := recorded.exception()) is not None:
        log.warning("fact_not_recorded", extra={"error": getattr(error, "code", type(error).__name__)})


@dataclass(frozen=True, slots=True)
class Queued:
    """One message that waits for its turn."""

    rank: tuple[int, int]
    task_id: TaskId
    message: Message
    first: bool
    resumed: bool = False
    """The agent has the message already; see `Turn.resumed`."""


_rank = attrgetter("rank")

RESUMED_RANK: Final = -INTERRUPT_PRIORITY - 1


class Queue:
    """The waiting messages of one agent. Plain data: it neither waits nor types."""

    def __init__(self) -> None:
        self._items: list[Queued] = []
        self._counter = 0

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Queued]:
        return iter(self._items)

    def add(self, task_id: TaskId, message: Message, priority: int, *, first: bool, resumed: bool = False) -> Queued:
        """Put a message behind all of its priority and above; one that the agent has already comes before them."""
        self._counter += 1
        rank = RESUMED_RANK if resumed else -priority
        item = Queued((rank, self._counter), task_id, message, first, resumed)
        insort(self._items, item, key=_rank)
        return item

    def put_back(self, item: Queued) -> None:
        """Return an item to the place that it had."""
        insort(self._items, item, key=_rank)

    def head(self) -> Queued | None:
        return self._items[0] if self._items else None

    def take(self) -> Queued:
        """Remove and return the next item; the caller has seen that there is one."""
        return self._items.pop(0)

    def remove(self, task_id: TaskId) -> bool:
        """Take all messages of a task out; False when there was none."""
        left = [item for item in self._items if item.task_id != task_id]
        removed = len(left) != len(self._items)
        self._items = left
        return removed
