"""Tasks as a gateway sees them: reads come from the shared store, commands go to whoever owns the task.

    read      store, if the caller sees the task
    command   the agent's host (or resident) ─► it is durable ─► read from the store
    follow    the store's log; see `service.store_tail`

The tasks of an agent that is gone stay readable; one that waits in its queue can be taken back.

Waiting at a gateway until a task has settled: the log tells when to look, and the store how the task is then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol

from synapse.auth.policy import hide_store_details, may_use
from synapse.core.caller import Caller
from synapse.core.errors import (
    AgentExited,
    AgentNotFound,
    NotFound,
    TaskNotFound,
    Unauthenticated,
    UnsupportedOperation,
)
from synapse.core.events import Recorded, StateChanged, Update
from synapse.core.push import PushConfig
from synapse.core.requests import (
    AnswerQuestion,
    CancelTask,
    ChangeTask,
    CommandResult,
    DeletePushConfig,
    DeleteTask,
    FollowTask,
    GetMessage,
    GetPushConfig,
    GetTask,
    ListPushConfigs,
    ListTasks,
    Request,
    SendAndFollow,
    SendAndWait,
    SendMessage,
    SetPushConfig,
    SubscribeTask,
)
from synapse.core.store import TaskPage, TaskQuery, TaskStore
from synapse.core.task import Task, TaskId
from synapse.gateway.directory import GatewayAgent, GatewayDirectory, left_name
from synapse.tasks.feed import Feed, LogFollower
from synapse.tasks.journal import Journal
from synapse.tasks.service import is_settled, query_of

AboutTask = (
    CancelTask
    | AnswerQuestion
    | ChangeTask
    | DeleteTask
    | SetPushConfig
    | GetPushConfig
    | ListPushConfigs
    | DeletePushConfig
)


class Unclaimed(Protocol):
    """Changes tasks whose agent is gone."""

    async def take_back(self, task: Task) -> Task:
        """Cancel a task. Raises TaskNotCancelable, or Conflict when its agent runs after all."""
        ...

    async def change(self, task: Task, request: ChangeTask | DeleteTask) -> Task:
        """Change or delete a task. Raises InvalidField, or Conflict: it cannot be changed so, or its agent runs."""
        ...


class GatewayTasks:
    """What can be asked about tasks at a gateway; `agent` is the name of the agent that is asked, or empty for any."""

    def __init__(
        self,
        directory: GatewayDirectory,
        *,
        store: TaskStore,
        journal: Journal,
        feed: Feed,
        tail: LogFollower,
        unclaimed: Unclaimed,
    ) -> None:
        self._directory = directory
        self._store = store
        self._journal = journal
        self._feed = feed
        self._tail = tail
        self._unclaimed = unclaimed
        self._waits = GatewayWaits(store, tail, lambda task: directory.owner(task) is not None)
        self._methods: dict[type[Any], Callable[[str, Any, Caller], Awaitable[Any]]] = {
            SendMessage: self._send,
            SendAndWait: self._send_and_wait,
            SendAndFollow: self._send_and_follow,
            GetTask: self._get,
            GetMessage: self._get_message,
            ListTasks: self._list,
            CancelTask: self._cancel,
            AnswerQuestion: self._answer,
            ChangeTask: self._change,
            DeleteTask: self._change,
            SetPushConfig: self._change,
            GetPushConfig: self._change,
            ListPushConfigs: self._change,
            DeletePushConfig: self._change,
            SubscribeTask: self._subscribe,
            FollowTask: self._follow_open,
        }

    async def handle(self, agent: str, request: Request, caller: Caller) -> Any:
        """Do `request`; what comes back is the same as from an agent's host.

        Raises a SynapseError.
        """
        method = self._methods.get(type(request))
        if method is None:
            raise UnsupportedOperation(f"a gateway does not do {type(request).__name__}")
        return await method(agent, request, caller)

    def recheck(self) -> None:
        """End the streams of callers who may no longer be told, and the waits for agents that are gone."""
        self._feed.recheck()
        self._waits.recheck()

    async def _send(self, agent: str, request: SendMessage, caller: Caller) -> Task:
        return await self._store.load(TaskId((await self._sent(agent, request, caller)).task_id))

    async def _send_and_wait(self, agent: str, request: SendAndWait, caller: Caller) -> asyncio.Future[Task]:
        sent = await self._sent(agent, request.send, caller)
        return asyncio.ensure_future(self._waits.settled(TaskId(sent.task_id)))

    async def _send_and_follow(
        self, agent: str, request: SendAndFollow, caller: Caller
    ) -> AsyncGenerator[Update, None]:
        sent = await self._sent(agent, request.send, caller)
        task_id = TaskId(sent.task_id)
        return self._end_of(task_id) if sent.direct else self._until_settled(task_id, sent.version, caller)

    async def _get(self, agent: str, request: GetTask, caller: Caller) -> Task:
        return await self._visible(agent, request.task_id, caller)

    async def _get_message(self, agent: str, request: GetMessage, caller: Caller) -> Task:
        scope = "" if caller.sees_all else caller.scope
        known = await self._store.find_message("", scope, request.message_id)
        if known is None:
            raise NotFound(f"no message '{request.message_id}'")
        return await self._visible(agent, known.task_id, caller)

    async def _list(self, agent: str, request: ListTasks, caller: Caller) -> TaskPage:
        wanted = agent or request.agent
        if wanted and not may_use(caller, wanted):
            raise AgentNotFound(wanted)
        query = query_of(request, caller)
        if not wanted:
            page = await self._store.list(query)
            # Only a key for some agents that sees all scopes has anything to lose here.
            shown = tuple(task for task in page.tasks if may_use(caller, self._directory.name_of(task)))
            return replace(page, tasks=shown, total=page.total - len(page.tasks) + len(shown))
        here = self._directory.find(wanted)
        if here is not None:
            return await self._store.list(replace(query, inbox=here.entry.inbox))
        left = await self._left_by(wanted, caller)
        if left is None:
            raise AgentNotFound(wanted)
        return await self._store.list(replace(query, inbox=left.inbox, agent_id=left.agent_id))

    async def _left_by(self, name: str, caller: Caller) -> TaskQuery | None:
        """How to find what an agent that is gone has left for this caller; None when there is nothing of it."""
        scope = "" if caller.sees_all else caller.scope
        for query in (TaskQuery(inbox=name, scope=scope, limit=1), TaskQuery(agent_id=name, scope=scope, limit=1)):
            if (await self._store.list(query)).tasks:
                return query
        return None

    async def _cancel(self, agent: str, request: CancelTask, caller: Caller) -> Task:
        task = await self._visible(agent, request.task_id, caller)
        owner = self._directory.owner(task)
        if owner is None:
            return await self._unclaimed.take_back(task)
        await owner.command(CancelTask(task.id, exact=True), caller)
        return await self._store.load(task.id)

    async def _answer(self, agent: str, request: AnswerQuestion, caller: Caller) -> Any:
        if request.task_id:
            return await self._change(agent, request, caller)
        here = await self._here(agent, caller)
        return await self._result(await here.command(request, caller))

    async def _change(self, agent: str, request: AboutTask, caller: Caller) -> Any:
        """Ask the owner of the task; what it answers with is a task, or what it says."""
        task = await self._visible(agent, request.task_id, caller)
        owner = self._directory.owner(task)
        if isinstance(request, SetPushConfig):
            request = replace(request, config=_signed(request.config, caller))
        if owner is not None:
            return await self._result(await owner.command(replace(request, task_id=task.id), caller))
        if isinstance(request, ChangeTask | DeleteTask):
            return await self._unclaimed.change(task, request)
        raise _gone(self._directory.name_of(task))

    async def _subscribe(self, agent: str, request: SubscribeTask, caller: Caller) -> AsyncGenerator[Update, None]:
        task = await self._visible(agent, request.task_id, caller)
        return self._followed(task.id, request.after, caller)

    async def _follow_open(self, agent: str, request: FollowTask, caller: Caller) -> AsyncGenerator[Update, None]:
        task = await self._visible(agent, request.task_id, caller)
        if task.state.is_terminal and request.after is None:
            raise UnsupportedOperation(f"task {task.short_id} is {task.state.value}; nothing more comes of it")
        return self._followed(task.id, request.after, caller)

    async def _sent(self, agent: str, request: SendMessage, caller: Caller) -> CommandResult:
        if request.task_id:
            # Whoever owns the task is asked, and one that is not seen is missing: the same answer as everywhere.
            task = await self._visible(agent, request.task_id, caller)
            request = replace(request, task_id=task.id, exact=True)
        if request.push is not None:
            request = replace(request, push=_signed(request.push, caller))
        here = await self._here(agent, caller)
        return await here.command(request, caller)

    async def _here(self, agent: str, caller: Caller) -> GatewayAgent:
        found = self._directory.find(agent)
        if found is None:
            # Only who can see what an agent has left is told that there was one.
            raise _gone(agent) if await self._left_by(agent, caller) else AgentNotFound(agent)
        return found

    async def _result(self, done: CommandResult) -> Any:
        return await self._store.load(TaskId(done.task_id)) if done.task_id else done.result

    async def _visible(self, agent: str, wanted: str, caller: Caller) -> Task:
        """The task that the caller means, by its whole id: a beginning could fit what belongs to others.

        Raises TaskNotFound, also for a foreign one, or AgentNotFound when there is no trace of the agent.
        """
        here = self._directory.find(agent) if agent else None
        inbox = here.entry.inbox if here is not None else ""
        wanted = wanted.removeprefix(f"{agent}:") if agent else wanted
        try:
            task = await self._store.load(TaskId(wanted))
        except TaskNotFound:
            if agent and here is None:
                raise AgentNotFound(agent) from None
            raise
        belongs = not agent or (task.inbox == inbox if here is not None else agent in (task.inbox, left_name(task)))
        allowed = bool(agent) or may_use(caller, self._directory.name_of(task))
        if belongs and allowed and not task.hidden and caller.sees(task.scope):
            return task
        raise TaskNotFound(wanted) if here is not None or not agent else AgentNotFound(agent)

    async def _end_of(self, task_id: TaskId) -> AsyncGenerator[Update, None]:
        """Only the end, as a snapshot: the agent answers with a plain message and has no task to show."""
        task = await self._waits.settled(task_id)
        yield Update((await self._journal.snapshot(task_id)).seq, None, task)

    async def _until_settled(self, task_id: TaskId, version: int, caller: Caller) -> AsyncGenerator[Update, None]:
        """The task as it was at `version`, then each update until it has settled."""
        first = await self._as_of(task_id, version)
        yield first
        if is_settled(first.task.state):
            return
        async with aclosing(self._followed(task_id, first.seq, caller)) as updates:
            async for update in updates:
                yield update
                if isinstance(update.event, StateChanged) and is_settled(update.event.state):
                    return

    async def _as_of(self, task_id: TaskId, version: int) -> Update:
        async with aclosing(self._journal.updates(task_id)) as updates:
            async for update in updates:
                if update.task.version == version:
                    return Update(update.seq, None, update.task)
        raise TaskNotFound(task_id)

    async def _followed(self, task_id: TaskId, after: int | None, caller: Caller) -> AsyncGenerator[Update, None]:
        # Looking begins before the feed reads the log: what comes in between is seen by one of the two.
        following = self._feed.follow(task_id, after, check=partial(_require_valid, caller))
        with hide_store_details():
            async with self._tail.running(), aclosing(following) as updates:
                async for update in updates:
                    yield update


def _signed(config: PushConfig, caller: Caller) -> PushConfig:
    """The configuration with the key that it was set with: a key that is revoked stops its webhooks too."""
    return replace(config, set_by=caller.key_id)


def _require_valid(caller: Caller) -> None:
    if not caller.holds():
        raise Unauthenticated("the credentials of this stream count no longer")


def _gone(agent: str) -> AgentNotFound:
    return AgentNotFound(agent, hint="it does not run now; what it has left can still be read")


MOST_MISSES: Final = 5
"""So often an agent may be missed: one that is started again goes on with what it has left."""


class GatewayWaits:
    """Lets any number wait. Nothing is rebuilt for them: a look at each event is enough, and one at the task.

    `is_here` tells whether anybody can go on with a task; nobody waits for an agent that is gone.
    """

    def __init__(self, store: TaskStore, tail: LogFollower, is_here: Callable[[Task], bool]) -> None:
        self._store = store
        self._tail = tail
        self._is_here = is_here
        self._waiting: dict[TaskId, set[asyncio.Event]] = {}
        tail.hear_events(self._hear)

    async def settled(self, task_id: TaskId) -> Task:
        """Return the task once it has ended or waits for somebody.

        Raises StoreFailed, TaskNotFound, or AgentExited when its agent is gone and does not come back.
        """
        # Looking begins before the task is read: what comes in between is heard.
        with hide_store_details():
            async with self._tail.running():
                return await self._settled(task_id)

    async def _settled(self, task_id: TaskId) -> Task:
        settled = asyncio.Event()
        misses = 0
        self._waiting.setdefault(task_id, set()).add(settled)
        try:
            while not is_settled((task := await self._store.load(task_id)).state):
                misses = 0 if self._is_here(task) else misses + 1
                if misses > MOST_MISSES:
                    raise AgentExited(
                        f"the agent of task {task.short_id} is gone", hint="the task is kept until it is back"
                    )
                await settled.wait()
                settled.clear()
            return task
        finally:
            self._leave(task_id, settled)

    def recheck(self) -> None:
        """Let each who waits look at its task, and at who works on it."""
        for waiting in self._waiting.values():
            for settled in waiting:
                settled.set()

    def _hear(self, recorded: Recorded) -> None:
        event = recorded.event
        if isinstance(event, StateChanged) and event.task_id in self._waiting and is_settled(event.state):
            for settled in self._waiting[event.task_id]:
                settled.set()

    def _leave(self, task_id: TaskId, settled: asyncio.Event) -> None:
        waiting = self._waiting[task_id]
        waiting.discard(settled)
        if not waiting:
            del self._waiting[task_id]
