"""The task service of one running agent: a method for each request, and `handle` to dispatch a request to its method.

`AgentTasks` joins the other modules of this package. Beside it stand `TaskWaiter`, which waits for a task that was just
sent, and `HookReports`, which accepts the reports of the CLI's own hooks.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeVar

from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.driver import AgentStatus, Driver
from synapse.core.errors import (
    AccessDenied,
    Conflict,
    Forbidden,
    NothingAsked,
    PersonRequired,
    PushNotSupported,
    StoreFailed,
    UnsupportedOperation,
)
from synapse.core.events import StateChanged, TaskEvent, Update
from synapse.core.message import Json, Message
from synapse.core.overview import StyledScreen
from synapse.core.push import PushConfig, PushService
from synapse.core.requests import (
    NO_TOOLS,
    AddExternal,
    AnswerQuestion,
    AskPerson,
    CancelTask,
    ChangeTask,
    CommandResult,
    ConversationStatus,
    CreateTask,
    DeletePushConfig,
    DeleteTask,
    ExternalAgent,
    ExternalAnswer,
    FollowStatus,
    FollowTask,
    GetMessage,
    GetPushConfig,
    GetScreen,
    GetStatus,
    GetTask,
    HostCommand,
    HostStatus,
    LeaveTask,
    ListExternals,
    ListPushConfigs,
    ListTasks,
    OnBehalfOf,
    Pending,
    PendingTask,
    RemoveExternal,
    Replied,
    Reply,
    ReportSignal,
    ReportTools,
    Request,
    ResolveTask,
    SendAndFollow,
    SendAndWait,
    SendExternal,
    SendMessage,
    SetPushConfig,
    SubscribeTask,
    TaskStream,
    ToolsStatus,
    VoidMessage,
    WatchStatus,
)
from synapse.core.service import ExternalAgents, method_for
from synapse.core.store import TaskPage, TaskStore
from synapse.core.task import Task, TaskId
from synapse.core.task_metadata import waiter_released
from synapse.core.types import Clock
from synapse.core.usage import AgentUsage
from synapse.tasks.changes import TaskChanges
from synapse.tasks.deferral import DeferredReplies
from synapse.tasks.feed import Feed, follow_status
from synapse.tasks.finished import FinishedTasks
from synapse.tasks.intake import Intake
from synapse.tasks.journal import Journal
from synapse.tasks.person_questions import is_open_question
from synapse.tasks.questions import Questions
from synapse.tasks.replies import Replies
from synapse.tasks.rules import find_message, is_settled, query_of, require_updates, require_visible, unsupported
from synapse.tasks.status_watch import StatusWatch
from synapse.tasks.unfinished import InDoubt
from synapse.tasks.worker import AgentWorker

R = TypeVar("R")


def never(_message: Message) -> bool:
    """Returns False: the default, for agents that answer with tasks only."""
    return False


class ToolReports(Protocol):
    """Knows whether the agent's CLI has the tools of Synapse."""

    def report(self, request: ReportTools, pid: int, /) -> None: ...

    def status(self) -> ToolsStatus: ...


ReadScreen = Callable[[int, str], Awaitable[StyledScreen | None]]
"""Reads an agent's terminal, with so many lines of scrollback; returns None if it still shows the version given."""


