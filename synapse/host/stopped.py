"""Tasks of agents that do not run: leaving a message for one, reading, and taking back, straight in the store.

Only the holder of an inbox's lease writes its tasks, so each change here takes the lease for a moment. When an agent
holds it, it runs after all, and is asked itself.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from typing import Any, Final
from weakref import WeakValueDictionary

from synapse.config.process import SystemClock, new_context_id, new_task_id
from synapse.config.settings import Settings
from synapse.core.caller import LOCAL_SCOPE, Caller
from synapse.core.errors import AmbiguousTask, Conflict, QueueFull, TaskNotCancelable, TaskNotFound
from synapse.core.events import TaskOpened
from synapse.core.message import Message
from synapse.core.requests import ChangeTask, DeleteTask
from synapse.core.store import Lease, TaskQuery, TaskStore
from synapse.core.task import Task, TaskId, TaskState
from synapse.core.types import deadline_after
from synapse.host.agent import agent_quota
from synapse.host.identity import holders_of
from synapse.host.open_store import open_store
from synapse.registry.files import FileRegistry, own_start_time
from synapse.tasks import outcomes
from synapse.tasks.admission import message_digest, sender_in, sender_of
from synapse.tasks.changes import changes, deletion
from synapse.tasks.journal import Journal
from synapse.tasks.quota import size_of
from synapse.tasks.recovery import is_instruction, is_waiting_in_queue

_LEASE_TRIES: Final = 50
_LEASE_PAUSE: Final = 0.03
_PAGE: Final = 500


class StoppedTasks:
    """The store, as one uses it who runs no agent."""

    def __init__(self, store: TaskStore, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._holds = holders_of(FileRegistry(settings.registry))
        self._acquiring: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._clock = SystemClock()

    async def leave(
        self,
        inbox: str,
        message: Message,
        *,
        agent_id: str,
        priority: int,
        ttl: float | None,
        metadata: dict[str, Any],
    ) -> Task:
        """Leave a message in `inbox`, durably, for when its agent starts.

        Raises:
            Conflict: the agent has just started.
            SenderMismatch: it says that it is from the system itself.
            QueueFull: as many wait as the settings allow.
            QuotaExceeded: as much is kept for the agent as the settings allow.
        """
        # No host is there to look who it is from; what only Synapse itself can say is refused here as there.
        sender_of(sender_in(metadata), Caller(), ())
        now = self._clock.now()
        seconds = ttl or self._settings.message_ttl
        opened = TaskOpened(
            task_id=TaskId(new_task_id()),
            at=now,
            agent_id=agent_id,
            inbox=inbox,
            context_id=new_context_id(),
            scope=LOCAL_SCOPE,
            dialect="synapse",
            message=message,
            priority=priority,
            deadline=deadline_after(seconds, self._clock) if seconds else None,
            metadata=metadata,
        )
        async with self._acquired(inbox) as journal:
            return await self._left_before(opened) or await self._leave(opened, journal)

    async def _left_before(self, opened: TaskOpened) -> Task | None:
        """The task that the same message has made: it is sent again because no answer had come."""
        taken = await self._store.find_message(opened.inbox, LOCAL_SCOPE, opened.message.message_id)
        return await self._store.load(taken.task_id) if taken is not None else None

    async def _leave(self, opened: TaskOpened, journal: Journal) -> Task:
        waiting = await self._store.open_tasks(opened.inbox)
        for task in waiting:
            if task.message.message_id == opened.message.message_id:
                return task
        depth = len(waiting)
        if depth >= self._settings.queue_limit:
            raise QueueFull(f"{depth} messages wait for '{opened.inbox}' already", hint="`synapse queue` shows them")
        quota = agent_quota(opened.inbox, opened.agent_id, self._store, self._settings, self._clock)
        await quota.take(size_of(opened.message, opened.metadata))
        digest = message_digest(opened.message) if opened.message.message_id else ""
        return await journal.record(opened, digest=digest)

    async def last_inbox(self, agent_id: str) -> str:
        """The inbox of the agent that last had this id, or an empty string: another may have its port by now."""
        page = await self._store.list(TaskQuery(agent_id=agent_id, limit=1))
        return page.tasks[0].inbox if page.tasks else ""

    async def find(self, prefix: str) -> Task:
        """Return the task that `prefix` names. Raises TaskNotFound or AmbiguousTask."""
        found = await self._store.find(prefix, limit=10)
        if not found:
            raise TaskNotFound(prefix)
        if len(found) > 1:
            raise AmbiguousTask(prefix, list(found))
        task = await self._store.load(found[0])
        if task.scope != LOCAL_SCOPE:
            raise TaskNotFound(prefix)
        return await self._looked_at(task)

    async def waiting(self) -> list[Task]:
        """What waits in any queue, of living agents too, each in the order of its delivery."""
        query = TaskQuery(scope=LOCAL_SCOPE, states=frozenset({TaskState.SUBMITTED}), limit=_PAGE)
        looked_at = [await self._looked_at(task) async for task in self._each(query)]
        waiting = (task for task in looked_at if is_waiting_in_queue(task) and not is_instruction(task))
        return sorted(waiting, key=lambda task: (task.inbox, -task.priority, task.created_at))

    async def recent(self, limit: int, is_wanted: Callable[[Task], bool]) -> list[Task]:
        """The tasks that changed last, those of living agents too, the latest first."""
        found = list[Task]()
        if limit:
            async for task in self._each(TaskQuery(scope=LOCAL_SCOPE, limit=_PAGE)):
                if is_wanted(task):
                    found.append(task)
                if len(found) == limit:
                    break
        return found

    async def take_back(self, task: Task) -> Task:
        """Cancel a task whose agent does not run.

        Raises:
            TaskNotCancelable: it is finished.
            Conflict: its agent runs.
        """
        if task.state.is_terminal:
            raise TaskNotCancelable(f"task {task.short_id} is {task.state.value}")
        ended = outcomes.ended(task, self._clock.now(), TaskState.CANCELED, "canceled", "canceled by request")
        async with self._acquired(task.inbox) as journal:
            return await journal.record(*ended)

    async def change(self, task: Task, request: ChangeTask | DeleteTask) -> Task:
        """Change or delete a task whose agent does not run.

        Raises:
            InvalidField, IllegalTransition: it cannot be changed so.
            Conflict: its agent runs.
        """
        now = self._clock.now()
        facts = deletion(task, now) if isinstance(request, DeleteTask) else changes(request, task, now)
        if not facts:
            return task
        async with self._acquired(task.inbox) as journal:
            return await journal.record(*facts)

    async def _each(self, query: TaskQuery) -> AsyncGenerator[Task]:
        """All tasks that fit, page by page."""
        page = await self._store.list(query)
        for task in page.tasks:
            yield task
        while page.next_cursor:
            page = await self._store.list(replace(query, cursor=page.next_cursor))
            for task in page.tasks:
                yield task

    async def _looked_at(self, task: Task) -> Task:
        """The task, expired if its time has come: no host looks after a message whose agent does not run."""
        now = self._clock.now()
        if not is_waiting_in_queue(task) or not task.is_overdue(self._clock):
            return task
        lease = await self._store.acquire(task.inbox, _new_holder(), self._holds)
        if lease is None:
            return task  # its agent runs, and ends it
        try:
            return await Journal(self._store, lease).record(*outcomes.expired(task, now))
        except Conflict:
            return await self._store.load(task.id)
        finally:
            await self._store.release(lease)

    @asynccontextmanager
    async def _acquired(self, inbox: str) -> AsyncGenerator[Journal]:
        """Hold the lease of the inbox, and yield a journal that writes with it. Raises Conflict when its agent runs."""
        # Callers of one gateway queue here, and need not look again and again.
        async with self._acquiring.setdefault(inbox, asyncio.Lock()):
            lease = await self._acquire_patiently(inbox)
            try:
                yield Journal(self._store, lease)
            finally:
                await self._store.release(lease)

    async def _acquire_patiently(self, inbox: str) -> Lease:
        holder = _new_holder()
        # Another command may hold it for a moment.
        for _ in range(_LEASE_TRIES):
            if lease := await self._store.acquire(inbox, holder, self._holds):
                return lease
            await asyncio.wait((asyncio.get_running_loop().create_future(),), timeout=_LEASE_PAUSE)
        raise Conflict(f"the agent of '{inbox}' runs", hint="try again without --queue  (synapse list)")


_LEASES: Final = count(1)


def _new_holder() -> str:
    """A holder that is no other, not even of this process: an agent that a gateway runs itself keeps its lease."""
    return f"{os.getpid()}:{own_start_time()}:{next(_LEASES)}"


@asynccontextmanager
async def open_unowned(settings: Settings) -> AsyncGenerator[StoppedTasks]:
    """Open the store for a moment. Raises StoreFailed."""
    store = await open_store(settings)
    try:
        yield StoppedTasks(store, settings)
    finally:
        await store.close()
