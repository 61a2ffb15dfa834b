"""The tasks of all agents behind a gateway: reads come from the shared store, commands go to the agent's host.

    read      from the store, if the caller may see the task
    command   to the agent's host, or to the in-process agent ─► durable there ─► read from the store
    follow    the store's log; see `tasks.feed.LogFollower`
    wait      until the log has an event that settles the task, then read from the store

The tasks of an agent that does not run stay readable. They can be canceled, changed and deleted; see `StoppedTasks`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Final, Protocol

from synapse.auth.policy import hide_store_details, may_use
from synapse.core.caller import Caller
from synapse.core.errors import AgentExited, AgentNotFound, SynapseError, TaskNotFound, Unauthenticated
from synapse.core.events import Recorded, StateChanged, Update
from synapse.core.overview import Timeline
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
    GetTimeline,
    HostStatus,
    LeaveTask,
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
from synapse.core.task import SHORT_ID_LENGTH, Task, TaskId
from synapse.gateway.directory import GatewayAgent, GatewayDirectory, left_name
from synapse.tasks.feed import Feed, LogFollower
from synapse.tasks.journal import Journal
from synapse.tasks.rules import (
    find_message,
    is_settled,
    query_of,
    require_updates,
    require_visible,
    unsupported,
    visible_scope,
)

AboutTask = AnswerQuestion | ResolveTask | SetPushConfig | GetPushConfig | ListPushConfigs | DeletePushConfig
"""Commands about a task that only its running agent can carry out."""
READ_AT_ONCE: Final = 250
MOST_READS: Final = 16
"""How often so many tasks are read from the store to fill one page of those that pass a filter."""
MAX_MISSES: Final = 5
"""How many rechecks in a row may find no agent for an awaited task: an agent that is restarted resumes its tasks."""


class Stopped(Protocol):
    """The part of TaskService that a gateway uses for agents that do not run; see `StoppedTasks`."""

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

    Tasks are found by their whole id: a prefix could match tasks that the caller must not know of.
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
        """The name of the agent that `of` narrows to; empty for all."""
        self._directory = directory
        self._store = store
        self._journal = journal
        self._feed = feed
        self._tail = tail
        self._stopped = stopped
        self._waits = GatewayWaits(store, tail, lambda task: directory.owner(task) is not None)

    def of(self, agent: str) -> GatewayTasks:
        """Returns the service for the tasks of one agent, by its name at the gateway."""
        # Called for every request: `copy` takes several times as long.
        one = object.__new__(GatewayTasks)
        one.__dict__.update(self.__dict__)
        one._agent = agent
        return one

    def recheck(self) -> None:
        """Ends the streams of callers whose credentials are no longer valid, and the waits for agents that are gone."""
        self._feed.recheck()
        self._waits.recheck()

    async def send(self, request: SendMessage, caller: Caller) -> Task:
        return await self._load(await self._send(request, caller))

    async def send_and_wait(self, request: SendAndWait, caller: Caller) -> PendingTask:
        task = await self.send(request.send, caller)
        if is_settled(task.state):
            return PendingTask(task)
        return PendingTask(task, asyncio.ensure_future(self._waits.settled(task.id)))

    async def send_and_follow(self, request: SendAndFollow, caller: Caller) -> TaskStream:
        sent = await self._send(request.send, caller)
        task_id = TaskId(sent.task_id)
        return self._final_update(task_id) if sent.direct else self._until_settled(task_id, sent.version, caller)

    async def get(self, request: GetTask, caller: Caller) -> Task:
        wanted = request.task_id if request.exact else await self._whole_id(request.task_id, caller)
        return await self._find(wanted, caller)

    async def timeline(self, request: GetTimeline, caller: Caller) -> Timeline:
        """Returns a page of the task's events. Raises TaskNotFound."""
        task = await self._find(request.task_id, caller)
        found = await self._store.read_after(request.after, task_id=task.id, limit=request.limit + 1)
        events = tuple(found[: request.limit])
        return Timeline(task=task, events=events, next_after=events[-1].seq if len(found) > len(events) else None)

    async def get_message(self, request: GetMessage, caller: Caller) -> Task:
        return await self._find(await find_message(request, caller, self._store), caller)

    async def list(self, request: ListTasks, caller: Caller) -> TaskPage:
        wanted = self._agent or request.agent
        if wanted and not may_use(caller, wanted):
            raise AgentNotFound(wanted)
        query = query_of(request, caller)
        here = self._directory.find(wanted) if wanted else None
        if here is not None:
            query = replace(query, inbox=here.entry.inbox)
        elif wanted:
            stopped = await self._query_for_stopped(wanted, caller)
            if stopped is None:
                raise AgentNotFound(wanted)
            query = replace(query, inbox=stopped.inbox, agent_id=stopped.agent_id)

        is_of_some_agents = caller.agents is not None and not wanted
        if not is_of_some_agents and not request.sender:
            return await self._store.list(query)

        def is_shown(task: Task) -> bool:
            may_see = not is_of_some_agents or may_use(caller, self._directory.name_of(task))
            return may_see and request.sender in ("", task.sender_name)

        return await self._filtered(query, is_shown)

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
        return await self._load(await owner.command(exact, caller))

    async def delete(self, request: DeleteTask, caller: Caller) -> Task:
        task = await self._find(request.task_id, caller)
        exact = DeleteTask(task_id=task.id)
        owner = self._directory.owner(task)
        if owner is None:
            return await self._stopped.delete(exact, caller)
        return await self._load(await owner.command(exact, caller))

    async def answer(self, request: AnswerQuestion, caller: Caller) -> Task | None:
        if request.task_id:
            done = await self._command(request, caller)
        else:
            done = await (await self._running(caller)).command(request, caller)
        return await self._load(done) if done.task_id else None

    async def resolve(self, request: ResolveTask, caller: Caller) -> Task:
        return await self._load(await self._command(request, caller))

    async def set_push(self, request: SetPushConfig, caller: Caller) -> PushConfig:
        signed = replace(request, config=_with_key(request.config, caller))
        return _push_config(await self._command(signed, caller))

    async def get_push(self, request: GetPushConfig, caller: Caller) -> PushConfig:
        return _push_config(await self._command(request, caller))

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

    async def leave(self, request: LeaveTask, _caller: Caller) -> Task:
        raise unsupported("a gateway", request)

    async def reply(self, request: Reply, _caller: Caller) -> Replied:
        raise unsupported("a gateway", request)

    async def status(self, request: GetStatus, _caller: Caller) -> HostStatus:
        raise unsupported("a gateway", request)

    async def _send(self, request: SendMessage, caller: Caller) -> CommandResult:
        if request.task_id:
            # Fails with TaskNotFound for a task that the caller may not see, as everywhere.
            task = await self._find(request.task_id, caller)
            request = replace(request, task_id=task.id, exact=True)
        if request.push is not None:
            request = replace(request, push=_with_key(request.push, caller))
        return await (await self._running(caller)).command(request, caller)

    async def _command(self, request: AboutTask, caller: Caller) -> CommandResult:
        """Sends a command to the agent of the task. Raises AgentNotFound when it does not run."""
        task = await self._find(request.task_id, caller)
        owner = self._directory.owner(task)
        if owner is None:
            raise _not_running(self._directory.name_of(task))
        return await owner.command(replace(request, task_id=task.id), caller)

    async def _filtered(self, query: TaskQuery, is_shown: Callable[[Task], bool]) -> TaskPage:
        """Returns a page of the tasks that are shown. If they are few of many, it is short, and yet has a next one."""
        shown: list[Task] = []
        cursor = query.cursor
        for _ in range(MOST_READS):
            page = await self._store.list(replace(query, limit=READ_AT_ONCE, cursor=cursor))
            found = [number for number, task in enumerate(page.tasks, 1) if is_shown(task)]
            missing = query.limit - len(shown)
            if len(found) > missing:
                # The next page begins after the last task that fits.
                page = await self._store.list(replace(query, limit=found[missing - 1], cursor=cursor))
            shown += filter(is_shown, page.tasks)
            cursor = page.next_cursor
            if not cursor or len(shown) >= query.limit:
                break
        return TaskPage(tuple(shown), cursor, len(shown), is_counted=False)

    async def _load(self, result: CommandResult) -> Task:
        """Returns the task that a command resulted in."""
        return await self._store.load(TaskId(result.task_id))

    async def _running(self, caller: Caller) -> GatewayAgent:
        """Returns the agent of this service. Raises AgentNotFound when it does not run."""
        found = self._directory.find(self._agent)
        if found is None:
            # Only a caller that can see tasks of the agent learns that it exists.
            stopped = await self._query_for_stopped(self._agent, caller)
            raise _not_running(self._agent) if stopped else AgentNotFound(self._agent)
        return found

    async def _query_for_stopped(self, name: str, caller: Caller) -> TaskQuery | None:
        """Returns the query for the tasks of an agent that does not run; None when the caller can see none."""
        scope = visible_scope(caller)
        for query in (TaskQuery(inbox=name, scope=scope, limit=1), TaskQuery(agent_id=name, scope=scope, limit=1)):
            if (await self._store.list(query)).tasks:
                return query
        return None

    async def _find(self, wanted: str, caller: Caller) -> Task:
        """Returns the task with that whole id.

        Raises TaskNotFound, also for a task of another caller, or AgentNotFound when the agent is unknown.
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

    async def _whole_id(self, prefix: str, caller: Caller) -> str:
        """Returns the id of the only task that begins with `prefix`, at least a short id, and that the caller may see.

        Returns `prefix` if there is none, or several: a caller learns nothing of tasks of others.
        """
        if len(prefix) < SHORT_ID_LENGTH:
            return prefix
        found = list[str]()
        for task_id in await self._store.find(prefix):
            with suppress(TaskNotFound):
                found.append((await self._find(task_id, caller)).id)
        return found[0] if len(found) == 1 else prefix

    def _is_ours(self, task: Task, here: GatewayAgent | None, caller: Caller) -> bool:
        """Returns whether the task belongs to the agent of this service, or to one that the caller may use."""
        if not self._agent:
            return may_use(caller, self._directory.name_of(task))
        if here is not None:
            return task.inbox == here.entry.inbox
        return self._agent in (task.inbox, left_name(task))

    async def _final_update(self, task_id: TaskId) -> AsyncGenerator[Update, None]:
        """Yields only the final snapshot: the agent answers with a plain message, and shows no task."""
        task = await self._waits.settled(task_id)
        yield Update((await self._journal.snapshot(task_id)).seq, None, task)

    async def _until_settled(self, task_id: TaskId, version: int, caller: Caller) -> AsyncGenerator[Update, None]:
        """Yields the task as of `version`, then each update until it has settled."""
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
        def check() -> None:
            if not caller.holds():
                raise Unauthenticated("the credentials of this stream are no longer valid")

        # The tail runs before the feed reads the log, so that no event between the two is missed.
        following = self._feed.follow(task_id, after, check=check)
        with hide_store_details():
            async with self._tail.running(), aclosing(following) as updates:
                async for update in updates:
                    yield update


def _with_key(config: PushConfig, caller: Caller) -> PushConfig:
    """Returns the configuration with the key of its caller: revoking the key stops its webhooks."""
    return replace(config, set_by=caller.key_id)


def _push_config(done: CommandResult) -> PushConfig:
    if isinstance(done.result, PushConfig):
        return done.result
    raise _not_understood()


def _not_understood() -> SynapseError:
    return SynapseError("the agent's host sent an answer that cannot be understood")


def _not_running(agent: str) -> AgentNotFound:
    return AgentNotFound(agent, hint="it does not run now; its tasks can still be read")


class GatewayWaits:
    """Lets any number of callers wait for tasks to settle, without rebuilding tasks from their events.

    `has_agent` decides whether a running agent can work on a task: a wait ends when its agent is gone.
    """

    def __init__(self, store: TaskStore, tail: LogFollower, has_agent: Callable[[Task], bool]) -> None:
        self._store = store
        self._tail = tail
        self._has_agent = has_agent
        self._waiting: dict[TaskId, set[asyncio.Event]] = {}
        tail.listen_events(self._on_event)

    async def settled(self, task_id: TaskId) -> Task:
        """Returns the task once it has ended or needs input.

        Raises StoreFailed, TaskNotFound, or AgentExited when its agent is gone and does not come back.
        """
        # The tail runs before the task is read, so that no event between the two is missed.
        with hide_store_details():
            async with self._tail.running():
                return await self._wait(task_id)

    async def _wait(self, task_id: TaskId) -> Task:
        settled = asyncio.Event()
        misses = 0
        self._waiting.setdefault(task_id, set()).add(settled)
        try:
            while not is_settled((task := await self._store.load(task_id)).state):
                misses = 0 if self._has_agent(task) else misses + 1
                if misses > MAX_MISSES:
                    raise AgentExited(
                        f"the agent of task {task.short_id} is gone",
                        hint="the task is kept until the agent is started again",
                    )
                await settled.wait()
                settled.clear()
            return task
        finally:
            waiting = self._waiting[task_id]
            waiting.discard(settled)
            if not waiting:
                del self._waiting[task_id]

    def recheck(self) -> None:
        """Wakes every wait, to look again at its task and its agent."""
        for waiting in self._waiting.values():
            for settled in waiting:
                settled.set()

    def _on_event(self, recorded: Recorded) -> None:
        event = recorded.event
        if isinstance(event, StateChanged) and event.task_id in self._waiting and is_settled(event.state):
            for settled in self._waiting[event.task_id]:
                settled.set()