class AgentTasks:
    """TaskService for an agent that runs in this process; its `handle` also serves the requests that only hosts get."""

    def __init__(  # noqa: PLR0913 - it joins the parts; each serves some request
        self,
        me: AgentEntry,
        *,
        journal: Journal,
        store: TaskStore,
        feed: Feed,
        intake: Intake,
        worker: AgentWorker,
        replies: Replies,
        deferred: DeferredReplies,
        in_doubt: InDoubt,
        questions: Questions,
        externals: ExternalAgents,
        driver: Driver,
        clock: Clock,
        hook_reports: HookReports | None = None,
        tools: ToolReports | None = None,
        conversation: ConversationStatus | None = None,
        read_screen: ReadScreen | None = None,
        push_configs: PushService | None = None,
        answers_directly: Callable[[Message], bool] = never,
        usage: Callable[[], AgentUsage | None] = lambda: None,
    ) -> None:
        """`tools` is None for an agent without a CLI, `read_screen` for one without a terminal."""
        self._me = me
        self._journal = journal
        self._store = store
        self._feed = feed
        self._intake = intake
        self._worker = worker
        self._replies = replies
        self._deferred = deferred
        self._in_doubt = in_doubt
        self._questions = questions
        self._externals = externals
        self._driver = driver
        self._clock = clock
        self._hook_reports = hook_reports or HookReports(me, None)
        self._tools = tools
        self._conversation = conversation
        self._read_screen = read_screen
        self._push_configs = push_configs
        self._answers_directly = answers_directly
        self._usage = usage
        self._changes = TaskChanges(journal, worker, questions, replies, clock)
        self._finished = FinishedTasks(journal, store, me.inbox, clock)
        self._status_watch = StatusWatch(driver, journal)
        self._waiter = TaskWaiter(intake, journal, feed, answers_directly)

    def handle(self, request: Request[R], caller: Caller) -> Awaitable[R]:
        """Calls the method for `request`. Raises a SynapseError, at once or when the result is awaited."""
        method = method_for(self, request)
        if method is None:
            raise unsupported("this agent", request)
        return method(request, caller)

    def send(self, request: SendMessage, caller: Caller) -> Awaitable[Task]:
        """Raises what `Intake.send` raises."""
        return self._intake.send(request, caller)

    def send_and_wait(self, request: SendAndWait, caller: Caller) -> Awaitable[PendingTask]:
        """Raises what `Intake.send` raises."""
        return self._waiter.wait(request, caller)

    def send_and_follow(self, request: SendAndFollow, caller: Caller) -> Awaitable[TaskStream]:
        """Raises what `Intake.send` raises."""
        return self._waiter.follow(request, caller)

    def create(self, request: CreateTask, caller: Caller) -> Awaitable[Task]:
        """Raises QuotaExceeded."""
        return self._intake.create(request, caller)

    def ask_person(self, request: AskPerson, caller: Caller) -> Awaitable[Task]:
        """Raises what `Intake.ask_person` raises."""
        return self._intake.ask_person(request, caller)

    async def leave(self, request: LeaveTask, caller: Caller) -> Task:
        self._require_own(caller, "may stop waiting for its replies")
        task = await self._find(request.task_id, caller)
        if task.queued:
            raise Conflict(
                f"task {task.short_id} waits for no reply", hint=f"`synapse cancel {task.short_id}` takes it back"
            )

        def decide(now: Task) -> tuple[TaskEvent, ...]:
            # Of a task that has ended the caller takes the answer with it, so it is recorded too.
            is_over = now.waiter_released or (now.state.is_terminal and now.waiter_left)
            return () if is_over else (waiter_released(now, self._clock.now()),)

        return await self._journal.record_if(task.id, decide)

    async def get(self, request: GetTask, caller: Caller) -> Task:
        return await self._find(request.task_id, caller, exact=request.exact)

    async def get_message(self, request: GetMessage, caller: Caller) -> Task:
        found = await find_message(request, caller, self._store, self._me.inbox)
        return await self._find(found, caller, exact=True)

    async def list(self, request: ListTasks, caller: Caller) -> TaskPage:
        return await self._store.list(query_of(request, caller, self._me.inbox))

    async def cancel(self, request: CancelTask, caller: Caller) -> Task:
        task = await self._find(request.task_id, caller, exact=request.exact)
        if caller.agent_id == self._me.agent_id:
            self._deferred.wait_withdrawn(task)
        return await self._changes.cancel(task)

    async def void(self, request: VoidMessage, caller: Caller) -> Task:
        """Raises what `Intake.withdraw` raises."""
        return await self._changes.void(await self._intake.withdraw(request, caller), request)

    async def change(self, request: ChangeTask, caller: Caller) -> Task:
        return await self._changes.change(request, await self._find(request.task_id, caller))

    async def delete(self, request: DeleteTask, caller: Caller) -> Task:
        return await self._changes.delete(await self._find(request.task_id, caller))

    async def resolve(self, request: ResolveTask, caller: Caller) -> Task:
        return await self._in_doubt.resolve(request, await self._find(request.task_id, caller), caller)

    async def answer(self, request: AnswerQuestion, caller: Caller) -> Task | None:
        # What an agent asks its user, the user may answer, also in the task of an API key: it is on the agent's screen.
        sees_it = replace(caller, sees_all=True) if caller.may_decide else caller
        if request.task_id:
            # A caller of a gateway may have read the question in the store before this process learns it is durable.
            task: Task | None = await self._journal.load_latest((await self._find(request.task_id, sees_it)).id)
        else:
            task = await self._questions.asking(self._driver.view().question)
            if task is not None and not sees_it.sees(task.scope):
                raise NothingAsked
        await self._intake.require_may_answer(caller)
        if task is not None and task.asks_person:
            answered: Task | None = await self._intake.answer_person(request, task, caller)
        else:
            answered = await self._questions.answer(request, task, caller)
        return answered if answered is None or caller.sees(answered.scope) else None

    async def set_push(self, request: SetPushConfig, caller: Caller) -> PushConfig:
        return await self._pushes().set(await self._find(request.task_id, caller, exact=True), request.config)

    async def get_push(self, request: GetPushConfig, caller: Caller) -> PushConfig:
        return await self._pushes().get(await self._find(request.task_id, caller, exact=True), request.config_id)

    async def list_push(self, request: ListPushConfigs, caller: Caller) -> tuple[PushConfig, ...]:
        return await self._pushes().list(await self._find(request.task_id, caller, exact=True))

    async def delete_push(self, request: DeletePushConfig, caller: Caller) -> None:
        await self._pushes().delete(await self._find(request.task_id, caller, exact=True), request.config_id)

    async def subscribe(self, request: SubscribeTask, caller: Caller) -> TaskStream:
        return self._stream(await self._find(request.task_id, caller), request.after, caller)

    async def follow(self, request: FollowTask, caller: Caller) -> TaskStream:
        task = await self._find(request.task_id, caller, exact=True)
        require_updates(task, request.after)
        return self._stream(task, request.after, caller)

    async def status(self, request: GetStatus, _caller: Caller) -> HostStatus:
        # One view for question and task: a question that opens or closes meanwhile must not be shown without its task.
        view, current = self._driver.view(), self._worker.current
        asking = await _none_if_store_fails(self._questions.asking(view.question))
        queue = [await _none_if_store_fails(self._journal.load(task_id)) for task_id in self._worker.waiting]
        open_tasks = self._journal.open_tasks()
        return HostStatus(
            entry=self._me,
            view=view,
            usage=self._usage(),
            current=await _none_if_store_fails(self._journal.load(current)) if current else None,
            asking=asking,
            queue=tuple(task for task in queue if task is not None),
            held=self._worker.held(),
            attention=tuple(task for task in open_tasks if task.attention),
            questions=tuple(task for task in open_tasks if is_open_question(task)),
            store_fault=self._store.fault(),
            tools=NO_TOOLS if self._tools is None else self._tools.status(),
            conversation=self._conversation,
            owes=tuple(self._deferred.deferred()),
            finished=await self._finished.newest(request.finished) if request.finished else None,
        )

    async def watch_status(self, request: WatchStatus, caller: Caller) -> AsyncGenerator[HostStatus, None]:
        """Returns a stream of what `status` returns, until the reader leaves."""
        return self._status_watch.statuses(partial(self.status, GetStatus(request.finished), caller))

    async def screen(self, request: GetScreen, caller: Caller) -> StyledScreen | None:
        """Returns what the agent's terminal shows, or None if the caller knows that version.

        Raises:
            UnsupportedOperation: the agent has no terminal.
            Forbidden: the caller is neither a person's process nor the agent itself.
        """
        # A screen may show secrets, and another agent's process may also come over the port, which proves nothing.
        if not (caller.is_person or caller.agent_id == self._me.agent_id):
            raise Forbidden(
                "only a person, or the agent itself, may read what its terminal shows", hint=caller.objection
            )
        if self._read_screen is None:
            raise UnsupportedOperation("this agent has no terminal", hint="`synapse status` shows what the agent does")
        return await self._read_screen(request.lines, request.known)

    def status_changed(self) -> None:
        """Makes the streams of `watch_status` look again, after a change that neither driver nor journal tells."""
        self._status_watch.look_again()

    async def follow_status(self, _request: FollowStatus, _caller: Caller) -> AsyncGenerator[AgentStatus, None]:
        """Returns a stream of the agent's status, then each change of its state."""
        return follow_status(self._driver)

    async def reply(self, request: Reply, caller: Caller) -> Replied:
        self._require_own(caller, "may reply for it")
        return await self._replies.reply(request, self._deferred.request_of(self._worker.current))

    def report_signal(self, request: ReportSignal, caller: Caller) -> Awaitable[Pending[Json | None]]:
        """Raises what `HookReports.take` raises."""
        return self._hook_reports.take(request, caller)

    async def report_tools(self, request: ReportTools, caller: Caller) -> None:
        """Raises AccessDenied for any other caller than this agent, UnsupportedOperation if it has no CLI."""
        if self._tools is None:
            raise UnsupportedOperation("this agent has no CLI that could be given tools")
        if caller.agent_id != self._me.agent_id:
            raise AccessDenied("only the agent's own MCP server may report here", hint=caller.objection)
        self._tools.report(request, caller.pid)

    async def on_behalf_of(self, request: OnBehalfOf, caller: Caller) -> CommandResult:
        """Handles a request that a gateway sends for its caller; the caller does not gain a person's rights.

        Raises PersonRequired when the gateway is not run by this user, or what `handle` raises.
        """
        # Not `may_decide`: a gateway in the background has no terminal. Rights that a key lacks are refused by the key.
        if not caller.is_person:
            raise PersonRequired("only the user's own gateway may send requests for others", hint=caller.objection)
        command = request.request
        if not isinstance(command, HostCommand):
            raise UnsupportedOperation(f"a gateway cannot send {type(command).__name__} to an agent")
        result = await self.handle(command, request.caller)
        if isinstance(result, Task):
            direct = isinstance(command, SendMessage) and self._answers_directly(command.message)
            return CommandResult(task_id=result.id, version=result.version, state=result.state.value, direct=direct)
        return CommandResult(result=result)

    async def add_external(self, request: AddExternal, caller: Caller) -> ExternalAgent:
        _refuse_agents(caller)
        return await self._externals.add(request)

    async def list_externals(self, _request: ListExternals, _caller: Caller) -> tuple[ExternalAgent, ...]:
        return await self._externals.list()

    async def remove_external(self, request: RemoveExternal, caller: Caller) -> ExternalAgent:
        _refuse_agents(caller)
        return await self._externals.remove(request)

    async def send_external(self, request: SendExternal, _caller: Caller) -> ExternalAnswer:
        return await self._externals.send(request)

    async def _find(self, wanted: str, caller: Caller, *, exact: bool = False) -> Task:
        """Returns the task that the caller means. Raises TaskNotFound or AmbiguousTask."""
        return require_visible(await self._journal.find(wanted, self._me.inbox, exact=exact), caller, wanted)

    def _require_own(self, caller: Caller, what: str) -> None:
        # A process that outlived the agent's shell may act for it, though its ancestors no longer prove it.
        if not caller.is_person and self._me.agent_id not in (caller.agent_id, caller.named_agent):
            raise PersonRequired(f"only {self._me.agent_id} itself or a person {what}", hint=caller.objection)

    def _pushes(self) -> PushService:
        if self._push_configs is None:
            raise PushNotSupported
        return self._push_configs

    def _stream(self, task: Task, after: int | None, caller: Caller) -> TaskStream:
        # A person who watches what the agent waits for does not wait in its place.
        is_agents = task.sender_verified and task.sender.sender_id == self._me.agent_id
        waits = not (caller.is_person and is_agents)
        updates = self._feed.follow(task.id, after, waits=waits)
        return self._stream_to_waiter(task, updates) if waits and not task.queued else updates

    async def _stream_to_waiter(
        self, task: Task, updates: AsyncGenerator[Update, None]
    ) -> AsyncGenerator[Update, None]:
        """Follows a task that waits for a reply; records when its last reader leaves, so that it no longer counts."""
        is_read = False
        try:
            async with aclosing(updates):
                await self._intake.late_answers.note_waiter(task, lambda: False)
                async for update in updates:
                    yield update
                    is_read = update.task.state.is_terminal
        finally:
            if not self._feed.is_followed(task.id):
                await self._intake.late_answers.waiter_left(task, has_read=is_read)


