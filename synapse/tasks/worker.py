"""Delivers an agent's queue one turn at a time, and records what the driver reports.

    idle → (a message is queued, the driver is ready) → turn → idle

Messages are delivered by priority, then first in, first out. A message of priority 5 interrupts the running turn and
goes first. The worker types nothing itself: the driver does, and only after the intent is durable. The end of a turn
that typed nothing is recorded in the background while the next turn starts; callers that wait for the answer get it
when it is durable.
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
from synapse.tasks.deferral import DeferredReplies
from synapse.tasks.journal import Journal
from synapse.tasks.recovery import is_waiting_in_queue
from synapse.tasks.turn_recorder import INTERNAL, StoreRetry, TurnRecorder

log = logging.getLogger(__name__)

_RECORDED_IN_GROUPS = (Submitted, TurnStarted, Progress)
"""No caller waits for these events, so they are committed in groups while the turn goes on."""
_PROOFS = (Submitted, TurnStarted)
_ENDS = (InputRequested, Answered, Refused, Failed)
AnswerAtOnce = Callable[[Message], Sequence[TurnEvent] | None]
"""Returns all events of a task's first turn, from an agent that answers without time, input or outside effects; None
when it cannot answer this message so, or not now."""
HOLD_PATIENCE: Final = timedelta(seconds=30)
"""How long messages may be held before a person should look, unless the settings say otherwise."""
_REASONS: Final = {
    STARTING: HoldReason.STARTING,
    WORKING: HoldReason.WORKING,
    WAITING: HoldReason.DIALOG,
}
"""For drivers that report no exact reason."""
_DRAIN_SECONDS: Final = 2.0
"""How long a stopping worker waits until the ends of its turns are durable."""
_RESUMED_RANK: Final = -INTERRUPT_PRIORITY - 1
_BY_RANK: Final = attrgetter("rank")


def never_at_once(_message: Message) -> None:
    """Returns None: the default, for agents that take a turn for every message."""


class _TurnEnd(Enum):
    """How far a turn is recorded when the next one may start."""

    DURABLE = auto()
    PENDING = auto()
    """Its end is being recorded."""
    DEFERRED = auto()
    """Nothing was typed; the message is to be tried again."""


@dataclass(slots=True)
class _Running:
    """The state of the running turn."""

    item: _QueuedMessage
    should_interrupt: bool = False
    """A message of priority 5 waits for its end, or its task was canceled."""
    interrupted: bool = False
    proven: bool = False
    """The agent has the message: the turn can be interrupted, and is not in doubt."""
    typed: bool = False
    """The driver announced that it types, now or before a restart, so the turn's end is recorded before the next."""
    unrecorded: list[TaskEvent] = field(default_factory=list[TaskEvent])
    """Events that no caller waits for; recorded with the next ones, or in the next iteration of the event loop."""
    is_abandoned: bool = False
    waiter: asyncio.Task[Any] | None = None
    """The asyncio task that waits for the driver, while that wait can be abandoned."""
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the turn is over, or there is proof."""
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    def begin(cls, item: _QueuedMessage) -> _Running:
        """Returns the turn of a message; for a resumed one the agent is known to have it."""
        running = cls(item, proven=item.resumed, typed=item.resumed)
        if item.resumed:
            running.settled.set()
        return running

    def abandon(self) -> None:
        """Stops waiting for the driver: cancels the wait, once."""
        if self.waiter is not None and not self.is_abandoned:
            self.waiter.cancel()
        self.is_abandoned = True

    def consumes_cancellation(self) -> bool:
        """Decides whether only `abandon` cancelled the wait, so that the worker goes on."""
        return self.is_abandoned and self.waiter is not None and self.waiter.uncancel() == 0


class AgentWorker:
    """Delivers an agent's queue. Calls `finished` with every task whose turn has ended."""

    def __init__(  # noqa: PLR0913 - every part that takes part in a turn
        self,
        driver: Driver,
        journal: Journal,
        clock: Clock,
        finished: Callable[[Task], None],
        answer_at_once: AnswerAtOnce = never_at_once,
        *,
        deferred: DeferredReplies,
        patience: timedelta = HOLD_PATIENCE,
    ) -> None:
        """`patience` is how long messages may be held before a person should look."""
        self._driver = driver
        self._answer_at_once = answer_at_once
        self._journal = journal
        self._clock = clock
        self._finished = finished
        self._patience = patience
        self._store_retry = StoreRetry(clock)
        self._recorder = TurnRecorder(journal, clock, finished, self._store_retry)
        self._deferred = deferred
        deferred.start(self._recorder.add)
        self._queue = _MessageQueue()
        self._running: _Running | None = None
        self._waits_since: datetime | None = None
        """Since when only the agent or the store keeps the next message from being delivered."""
        self._changed = asyncio.Event()

    @property
    def current(self) -> TaskId | None:
        """The task of the running turn."""
        return self._running.item.task_id if self._running else None

    @property
    def working_on(self) -> TaskId | None:
        """The task of the running turn, once its message may have reached the agent."""
        return self._running.item.task_id if self._running and self._running.typed else None

    @property
    def waiting(self) -> tuple[TaskId, ...]:
        """The queued tasks, in order of delivery."""
        return tuple(item.task_id for item in self._queue)

    @property
    def queue_length(self) -> int:
        """The number of queued messages."""
        return len(self._queue)

    def held(self) -> Hold | None:
        """Returns why messages wait; None when none wait, or the agent works on one from this queue."""
        now, view = self._clock.now(), self._driver.view()
        # Part of a message may have reached the agent.
        is_in_turn = self._running is not None and self._running.typed
        found = self._store_hold(now) or (self._turn_hold(view) if is_in_turn else self._gate_hold(now, view))
        if found is None:
            return None
        is_late = now - found.since >= self._patience and found.reason is not HoldReason.WORKING
        return replace(found, is_overdue=is_late)

    def resume(self, task: Task, message: Message, *, first: bool = True) -> None:
        """Follows a message that the agent took before this process started, ahead of all queued messages."""
        self._queue.add(task.id, message, task.priority, first=first, resumed=True)
        self._changed.set()

    async def enqueue(self, task: Task, message: Message, *, first: bool = True) -> None:
        """Queues a message; one of priority 5 interrupts the running turn."""
        try:
            if task.priority == INTERRUPT_PRIORITY:
                # Before it is queued: a later interrupt could hit the message itself.
                await self._interrupt_running()
        finally:
            # In any case: the message is durable, so nothing would queue it again before the next start.
            self._queue.add(task.id, message, task.priority, first=first)
            self._changed.set()

    def events_at_once(self, opened: Task) -> tuple[TaskEvent, ...]:
        """Returns the events of a new task's whole turn if the agent can answer at once; empty if it must be queued.

        Such a turn has no outside effect, so message and answer are recorded together, and a crash before that leaves
        nothing behind.
        """
        if self._running is not None or self._queue or not self._recorder.has_room:
            return ()
        try:
            events = self._answer_at_once(opened.message) or ()
            return tuple([one for event in events for one in outcomes.events_for(opened, event, opened.created_at)])
        except Exception:
            # One bad message must not end the agent: it is queued, and its turn records the failure.
            log.exception("not_answered_at_once", extra={"task": opened.id})
            return ()

    def withdraw(self, task_id: TaskId) -> bool:
        """Removes a task from the queue; returns False when it was not queued."""
        self._changed.set()
        return self._queue.remove(task_id)

    async def interrupt(self) -> None:
        """Asks the agent to stop the running turn."""
        await self._driver.interrupt()

    @property
    def question(self) -> Question | None:
        """The question that the agent's program asks now, in a turn or outside of one."""
        return self._driver.view().question

    async def answer(self, question_id: str, choice: Choice) -> str:
        """Answers the open question; see `Driver.answer`."""
        return await self._driver.answer(question_id, choice)

    def drop(self) -> bool:
        """Discards the message that is being typed; returns True when it will not be submitted."""
        return self._driver.drop()

    async def abandon(self, task_id: TaskId) -> bool:
        """Stops following the turn of a task in doubt, if it runs; the agent is not interrupted.

        Returns False when there is proof by now that the agent has the message: then the turn goes on.
        """
        running = self._running
        if running is None or running.item.task_id != task_id:
            return True
        running.abandon()
        await running.settled.wait()
        return not running.proven

    async def settled(self, task_id: TaskId) -> None:
        """Waits until the turn of a task, if it runs, is over or there is proof that the agent has the message."""
        if self._running is not None and self._running.item.task_id == task_id:
            await self._running.settled.wait()

    def confirm(self, task_id: TaskId) -> None:
        """Notes that a person saw the message delivered: the turn, if it runs, is followed to its end."""
        if self.current == task_id:
            self._driver.confirm()

    async def turn_over(self, seconds: float) -> None:
        """Waits until the running turn, if any, is over and recorded, at most for `seconds`."""
        if self._running is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._running.over.wait(), seconds)

    async def drain(self, seconds: float) -> None:
        """Waits until the ends of all past turns are durable, at most for `seconds`."""
        await self._recorder.drain(seconds)

    async def run(self) -> None:
        """Delivers until the agent exits; messages that are still queued then stay durable for its next start.

        Raises AgentExited.
        """
        try:
            while True:
                await self._take_turn(await self._next())
        finally:
            await self._recorder.close(_DRAIN_SECONDS)

    def _store_hold(self, now: datetime) -> Hold | None:
        failure = self._store_retry.failure
        if failure is None:
            return None
        return Hold(
            reason=HoldReason.STORE,
            why=f"the store cannot be written: {failure}",
            since=self._store_retry.failing_since or now,
            messages=len(self._queue) + (self._running is not None),
            task_id=self.current or "",
            hint=failure.hint,
        )

    def _turn_hold(self, view: AgentView) -> Hold | None:
        """Returns what blocks the running turn, and with it the messages behind it."""
        running, waiting = self._running, len(self._queue)
        task = self._journal.known(running.item.task_id) if running else None
        if running is None or task is None:
            return None
        if view.gate_reason is HoldReason.UNREACHABLE:
            # Only this host asks the agent again, so the turn's own message waits too.
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
        """Returns what keeps the next message from being typed."""
        reason = view.gate_reason or _REASONS.get(view.state)
        head = self._running.item if self._running else self._queue.head()
        if head is None or reason is None:
            return None
        # The agent may have been busy with its own work until a moment ago.
        since = max(self._waits_since or now, view.since)
        waiting = len(self._queue) + (self._running is not None)
        return Hold(reason=reason, why=view.gate or view.why, since=since, messages=waiting, task_id=head.task_id)

    async def _next(self) -> _QueuedMessage:
        """Waits until a message is queued, the store has caught up and the driver is ready; returns the message."""
        while True:
            self._changed.clear()
            if self._queue.head() is None:
                self._waits_since = None
                await self._changed.wait()
                continue
            self._waits_since = self._waits_since or self._clock.now()
            await self._driver.wait_ready()
            if not self._recorder.has_room:
                await self._recorder.wait_for_room()
            # The queue may have changed meanwhile, so the message is chosen now.
            elif self._queue.head() is not None:
                return self._queue.take()

    async def _take_turn(self, item: _QueuedMessage) -> None:
        task = await self._load(item.task_id)
        if task.state.is_terminal:
            return
        running = self._running = _Running.begin(item)
        try:
            turn = Turn(
                task_id=task.id,
                message=item.message,
                text=envelope_line(task, item.message),
                first=item.first,
                trace=tuple(trace_headers(task.metadata)),
                resumed=item.resumed,
            )
            ended = await self._follow(turn, running)
        except AgentExited as gone:
            await self._end_with_agent(running, gone)
            raise
        except AgentFailed as failure:
            await self._record(task.id, Failed(failure.code, str(failure)))
            ended = _TurnEnd.DURABLE
        except Exception:
            # One bad message must not end the agent, nor come back at its next start.
            log.exception("turn_failed", extra={"task": task.id})
            await self._record(task.id, Failed(*INTERNAL))
            ended = _TurnEnd.DURABLE
        finally:
            self._running = None
            running.settled.set()
            running.over.set()
        if ended is not _TurnEnd.DEFERRED:
            self._waits_since = None
        if ended is _TurnEnd.DURABLE:
            self._finished(await self._load(item.task_id))
        elif ended is _TurnEnd.DEFERRED:
            self._queue.put_back(item)

    async def _follow(self, turn: Turn, running: _Running) -> _TurnEnd:
        """Records the events that the driver yields, until the turn ends."""
        async with aclosing(self._driver.take_turn(turn)) as events:
            while (event := await _next_event(events, running)) is not None:
                if isinstance(event, _ENDS) and not running.typed:
                    return await self._end_in_background(running, event)
                is_open = await self._record(turn.task_id, event)
                if isinstance(event, Deferred):
                    running.typed = False
                    return _TurnEnd.DEFERRED
                if isinstance(event, Typing):
                    running.typed = True
                    if not is_open:
                        break  # canceled or expired: not a byte of it is typed
                if isinstance(event, _PROOFS):
                    running.proven = True
                    running.settled.set()
                    # It was canceled while it was being typed, but the agent has it now.
                    running.should_interrupt = running.should_interrupt or not is_open
                if isinstance(event, (*_PROOFS, Resumed)):
                    # The driver does not interrupt while a dialog is open, so it is tried again after the dialog.
                    await self._interrupt_if_due(running)
        return _TurnEnd.DURABLE

    async def _end_in_background(self, running: _Running, event: TurnEvent) -> _TurnEnd:
        """Records the end of a turn that typed nothing; the next turn need not wait, since a crash leaves no doubt."""
        task = await self._load(running.item.task_id)
        if task.state.is_terminal:
            return _TurnEnd.DURABLE
        events = (*running.unrecorded, *self._events_for(task, event))
        running.unrecorded.clear()
        self._recorder.add(*events)
        return _TurnEnd.PENDING

    async def _interrupt_running(self) -> None:
        """Interrupts the running turn, or what the agent does without one."""
        if self._running is None:
            await self._driver.interrupt()
        else:
            self._running.should_interrupt = True
            await self._interrupt_if_due(self._running)

    async def _interrupt_if_due(self, running: _Running) -> None:
        # Typing is not interrupted, since half a line would stay; the turn is, once the agent has the message.
        if running.should_interrupt and running.proven and not running.interrupted:
            running.interrupted = await self._driver.interrupt()

    async def _end_with_agent(self, running: _Running, gone: AgentExited) -> None:
        """Fails the task that the agent worked on; a message that was not typed yet stays queued for the next start."""
        task_id = running.item.task_id
        # Proof may still be on its way to the store, where the message looks queued until then.
        if not running.proven and is_waiting_in_queue(await self._load(task_id)):
            return
        await self._record(task_id, Failed(outcomes.AGENT_EXITED, str(gone)))
        self._finished(await self._load(task_id))

    async def _record(self, task_id: TaskId, event: TurnEvent) -> bool:
        """Records `event`; returns False when the task has ended: by this event, canceled, or answered by a reply."""
        running = self._running
        if running is not None and isinstance(event, _RECORDED_IN_GROUPS):
            task = await self._load(task_id)
            if not task.state.is_terminal:
                self._record_later(running, self._events_for(task, event))
            return not task.state.is_terminal
        if running is not None:
            self._flush(running)
        return await self._store_retry.retry_until_stored(lambda: self._record_once(task_id, event))

    async def _record_once(self, task_id: TaskId, event: TurnEvent) -> bool:
        task = await self._journal.load(task_id)
        events = () if task.state.is_terminal else self._events_for(task, event)
        if events:
            # The task may have ended while these were on their way to the store.
            with suppress(IllegalTransition, TaskFinished):
                await self._journal.record(*events)
        return not (await self._journal.load(task_id)).state.is_terminal

    def _record_later(self, running: _Running, events: tuple[TaskEvent, ...]) -> None:
        if events and not running.unrecorded:
            asyncio.get_running_loop().call_soon(self._flush, running)
        running.unrecorded += events

    def _flush(self, running: _Running) -> None:
        if running.unrecorded:
            self._journal.record_nowait(*running.unrecorded).add_done_callback(_log_failure)
            running.unrecorded.clear()

    async def _load(self, task_id: TaskId) -> Task:
        known = self._journal.known(task_id)
        if known is not None:
            return known
        return await self._store_retry.retry_until_stored(lambda: self._journal.load(task_id))

    def _events_for(self, task: Task, event: TurnEvent) -> tuple[TaskEvent, ...]:
        now = self._clock.now()
        if isinstance(event, Typing) and task.is_overdue(self._clock):
            return outcomes.expired(task, now)
        is_interrupted = self._running is not None and self._running.interrupted
        if is_interrupted and isinstance(event, _ENDS) and not outcomes.is_whole(event):
            return outcomes.interrupted(task, now, event)
        waits = self._deferred.defer(task, event) if isinstance(event, Answered) else ()
        return waits or outcomes.events_for(task, event, now)


