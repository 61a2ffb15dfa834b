"""The task service of agents that are not running: queues messages, and reads and changes tasks in the store.

Only the holder of an inbox's lease writes its tasks, so each write acquires the lease for a moment. When an agent holds
it, that agent is running after all, and the request has to go to its host.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Final
from weakref import WeakValueDictionary

from synapse.core.caller import Caller
from synapse.core.errors import Conflict, StoreLocked, TaskNotFound, UnsupportedOperation
from synapse.core.events import TaskOpened
from synapse.core.push import PushConfig
from synapse.core.requests import (
    AnswerQuestion,
    CancelTask,
    ChangeTask,
    CreateTask,
    DeletePushConfig,
    DeleteTask,
    FollowTask,
    GetMessage,
    GetPushConfig,
    GetStatus,
    GetTask,
    HostStatus,
    LeaveTask,
    ListPushConfigs,
    ListTasks,
    PendingTask,
    Replied,
    Reply,
    Request,
    ResolveTask,
    SendAndFollow,
    SendAndWait,
    SendMessage,
    SetPushConfig,
    SubscribeTask,
    TaskStream,
    VoidMessage,
)
from synapse.core.store import IsAlive, Lease, SearchProgress, TaskPage, TaskQuery, TaskStore
from synapse.core.task import ReplyTo, Task, TaskId, TaskState
from synapse.core.task_metadata import answer_delivered, opening_metadata, sender_in, unverified
from synapse.core.types import Clock, Deadline
from synapse.core.waiting import pause
from synapse.tasks import outcomes
from synapse.tasks.admission import check_id, message_digest, sender_of
from synapse.tasks.changes import changes, deletion
from synapse.tasks.journal import Journal, rebuild
from synapse.tasks.quota import Quota, size_of
from synapse.tasks.recovery import is_instruction, is_waiting_in_queue
from synapse.tasks.relayed import (
    check_new_task_id,
    end_of_wait,
    find_relayed,
    is_taken_reply,
    require_awaited,
    withdrawal,
    withdrawn_send,
)
from synapse.tasks.rules import (
    VOID,
    Limits,
    cancellation,
    deadline_of,
    find_message,
    find_repeated,
    query_of,
    require_room_in_queue,
    require_visible,
    unsupported,
    visible_scope,
)

_LEASE_TRIES: Final = 50
_LEASE_PAUSE: Final = 0.03
_PAGE: Final = 500
_SEARCH_SECONDS: Final = 0.25
_STUCK_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHolder:
    """How this process acquires leases: under which names, and how it checks whether another holder is alive."""

    new_name: Callable[[], str]
    """Returns a name that no other lease has, not even in this process, where in-process agents hold theirs."""
    is_alive: IsAlive


class StoppedTasks:
    """TaskService for agents that are not running; `of` narrows it to one inbox. Each write holds the inbox lease.

    Requests that need a running agent (wait, follow, answer, webhooks) raise UnsupportedOperation.
    """

    def __init__(  # noqa: PLR0913 - what a host has for its tasks
        self,
        store: TaskStore,
        *,
        clock: Clock,
        holder: LeaseHolder,
        limits: Limits,
        quota_of: Callable[[str, str], Quota],
        new_task_id: Callable[[], str],
        new_context_id: Callable[[], str],
    ) -> None:
        """`quota_of` returns the quota of an inbox; its second argument is the agent's name for error messages."""
        self._inbox = ""
        self._agent_id = ""
        self._store = store
        self._reader = Journal(store)
        self._acquiring: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._clock = clock
        self._holder = holder
        self._limits = limits
        self._quota_of = quota_of
        self._new_task_id = new_task_id
        self._new_context_id = new_context_id

    def of(self, inbox: str, agent_id: str) -> StoppedTasks:
        """Returns the service for one inbox; `agent_id` is the id of its agent as far as it is known."""
        one = copy(self)
        one.__dict__.update(_inbox=inbox, _agent_id=agent_id)
        return one

    async def send(self, request: SendMessage, caller: Caller) -> Task:
        """Queues a message, durably, for the next start of its agent. A repeated message returns its first task.

        A reply of another machine ends the task that waits for it (see `SendMessage.in_reply_to`), and is delivered to
        the agent at its next start.

        Raises:
            Conflict: the agent has just started.
            SenderMismatch: the message claims to be from Synapse itself.
            MessageIdReused: the message id was used before with other content.
            QueueFull: the queue has reached its limit.
            QuotaExceeded: the agent's stored messages have reached their quota.
            InvalidField: the caller may not choose the id of the task.
            UnsupportedOperation: the service has no inbox, or the message is not the first of a task.
            TaskNotFound, SenderMismatch: it answers no task that waits for an agent of that machine.
        """
        if self._inbox and request.in_reply_to and caller.machine:
            return await self._end_wait(request, caller)
        if not self._inbox or request.task_id or request.in_reply_to:
            raise UnsupportedOperation("only a new message can be queued for an agent that is not running")
        if request.opens:
            check_new_task_id(request.opens, caller)
        deadline = deadline_of(request, self._limits.ttl_seconds, self._clock)
        opened = self._open_event(request, caller, deadline)
        async with self._lease(self._inbox) as journal:
            return await self._open(opened, journal)

    async def _end_wait(self, request: SendMessage, caller: Caller) -> Task:
        sender_of(request.sender, caller, ())
        task_id = await self._reader.resolve_id(request.in_reply_to, self._inbox)
        async with self._lease(self._inbox) as journal:
            task = await self._store.load(task_id)
            if is_taken_reply(task, request, caller):
                return task
            if known := await self._store.find_message(self._inbox, caller.scope, request.message.message_id):
                return await self._store.load(known.task_id)  # it was taken back
            require_awaited(task, request, caller)
            now = self._clock.now()
            events = end_of_wait(task, request, now)
            if task.sender_verified and task.sender.sender_id == task.agent_id:
                # Its waiter ended with its host. The next host opens the message that delivers the answer.
                events = (*events, answer_delivered(task, now, self._new_task_id()))
            return await journal.record(*events)

    async def void(self, request: VoidMessage, caller: Caller) -> Task:
        """Takes back a message of another machine; see VoidMessage. Its task may be in any inbox.

        Raises:
            Conflict: the agent is running, so its host has to do it.
            InvalidField: the caller may not choose the id of a task.
            UnsupportedOperation: the service has no inbox, and the message has not arrived.
        """
        check_new_task_id(request.opens, caller)
        known = await find_relayed(request.message_id, caller, "", self._store)
        if known is None and not self._inbox:
            raise UnsupportedOperation("nothing says for which agent the message was")
        inbox = self._inbox if known is None else (await self._store.load(known)).inbox
        async with self._lease(inbox) as journal:
            # Once more: until now, another process may have opened the task or changed it.
            known = await find_relayed(request.message_id, caller, inbox, self._store)
            if known is None:
                return await self._claim(request, caller, journal)
            task = await self._store.load(known)
            if task.state.is_terminal:
                return task
            return await journal.record(*withdrawal(task, request, self._clock.now()))

    async def _claim(self, request: VoidMessage, caller: Caller, journal: Journal) -> Task:
        send = withdrawn_send(request)
        opened = self._open_event(send, caller)
        ended = withdrawal(rebuild(None, (opened,)), request, opened.at)
        return await journal.record(opened, *ended, digest=VOID)

    async def get(self, request: GetTask, caller: Caller) -> Task:
        return await self._expire(await self._find(request.task_id, caller, exact=request.exact))

    async def get_message(self, request: GetMessage, caller: Caller) -> Task:
        found = await find_message(request, caller, self._store, self._inbox)
        return await self._expire(await self._find(found, caller, exact=True))

    async def list(self, request: ListTasks, caller: Caller) -> TaskPage:
        return await self._store.list(query_of(request, caller, self._inbox))

    async def cancel(self, request: CancelTask, caller: Caller) -> Task:
        """Raises TaskNotFound, TaskNotCancelable, or Conflict when the agent is running."""
        task = await self.get(GetTask(request.task_id, exact=request.exact), caller)
        canceled = cancellation(task, self._clock.now())
        async with self._lease(task.inbox) as journal:
            return await journal.record(*canceled)

    async def change(self, request: ChangeTask, caller: Caller) -> Task:
        """Raises TaskNotFound, InvalidField, IllegalTransition, or Conflict when the agent is running."""
        task = await self._find(request.task_id, caller)
        changed = changes(request, task, self._clock.now())
        if not changed:
            return task
        async with self._lease(task.inbox) as journal:
            return await journal.record(*changed)

    async def delete(self, request: DeleteTask, caller: Caller) -> Task:
        """Raises TaskNotFound, or Conflict when the agent is running."""
        task = await self._find(request.task_id, caller)
        async with self._lease(task.inbox) as journal:
            return await journal.record(*deletion(task, self._clock.now()))

    async def create(self, request: CreateTask, _caller: Caller) -> Task:
        raise _refused(request)

    async def leave(self, request: LeaveTask, _caller: Caller) -> Task:
        raise _refused(request)

    async def send_and_wait(self, request: SendAndWait, _caller: Caller) -> PendingTask:
        raise _refused(request)

    async def send_and_follow(self, request: SendAndFollow, _caller: Caller) -> TaskStream:
        raise _refused(request)

    async def follow(self, request: FollowTask, _caller: Caller) -> TaskStream:
        raise _refused(request)

    async def subscribe(self, request: SubscribeTask, _caller: Caller) -> TaskStream:
        raise _refused(request)

    async def resolve(self, request: ResolveTask, _caller: Caller) -> Task:
        raise _refused(request)

    async def answer(self, request: AnswerQuestion, _caller: Caller) -> Task | None:
        raise _refused(request)

    async def reply(self, request: Reply, _caller: Caller) -> Replied:
        raise _refused(request)

    async def status(self, request: GetStatus, _caller: Caller) -> HostStatus:
        raise _refused(request)

    async def set_push(self, request: SetPushConfig, _caller: Caller) -> PushConfig:
        raise _refused(request)

    async def get_push(self, request: GetPushConfig, _caller: Caller) -> PushConfig:
        raise _refused(request)

    async def list_push(self, request: ListPushConfigs, _caller: Caller) -> tuple[PushConfig, ...]:
        raise _refused(request)

    async def delete_push(self, request: DeletePushConfig, _caller: Caller) -> None:
        raise _refused(request)

    async def last_inbox(self, agent_id: str) -> str:
        """Returns the inbox of the agent that last had this id, or an empty string; another may have its port now."""
        page = await self._store.list(TaskQuery(agent_id=agent_id, limit=1))
        return page.tasks[0].inbox if page.tasks else ""

    async def waiting(self, caller: Caller) -> tuple[Task, ...]:
        """Returns the queued tasks of all agents, running ones too, in order of delivery."""
        query = TaskQuery(scope=visible_scope(caller), states=frozenset({TaskState.SUBMITTED}), limit=_PAGE)
        tasks = [await self._expire(task) async for task in self._each(query)]
        waiting = (task for task in tasks if is_waiting_in_queue(task) and not is_instruction(task))
        return tuple(sorted(waiting, key=lambda task: (task.inbox, -task.priority, task.created_at)))

    async def recent(
        self, limit: int, is_wanted: Callable[[Task], bool], caller: Caller, *, text: str = ""
    ) -> tuple[Task, ...]:
        """Returns the last `limit` wanted tasks of all agents, or of this inbox, running or not, latest change first.

        With a `text`, only those in whose messages or answers it occurs; see `TaskStore.list` for what it raises.
        """
        found = list[Task]()
        if limit:
            query = TaskQuery(inbox=self._inbox, scope=visible_scope(caller), text=text, limit=_PAGE)
            async for task in self._each(query):
                if is_wanted(task):
                    found.append(task)
                if len(found) == limit:
                    break
        return tuple(found)

    async def update_search(self, report: Callable[[SearchProgress], None]) -> None:
        """Indexes all that is stored now for a search; calls `report` every now and then meanwhile.

        Raises StoreLocked when another process holds the index and does not go on.
        """
        wanted = await self._store.last_seq()
        before, stuck_since = -1, self._clock.monotonic()
        while not (progress := await self._store.update_search(_SEARCH_SECONDS)).is_current and progress.seq < wanted:
            report(progress)
            if progress.seq != before:
                before, stuck_since = progress.seq, self._clock.monotonic()
            elif self._clock.monotonic() - stuck_since > _STUCK_SECONDS:
                raise StoreLocked(
                    f"another process holds the search index, which is at {progress.percent} %",
                    hint="a stopped gateway may hold it: continue or end it  (synapse list)",
                )

    def _open_event(self, request: SendMessage, caller: Caller, deadline: Deadline | None = None) -> TaskOpened:
        return TaskOpened(
            task_id=TaskId(request.opens or self._new_task_id()),
            at=self._clock.now(),
            agent_id=self._agent_id,
            inbox=self._inbox,
            context_id=request.context_id or self._new_context_id(),
            scope=caller.scope,
            dialect=request.dialect,
            message=request.message,
            priority=request.priority,
            deadline=deadline,
            metadata=self._metadata(request, caller),
        )

    def _metadata(self, request: SendMessage, caller: Caller) -> dict[str, Any]:
        if not caller.machine:
            # No host verifies the sender here; a claim to be Synapse itself is refused as a host would.
            sender_of(sender_in(request.metadata), Caller(), ())
            return unverified(request.metadata)
        sender, verified = sender_of(request.sender, caller, ())
        reply_to = None
        if request.response_expected:
            check_id("metadata.sender_task_id", request.sender_task_id)
            reply_to = ReplyTo(task_id=request.sender_task_id)
        return opening_metadata(
            request.metadata,
            sender,
            verified=verified,
            user=caller.name,
            reply_to=reply_to,
            waiting=request.waiting,
        )

    async def _open(self, opened: TaskOpened, journal: Journal) -> Task:
        message, inbox = opened.message, opened.inbox
        digest = message_digest(message) if message.message_id else ""
        if digest:
            repeated = await find_repeated(message, digest, opened.scope, inbox, self._store)
            if repeated is not None:
                return await self._store.load(repeated)
        waiting = len(await self._store.open_tasks(inbox))
        require_room_in_queue(waiting, self._limits.queue, opened.agent_id)
        await self._quota_of(inbox, opened.agent_id).take(size_of(message, opened.metadata))
        return await journal.record(opened, digest=digest)

    async def _find(self, wanted: str, caller: Caller, *, exact: bool = False) -> Task:
        """Returns the task that `wanted` names, in this inbox if there is one. Raises TaskNotFound, AmbiguousTask."""
        task_id = TaskId(wanted) if exact else await self._reader.resolve_id(wanted, self._inbox)
        # From the store, not from memory: a host may have written it since.
        task = require_visible(await self._store.load(task_id), caller, wanted)
        if self._inbox not in ("", task.inbox):
            raise TaskNotFound(wanted)
        return task

    async def _each(self, query: TaskQuery) -> AsyncGenerator[Task]:
        """Yields all tasks that match the query, page by page."""
        page = await self._store.list(query)
        for task in page.tasks:
            yield task
        while page.next_cursor:
            page = await self._store.list(replace(query, cursor=page.next_cursor))
            for task in page.tasks:
                yield task

    async def _expire(self, task: Task) -> Task:
        """Returns the task, expired if its deadline has passed: no host expires it while the agent is not running."""
        now = self._clock.now()
        if not is_waiting_in_queue(task) or not task.is_overdue(self._clock):
            return task
        lease = await self._store.acquire(task.inbox, self._holder.new_name(), self._holder.is_alive)
        if lease is None:
            return task  # its agent is running, and expires it
        try:
            return await Journal(self._store, lease).record(*outcomes.expired(task, now))
        except Conflict:
            return await self._store.load(task.id)
        finally:
            await self._store.release(lease)

    @asynccontextmanager
    async def _lease(self, inbox: str) -> AsyncGenerator[Journal]:
        """Holds the inbox lease; yields a journal that writes with it. Raises Conflict when the agent is running."""
        # Callers of one gateway wait here for each other instead of polling for the lease.
        async with self._acquiring.setdefault(inbox, asyncio.Lock()):
            lease = await self._acquire(inbox)
            try:
                yield Journal(self._store, lease)
            finally:
                await self._store.release(lease)

    async def _acquire(self, inbox: str) -> Lease:
        name = self._holder.new_name()
        # Another command may hold the lease for a moment.
        for _ in range(_LEASE_TRIES):
            if lease := await self._store.acquire(inbox, name, self._holder.is_alive):
                return lease
            await pause(_LEASE_PAUSE)
        raise Conflict(f"the agent of '{inbox}' is running", hint="try again without --queue  (synapse list)")


def _refused(request: Request[object]) -> UnsupportedOperation:
    return unsupported("an agent that is not running", request)