async def _none_if_store_fails(reading: Awaitable[Task | None]) -> Task | None:
    """Returns the task, or None when the store fails: a status is useful without it."""
    try:
        return await reading
    except StoreFailed:
        return None


def _refuse_agents(caller: Caller) -> None:
    """Raises PersonRequired for an agent: it must not choose the addresses that this host connects to."""
    if caller.via_socket and not caller.may_decide:
        raise PersonRequired(
            "only a person may add and remove external agents",
            hint="run `synapse external add URL` or `synapse external remove ALIAS` in a shell of your own",
        )


class TaskWaiter:
    """Sends a message and waits until its task settles: it has ended, or waits for input.

        sent ─► submitted ─► working ─► settled      (a question, an authorization, or an end)

    A message may interrupt a turn after it is recorded, and its task may end before the wait starts, so each wait
    starts with the task's current state. `answers_directly` says whether the agent will answer a message with a plain
    message.
    """

    def __init__(
        self, intake: Intake, journal: Journal, feed: Feed, answers_directly: Callable[[Message], bool]
    ) -> None:
        self._intake = intake
        self._journal = journal
        self._feed = feed
        self._answers_directly = answers_directly
        self._waiting: dict[TaskId, set[asyncio.Future[Task]]] = {}
        journal.listen(self._on_update, self._waiting.__contains__)

    async def wait(self, request: SendAndWait, caller: Caller) -> PendingTask:
        """Sends a message; returns its task, which can be awaited unless it has settled.

        Raises what `Intake.send` raises.
        """
        task = await self._intake.send(request.send, caller, waits_for_end=True)
        return PendingTask(task) if is_settled(task.state) else PendingTask(task, self._settled(task))

    async def follow(self, request: SendAndFollow, caller: Caller) -> TaskStream:
        """Sends a message; returns a stream of its task as it is now, then each update until it has settled.

        For an agent that answers with a plain message, which shows no task, the stream has only the settled task.

        Raises what `Intake.send` raises.
        """
        task = await self._intake.send(request.send, caller)
        if self._answers_directly(request.send.message):
            return self._only_end(self._settled(task))
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

    def _on_update(self, update: Update) -> None:
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

    async def _only_end(self, settled: asyncio.Future[Task]) -> AsyncGenerator[Update, None]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEndpoint:
    """Where hook reports go, and the secret that the launch gave to the hooks."""

    secret: str
    receive: Callable[[Json], asyncio.Future[Json] | None]
    """Accepts a report; returns the answer to come for a hook that waits for one, else None."""


class HookReports:
    """Accepts the reports of hooks of the agent's own CLI. Without an endpoint the CLI has no hooks."""

    def __init__(self, me: AgentEntry, endpoint: HookEndpoint | None) -> None:
        self._me = me
        self._endpoint = endpoint

    async def take(self, request: ReportSignal, caller: Caller) -> Pending[Json | None]:
        """Passes on a report; returns the answer for its hook, which may still be pending.

        Raises:
            UnsupportedOperation: the CLI has no hooks.
            AccessDenied: the report is not from the agent's own CLI.
        """
        if self._endpoint is None:
            raise UnsupportedOperation("this agent's CLI has no hooks")
        # On the Unix socket the kernel proves the agent; a connection on the port proves only the user.
        is_own = caller.agent_id == self._me.agent_id or hmac.compare_digest(
            request.secret.encode(), self._endpoint.secret.encode()
        )
        if not is_own:
            raise AccessDenied("only the agent's own CLI may report here")
        return Pending(None, self._endpoint.receive(request.payload))
