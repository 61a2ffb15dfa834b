"""Tells webhooks what happens to their tasks: a reader of the event log, off the event path.

    saved or found ─► lane ─► reading the log ─► an event that its dialect has words for ─► tried ─► told
                       ▲            │                                                         │ ▲
                       └── woken ◄──┴ nothing more now; when the task has ended: finished      └─┘ later, if it failed

Each webhook of each task has a lane. A lane tells one event after the other, so the order is kept; lanes do not wait
for one another. Nothing is queued in memory: a lane reads a page of the log, and its place is in the store. What was
sent and not yet recorded when the process died is sent again, with the same id; nothing is left out.

When something that failed is tried again: later each time, never all at once, and not for ever. Pure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from synapse.core.errors import SynapseError
from synapse.core.events import Recorded, Update
from synapse.core.push import ID_HEADER, Delivery, DeliveryState, Push, PushStore, proof_headers
from synapse.core.store import TaskStore
from synapse.core.task import Task, TaskId
from synapse.core.trace import trace_headers
from synapse.core.types import Clock
from synapse.tasks.journal import Journal, rebuild

log = logging.getLogger(__name__)

_PAGE: Final = 100
_AFTER_A_STORE_FAILED: Final = 5.0
_TRY_AGAIN: Final = frozenset({408, 425, 429})
KEY_IS_GONE: Final = "the key that set it was revoked, or has expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """What is sent: made by the dialect that configured the webhook."""

    body: bytes
    media_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """What came of one try: the status of the answer, or 0 and why there was none."""

    status: int = 0
    error: str = ""
    retry_after: float | None = None
    is_hopeless: bool = False
    """It would not be otherwise another time: the address is refused."""


Headers = Sequence[tuple[str, str]]
Words = Callable[[Update], Notification | None]
"""How a dialect tells an update; None when it has no words for it."""
Holds = Callable[[str], bool]
"""Whether an API key, by its id, still counts; raises StoreFailed when that cannot be found out now."""


class Webhooks(Protocol):
    """Sends notifications. It does not raise: what went wrong is in the answer."""

    async def post(self, url: str, headers: Headers, body: bytes) -> Posted: ...


class PushOutbox:
    """Delivers for one inbox, whose lease this process holds."""

    def __init__(  # noqa: PLR0913 - where the news is, who wants it, and how it gets there
        self,
        inbox: str,
        *,
        store: TaskStore,
        pushes: PushStore,
        journal: Journal,
        webhooks: Webhooks,
        words: Callable[[str], Words],
        clock: Clock,
        chance: Callable[[], float],
        schedule: RetrySchedule,
        pause: Callable[[float], Awaitable[None]],
        holds: Holds,
    ) -> None:
        self._inbox = inbox
        self._store = store
        self._pushes = pushes
        self._webhooks = webhooks
        self._words = words
        self._clock = clock
        self._chance = chance
        self._schedule = schedule
        self._pause = pause
        self._holds = holds
        self._lanes: dict[int, _Lane] = {}
        self._of_task: dict[TaskId, set[int]] = {}
        self._jobs: dict[int, asyncio.Task[None]] = {}
        self._resting: set[int] = set()
        self._last_seen = 0
        self._is_running = False
        journal.listen(self._hear, self._of_task.__contains__)

    async def run(self) -> None:
        """Go on with what an earlier process left, then deliver until cancelled."""
        self._is_running = True
        try:
            for number in self._lanes:
                self._wake(number)
            with suppress(SynapseError):  # the sweep looks again, and says so
                await self.look()
            await asyncio.get_running_loop().create_future()
        finally:
            self._is_running = False
            jobs = list(self._jobs.values())
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)

    async def look(self) -> None:
        """Find webhooks that nobody told us of: from an earlier process, or set by another."""
        for push in await self._pushes.open_after(self._inbox, self._last_seen):
            self._last_seen = push.number
            self.take(push)

    def take(self, push: Push) -> None:
        """Deliver for this webhook from now on."""
        if push.number not in self._lanes:
            self._lanes[push.number] = _Lane(push.number, push.task_id)
            self._of_task.setdefault(push.task_id, set()).add(push.number)
        self._wake(push.number)

    async def drain(self, seconds: float) -> None:
        """Wait at most so long for what is on its way; what waits for its next try is left for another process."""
        busy = [job for number, job in self._jobs.items() if number not in self._resting]
        if busy:
            await asyncio.wait(busy, timeout=seconds)

    def _hear(self, update: Update) -> None:
        for number in self._of_task.get(update.task.id, ()):
            self._wake(number)

    def _wake(self, number: int) -> None:
        self._lanes[number].is_behind = True
        if self._is_running and number not in self._jobs:
            self._jobs[number] = asyncio.get_running_loop().create_task(self._drive(number))

    async def _drive(self, number: int) -> None:
        """Tell all that there is to tell; ends when there is nothing more for now."""
        lane = self._lanes[number]
        try:
            while lane.is_behind and not lane.has_ended:
                lane.is_behind = False
                pause = await self._catch_up_or_rest(lane)
                if pause is not None:
                    lane.start_over()
                    await self._rest(number, pause)
        except Exception:
            # One webhook's trouble is nobody else's; a restart tries again, because its place is in the store.
            log.exception("push_lane_failed", extra={"task": lane.task_id, "push": number})
            lane.has_ended = True
        finally:
            del self._jobs[number]
            if lane.has_ended:
                self._forget(lane)

    async def _catch_up_or_rest(self, lane: _Lane) -> float | None:
        """Seconds to rest before the next try, or None."""
        try:
            return await self._catch_up(lane)
        except SynapseError as error:
            log.warning("push_delayed", extra={"task": lane.task_id, "push": lane.number, "error": str(error)})
            return _AFTER_A_STORE_FAILED

    async def _catch_up(self, lane: _Lane) -> float | None:
        push = await self._pushes.load(lane.number)
        if push is None:
            lane.has_ended = True
            return None
        if push.pending is not None and push.pending.next_try is not None and not lane.has_rested:
            return self._seconds_until(push.pending.next_try)
        lane.has_rested = False
        while page := await self._store.read_after(lane.seq, task_id=lane.task_id, limit=_PAGE):
            for recorded in page:
                pause = await self._pass_on(lane, recorded, push.told)
                if pause is not None or lane.has_ended:
                    return pause
            if len(page) < _PAGE:
                break
        if (lane.task is None or lane.task.state.is_terminal) and not lane.is_behind:
            # Finished before it is forgotten: what is recorded meanwhile wakes it, and then it is not finished.
            await self._pushes.finish(lane.number, lane.seq)
            lane.has_ended = not lane.is_behind
        return None

    async def _pass_on(self, lane: _Lane, recorded: Recorded, told: int) -> float | None:
        """Take in one event, and tell it unless it was told."""
        task = rebuild(lane.task, (recorded.event,))
        if recorded.seq > told:
            pause = await self._tell(lane, Update(recorded.seq, recorded.event, task))
            if pause is not None:
                return pause
        lane.task, lane.seq = task, recorded.seq
        return None

    async def _tell(self, lane: _Lane, update: Update) -> float | None:
        """Try once; return the seconds until the next try, or None when it was taken, given up or not wanted."""
        # Read each time: it may have been changed or deleted.
        push = await self._pushes.load(lane.number)
        if push is None:
            lane.has_ended = True
            return None
        told = self._words(push.config.dialect)(update)
        if told is None:
            return None
        attempts = push.pending.attempts if push.pending and push.pending.seq == update.seq else 0
        if push.config.set_by and not self._holds(push.config.set_by):
            posted = Posted(error=KEY_IS_GONE, is_hopeless=True)
        else:
            posted = await self._webhooks.post(push.config.url, _headers(push, update, told), told.body)
            attempts += 1
        delivery = self._judged(push, update.seq, attempts, posted)
        if not await self._pushes.record(delivery):
            lane.has_ended = True
        return None if delivery.next_try is None else self._seconds_until(delivery.next_try)

    def _judged(self, push: Push, seq: int, attempts: int, posted: Posted) -> Delivery:
        now = self._clock.now()
        state, pause = DeliveryState.GIVEN_UP, None
        if 200 <= posted.status < 300:
            state = DeliveryState.DELIVERED
        elif may_succeed(posted):
            pause = self._schedule.pause(attempts, self._chance(), posted.retry_after)
            state = state if pause is None else DeliveryState.PENDING
        delivery = Delivery(
            number=push.number,
            seq=seq,
            state=state,
            attempts=attempts,
            at=now,
            status=posted.status,
            error=posted.error,
            next_try=None if pause is None else now + timedelta(seconds=pause),
        )
        _note(push, delivery)
        return delivery

    async def _rest(self, number: int, seconds: float) -> None:
        self._resting.add(number)
        try:
            await self._pause(seconds)
        finally:
            self._resting.discard(number)

    def _seconds_until(self, moment: datetime) -> float:
        # A clock that was set back must not make a webhook wait for days.
        return min(max(0.0, (moment - self._clock.now()).total_seconds()), self._schedule.longest)

    def _forget(self, lane: _Lane) -> None:
        self._lanes.pop(lane.number, None)
        numbers = self._of_task.get(lane.task_id, set())
        numbers.discard(lane.number)
        if not numbers:
            self._of_task.pop(lane.task_id, None)


def may_succeed(posted: Posted) -> bool:
    """Whether another try could go better: a receiver that says no to the notification itself says so again."""
    if posted.is_hopeless:
        return False
    return not 300 <= posted.status < 500 or posted.status in _TRY_AGAIN


def _note(push: Push, delivery: Delivery) -> None:
    """For the log; the address may hold secrets, so `synapse push list` shows what can be shown of it."""
    names = {"delivered": "push_delivered", "pending": "push_failed", "given_up": "push_given_up"}
    level = logging.DEBUG if delivery.state is DeliveryState.DELIVERED else logging.WARNING
    facts = {"seq": delivery.seq, "attempts": delivery.attempts, "status": delivery.status, "error": delivery.error}
    log.log(level, names[delivery.state.value], extra={"task": push.task_id, "push": push.number, **facts})


class _Lane:
    """One webhook of one task: how far this process has read the log for it."""

    __slots__ = ("has_ended", "has_rested", "is_behind", "number", "seq", "task", "task_id")

    def __init__(self, number: int, task_id: TaskId) -> None:
        self.number = number
        self.task_id = task_id
        self.task: Task | None = None
        """As it was after the event `seq`."""
        self.seq = 0
        self.is_behind = True
        self.has_rested = False
        self.has_ended = False

    def start_over(self) -> None:
        """Hold nothing while it rests: there may be thousands whose webhook is down."""
        self.task, self.seq = None, 0
        self.is_behind = self.has_rested = True


def _headers(push: Push, update: Update, told: Notification) -> Headers:
    return [
        ("Content-Type", told.media_type),
        (ID_HEADER, f"{push.task_id}.{push.number}.{update.seq}"),
        *proof_headers(push.config),
        *trace_headers(update.task.metadata),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySchedule:
    """Exponential backoff with jitter; `attempts` is how often something is tried in all."""

    attempts: int = 12
    first: float = 1.0
    factor: float = 2.0
    longest: float = 300.0

    def pause(self, failed: int, chance: float, asked: float | None = None) -> float | None:
        """Seconds until the next try after `failed` ones, or None when that was the last.

        `chance`, from 0 to 1, spreads those who failed together; whoever `asked` for a pause gets at least that, within
        the longest.
        """
        if failed >= self.attempts:
            return None
        # Beyond this the power is larger than any pause, and soon than any float.
        growing = self.first * self.factor ** min(failed - 1, 64)
        spread = min(growing, self.longest) * (0.5 + chance / 2)
        return min(max(spread, asked or 0.0), self.longest)
