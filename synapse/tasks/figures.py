"""How much the agents did in the last hour and day, and how long it took: counted from the events of the log. Pure.

    messages     that an agent got, by the time when each was queued
    submitted    seconds from queued until the agent took the message, of those it took in this time
    answered     seconds from queued until the message was answered, of those answered in this time
    waiting      seconds in which a task waited for a person: for an answer, or for a decision about a doubt
    finished     tasks that ended; `failed` are those among them that failed or were rejected

Everything is kept per minute, agent and scope, so that each caller gets the figures of what it may see.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any, Final, NamedTuple

from synapse.core.events import (
    AttentionChanged,
    MessageAdded,
    ReceiptChanged,
    StateChanged,
    TaskEvent,
    TaskHidden,
    TaskOpened,
)
from synapse.core.message import Json, Role
from synapse.core.question import WAITING_FOR_PERSON
from synapse.core.task import ReceiptStep, TaskId, TaskState
from synapse.tasks.journal import rebuild
from synapse.tasks.recovery import ANSWERS, is_instruction

KEPT: Final = timedelta(hours=24)
STEP_SECONDS: Final[Mapping[int, int]] = {1: 60, 24: 900}
"""The length of one step of `messages`, by the hours that are asked for."""
_MINUTE: Final = 60
_MAX_ENDED: Final = 10_000
"""How many tasks are remembered after their end, for what is still recorded about them."""
_FAILED: Final = frozenset({TaskState.FAILED, TaskState.REJECTED})


class Group(NamedTuple):
    """The tasks of one agent and one scope."""

    inbox: str
    agent_id: str
    scope: str


@dataclass(slots=True)
class _Count:
    """What happened in one minute, or in all minutes of a window."""

    messages: int = 0
    finished: int = 0
    failed: int = 0
    waiting: float = 0.0
    submitted: array[float] = field(default_factory=lambda: array("d"))
    answered: array[float] = field(default_factory=lambda: array("d"))

    def add(self, other: _Count) -> None:
        self.messages += other.messages
        self.finished += other.finished
        self.failed += other.failed
        self.waiting += other.waiting
        self.submitted.extend(other.submitted)
        self.answered.extend(other.answered)


@dataclass(slots=True)
class _Seen:
    """What is known of one task: whose it is, when its message was queued, and since when it waits for a person."""

    group: Group
    queued_at: datetime
    is_message: bool
    """Not a question of the agent's own, which only waits for a person."""
    asks: bool = False
    is_in_doubt: bool = False
    waits_since: datetime | None = None
    has_ended: bool = False


