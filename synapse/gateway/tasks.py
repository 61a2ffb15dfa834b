"""The tasks of all agents behind a gateway: reads come from the shared store, commands go to the agent's host.

    read      the store, if the caller sees the task
    command   the agent's host, or the agent in this process ─► it is durable ─► read from the store
    follow    the store's log; see `service.store_tail`

The tasks of an agent that does not run stay readable. They can be canceled, changed and deleted; see `StoppedTasks`.

Waiting at a gateway until a task has settled: the log tells when to look, and the store how the task is then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from synapse.auth.policy import hide_store_details, may_use
from synapse.core.caller import Caller
from synapse.core.errors import AgentExited, AgentNotFound, SynapseError, TaskNotFound, Unauthenticated
from synapse.core.events import Recorded, StateChanged, Update
from synapse.core.push import PushConfig
from synapse.core.requests import (
    AnswerQuestion,
    CancelTask,
    ChangeTask,
    CommandResult,
    CreateTask,
    DeletePushConfig,
    DeleteTask,
    FollowTask,
    GetMessage,
    GetPushConfig,
    GetStatus,
    GetTask,
    HostStatus,
    ListPushConfigs,
    ListTasks,
    PendingTask,
    Replied,
    Reply,
    ResolveTask,
    SendAndFollow,
    SendAndWait,
    SendMessage,
    SetPushConfig,
    SubscribeTask,
    TaskStream,
)
from synapse.core.store import TaskPage, TaskQuery, TaskStore
from synapse.core.task import Task, TaskId
from synapse.gateway.directory import GatewayAgent, GatewayDirectory, left_name
from synapse.tasks.feed import Feed, LogFollower
from synapse.tasks.journal import Journal
from synapse.tasks.rules import find_message, is_settled, require_updates, require_visible, unsupported, visible_scope
from synapse.tasks.service import query_of

AboutTask = AnswerQuestion | SetPushConfig | GetPushConfig | ListPushConfigs | DeletePushConfig
"""Commands about a task that only its running agent does."""


class Stopped(Protocol):
    """The part of TaskService that changes the tasks of agents that do not run; see `StoppedTasks`."""

    async def cancel(self, request: CancelTask, caller: Caller, /) -> Task:
        """Raises TaskNotFound, TaskNotCancelable, or Conflict when the agent runs after all."""
        ...

    async def change(self, request: ChangeTask, caller: Caller, /) -> Task:
        """Raises TaskNotFound, InvalidField, IllegalTransition, or Conflict when the agent runs after all."""
        ...

    async def delete(self, request: DeleteTask, caller: Caller, /) -> Task:
        """Raises TaskNotFound, or Conflict when the agent runs after all."""
        ...


class GatewayTasks:
    """TaskService for the tasks of all agents behind a gateway; `of` narrows it to one agent.

    Tasks are named by their whole id: a prefix could fit tasks that the caller must not know of.
    """

    def __init__(
        self,
        directory: GatewayDirectory,
        *,
        store: TaskStore,
        journal: Journal,
        feed: Feed,
        tail: LogFollower,
        stopped: Stopped,
    ) -> None:
        self._agent = ""
        """The name of the only agent whose tasks are here; empty for all."""
        self._directory = directory
        self._store = store
        self._journal = journal
        self._feed = feed
        self._tail = tail
        self._stopped = stopped
        self._waits = GatewayWaits(store, tail, lambda task: directory.owner(task) is not None)

    def of(self, agent: str) -> GatewayTasks:
        """Return the service for the tasks of one agent, by its name at the gateway."""
        # Made for every request, so not by `copy`, which takes several times as long.
        one = object.__new__(GatewayTasks)
        one.__dict__.update(self.__dict__)
        one._agent = agent
        return one

    def recheck(self) -> None:
        """End the streams of callers who may no longer be told, and the waits for agents that are gone."""
        self._feed.recheck()
        self._waits.recheck()

    async def send(self, request: SendMessage, caller: Caller) -> Task:
        return await self._store.load(TaskId((await self._sent(request, caller)).task_id))

    async def send_and_wait(self, request: SendAndWait, caller: Caller) -> PendingTask:
        task = await self.send(request.send, caller)
        if is_settled(task.state):
            return PendingTask(task)
        return PendingTask(task, asyncio.ensure_future(self._waits.settled(task.id)))

    async def send_and_follow(self, request: SendAndFollow, caller: Caller) -> TaskStream:
        sent = await self._sent(request.send, caller)
        task_id = TaskId(sent.task_id)
        return self._end_of(task_id) if sent.direct else self._until_settled(task_id, sent.version, caller)

    async def get(self, request: GetTask, caller: Caller) -> Task:
        return await self._find(request.task_id, caller)

    async def get_message(self, request: GetMessage, caller: Caller) -> Task:
        return await self._find(await find_message(request, caller, self._store), caller)

    async def list(self, request: ListTasks, caller: Caller) -> TaskPage:
        wanted = self._agent or request.agent
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

    async def cancel(self, request: CancelTask, caller: Caller) -> Task:
        task = await self._find(request.task_id, caller)
        exact = CancelTask(task.id, exact=True)
        owner = self._directory.owner(task)
        if owner is None:
            return await self._stopped.cancel(exact, caller)
        await owner.command(exact, caller)
        return await self._store.load(task.id)

    async def change(self, request: ChangeTask, caller: Caller) -> Task:
        task = await self._find(request.task_id, caller)
        exact = replace(request, task_id=task.id)
        owner = self._directory.owner(task)
        if owner is None:
            return await self._stopped.change(exact, caller)
        return await self._changed(await owner.command(exact, caller))

    async def delete(self, request: DeleteTask, caller: Caller) -> Task:
        task = await self._find(request.task_id, caller)
        exact = DeleteTask(task_id=task.id)
        owner = self._directory.owner(task)
        if owner is None:
            return await self._stopped.delete(exact, caller)
        return await self._changed(await owner.command(exact, caller))

    async def answer(self, request: AnswerQuestion, caller: Caller) -> Task | None:
        if request.task_id:
            done = await self._command(request, caller)
        else:
            done = await (await self._running(caller)).command(request, caller)
        return await self._changed(done) if done.task_id else None

    async def set_push(self, request: SetPushConfig, caller: Caller) -> PushConfig:
        done = await self._command(replace(request, config=_signed(request.config, caller)), caller)
        return _only_config(done)

    async def get_push(self, request: GetPushConfig, caller: Caller) -> PushConfig:
        return _only_config(await self._command(request, caller))

    async def list_push(self, request: ListPushConfigs, caller: Caller) -> tuple[PushConfig, ...]:
        done = await self._command(request, caller)
        if isinstance(done.result, tuple):
            return done.result
        raise _not_understood()

    async def delete_push(self, request: DeletePushConfig, caller: Caller) -> None:
        await self._command(request, caller)

    async def subscribe(self, request: SubscribeTask, caller: Caller) -> TaskStream:
        task = await self._find(request.task_id, caller)
        return self._followed(task.id, request.after, caller)

    async def follow(self, request: FollowTask, caller: Caller) -> TaskStream:
        task = await self._find(request.task_id, caller)
        require_updates(task, request.after)
        return self._followed(task.id, request.after, caller)

    async def create(self, request: CreateTask, _caller: Caller) -> Task:
        raise unsupported("a gateway", request)

    async def reply(self, request: Reply, _caller: Caller) -> Replied:
        raise unsupported("a gateway", request)

    async def resolve(self, request: ResolveTask, _caller: Caller) -> Task:
        raise unsupported("a gateway", request)

    async def status(self, request: GetStatus, _caller: Caller) -> HostStatus:
        raise unsupported("a gateway", request)

    async def _sent(self, request: SendMessage, caller: Caller) -> CommandResult:
        if request.task_id:
            # Whoever owns the task is asked, and one that is not seen is missing: the same answer as everywhere.
            task = await self._find(request.task_id, caller)
            request = replace(request, task_id=task.id, exact=True)
        if request.push is not None:
            request = replace(request, push=_signed(request.push, caller))
        return await (await self._running(caller)).command(request, caller)

    async def _command(self, request: AboutTask, caller: Caller) -> CommandResult:
        """Ask the agent of the task. Raises AgentNotFound when it does not run."""
        task = await self._find(request.task_id, caller)
        owner = self._directory.owner(task)
        if owner is None:
            raise _not_running(self._directory.name_of(task))
        return await owner.command(replace(request, task_id=task.id), caller)

    async def _changed(self, done: CommandResult) -> Task:
        """Return the task that a command answered with."""
        return await self._store.load(TaskId(done.task_id))

    async def _running(self, caller: Caller) -> GatewayAgent:
        """Return the agent of this service. Raises AgentNotFound when it does not run."""
        found = self._directory.find(self._agent)
        if found is None:
            # Only who can see what an agent has left is told that there was one.
            raise _not_running(self._agent) if await self._left_by(self._agent, caller) else AgentNotFound(self._agent)
        return found

    async def _left_by(self, name: str, caller: Caller) -> TaskQuery | None:
        """Return the query for what an agent that is gone has left for this caller; None when there is nothing."""
        scope = visible_scope(caller)
        for query in (TaskQuery(inbox=name, scope=scope, limit=1), TaskQuery(agent_id=name, scope=scope, limit=1)):
            if (await self._store.list(query)).tasks:
                return query
        return None

    async def _find(self, wanted: str, caller: Caller) -> Task:
        """Return the task that the caller means, by its whole id.

        Raises TaskNotFound, also for a foreign one, or AgentNotFound when there is no trace of the agent.
        """
        agent = self._agent
        here = self._directory.find(agent) if agent else None
        wanted = wanted.removeprefix(f"{agent}:") if agent else wanted
        try:
            task = require_visible(await self._store.load(TaskId(wanted)), caller, wanted)
        except TaskNotFound:
            task = None
        if task is not None and self._is_ours(task, here, caller):
            return task
        raise AgentNotFound(agent) if agent and here is None else TaskNotFound(wanted)

    def _is_ours(self, task: Task, here: GatewayAgent | None, caller: Caller) -> bool:
        """Whether the task belongs to the agent of this service; of all agents, to one that the caller may use."""
        if not self._agent:
            return may_use(caller, self._directory.name_of(task))
        if here is not None:
            return task.inbox == here.entry.inbox
        return self._agent in (task.inbox, left_name(task))

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


def _only_config(done: CommandResult) -> PushConfig:
    if isinstance(done.result, PushConfig):
        return done.result
    raise _not_understood()


def _not_understood() -> SynapseError:
    return SynapseError("the agent's host answered something that cannot be understood")


def _not_running(agent: str) -> AgentNotFound:
    return AgentNotFound(agent, hint="it does not run now; what it has left can still be read")


MAX_MISSES: Final = 5
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
                if misses > MAX_MISSES:
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