async def _next_event(events: AsyncIterator[TurnEvent], running: _Running) -> TurnEvent | None:
    """Returns the next event; None when there is none, or the turn was abandoned before there was proof."""
    if running.proven:
        return await anext(events, None)
    if not running.is_abandoned:
        running.waiter = asyncio.current_task()
        try:
            return await anext(events, None)
        except asyncio.CancelledError:
            if not running.consumes_cancellation():
                raise
        finally:
            running.waiter = None
    return None


def _log_failure(recorded: asyncio.Future[Task]) -> None:
    if not recorded.cancelled() and (error := recorded.exception()) is not None:
        log.warning("event_not_recorded", extra={"error": getattr(error, "code", type(error).__name__)})


@dataclass(frozen=True, slots=True)
class _QueuedMessage:
    """One message that waits for its turn."""

    rank: tuple[int, int]
    task_id: TaskId
    message: Message
    first: bool
    resumed: bool = False
    """The agent has the message already; see `Turn.resumed`."""


class _MessageQueue:
    """The queued messages of one agent, in order of delivery. Plain data: it neither waits nor types."""

    def __init__(self) -> None:
        self._items: list[_QueuedMessage] = []
        self._counter = 0

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[_QueuedMessage]:
        return iter(self._items)

    def add(
        self, task_id: TaskId, message: Message, priority: int, *, first: bool, resumed: bool = False
    ) -> _QueuedMessage:
        """Inserts a message behind all of its priority and above; one that the agent has already goes first."""
        self._counter += 1
        rank = _RESUMED_RANK if resumed else -priority
        item = _QueuedMessage((rank, self._counter), task_id, message, first, resumed)
        insort(self._items, item, key=_BY_RANK)
        return item

    def put_back(self, item: _QueuedMessage) -> None:
        """Returns an item to its former position."""
        insort(self._items, item, key=_BY_RANK)

    def head(self) -> _QueuedMessage | None:
        return self._items[0] if self._items else None

    def take(self) -> _QueuedMessage:
        """Removes and returns the next item; the queue must not be empty."""
        return self._items.pop(0)

    def remove(self, task_id: TaskId) -> bool:
        """Removes all messages of a task; returns False when there were none."""
        left = [item for item in self._items if item.task_id != task_id]
        removed = len(left) != len(self._items)
        self._items = left
        return removed