class FigureCounter:
    """Counts the events of the log, which it is given in order, and forgets minutes older than a day."""

    def __init__(self) -> None:
        self._minutes: dict[int, dict[Group, _Count]] = {}
        self._tasks: dict[TaskId, _Seen] = {}
        self._ended: deque[TaskId] = deque()
        self._ignored: set[TaskId] = set()
        """Open tasks that are no messages: initial instructions, and waits for a reply."""

    def knows(self, task_id: TaskId) -> bool:
        """Whether the task's opening was counted, so that later events of it can be."""
        return task_id in self._tasks or task_id in self._ignored

    def count(self, event: TaskEvent) -> None:
        """Counts one event; an event of a task whose opening was not counted is left out."""
        if isinstance(event, TaskOpened):
            self._open(event)
            return
        seen = self._tasks.get(event.task_id)
        if seen is not None:
            self._count_change(seen, event)
        elif isinstance(event, StateChanged) and event.state.is_terminal:
            self._ignored.discard(event.task_id)

    def figures(
        self, now: datetime, hours: int, name_of: Callable[[Group], str | None], agents: Iterable[str] = ()
    ) -> Json:
        """Returns the figures of the last `hours` as JSON.

        `name_of` names the agent of a group, or returns None for a group that is left out. `agents` are shown even if
        nothing happened to them.
        """
        self._forget(now)
        step = STEP_SECONDS[hours]
        end = int(now.timestamp()) // step + 1
        begin = end - hours * 3600 // step
        rows = {name: _Row(end - begin) for name in agents}
        total = _Row(end - begin)
        counted = [
            (minute, group, count) for minute, groups in self._minutes.items() for group, count in groups.items()
        ]
        for minute, group, count in (*counted, *self._open_waits(now)):
            place = minute * _MINUTE // step - begin
            if not 0 <= place < end - begin or (name := name_of(group)) is None:
                continue
            for row in (rows.setdefault(name, _Row(end - begin)), total):
                row.add(place, count)
        return {
            "from": _instant(begin * step),
            "to": _instant(end * step),
            "step_seconds": step,
            "agents": [{"agent": name, **rows[name].fields()} for name in sorted(rows)],
            "total": total.fields(),
        }

    def _open(self, event: TaskOpened) -> None:
        task = rebuild(None, [event])
        if is_instruction(task) or not (event.queued or task.asks_person):
            self._ignored.add(event.task_id)
            return
        group = Group(event.inbox, event.agent_id, event.scope)
        seen = self._tasks[event.task_id] = _Seen(group, event.at, is_message=event.queued)
        if event.queued:
            self._at(event.at, seen).messages += 1

    def _count_change(self, seen: _Seen, event: TaskEvent) -> None:
        match event:
            case StateChanged():
                self._change_state(seen, event)
            case ReceiptChanged():
                self._reach(seen, event)
            case MessageAdded(message=message) if message.role is Role.USER and ANSWERS not in message.metadata:
                self._at(event.at, seen).messages += 1
                seen.queued_at = event.at
            case AttentionChanged():
                seen.is_in_doubt = bool(event.attention)
                self._update_wait(seen, event.at)
            case TaskHidden():
                seen.asks = seen.is_in_doubt = False
                self._update_wait(seen, event.at)
            case _:
                pass

    def _change_state(self, seen: _Seen, event: StateChanged) -> None:
        seen.asks = event.state is TaskState.INPUT_REQUIRED and event.reason == WAITING_FOR_PERSON
        if event.state.is_terminal:
            seen.is_in_doubt = False
        self._update_wait(seen, event.at)
        if not event.state.is_terminal or seen.has_ended:
            return
        if seen.is_message:
            count = self._at(event.at, seen)
            count.finished += 1
            count.failed += event.state in _FAILED
        seen.has_ended = True
        self._ended.append(event.task_id)
        if len(self._ended) > _MAX_ENDED:
            self._tasks.pop(self._ended.popleft(), None)

    def _reach(self, seen: _Seen, event: ReceiptChanged) -> None:
        if event.step is ReceiptStep.QUEUED:
            seen.queued_at = event.at
        # The clock may have been set back in the meantime.
        seconds = max(0.0, (event.at - seen.queued_at).total_seconds())
        if event.step is ReceiptStep.SUBMITTED:
            self._at(event.at, seen).submitted.append(seconds)
        if event.step is ReceiptStep.ANSWERED:
            self._at(event.at, seen).answered.append(seconds)

    def _update_wait(self, seen: _Seen, at: datetime) -> None:
        waits = seen.asks or seen.is_in_doubt
        if waits and seen.waits_since is None:
            seen.waits_since = at
        if not waits and seen.waits_since is not None:
            for minute, seconds in _by_minute(seen.waits_since, at):
                self._minutes.setdefault(minute, {}).setdefault(seen.group, _Count()).waiting += seconds
            seen.waits_since = None

    def _open_waits(self, now: datetime) -> Iterable[tuple[int, Group, _Count]]:
        for seen in self._tasks.values():
            if seen.waits_since is not None:
                for minute, seconds in _by_minute(max(seen.waits_since, now - KEPT), now):
                    yield minute, seen.group, _Count(waiting=seconds)

    def _at(self, at: datetime, seen: _Seen) -> _Count:
        return self._minutes.setdefault(_minute_of(at), {}).setdefault(seen.group, _Count())

    def _forget(self, now: datetime) -> None:
        oldest = _minute_of(now - KEPT) - STEP_SECONDS[24] // _MINUTE
        for minute in [minute for minute in self._minutes if minute < oldest]:
            del self._minutes[minute]


class _Row:
    """The figures of one agent, or of all."""

    def __init__(self, steps: int) -> None:
        self._messages = [0] * steps
        self._sum = _Count()

    def add(self, place: int, count: _Count) -> None:
        self._messages[place] += count.messages
        self._sum.add(count)

    def fields(self) -> dict[str, Any]:
        submitted, answered = sorted(self._sum.submitted), sorted(self._sum.answered)
        return {
            "messages": self._messages,
            "submitted_p50": percentile(submitted, 50),
            "submitted_p95": percentile(submitted, 95),
            "answered_p50": percentile(answered, 50),
            "answered_p95": percentile(answered, 95),
            "waiting_seconds": round(self._sum.waiting, 3),
            "finished": self._sum.finished,
            "failed": self._sum.failed,
        }


def percentile(values: Sequence[float], percent: int) -> float | None:
    """Returns the smallest of the sorted values that `percent` of them do not exceed; None if there are none."""
    return round(values[max(0, ceil(len(values) * percent / 100) - 1)], 3) if values else None


def _by_minute(begin: datetime, end: datetime) -> Iterable[tuple[int, float]]:
    """Yields the seconds of the time from `begin` to `end` that are in each minute, of the last day at most."""
    start, stop = max(begin.timestamp(), end.timestamp() - KEPT.total_seconds()), end.timestamp()
    while start < stop:
        minute = int(start) // _MINUTE
        following = min(stop, (minute + 1) * _MINUTE)
        yield minute, following - start
        start = following


def _minute_of(at: datetime) -> int:
    return int(at.timestamp()) // _MINUTE


def _instant(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S.000Z}"
