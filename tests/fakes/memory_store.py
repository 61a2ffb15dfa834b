"""A TaskStore in dictionaries: fast, and nothing is durable."""

from __future__ import annotations

import asyncio
import itertools
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from synapse.core.caller import MACHINE_SCOPE, covers
from synapse.core.errors import LeaseLost, TaskNotFound, VersionConflict
from synapse.core.events import MessageAdded, Recorded, TaskEvent, TaskOpened
from synapse.core.store import IsAlive, KnownMessage, Lease, SearchProgress, TaskPage, TaskQuery, is_wanted
from synapse.core.task import Task, TaskId
from synapse.store.codec import encode_events, micros
from synapse.store.reader import Cursor
from synapse.store.search_words import Search, text_of_task
from tests.fakes.leases import ANY_LEASE
from tests.fakes.memory_pushes import MemoryPushes

_NUMBERS = itertools.count(1)


@dataclass(slots=True)
class _Kept:
    number: int
    task: Task
    log: list[Recorded]


class MemoryStore:
    """Keeps tasks, events and leases in dictionaries, by the same rules as the store in SQLite."""

    def __init__(self) -> None:
        self._tasks: dict[TaskId, _Kept] = {}
        self._log: list[Recorded] = []
        self._messages: dict[tuple[str, str, str], KnownMessage] = {}
        self._leases: dict[str, Lease] = {}
        self._store_id = f"memory-{next(_NUMBERS)}"
        self._opened = 0
        self._seq = 0
        self._appended = asyncio.Event()
        self.pushes = MemoryPushes()
        """The webhooks of the tasks."""

    def append(
        self, task: Task, events: Sequence[TaskEvent], *, lease: Lease = ANY_LEASE, digest: str = ""
    ) -> asyncio.Future[int]:
        """Keep the events at once; see `TaskStore.append`."""
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if lease is not ANY_LEASE and (lease.inbox != task.inbox or self._leases.get(task.inbox) != lease):
            done.set_exception(LeaseLost(f"this process no longer holds the inbox '{task.inbox}'"))
            return done
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
        search = Search.parse(query.text) if query.text else None
        fitting = [
            (_place(kept), kept.task)
            for kept in self._tasks.values()
            if _fits(kept.task, query) and (search is None or search.finds(text_of_task(kept.task)))
        ]
        fitting.sort(key=lambda pair: pair[0], reverse=True)
        after = Cursor.parse(query.cursor) if query.cursor else None
        rest = [pair for pair in fitting if after is None or pair[0] < after]
        page = rest[: query.limit]
        following = page[-1][0].text() if len(rest) > len(page) > 0 else ""
        return TaskPage(tuple(task for _, task in page), following, len(fitting))

    async def update_search(self, seconds: float) -> SearchProgress:
        """Nothing to do: `list` looks through all texts."""
        return SearchProgress(self._seq, self._seq)

    async def read_after(self, seq: int, *, task_id: TaskId | None = None, limit: int = 500) -> Sequence[Recorded]:
        """The events after `seq`, in order; of one task, or of all."""
        log = self._log if task_id is None else self._log_of(task_id)
        start = bisect_right(log, seq, key=lambda recorded: recorded.seq)
        return log[start : start + limit]

    async def store_id(self) -> str:
        """The id of the store."""
        return self._store_id

    async def last_seq(self) -> int:
        """The seq of the newest event; 0 when there is none."""
        return self._seq

    async def wait_after(self, seq: int, seconds: float) -> int:
        """Return the seq of the newest event once that is beyond `seq`, or after `seconds`."""
        appended = self._appended
        if self._seq <= seq:
            # Not `wait_for`: in Python 3.11 it forgets a cancellation that comes together with the result.
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await appended.wait()
        return self._seq

    async def open_tasks(self, inbox: str) -> Sequence[Task]:
        """The unfinished tasks of an inbox, oldest first."""
        kept = sorted(self._tasks.values(), key=lambda kept: (kept.task.created_at, kept.number))
        return [one.task for one in kept if one.task.inbox == inbox and not one.task.state.is_terminal]

    async def acquire(self, inbox: str, holder: str, is_alive: IsAlive) -> Lease | None:
        """Return a new lease of the inbox; None while another living holder has one."""
        current = self._leases.get(inbox, Lease(inbox, "", 0))
        if current.holder not in ("", holder) and is_alive(current.holder):
            return None
        lease = self._leases[inbox] = Lease(inbox, holder, current.epoch + 1)
        return lease

    async def verify(self, lease: Lease) -> None:
        """Raises LeaseLost unless `lease` is current."""
        if lease is not ANY_LEASE and self._leases.get(lease.inbox) != lease:
            raise LeaseLost(f"this process no longer holds the inbox '{lease.inbox}'")

    async def release(self, lease: Lease) -> None:
        """Give the lease back; does nothing when it is lost."""
        if self._leases.get(lease.inbox) == lease:
            self._leases[lease.inbox] = replace(lease, holder="")

    async def stored_bytes(self, *, inbox: str = "", scope: str = "") -> int:
        """How many bytes of events are kept, as the other store would have them."""
        kept = (one for one in self._tasks.values() if inbox in ("", one.task.inbox) and scope in ("", one.task.scope))
        return sum(len(encode_events([recorded.event]).encode()) for one in kept for recorded in one.log)

    async def prune(self, before: datetime, *, relayed_before: datetime | None = None) -> int:
        """Delete finished tasks that did not change since; return how many."""
        relayed = min(before, relayed_before or before)
        old = {
            task_id
            for task_id, kept in self._tasks.items()
            if kept.task.state.is_terminal
            and kept.task.updated_at < (relayed if kept.task.scope.startswith(MACHINE_SCOPE) else before)
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

    async def check(self) -> None:
        """There is nothing that could be damaged."""

    async def recover(self) -> bool:
        """Nothing can happen to it."""
        return True

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
        self._appended.set()
        self._appended = asyncio.Event()
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
    return Cursor(micros(kept.task.updated_at), kept.number)


def _fits(task: Task, query: TaskQuery) -> bool:
    wanted = (
        (query.inbox, task.inbox),
        (query.agent_id, task.agent_id),
        (query.context_id, task.context_id),
        (query.parent_id, task.parent_id),
    )
    if task.hidden or any(value not in ("", actual) for value, actual in wanted):
        return False
    if query.scope and not covers(query.scope, task.scope):
        return False
    if query.states and task.state not in query.states:
        return False
    if not is_wanted(task, query):
        return False
    return query.updated_after is None or task.updated_at > query.updated_after
