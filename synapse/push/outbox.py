"""Delivers events of tasks to webhooks: it reads the event log, so recording an event never waits for a webhook.

    added or found ─► lane ─► reads the log ─► an event that its dialect can encode ─► POST ─► delivered
                       ▲            │                                                   │ ▲
                       └── woken ◄──┴ no more events; if the task has ended: finished    └─┘ later, if it failed

Each webhook of each task has a lane. A lane delivers one event after the other, in order; lanes do not wait for one
another. Nothing is queued in memory: a lane reads a page of the log, and its position is in the store. A notification
that was sent, but not recorded before the process died, is sent again with its old id; none is skipped.
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

_PAGE_SIZE: Final = 100
_STORE_RETRY_SECONDS: Final = 5.0
_RETRY_STATUSES: Final = frozenset({408, 425, 429})
KEY_IS_GONE: Final = "the key that set it was revoked, or has expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """The body of a POST, encoded by the dialect that configured the webhook."""

    body: bytes
    media_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PostResult:
    """The result of one attempt: the status of the response, or 0 and why there was none."""

    status: int = 0
    error: str = ""
    retry_after: float | None = None
    is_final: bool = False
    """True when no retry can succeed, because the address or the key is refused."""


Headers = Sequence[tuple[str, str]]
NotificationEncoder = Callable[[Update], Notification | None]
"""Encodes an update in a dialect; returns None for an update that the dialect does not send."""
IsKeyValid = Callable[[str], Awaitable[bool]]
"""Whether the API key with this id is valid. Raises StoreFailed when the file of keys cannot be read."""


class Webhooks(Protocol):
    """Sends notifications. It does not raise; the result has the error."""

    async def post(self, url: str, headers: Headers, body: bytes) -> PostResult: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySchedule:
    """Exponential backoff with jitter; `attempts` is the total number of attempts."""

    attempts: int = 12
    first: float = 1.0
    factor: float = 2.0
    longest: float = 300.0

    def pause(self, failed: int, jitter: float, retry_after: float | None = None) -> float | None:
        """Returns the seconds until the next attempt after `failed` ones, or None when no attempt is left.

        `jitter`, from 0 to 1, spreads attempts that failed together. The pause is at least `retry_after`, and at most
        `longest`.
        """
        if failed >= self.attempts:
            return None
        # Capped: a larger power exceeds every pause, and soon the range of a float.
        growing = self.first * self.factor ** min(failed - 1, 64)
        spread = min(growing, self.longest) * (0.5 + jitter / 2)
        return min(max(spread, retry_after or 0.0), self.longest)


class PushOutbox:
    """Delivers notifications for one inbox, whose lease this process holds."""

    def __init__(  # noqa: PLR0913 - one port for each thing that it reads, sends or waits for
        self,
        inbox: str,
        *,
        store: TaskStore,
        pushes: PushStore,
        journal: Journal,
        webhooks: Webhooks,
        encoder_for: Callable[[str], NotificationEncoder],
        clock: Clock,
        jitter: Callable[[], float],
        schedule: RetrySchedule,
        pause: Callable[[float], Awaitable[None]],
        is_key_valid: IsKeyValid,
    ) -> None:
        self._inbox = inbox
        self._store = store
        self._pushes = pushes
        self._webhooks = webhooks
        self._encoder_for = encoder_for
        self._clock = clock
        self._jitter = jitter
        self._schedule = schedule
        self._pause = pause
        self._is_key_valid = is_key_valid
        self._lanes: dict[int, _Lane] = {}
        self._of_task: dict[TaskId, set[int]] = {}
        self._jobs: dict[int, asyncio.Task[None]] = {}
        self._waiting: set[int] = set()
        self._last_seen = 0
        self._is_running = False
        journal.listen(self._on_update, self._of_task.__contains__)

    async def run(self) -> None:
        """Continues with the webhooks of an earlier process, then delivers until cancelled."""
        self._is_running = True
        try:
            for number in self._lanes:
                self._wake(number)
            with suppress(SynapseError):  # the host's sweep calls `find_new` again, and logs the error
                await self.find_new()
            await asyncio.get_running_loop().create_future()
        finally:
            self._is_running = False
            jobs = list(self._jobs.values())
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)

    async def find_new(self) -> None:
        """Adds webhooks that an earlier process left, or that another process has configured."""
        for push in await self._pushes.open_after(self._inbox, self._last_seen):
            self._last_seen = push.number
            self.add(push)

    def add(self, push: Push) -> None:
        """Starts to deliver to this webhook."""
        if push.number not in self._lanes:
            self._lanes[push.number] = _Lane(push.number, push.task_id)
            self._of_task.setdefault(push.task_id, set()).add(push.number)
        self._wake(push.number)

    async def drain(self, seconds: float) -> None:
        """Waits at most `seconds` for deliveries in progress, but not for those that wait for a retry."""
        busy = [job for number, job in self._jobs.items() if number not in self._waiting]
        if busy:
            await asyncio.wait(busy, timeout=seconds)

    def _on_update(self, update: Update) -> None:
        for number in self._of_task.get(update.task.id, ()):
            self._wake(number)

    def _wake(self, number: int) -> None:
        self._lanes[number].is_behind = True
        if self._is_running and number not in self._jobs:
            self._jobs[number] = asyncio.get_running_loop().create_task(self._drive(number))

    async def _drive(self, number: int) -> None:
        """Delivers all events of a lane; returns when there are no more for now."""
        lane = self._lanes[number]
        try:
            while lane.is_behind and not lane.has_ended:
                lane.is_behind = False
                pause = await self._catch_up_or_retry(lane)
                if pause is not None:
                    lane.reset()
                    await self._wait(number, pause)
        except Exception:
            # A failed lane does not stop the others. Its position is in the store, so a restart tries again.
            log.exception("push_lane_failed", extra={"task": lane.task_id, "push": number})
            lane.has_ended = True
        finally:
            del self._jobs[number]
            if lane.has_ended:
                self._drop(lane)

    async def _catch_up_or_retry(self, lane: _Lane) -> float | None:
        """Returns the seconds to wait before the next attempt, or None."""
        try:
            return await self._catch_up(lane)
        except SynapseError as error:
            log.warning("push_delayed", extra={"task": lane.task_id, "push": lane.number, "error": str(error)})
            return _STORE_RETRY_SECONDS

    async def _catch_up(self, lane: _Lane) -> float | None:
        push = await self._pushes.load(lane.number)
        if push is None:
            lane.has_ended = True
            return None
        if push.pending is not None and push.pending.next_try is not None and not lane.has_waited:
            return self._seconds_until(push.pending.next_try)
        lane.has_waited = False
        while page := await self._store.read_after(lane.seq, task_id=lane.task_id, limit=_PAGE_SIZE):
            for recorded in page:
                pause = await self._process(lane, recorded, push.told)
                if pause is not None or lane.has_ended:
                    return pause
            if len(page) < _PAGE_SIZE:
                break
        if (lane.task is None or lane.task.state.is_terminal) and not lane.is_behind:
            # Record the end before dropping the lane: an event recorded meanwhile wakes it, and then it goes on.
            await self._pushes.finish(lane.number, lane.seq)
            lane.has_ended = not lane.is_behind
        return None

    async def _process(self, lane: _Lane, recorded: Recorded, told: int) -> float | None:
        """Applies one event to the lane's task, and delivers it unless it was delivered before.

        Returns the seconds until the next attempt, if the delivery failed.
        """
        task = rebuild(lane.task, (recorded.event,))
        if recorded.seq > told:
            pause = await self._deliver(lane, Update(recorded.seq, recorded.event, task))
            if pause is not None:
                return pause
        lane.task, lane.seq = task, recorded.seq
        return None

    async def _deliver(self, lane: _Lane, update: Update) -> float | None:
        """Makes one attempt; returns the seconds until the next, or None when the event needs none."""
        # Loaded for each attempt: it may have been changed or deleted.
        push = await self._pushes.load(lane.number)
        if push is None:
            lane.has_ended = True
            return None
        notification = self._encoder_for(push.config.dialect)(update)
        if notification is None:
            return None
        attempts = push.pending.attempts if push.pending and push.pending.seq == update.seq else 0
        if push.config.set_by and not await self._is_key_valid(push.config.set_by):
            result = PostResult(error=KEY_IS_GONE, is_final=True)
        else:
            result = await self._webhooks.post(push.config.url, _headers(push, update, notification), notification.body)
            attempts += 1
        delivery = self._delivery(push, update.seq, attempts, result)
        if not await self._pushes.record(delivery):
            lane.has_ended = True
        return None if delivery.next_try is None else self._seconds_until(delivery.next_try)

    def _delivery(self, push: Push, seq: int, attempts: int, result: PostResult) -> Delivery:
        now = self._clock.now()
        state, pause = DeliveryState.GIVEN_UP, None
        if 200 <= result.status < 300:
            state = DeliveryState.DELIVERED
        elif may_succeed(result):
            pause = self._schedule.pause(attempts, self._jitter(), result.retry_after)
            state = state if pause is None else DeliveryState.PENDING
        delivery = Delivery(
            number=push.number,
            seq=seq,
            state=state,
            attempts=attempts,
            at=now,
            status=result.status,
            error=result.error,
            next_try=None if pause is None else now + timedelta(seconds=pause),
        )
        _log_delivery(push, delivery)
        return delivery

    async def _wait(self, number: int, seconds: float) -> None:
        self._waiting.add(number)
        try:
            await self._pause(seconds)
        finally:
            self._waiting.discard(number)

    def _seconds_until(self, moment: datetime) -> float:
        # Capped: if the clock was set back, a webhook must not wait for days.
        return min(max(0.0, (moment - self._clock.now()).total_seconds()), self._schedule.longest)

    def _drop(self, lane: _Lane) -> None:
        self._lanes.pop(lane.number, None)
        numbers = self._of_task.get(lane.task_id, set())
        numbers.discard(lane.number)
        if not numbers:
            self._of_task.pop(lane.task_id, None)


def may_succeed(result: PostResult) -> bool:
    """Whether a retry may succeed. A receiver that refuses the notification itself would refuse it again."""
    if result.is_final:
        return False
    return not 300 <= result.status < 500 or result.status in _RETRY_STATUSES


class _Lane:
    """One webhook of one task, and the position of this process in the log."""

    __slots__ = ("has_ended", "has_waited", "is_behind", "number", "seq", "task", "task_id")

    def __init__(self, number: int, task_id: TaskId) -> None:
        self.number = number
        self.task_id = task_id
        self.task: Task | None = None
        """The task after the event `seq`."""
        self.seq = 0
        self.is_behind = True
        self.has_waited = False
        self.has_ended = False

    def reset(self) -> None:
        """Releases the task before a wait: there may be thousands of lanes whose webhook is down."""
        self.task, self.seq = None, 0
        self.is_behind = self.has_waited = True


def _log_delivery(push: Push, delivery: Delivery) -> None:
    """Logs a delivery without the URL, which may contain secrets; `synapse push list` shows its safe part."""
    names = {"delivered": "push_delivered", "pending": "push_failed", "given_up": "push_given_up"}
    level = logging.DEBUG if delivery.state is DeliveryState.DELIVERED else logging.WARNING
    facts = {"seq": delivery.seq, "attempts": delivery.attempts, "status": delivery.status, "error": delivery.error}
    log.log(level, names[delivery.state.value], extra={"task": push.task_id, "push": push.number, **facts})


def _headers(push: Push, update: Update, notification: Notification) -> Headers:
    return [
        ("Content-Type", notification.media_type),
        (ID_HEADER, f"{push.task_id}.{push.number}.{update.seq}"),
        *proof_headers(push.config),
        *trace_headers(update.task.metadata),
    ]
