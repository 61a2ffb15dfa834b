"""What can be asked of an agent host: each request has one method here, and `handle` is the one way in."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.clock import Clock
from synapse.core.driver import Driver
from synapse.core.errors import (
    IllegalTransition,
    PersonRequired,
    TaskFinished,
    TaskNotCancelable,
    TaskNotFound,
    UnsupportedOperation,
)
from synapse.core.events import MetadataChanged, Update
from synapse.core.message import Message
from synapse.core.requests import (
    AddExternal,
    CancelTask,
    CreateTask,
    FollowTask,
    GetStatus,
    GetTask,
    ListExternals,
    ListTasks,
    RemoveExternal,
    Reply,
    ReportSignal,
    Request,
    ResolveTask,
    SendAndFollow,
    SendAndWait,
    SendExternal,
    SendMessage,
    SubscribeTask,
)
from synapse.core.status import HostStatus
from synapse.core.store import TaskPage, TaskQuery, TaskStore
from synapse.core.task import Task, TaskState
from synapse.service import outcomes
from synapse.service.doubts import Doubts
from synapse.service.externals import Externals
from synapse.service.feed import Feed
from synapse.service.hook_reports import HookReports
from synapse.service.intake import Intake
from synapse.service.journal import Journal
from synapse.service.recovery import is_in_doubt
from synapse.service.replies import Replies
from synapse.service.settling import Settling, never
from synapse.service.waits import WAITER_LEFT
from synapse.service.worker import AgentWorker


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
        doubts: Doubts,
        externals: Externals,
        driver: Driver,
        clock: Clock,
        hook_reports: HookReports | None = None,
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
        self._externals = externals
        self._driver = driver
        self._clock = clock
        self._hook_reports = hook_reports or HookReports(me, None)
        self._settling = Settling(intake, journal, feed, answers_directly)
        self._methods = self._table()

    async def handle(self, request: Request, caller: Caller) -> Any:
        """Do `request` for `caller`; what comes back is listed in `docs/architecture.md`.

        Raises a SynapseError.
        """
        method = self._methods.get(type(request))
        if method is None:
            raise UnsupportedOperation(f"this agent does not do {type(request).__name__}")
        return await method(request, caller)

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
            ResolveTask: self._resolve,
            SubscribeTask: self._subscribe,
            FollowTask: self._follow,
            GetStatus: self._status,
            AddExternal: self._add_external,
            ListExternals: self._list_externals,
            RemoveExternal: self._remove_external,
            SendExternal: self._send_external,
            ReportSignal: self._hook_reports.take,
        }

    async def _get(self, request: GetTask, caller: Caller) -> Task:
        return await self._visible(request.task_id, caller, exact=request.exact)

    async def _list(self, request: ListTasks, caller: Caller) -> TaskPage:
        query = TaskQuery(
            inbox=self._me.inbox,
            scope=caller.scope,
            states=request.states,
            context_id=request.context_id,
            parent_id=request.parent_id,
            updated_after=request.updated_after,
            limit=request.limit,
            cursor=request.cursor,
        )
        return await self._store.list(query)

    async def _cancel(self, request: CancelTask, caller: Caller) -> Task:
        """Cancel what waits or runs. What runs is interrupted after the journal has decided who won."""
        task = await self._visible(request.task_id, caller, exact=request.exact)
        facts = outcomes.ended(task, self._clock.now(), TaskState.CANCELED, "canceled", "canceled by request")
        if task.state.is_terminal:
            raise TaskNotCancelable(f"task {task.short_id} is {task.state.value}")
        try:
            canceled = await self._journal.record(*facts)
        except (IllegalTransition, TaskFinished) as lost:
            raise TaskNotCancelable(f"task {task.short_id} has ended meanwhile") from lost
        if not self._worker.withdraw(task.id) and self._worker.current == task.id:
            await self._stop_turn(task)
        self._replies.turn_ended(canceled)
        return canceled

    async def _stop_turn(self, task: Task) -> None:
        # A turn in doubt may never end by itself, so nobody waits for that.
        if task.attention and is_in_doubt(task) and await self._worker.abandon(task.id):
            return
        if not self._worker.drop():
            await self._worker.interrupt()

    async def _resolve(self, request: ResolveTask, caller: Caller) -> Task:
        return await self._doubts.resolve(request, await self._visible(request.task_id, caller), caller)

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
        current = self._worker.current
        queue = [await self._journal.load(task_id) for task_id in self._worker.waiting]
        return HostStatus(
            entry=self._me,
            view=self._driver.view(),
            current=await self._journal.load(current) if current else None,
            queue=tuple(queue),
            attention=tuple(task for task in self._journal.open_tasks() if task.attention),
        )

    async def _reply(self, request: Reply, caller: Caller) -> Any:
        if not caller.is_person and caller.agent_id != self._me.agent_id:
            raise PersonRequired(f"only {self._me.agent_id} itself or a person replies for it")
        return await self._replies.reply(request, self._worker.current)

    async def _add_external(self, request: AddExternal, _caller: Caller) -> Any:
        return await self._externals.add(request)

    async def _list_externals(self, _request: ListExternals, _caller: Caller) -> Any:
        return await self._externals.list()

    async def _remove_external(self, request: RemoveExternal, _caller: Caller) -> Any:
        return await self._externals.remove(request)

    async def _send_external(self, request: SendExternal, _caller: Caller) -> Any:
        return await self._externals.send(request)

    async def _visible(self, wanted: str, caller: Caller, *, exact: bool = False) -> Task:
        """The task that the caller means; a foreign one looks like a missing one."""
        task = await self._journal.find(wanted, self._me.inbox, exact=exact)
        if task.scope != caller.scope:
            raise TaskNotFound(wanted)
        return task
