"""What can be asked of an agent host: each request has one method here, and `handle` is the one way in.

Sending a message and staying with its task until it settles: it has ended, or waits for somebody.

    sent ─► submitted ─► working ─► settled      (a question, an authorization, or an end)

Whoever sends is with the task from its first state. An urgent message interrupts between its record and the joining,
and the task may end meanwhile: so what is joined is the task as it is by then.

Which tasks a caller's list shows: what was asked for, as far as the caller sees it.

What hooks of the agent's own CLI report to the host, and who may.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.driver import AgentStatus, Driver
from synapse.core.errors import (
    AccessDenied,
    NothingAsked,
    PersonRequired,
    PushNotSupported,
    StoreFailed,
    TaskNotFound,
    UnsupportedOperation,
)
from synapse.core.events import MetadataChanged, StateChanged, Update
from synapse.core.message import Json, Message
from synapse.core.push import PushConfig
from synapse.core.question import Question
from synapse.core.requests import (
    AddExternal,
    AnswerQuestion,
    CancelTask,
    ChangeTask,
    CommandResult,
    CreateTask,
    DeletePushConfig,
    DeleteTask,
    FollowStatus,
    FollowTask,
    GetPushConfig,
    GetStatus,
    GetTask,
    HostStatus,
    ListExternals,
    ListPushConfigs,
    ListTasks,
    OnBehalfOf,
    RemoveExternal,
    Reply,
    ReportSignal,
    Request,
    ResolveTask,
    SendAndFollow,
    SendAndWait,
    SendExternal,
    SendMessage,
    SetPushConfig,
    SubscribeTask,
)
from synapse.core.store import TaskPage, TaskQuery, TaskStore
from synapse.core.task import Task, TaskId, TaskState
from synapse.core.types import Clock
from synapse.external.agents import Externals
from synapse.push.service import PushConfigs
from synapse.tasks.admission import USER
from synapse.tasks.changes import TaskChanges
from synapse.tasks.feed import Feed, follow_status
from synapse.tasks.intake import Intake
from synapse.tasks.journal import Journal
from synapse.tasks.questions import Questions
from synapse.tasks.replies import Replies
from synapse.tasks.unfinished import InDoubt
from synapse.tasks.waits import WAITER_LEFT
from synapse.tasks.worker import AgentWorker


def never(_message: Message) -> bool:
    """For agents that answer with tasks only."""
    return False


def is_settled(state: TaskState) -> bool:
    """Nothing more comes by itself."""
    return state.is_terminal or state.is_interrupted


class TaskWaiter:
    """Stays with tasks. `answers_directly` tells of a message whether the agent will answer it with a plain message."""

    def __init__(
        self, intake: Intake, journal: Journal, feed: Feed, answers_directly: Callable[[Message], bool]
    ) -> None:
        self._intake = intake
        self._journal = journal
        self._feed = feed
        self._answers_directly = answers_directly
        self._waiting: dict[TaskId, set[asyncio.Future[Task]]] = {}
        journal.listen(self._hear, self._waiting.__contains__)

    async def wait(self, request: SendAndWait, caller: Caller) -> Task | asyncio.Future[Task]:
        """Send; return the task if it has settled, else a future of it. Whoever gives up waiting cancels that.

        Raises what `Intake.send` raises.
        """
        task = await self._intake.send(request.send, caller, waits_for_end=True)
        return task if is_settled(task.state) else self._settled(task)

    async def follow(self, request: SendAndFollow, caller: Caller) -> AsyncGenerator[Update, None]:
        """Send; yield the task as it was then, and each update until it has settled.

        An agent that answers with a plain message has no task to show: then only the end is told, as a snapshot.

        Raises what `Intake.send` raises.
        """
        task = await self._intake.send(request.send, caller)
        if self._answers_directly(request.send.message):
            return self._end_of(self._settled(task))
        updates = self._feed.follow(task.id)
        return _until_settled(await anext(updates), updates)

    def _settled(self, task: Task) -> asyncio.Future[Task]:
        future: asyncio.Future[Task] = asyncio.get_running_loop().create_future()
        task = self._journal.known(task.id) or task
        if is_settled(task.state):
            future.set_result(task)
            return future
        self._waiting.setdefault(task.id, set()).add(future)
        future.add_done_callback(partial(self._forget, task.id))
        return future

    def _hear(self, update: Update) -> None:
        waiting = self._waiting.get(update.task.id)
        if waiting and is_settled(update.task.state):
            for future in waiting:
                if not future.done():
                    future.set_result(update.task)

    def _forget(self, task_id: TaskId, future: asyncio.Future[Task]) -> None:
        waiting = self._waiting[task_id]
        waiting.discard(future)
        if not waiting:
            del self._waiting[task_id]

    async def _end_of(self, settled: asyncio.Future[Task]) -> AsyncGenerator[Update, None]:
        task = await settled
        yield Update((await self._journal.snapshot(task.id)).seq, None, task)


async def _until_settled(first: Update, updates: AsyncGenerator[Update, None]) -> AsyncGenerator[Update, None]:
    async with aclosing(updates):
        yield first
        if is_settled(first.task.state):
            return
        async for update in updates:
            yield update
            if isinstance(update.event, StateChanged) and is_settled(update.event.state):
                return


class TaskService:
    """Does what is asked of one agent."""

    def __init__(  # noqa: PLR0913 - it joins the parts; each is used by some request
        self,
        me: AgentEntry,
        *,
        journal: Journal,
        store: TaskStore,
        feed: Feed,
        intake: Intake,
        worker: AgentWorker,
        replies: Replies,
        doubts: InDoubt,
        questions: Questions,
        externals: Externals,
        driver: Driver,
        clock: Clock,
        hook_reports: HookReports | None = None,
        push_configs: PushConfigs | None = None,
        answers_directly: Callable[[Message], bool] = never,
    ) -> None:
        self._me = me
        self._journal = journal
        self._store = store
        self._feed = feed
        self._intake = intake
        self._worker = worker
        self._replies = replies
        self._doubts = doubts
        self._questions = questions
        self._externals = externals
        self._driver = driver
        self._clock = clock
        self._hook_reports = hook_reports or HookReports(me, None)
        self._push_configs = push_configs
        self._answers_directly = answers_directly
        self._changes = TaskChanges(journal, worker, questions, replies, clock)
        self._settling = TaskWaiter(intake, journal, feed, answers_directly)
        self._methods = self._table()

    def handle(self, request: Request, caller: Caller) -> Awaitable[Any]:
        """Do `request` for `caller`; what comes back is listed in `docs/architecture.md`.

        Raises a SynapseError.
        """
        method = self._methods.get(type(request))
        if method is None:
            raise UnsupportedOperation(f"this agent does not do {type(request).__name__}")
        return method(request, caller)

    def _table(self) -> dict[type[Any], Callable[[Any, Caller], Awaitable[Any]]]:
        return {
            SendMessage: self._intake.send,
            SendAndWait: self._settling.wait,
            SendAndFollow: self._settling.follow,
            CreateTask: self._intake.create,
            Reply: self._reply,
            GetTask: self._get,
            ListTasks: self._list,
            CancelTask: self._cancel,
            ChangeTask: self._change,
            DeleteTask: self._delete,
            ResolveTask: self._resolve,
            AnswerQuestion: self._answer,
            SetPushConfig: self._set_push,
            GetPushConfig: self._get_push,
            ListPushConfigs: self._list_push,
            DeletePushConfig: self._delete_push,
            SubscribeTask: self._subscribe,
            FollowTask: self._follow,
            GetStatus: self._status,
            FollowStatus: self._follow_status,
            AddExternal: self._add_external,
            ListExternals: self._list_externals,
            RemoveExternal: self._remove_external,
            SendExternal: self._send_external,
            ReportSignal: self._hook_reports.take,
            OnBehalfOf: self._on_behalf,
        }

    async def _get(self, request: GetTask, caller: Caller) -> Task:
        return await self._visible(request.task_id, caller, exact=request.exact)

    async def _list(self, request: ListTasks, caller: Caller) -> TaskPage:
        return await self._store.list(query_of(request, caller, self._me.inbox))

    async def _cancel(self, request: CancelTask, caller: Caller) -> Task:
        return await self._changes.cancel(await self._visible(request.task_id, caller, exact=request.exact))

    async def _change(self, request: ChangeTask, caller: Caller) -> Task:
        return await self._changes.change(request, await self._visible(request.task_id, caller))

    async def _delete(self, request: DeleteTask, caller: Caller) -> Task:
        return await self._changes.delete(await self._visible(request.task_id, caller))

    async def _resolve(self, request: ResolveTask, caller: Caller) -> Task:
        return await self._doubts.resolve(request, await self._visible(request.task_id, caller), caller)

    async def _answer(self, request: AnswerQuestion, caller: Caller) -> Task | None:
        """Answer what the task's program asks; without a task, what the agent asks now."""
        if request.task_id:
            # Who asks through a gateway may have read the question in the store before we were told that it is there.
            task: Task | None = await self._journal.load_latest((await self._visible(request.task_id, caller)).id)
        else:
            task = await self._questions.asking(self._driver.view().question)
            if task is not None and not caller.sees(task.scope):
                raise NothingAsked
        return await self._questions.answer(request, task, caller)

    async def _set_push(self, request: SetPushConfig, caller: Caller) -> PushConfig:
        return await self._pushes().set(await self._visible(request.task_id, caller, exact=True), request.config)

    async def _get_push(self, request: GetPushConfig, caller: Caller) -> PushConfig:
        return await self._pushes().get(await self._visible(request.task_id, caller, exact=True), request.config_id)

    async def _list_push(self, request: ListPushConfigs, caller: Caller) -> Sequence[PushConfig]:
        return await self._pushes().list(await self._visible(request.task_id, caller, exact=True))

    async def _delete_push(self, request: DeletePushConfig, caller: Caller) -> None:
        await self._pushes().delete(await self._visible(request.task_id, caller, exact=True), request.config_id)

    def _pushes(self) -> PushConfigs:
        if self._push_configs is None:
            raise PushNotSupported
        return self._push_configs

    async def _subscribe(self, request: SubscribeTask, caller: Caller) -> Any:
        return self._followed(await self._visible(request.task_id, caller), request.after)

    async def _follow(self, request: FollowTask, caller: Caller) -> Any:
        task = await self._visible(request.task_id, caller, exact=True)
        if task.state.is_terminal and request.after is None:
            raise UnsupportedOperation(f"task {task.short_id} is {task.state.value}; nothing more comes of it")
        return self._followed(task, request.after)

    def _followed(self, task: Task, after: int | None) -> AsyncGenerator[Update, None]:
        updates = self._feed.follow(task.id, after)
        return updates if task.queued else self._noting_when_the_waiter_leaves(task, updates)

    async def _noting_when_the_waiter_leaves(
        self, task: Task, updates: AsyncGenerator[Update, None]
    ) -> AsyncGenerator[Update, None]:
        """Follow a task that waits for a reply; a waiter that gives up no longer counts as waiting."""
        try:
            async with aclosing(updates):
                await self._note_waiter(task, left=None)
                async for update in updates:
                    yield update
        finally:
            if not self._feed.is_followed(task.id):
                await self._note_waiter(task, left=True)

    async def _note_waiter(self, task: Task, *, left: bool | None) -> None:
        now = await self._journal.load(task.id)
        if not now.state.is_terminal and now.metadata.get(WAITER_LEFT) is not left:
            note = MetadataChanged(task_id=task.id, at=self._clock.now(), metadata={WAITER_LEFT: left})
            await self._journal.record(note)

    async def _status(self, _request: GetStatus, _caller: Caller) -> HostStatus:
        # The task is found by the same look: a question that goes or comes meanwhile must not stand without its task.
        view, current = self._driver.view(), self._worker.current
        asking = await self._asking(view.question)
        queue = [await self._read(task_id) for task_id in self._worker.waiting]
        return HostStatus(
            entry=self._me,
            view=view,
            current=await self._read(current) if current else None,
            asking=asking,
            queue=tuple(task for task in queue if task is not None),
            held=self._worker.held(),
            attention=tuple(task for task in self._journal.open_tasks() if task.attention),
            store_fault=self._store.fault(),
        )

    async def _follow_status(self, _request: FollowStatus, _caller: Caller) -> AsyncGenerator[AgentStatus, None]:
        return follow_status(self._driver)

    async def _read(self, task_id: TaskId) -> Task | None:
        """The task, or None when the store fails: what an agent does can be told without it."""
        try:
            return await self._journal.load(task_id)
        except StoreFailed:
            return None

    async def _asking(self, question: Question | None) -> Task | None:
        try:
            return await self._questions.asking(question)
        except StoreFailed:
            return None

    async def _reply(self, request: Reply, caller: Caller) -> Any:
        # A process that the agent left behind may speak for it, though its ancestors prove nothing any more.
        if not caller.is_person and self._me.agent_id not in (caller.agent_id, caller.named_agent):
            raise PersonRequired(f"only {self._me.agent_id} itself or a person replies for it", hint=caller.objection)
        return await self._replies.reply(request, self._worker.current)

    async def _on_behalf(self, request: OnBehalfOf, caller: Caller) -> CommandResult:
        """Do what a gateway asks for somebody whom it has let in; nobody becomes a person that way."""
        # Not `may_decide`: a gateway in the background has no terminal. What a key may not do is refused by the key.
        if not caller.is_person:
            raise PersonRequired("only the user's own gateway asks for others", hint=caller.objection)
        asked = request.request
        if isinstance(asked, OnBehalfOf):
            raise UnsupportedOperation("a gateway asks for others, and not for another gateway")
        direct = isinstance(asked, SendMessage) and self._answers_directly(asked.message)
        result = await self.handle(asked, request.caller)
        if isinstance(result, Task):
            return CommandResult(task_id=result.id, version=result.version, direct=direct)
        return CommandResult(result=result)

    async def _add_external(self, request: AddExternal, caller: Caller) -> Any:
        _refuse_agents(caller)
        return await self._externals.add(request)

    async def _list_externals(self, _request: ListExternals, _caller: Caller) -> Any:
        return await self._externals.list()

    async def _remove_external(self, request: RemoveExternal, caller: Caller) -> Any:
        _refuse_agents(caller)
        return await self._externals.remove(request)

    async def _send_external(self, request: SendExternal, _caller: Caller) -> Any:
        return await self._externals.send(request)

    async def _visible(self, wanted: str, caller: Caller, *, exact: bool = False) -> Task:
        """The task that the caller means; a foreign one looks like a missing one."""
        task = await self._journal.find(wanted, self._me.inbox, exact=exact)
        if not caller.sees(task.scope):
            raise TaskNotFound(wanted)
        return task


