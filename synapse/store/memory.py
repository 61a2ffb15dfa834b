"""Tasks that live as long as the process: for tests, and for agents that nobody wants to remember.

Webhooks and what became of their notifications, for as long as the process lives.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from synapse.core.errors import TaskNotFound, VersionConflict
from synapse.core.events import MessageAdded, Recorded, TaskEvent, TaskOpened
from synapse.core.push import Delivery, DeliveryState, Push, PushConfig
from synapse.core.store import IsAlive, KnownMessage, TaskPage, TaskQuery, is_wanted
from synapse.core.task import Task, TaskId
from synapse.store.codec import encode_events
from synapse.store.reader import Cursor


@dataclass(slots=True)
class _Kept:
    number: int
    task: Task
    log: list[Recorded]


class MemoryStore:
    """Keeps everything in dictionaries; nothing is durable."""

    def __init__(self) -> None:
        self._tasks: dict[TaskId, _Kept] = {}
        self._log: list[Recorded] = []
        self._messages: dict[tuple[str, str, str], KnownMessage] = {}
        self._holders: dict[str, str] = {}
        self._opened = 0
        self._seq = 0
        self.pushes = MemoryPushes()
        """The webhooks of the tasks."""

    def append(self, task: Task, events: Sequence[TaskEvent], *, digest: str = "") -> asyncio.Future[int]:
        """Keep the events at once; see `TaskStore.append`."""
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        try:
            done.set_result(self._append(task, events, digest))
        except VersionConflict as conflict:
            done.set_exception(conflict)
        return done

    async def load(self, task_id: TaskId) -> Task:
        """Raises TaskNotFound."""
        if task_id not in self._tasks:
            raise TaskNotFound(task_id)
        return self._tasks[task_id].task

    async def find(self, prefix: str, *, inbox: str = "", limit: int = 10) -> Sequence[TaskId]:
        """Ids that begin with `prefix`, hidden ones excluded, newest first."""
        found = [
            kept.task.id
            for kept in sorted(self._tasks.values(), key=lambda kept: kept.number, reverse=True)
            if kept.task.id.startswith(prefix) and not kept.task.hidden and inbox in ("", kept.task.inbox)
        ]
        return found[:limit]

    async def find_message(self, inbox: str, scope: str, message_id: str) -> KnownMessage | None:
        """The task that claimed the message id, if any; an empty inbox or scope means any."""
        if inbox and scope:
            return self._messages.get((inbox, scope, message_id))
        for (in_inbox, of_scope, one), known in sorted(self._messages.items(), key=lambda item: item[0]):
            if one == message_id and inbox in ("", in_inbox) and scope in ("", of_scope):
                return known
        return None

    async def list(self, query: TaskQuery) -> TaskPage:
        """One page of the tasks that fit, newest change first."""
        fitting = [(_place(kept), kept.task) for kept in self._tasks.values() if _fits(kept.task, query)]
        fitting.sort(key=lambda pair: pair[0], reverse=True)
        after = Cursor.parse(query.cursor) if query.cursor else None
        rest = [pair for pair in fitting if after is None or pair[0] < after]
        page = rest[: query.limit]
        following = page[-1][0].text() if len(rest) > len(page) > 0 else ""
        return TaskPage(tuple(task for _, task in page), following, len(fitting))

    async def read_after(self, seq: int, *, task_id: TaskId | None = None, limit: int = 500) -> Sequence[Recorded]:
        """The events after `seq`, in order; of one task, or of all."""
        log = self._log if task_id is None else self._log_of(task_id)
        start = bisect_right(log, seq, key=lambda recorded: recorded.seq)
        return log[start : start + limit]

    async def last_seq(self) -> int:
        """The seq of the newest event; 0 when there is none."""
        return self._seq

    async def open_tasks(self, inbox: str) -> Sequence[Task]:
        """The unfinished tasks of an inbox, oldest first."""
        kept = sorted(self._tasks.values(), key=lambda kept: (kept.task.created_at, kept.number))
        return [one.task for one in kept if one.task.inbox == inbox and not one.task.state.is_terminal]

    async def claim_inbox(self, inbox: str, holder: str, is_alive: IsAlive) -> bool:
        """Take the lease of an inbox unless a living holder has it; the same holder may claim again."""
        current = self._holders.get(inbox)
        if current is not None and current != holder and is_alive(current):
            return False
        self._holders[inbox] = holder
        return True

    async def release_inbox(self, inbox: str, holder: str) -> None:
        """Give the lease back, if this holder has it."""
        if self._holders.get(inbox) == holder:
            del self._holders[inbox]

    async def stored_bytes(self, *, inbox: str = "", scope: str = "") -> int:
        """How many bytes of events are kept, as the other store would have them."""
        kept = (one for one in self._tasks.values() if inbox in ("", one.task.inbox) and scope in ("", one.task.scope))
        return sum(len(encode_events([recorded.event]).encode()) for one in kept for recorded in one.log)

    async def prune(self, before: datetime) -> int:
        """Delete finished tasks that did not change since; return how many."""
        old = {
            task_id
            for task_id, kept in self._tasks.items()
            if kept.task.state.is_terminal and kept.task.updated_at < before
        }
        for task_id in old:
            del self._tasks[task_id]
        self._log = [recorded for recorded in self._log if recorded.event.task_id not in old]
        self._messages = {key: known for key, known in self._messages.items() if known.task_id not in old}
        self.pushes.forget_tasks(old)
        return len(old)

    def fault(self) -> str:
        """Nothing can happen to it."""
        return ""

    async def close(self) -> None:
        """There is nothing to close."""

    def _log_of(self, task_id: TaskId) -> Sequence[Recorded]:
        kept = self._tasks.get(task_id)
        return kept.log if kept else ()

    def _append(self, task: Task, events: Sequence[TaskEvent], digest: str) -> int:
        """Return the seq of the first event."""
        kept = self._tasks.get(task.id)
        stored = kept.task.version if kept else 0
        if stored != task.version - len(events):
            raise VersionConflict(f"task {task.id} is at version {stored}")
        self._claim(task, events[0], digest)
        if kept is None:
            self._opened += 1
            kept = self._tasks[task.id] = _Kept(self._opened, task, [])
        recorded = [Recorded(self._seq + index, event) for index, event in enumerate(events, 1)]
        self._seq += len(recorded)
        self._log += recorded
        kept.log += recorded
        kept.task = task
        return recorded[0].seq

    def _claim(self, task: Task, first: TaskEvent, digest: str) -> None:
        if not digest or not isinstance(first, TaskOpened | MessageAdded):
            return
        key = (task.inbox, task.scope, first.message.message_id)
        if key in self._messages:
            raise VersionConflict(f"message id '{first.message.message_id}' is claimed")
        self._messages[key] = KnownMessage(task.id, digest)


def _place(kept: _Kept) -> Cursor:
    return Cursor.of(kept.task.updated_at, kept.number)


def _fits(task: Task, query: TaskQuery) -> bool:
    wanted = (
        (query.inbox, task.inbox),
        (query.agent_id, task.agent_id),
        (query.scope, task.scope),
        (query.context_id, task.context_id),
        (query.parent_id, task.parent_id),
    )
    if task.hidden or any(value not in ("", actual) for value, actual in wanted):
        return False
    if query.states and task.state not in query.states:
        return False
    if not is_wanted(task, query):
        return False
    return query.updated_after is None or task.updated_at > query.updated_after


class MemoryPushes:
    """A PushStore in dictionaries."""

    def __init__(self) -> None:
        self._pushes: dict[int, Push] = {}
        self._finished: set[int] = set()
        self._deliveries: dict[tuple[int, int], Delivery] = {}
        self._last = 0

    async def save(self, task_id: TaskId, inbox: str, config: PushConfig, told: int) -> Push:
        known = self._find(task_id, config.id)
        if known is None:
            self._last += 1
            push = Push(number=self._last, task_id=task_id, inbox=inbox, config=config, told=told)
        else:
            push = replace(known, config=config)
        self._pushes[push.number] = push
        self._finished.discard(push.number)
        return push

    async def of_task(self, task_id: TaskId) -> Sequence[Push]:
        return [push for push in self._pushes.values() if push.task_id == task_id]

    async def open_after(self, inbox: str, number: int) -> Sequence[Push]:
        beyond = (push for push in self._pushes.values() if push.number > number)
        return [push for push in beyond if push.inbox == inbox and push.number not in self._finished]

    async def load(self, number: int) -> Push | None:
        push = self._pushes.get(number)
        if push is None:
            return None
        waiting = (one for one in self._deliveries_of(number) if one.seq > push.told)
        return replace(push, pending=next((one for one in waiting if one.state is DeliveryState.PENDING), None))

    async def delete(self, task_id: TaskId, config_id: str) -> None:
        self._forget(lambda push: push.task_id == task_id and push.config.id == config_id)

    async def record(self, delivery: Delivery) -> bool:
        push = self._pushes.get(delivery.number)
        if push is None:
            return False
        if delivery.state is not DeliveryState.PENDING:
            self._pushes[push.number] = replace(push, told=max(push.told, delivery.seq))
        self._deliveries[push.number, delivery.seq] = delivery
        return True

    async def finish(self, number: int, told: int) -> None:
        push = self._pushes.get(number)
        if push is not None:
            self._pushes[number] = replace(push, told=max(push.told, told))
            self._finished.add(number)

    async def deliveries(self, limit: int) -> Sequence[tuple[Push, Delivery | None]]:
        pushes = sorted(self._pushes.values(), key=lambda push: push.number, reverse=True)
        new = [push for push in pushes if push.number not in self._finished and not self._deliveries_of(push.number)]
        last = sorted(self._deliveries.values(), key=lambda one: (one.at, one.number, one.seq), reverse=True)
        return [*((push, None) for push in new), *((self._pushes[one.number], one) for one in last)][:limit]

    async def counts(self) -> Mapping[DeliveryState, int]:
        return Counter(one.state for one in self._deliveries.values())

    def forget_tasks(self, task_ids: set[TaskId]) -> None:
        """What belongs to tasks that were pruned goes with them."""
        self._forget(lambda push: push.task_id in task_ids)

    def _find(self, task_id: TaskId, config_id: str) -> Push | None:
        of_task = (push for push in self._pushes.values() if push.task_id == task_id)
        return next((push for push in of_task if push.config.id == config_id), None)

    def _deliveries_of(self, number: int) -> list[Delivery]:
        return [one for one in self._deliveries.values() if one.number == number]

    def _forget(self, is_meant: Callable[[Push], bool]) -> None:
        gone = {push.number for push in self._pushes.values() if is_meant(push)}
        self._pushes = {number: push for number, push in self._pushes.items() if number not in gone}
        self._deliveries = {key: one for key, one in self._deliveries.items() if key[0] not in gone}
        self._finished -= gone