def _refuse_agents(caller: Caller) -> None:
    """An agent does not choose the addresses that this host calls. Raises PersonRequired."""
    if caller.via_socket and not caller.may_decide:
        raise PersonRequired(
            "agents elsewhere are added and removed by a person",
            hint="a person types `synapse external add URL` or `synapse external remove ALIAS` in a shell of their own",
        )


def query_of(request: ListTasks, caller: Caller, inbox: str = "") -> TaskQuery:
    """The question for the store; without an inbox, about all agents."""
    return TaskQuery(
        inbox=inbox,
        scope="" if caller.sees_all else caller.scope,
        states=request.states,
        context_id=request.context_id,
        parent_id=request.parent_id,
        updated_after=request.updated_after,
        metadata={**request.metadata, **({USER: request.user} if request.user else {})},
        expired=request.expired,
        limit=request.limit,
        cursor=request.cursor,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEndpoint:
    """Where reports go, and the secret of the launch that they bring."""

    secret: str
    receive: Callable[[Json], asyncio.Future[Json] | None]
    """Takes a report; returns what its hook is answered, where it waits for that."""


class HookReports:
    """Takes reports for one agent. Without a door its CLI has no hooks."""

    def __init__(self, me: AgentEntry, door: HookEndpoint | None) -> None:
        self._me = me
        self._door = door

    async def take(self, request: ReportSignal, caller: Caller) -> Any:
        """Pass a report on; return what its hook is answered, as soon as that is known: nothing, or a future.

        Raises:
            UnsupportedOperation: nobody listens.
            AccessDenied: it does not come from the agent's own CLI.
        """
        if self._door is None:
            raise UnsupportedOperation("this agent's CLI reports nothing by hooks")
        # On the Unix socket the kernel proves the agent; a connection on the port proves only the user.
        is_own = caller.agent_id == self._me.agent_id or self._brings_secret(request.secret)
        if not is_own:
            raise AccessDenied("only the agent's own CLI reports here")
        return self._door.receive(request.payload)

    def _brings_secret(self, given: str) -> bool:
        return self._door is not None and hmac.compare_digest(given.encode(), self._door.secret.encode())
