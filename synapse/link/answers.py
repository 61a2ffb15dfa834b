"""Answers what the links of other machines ask about the agents and tasks of this one.

    ask.ME.FROM, command.ME.FROM ─► rights of FROM ─► registry, store, the agent's host ─► answer

The subject proves FROM. Every machine may look up agents and their states, and read and cancel tasks that its own
messages opened. `fleet allow` gives more: `read` all tasks and whole statuses, `approve` what agents ask, `attach` to
terminals and see screens. Only people approve and attach: FROM's link says who asks, and FROM vouches for it. Commands
and requests for logs come on a subject on which only gateways may publish. A gateway has all tasks in its replica; of a
machine that ships no log it may read, for one of its callers, what that caller or another one of it has sent.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec

from synapse.client.attention import needs_of
from synapse.core.address import PERSON
from synapse.core.agent import OPEN_FIELDS, AgentEntry
from synapse.core.caller import (
    ANONYMOUS_SCOPE,
    APPROVE,
    ATTACH,
    GATEWAY_MACHINE,
    GATEWAY_SCOPE,
    LOCAL_SCOPE,
    MACHINE_SCOPE,
    ORDINARY,
    READ,
    Caller,
)
from synapse.core.errors import (
    AgentNotFound,
    AgentNotResponding,
    Forbidden,
    InternalFailure,
    InvalidRequest,
    OutcomeUnknown,
    PersonRequired,
    RateLimited,
    StoreFailed,
    SynapseError,
    TaskNotCancelable,
    TaskNotFound,
    UnsupportedOperation,
)
from synapse.core.events import (
    ArtifactAdded,
    MessageAdded,
    MetadataChanged,
    Recorded,
    StateChanged,
    TaskEvent,
    TaskHidden,
    TaskOpened,
    Update,
)
from synapse.core.message import Artifact, Json, Message, TextPart
from synapse.core.registry import CachedRegistry
from synapse.core.requests import (
    AnswerQuestion,
    CancelTask,
    ChangeTask,
    CommandResult,
    DeleteTask,
    GetMessage,
    GetPushConfig,
    GetTask,
    HostCommand,
    ListPushConfigs,
    ListTasks,
    OnBehalfOf,
    ResolveTask,
    SendMessage,
    VoidMessage,
)
from synapse.core.store import TaskPage, TaskStore
from synapse.core.task import Task, TaskId, TaskState
from synapse.dialects.dialect import Call, WireRequest
from synapse.dialects.synapse import commands
from synapse.fleet import asks
from synapse.fleet.bus import Arrival, Bus, BusError
from synapse.fleet.log import PieceRequest, RangeRequest
from synapse.fleet.names import is_command, sender_machine
from synapse.fleet.wire import UnreadableBody
from synapse.link.asking import task_in
from synapse.link.deliveries import AgentFinder, machine_caller
from synapse.store.codec import encode_events, encode_parts, encode_task, to_json
from synapse.tasks.feed import LogReader
from synapse.tasks.journal import Journal

log = logging.getLogger(__name__)

MOST_ASKS: Final = 128
"""How many requests of one machine are answered at a time, without those that wait for something new. As many more are
refused at a time, and others are dropped."""
MOST_LONG_POLLS: Final = 512
"""How many requests of one machine wait for something new at a time: each is for a reader of a task or a status."""
MOST_UNSENT: Final = 32 * 1024 * 1024
"""How many bytes of answers to one machine wait to be sent. Reads above it are refused; what was changed is told."""
_LARGEST_POLL: Final = 4096
_OVERHEAD: Final = 1024
"""How many bytes an answer has beside its task."""
_SHORTER: Final = (64 * 1024, 4 * 1024, 256)
"""How many letters of each text, and about as many of its metadata, are left in a task or an event that is too large,
tried in this order."""
_NEWEST: Final = 8
"""How many messages after the first, and how many artifacts, are left in such a task."""
LEFT_OUT: Final = "shortened: the rest is on the machine of the agent"
HOST_SECONDS: Final = 6.0
"""How long a host may take to say the status of its agent: less than the machine that asks waits."""
PAGE_BYTES: Final = 256 * 1024
"""About how many bytes of tasks or events one answer has at most."""
LARGEST_UPDATE: Final = 512 * 1024
"""How many bytes an update has at most that a reader of all tasks gets. A server carries 1 MB by default."""
_STATUS_FIELDS: Final = (
    *("status", "state", "why", "source", "since", "agent_id", "agent_type", "name", "queue_depth", "started_at"),
)
"""The fields of a status that every machine sees."""
_DECISION_FIELDS: Final = ("question", "questions", "attention", "held")
"""The fields of a status that people see who may approve what the agent asks."""
_EMPTY_FIELDS: Final[dict[str, Any]] = {
    "current_task": None,
    "held": None,
    "question": None,
    "usage": None,
    "conversation": None,
    "attention": [],
    "questions": [],
    "owes": [],
    "sightings": [],
    "store_fault": "",
}


class AskedHosts(Protocol):
    """The part of `core.registry.HostClient` that answers use."""

    async def command(self, agent: AgentEntry, request: HostCommand, caller: Caller) -> CommandResult: ...

    def watch_status(self, agent: AgentEntry, /, *, finished: int) -> AsyncGenerator[dict[str, Any], None]: ...

    async def screen(self, agent: AgentEntry, /, *, lines: int, known: str) -> dict[str, Any] | None: ...


class StoredTasks(Protocol):
    """Reads the tasks of all agents, and changes those of agents that do not run; see `tasks.stopped.StoppedTasks`."""

    def of(self, inbox: str, agent_id: str, /) -> StoredTasks: ...

    async def get(self, request: GetTask, caller: Caller, /) -> Task: ...

    async def get_message(self, request: GetMessage, caller: Caller, /) -> Task: ...

    async def list(self, request: ListTasks, caller: Caller, /) -> TaskPage: ...

    async def cancel(self, request: CancelTask, caller: Caller, /) -> Task: ...

    async def change(self, request: ChangeTask, caller: Caller, /) -> Task: ...

    async def delete(self, request: DeleteTask, caller: Caller, /) -> Task: ...


M = TypeVar("M", Message, Artifact)
AllowedTo = Callable[[str], frozenset[str]]
"""Returns the actions beyond the ordinary ones that a machine is allowed; see `FleetConfig.allowed`."""
AnswerLog = Callable[[RangeRequest | PieceRequest], Awaitable[bytes]]
"""Answers a request about the log of this machine, or of another one that is replicated here."""


class ServeTerminal(Protocol):
    """Serves the terminal of an agent to another machine; see `link.terminals.serve_terminal`."""

    async def __call__(self, agent: AgentEntry, machine: str, ask: asks.OpenTerminal, /) -> None: ...


class Answers:
    """Answers the asks of other machines, each in a job of its own, until `close`."""

    def __init__(  # noqa: PLR0913 - it reaches everything that another machine may ask about
        self,
        *,
        machine: str,
        instance: asks.Greeted,
        finder: AgentFinder,
        registry: CachedRegistry,
        store: TaskStore,
        hosts: AskedHosts,
        tasks: StoredTasks,
        allowed: AllowedTo,
        answer_log: AnswerLog,
        serve_terminal: ServeTerminal,
        ships_log: bool = True,
    ) -> None:
        self._machine = machine
        self._instance = instance
        self._finder = finder
        self._registry = registry
        self._store = store
        self._hosts = hosts
        self._tasks = tasks
        self._allowed = allowed
        self._answer_log = answer_log
        self._serve_terminal = serve_terminal
        self._ships_log = ships_log
        self._busy: Counter[tuple[str, bool]] = Counter()
        """How many requests of each machine are answered now, or refused: long polls, and others."""
        self._unsent: Counter[str] = Counter()
        """How many bytes of answers to each machine wait to be sent."""
        self._jobs: set[asyncio.Task[None]] = set()

    async def hear(self, bus: Bus, subject: str) -> None:
        """Answers the requests on a subject until it is cancelled."""
        try:
            async for arrival in bus.arrivals(subject):
                self._start(self._serve(bus, arrival))
        finally:
            for job in tuple(self._jobs):
                job.cancel()

    def _start(self, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    async def _serve(self, bus: Bus, arrival: Arrival) -> None:
        machine = sender_machine(arrival.subject)
        if not arrival.reply_to:
            return  # nobody waits for an answer, so nothing is done
        waits = _is_long_poll(arrival.body)
        most = MOST_LONG_POLLS if waits else MOST_ASKS
        busy = self._busy[machine, waits]
        if busy >= 2 * most:
            log.info("ask_dropped", extra={"machine": machine})  # it does not take the refusals either
            return
        # Until the answer is sent: a line that is slow or dead keeps it in memory.
        self._busy[machine, waits] += 1
        try:
            if busy >= most:
                answer = _asks_too_much(machine)
            else:
                answer = await self.answer(
                    machine, arrival.body, max_payload=bus.max_payload, is_command=is_command(arrival.subject)
                )
                if self._unsent[machine] + len(answer) > MOST_UNSENT and not _changes(arrival.body):
                    answer = _asks_too_much(machine)
            await self._send(bus, machine, arrival.reply_to, answer)
        finally:
            self._busy[machine, waits] -= 1

    async def _send(self, bus: Bus, machine: str, reply_to: str, answer: bytes) -> None:
        self._unsent[machine] += len(answer)
        try:
            await bus.publish(reply_to, answer)
        except BusError as error:
            log.info("answer_not_sent", extra={"machine": machine, "error": str(error)})
        finally:
            self._unsent[machine] -= len(answer)

    async def answer(self, machine: str, body: bytes, *, max_payload: int, is_command: bool = False) -> bytes:
        """Returns the answer to a request of `machine`, of at most `max_payload` bytes."""
        try:
            ask = asks.decode_ask(body)
            if isinstance(ask, RangeRequest | PieceRequest):
                _require_subject(as_wanted=is_command)
                encoded = await self._answer_log(ask)
            else:
                encoded = _encoded(await self._dispatch(machine, ask, is_command=is_command), max_payload)
            if len(encoded) <= max_payload:
                return encoded
            answer = asks.failed(_too_large(ask, self._machine))
        except UnreadableBody as error:
            answer = asks.unreadable(error)
        except SynapseError as error:
            answer = asks.failed(error)
        except Exception:
            log.exception("ask_failed", extra={"machine": machine})
            answer = asks.failed(InternalFailure())
        return asks.encode_answer(answer)

    async def _dispatch(self, machine: str, ask: asks.Ask | asks.Command, *, is_command: bool) -> asks.AskAnswer:
        _require_subject(as_wanted=isinstance(ask, asks.Command) is is_command)
        method: Callable[[str, Any], Awaitable[asks.AskAnswer]] = getattr(self, f"_{_METHODS[type(ask)]}")
        return await method(machine, ask)

    # Agents

    async def _greet(self, _machine: str, _ask: asks.Greet) -> asks.Greeted:
        return self._instance

    async def _resolve(self, _machine: str, ask: asks.ResolveAgent) -> asks.AgentResolved:
        finder = self._finder
        find, find_stopped = (
            (finder.running_exactly, finder.stopped_exactly) if ask.exact else (finder.running, finder.stopped)
        )
        try:
            return asks.AgentResolved(agent=open_fields(await find(ask.target)))
        except AgentNotFound:
            stopped = await find_stopped(ask.target) if ask.queue else None
            if stopped is None:
                raise
            return asks.AgentResolved(agent=open_fields(stopped), running=False)

    async def _agents(self, _machine: str, _ask: asks.ListRemoteAgents) -> asks.AgentsListed:
        entries = await self._registry.agents()
        rows = await asyncio.gather(*(self.agent_row(entry) for entry in entries))
        return asks.AgentsListed(agents=tuple(rows))

    async def agent_row(self, entry: AgentEntry) -> dict[str, Any]:
        """Returns an agent as other machines list it."""
        try:
            status = _reduced(await self._status_of(entry))
        except SynapseError as error:
            status = {"state": "", "why": str(error), "since": ""}
        return {**open_fields(entry), **{key: status.get(key) for key in ("state", "why", "since", "queue_depth")}}

    async def _status(self, machine: str, ask: asks.ReadStatus) -> asks.StatusRead:
        entry = await self._finder.running(ask.target)
        allowed = self._allowed(machine)
        decides, may_attach = APPROVE in allowed and ask.sender == PERSON, ATTACH in allowed
        try:
            async with (
                asyncio.timeout(min(ask.seconds, asks.LONG_POLL_SECONDS) if ask.known else HOST_SECONDS),
                aclosing(self._hosts.watch_status(entry, finished=ask.finished)) as statuses,
            ):
                async for status in statuses:
                    shown = status if READ in allowed else _reduced(status, decides=decides)
                    version = _version(shown, may_attach=may_attach)
                    if version != ask.known:
                        return asks.StatusRead(status=shown, version=version, may_attach=may_attach)
        except TimeoutError:
            if ask.known:
                return asks.StatusRead(status=None, version=ask.known)
        raise AgentNotResponding(entry.agent_id, entry.port, entry.agent_type)

    async def _status_of(self, entry: AgentEntry) -> dict[str, Any]:
        with suppress(TimeoutError):
            async with (
                asyncio.timeout(HOST_SECONDS),
                aclosing(self._hosts.watch_status(entry, finished=0)) as statuses,
            ):
                async for status in statuses:
                    return status
        raise AgentNotResponding(entry.agent_id, entry.port, entry.agent_type)

    async def _screen(self, machine: str, ask: asks.ReadScreen) -> asks.ScreenRead:
        self._require(machine, ATTACH, ask.sender)
        entry = await self._finder.running(ask.target)
        return asks.ScreenRead(screen=await self._hosts.screen(entry, lines=ask.lines, known=ask.known))

    async def _terminal(self, machine: str, ask: asks.OpenTerminal) -> asks.Opened:
        self._require(machine, ATTACH, ask.sender)
        await self._serve_terminal(await self._finder.running(ask.target), machine, ask)
        return asks.Opened()

    async def _questions(self, machine: str, ask: asks.ReadQuestions) -> asks.QuestionsListed:
        self._require(machine, APPROVE, ask.sender)
        questions: list[dict[str, Any]] = []
        for entry in await self._registry.agents():
            try:
                found = needs_of(entry, await self._status_of(entry))
            except SynapseError:
                continue  # its host does not answer
            questions += found
        return asks.QuestionsListed(questions=tuple(questions))

    # Tasks

    async def _task(self, machine: str, ask: asks.ReadTask) -> asks.TaskRead:
        request = GetTask(ask.task_id, exact=ask.exact)
        try:
            return await self._read(await self._tasks.get(request, self._reader(machine)))
        except TaskNotFound:
            if ask.sender != PERSON or APPROVE not in self._allowed(machine):
                raise
            task = await self._tasks.get(request, replace(self._reader(machine), sees_all=True))
            if not task.question and not task.attention:
                raise
            return await self._read(task)

    async def _message(self, machine: str, ask: asks.ReadMessage) -> asks.TaskRead:
        return await self._read(await self._tasks.get_message(GetMessage(ask.message_id), self._reader(machine)))

    async def _list(self, machine: str, ask: asks.ReadTasks) -> asks.TasksListed:
        tasks = self._tasks
        if ask.target:
            entry = await self._known(ask.target)
            tasks = tasks.of(entry.inbox, entry.agent_id)
        request = ListTasks(
            states=_states(ask.states),
            context_id=ask.context_id,
            parent_id=ask.parent_id,
            updated_after=_moment(ask.updated_after),
            text=ask.text,
            limit=ask.limit,
            cursor=ask.cursor,
        )
        page = await tasks.list(request, self._reader(machine))
        return await self._page(request, page, tasks, machine)

    async def _page(self, request: ListTasks, page: TaskPage, tasks: StoredTasks, machine: str) -> asks.TasksListed:
        """Returns as many tasks of the page as one answer holds."""
        texts = [_task_text(task, LARGEST_UPDATE) for task in page.tasks]
        size = 0
        for fitting, text in enumerate(texts):
            size += _size(text)
            if fitting and size > PAGE_BYTES:
                # The next page begins after the last task that fits.
                page = await tasks.list(replace(request, limit=fitting), self._reader(machine))
                texts = [_task_text(task, LARGEST_UPDATE) for task in page.tasks]
                break
        return asks.TasksListed(
            tasks=tuple(texts), next_cursor=page.next_cursor, total=page.total, is_counted=page.is_counted
        )

    async def _follow(self, machine: str, ask: asks.FollowRemoteTask) -> asks.EventsRead:
        # Fails for a task that the machine may not see.
        task = await self._tasks.get(GetTask(ask.task_id, exact=True), self._reader(machine))
        return await self._events_after(task, ask)

    async def _follow_for_caller(self, machine: str, ask: asks.FollowForCaller) -> asks.EventsRead:
        caller = self._gateway_caller(machine, commands.decode_caller(ask.caller))
        task = await self._store.load(TaskId(ask.task_id))
        if task.hidden or not self._may_read(machine, caller, task):
            raise TaskNotFound(ask.task_id)
        return await self._events_after(task, ask)

    async def _events_after(self, task: Task, ask: asks.FollowRemoteTask | asks.FollowForCaller) -> asks.EventsRead:
        deadline = asyncio.get_running_loop().time() + min(ask.seconds, asks.LONG_POLL_SECONDS)
        while True:
            seen = await self._store.last_seq()
            found = await self._store.read_after(ask.after, task_id=task.id)
            left = deadline - asyncio.get_running_loop().time()
            if found or left <= 0:
                return _events(found)
            await self._store.wait_after(seen, left)

    async def _follow_all(self, machine: str, ask: asks.FollowRemoteTasks) -> asks.UpdatesRead:
        inbox = (await self._known(ask.target)).inbox if ask.target else ""
        end = await self._store.last_seq()
        if not 0 <= ask.after <= end:
            # It begins now, or the store that it knows is gone.
            return asks.UpdatesRead(seq=end)
        deadline = asyncio.get_running_loop().time() + min(ask.seconds, asks.LONG_POLL_SECONDS)
        reader = LogReader(Journal(self._store), self._store)
        reader.cursor = ask.after
        page = _UpdatePage(reader.cursor)
        while True:
            async with aclosing(reader.after(reader.cursor)) as updates:
                async for update in updates:
                    is_wanted = inbox in ("", update.task.inbox) and await self._may_follow(machine, update)
                    if is_wanted and not page.add(update):
                        return page.read(more=True)
                    page.seq = update.cursor
            # All up to `end` has been read, or was pruned.
            page.seq = reader.cursor = max(reader.cursor, end)
            left = deadline - asyncio.get_running_loop().time()
            if not page.is_empty or left <= 0:
                return page.read(more=False)
            end = await self._store.wait_after(reader.cursor, left)

    async def _may_follow(self, machine: str, update: Update) -> bool:
        """Decides whether a machine may see an update: of tasks that it may read, and that were not deleted since."""
        if not self._reader(machine).sees(update.task.scope):
            return False
        if isinstance(update.event, TaskHidden):
            return True
        try:
            return not (await self._store.load(update.task.id)).hidden
        except TaskNotFound:
            return False

    async def _cancel(self, machine: str, ask: asks.CancelRemoteTask) -> asks.TaskRead:
        # Without sees_all: a machine cancels only what it has sent.
        caller = machine_caller(machine, ask.sender)
        task = await self._tasks.get(GetTask(ask.task_id, exact=ask.exact), caller)
        if task.state is TaskState.CANCELED:
            return await self._read(task)
        entry = await self._finder.of_inbox(task.inbox)
        request = CancelTask(task.id, exact=True)
        try:
            if entry is None:
                return await self._read(await self._tasks.cancel(request, caller))
            await self._hosts.command(entry, request, caller)
        except TaskNotCancelable:
            if (await self._store.load(task.id)).state is not TaskState.CANCELED:
                raise
        return await self._read(await self._store.load(task.id))

    async def _answer_question(self, machine: str, ask: asks.AnswerRemoteQuestion) -> asks.TaskRead:
        caller = self._require(machine, APPROVE, ask.sender)
        request = AnswerQuestion(
            task_id=ask.task_id,
            verdict=ask.verdict,
            option=ask.option,
            text=ask.text,
            question_id=ask.question_id,
        )
        return await self._command_about(request, ask.target, caller)

    async def _resolve_task(self, machine: str, ask: asks.ResolveRemoteTask) -> asks.TaskRead:
        caller = self._require(machine, APPROVE, ask.sender)
        request = ResolveTask(task_id=ask.task_id, verdict=ask.verdict, asked_at=_moment(ask.asked_at))
        return await self._command_about(request, "", caller)

    async def _command_about(self, request: AnswerQuestion | ResolveTask, target: str, caller: Caller) -> asks.TaskRead:
        """Sends a decision to the host of the agent that asked."""
        if request.task_id:
            task = await self._tasks.get(GetTask(request.task_id), replace(caller, sees_all=True))
            entry = await self._finder.of_inbox(task.inbox)
            request = replace(request, task_id=task.id)
            if entry is None:
                raise AgentNotFound(task.agent_id, hint="it does not run now; its tasks can still be read")
        else:
            entry = await self._finder.running(target)
        done = await self._hosts.command(entry, request, replace(caller, sees_all=True))
        return await self._read(await self._store.load(TaskId(done.task_id))) if done.task_id else asks.TaskRead()

    async def _command(self, machine: str, ask: asks.RunCommand) -> asks.CommandDone:
        request, caller = _command_in(ask)
        if isinstance(request, VoidMessage):
            raise InvalidRequest("a gateway cancels tasks; only the relay withdraws messages")
        caller = self._gateway_caller(machine, caller)
        if isinstance(request, SendMessage) and not self._ships_log:
            request = replace(request, metadata={**request.metadata, GATEWAY_MACHINE: machine})
        inbox = ask.inbox
        if isinstance(request, CancelTask | ChangeTask | DeleteTask):
            # Its agent may have stopped, and by now another one may have the name or id that the gateway knows.
            inbox = (await self._store.load(TaskId(request.task_id))).inbox
        entry = await self._finder.of_inbox(inbox) if inbox else await self._finder.running_exactly(ask.target)
        if entry is not None:
            result = await self._hosts.command(entry, request, caller)
        else:
            result = await self._command_stopped(request, caller, ask.target or ask.inbox)
        return asks.CommandDone(body=commands.encode_result(result))

    async def _command_stopped(self, request: HostCommand, caller: Caller, target: str) -> CommandResult:
        match request:
            case CancelTask():
                task = await self._tasks.cancel(request, caller)
            case ChangeTask():
                task = await self._tasks.change(request, caller)
            case DeleteTask():
                task = await self._tasks.delete(request, caller)
            case _:
                raise AgentNotFound(target, hint="it does not run now; its tasks can still be read")
        return CommandResult(task_id=task.id, version=task.version)

    # Rights

    def _reader(self, machine: str) -> Caller:
        """Returns the caller for reads of a machine: of its own tasks, or of all."""
        return machine_caller(machine, extra=self._allowed(machine) & {READ})

    def _may_read(self, machine: str, caller: Caller, task: Task) -> bool:
        """Decides whether a gateway's caller may read a task: one that was sent through the gateway, or by its own key.

        The scopes of callers without credentials of their own mean others on each machine.
        """
        if task.scope == MACHINE_SCOPE + machine:
            # Sent by the gateway's machine, which may have kept the message for one of the gateway's callers.
            scope = task.metadata.get(GATEWAY_SCOPE)
            return caller.sees(scope if isinstance(scope, str) and scope else task.scope)
        if READ in self._allowed(machine) or task.metadata.get(GATEWAY_MACHINE) == machine:
            return caller.sees(task.scope)
        return task.scope == caller.scope and caller.scope not in (LOCAL_SCOPE, ANONYMOUS_SCOPE)

    def _require(self, machine: str, action: str, sender: str) -> Caller:
        """Returns the caller for a person on a machine that is allowed `action`. Raises PersonRequired, Forbidden."""
        if sender != PERSON:
            raise PersonRequired(f"only a person on {machine} may do that, and {sender} is none")
        if action not in self._allowed(machine):
            raise Forbidden(
                f"{machine} may not do that on this machine",
                hint=f"`synapse fleet allow {machine} {action}` on the agent's machine allows it",
            )
        return machine_caller(machine, sender, self._allowed(machine))

    def _gateway_caller(self, machine: str, caller: Caller) -> Caller:
        """Returns a gateway's caller, limited to what its machine is allowed here.

        Raises Forbidden for the scope of a machine: that one is proven by the subject of the machine's own messages.
        """
        if caller.scope.startswith(MACHINE_SCOPE):
            raise Forbidden(f"{machine} may not act as a machine on behalf of its callers")
        # Credentials without limits name no action that belongs to people; see Caller.is_granted. Named here, it would
        # count as granted, and at a gateway without authentication every agent has such credentials.
        most = frozenset(ORDINARY) | self._allowed(machine)
        actions = frozenset(ORDINARY) if caller.actions is None else caller.actions & most
        return replace(caller, machine=machine, remote_sender="", actions=actions)

    # Reading

    async def _known(self, target: str) -> AgentEntry:
        """Returns an agent that runs, or that has tasks. Raises AgentNotFound."""
        try:
            return await self._finder.running(target)
        except AgentNotFound:
            stopped = await self._finder.stopped(target)
            if stopped is None:
                raise
            return stopped

    async def _read(self, task: Task) -> asks.TaskRead:
        return asks.TaskRead(task=encode_task(task))


_CHANGES: Final = (
    asks.CancelRemoteTask,
    asks.AnswerRemoteQuestion,
    asks.ResolveRemoteTask,
    asks.OpenTerminal,
)
"""The asks that change something here, besides commands."""

_METHODS: Final[dict[type[asks.Ask | asks.Command], str]] = {
    asks.Greet: "greet",
    asks.ResolveAgent: "resolve",
    asks.ListRemoteAgents: "agents",
    asks.ReadStatus: "status",
    asks.ReadScreen: "screen",
    asks.OpenTerminal: "terminal",
    asks.ReadQuestions: "questions",
    asks.ReadTask: "task",
    asks.ReadMessage: "message",
    asks.ReadTasks: "list",
    asks.FollowRemoteTask: "follow",
    asks.FollowRemoteTasks: "follow_all",
    asks.CancelRemoteTask: "cancel",
    asks.AnswerRemoteQuestion: "answer_question",
    asks.ResolveRemoteTask: "resolve_task",
    asks.RunCommand: "command",
    asks.FollowForCaller: "follow_for_caller",
}
"""The method of `Answers` for each ask, without its underscore."""


def _is_long_poll(body: bytes) -> bool:
    """Decides whether a request waits for something new; such requests are small."""
    if len(body) > _LARGEST_POLL:
        return False
    try:
        ask = asks.decode_ask(body)
    except UnreadableBody:
        return False
    if not isinstance(ask, asks.FollowRemoteTask | asks.FollowRemoteTasks | asks.FollowForCaller | asks.ReadStatus):
        return False
    return ask.seconds > 0


def _command_in(ask: asks.RunCommand) -> tuple[HostCommand, Caller]:
    """Returns a gateway's command, and the caller that it names. Raises InvalidRequest."""
    call = commands.ask(WireRequest("POST", commands.PATH, body=ask.body))
    behalf = cast("Call[Any]", call).request
    if not isinstance(behalf, OnBehalfOf) or not isinstance(behalf.request, HostCommand):
        raise InvalidRequest("the body is not a command")
    return behalf.request, behalf.caller


def _is_change(ask: object) -> bool:
    """Decides whether a request that was answered has changed something here."""
    if isinstance(ask, asks.RunCommand):
        with suppress(SynapseError):
            return not isinstance(_command_in(ask)[0], GetPushConfig | ListPushConfigs)
        return False
    return isinstance(ask, _CHANGES)


def _changes(body: bytes) -> bool:
    """Decides whether a request that was answered has changed something here, by its bytes."""
    with suppress(UnreadableBody):
        return _is_change(asks.decode_ask(body))
    return False


def _asks_too_much(machine: str) -> bytes:
    return asks.encode_answer(asks.failed(RateLimited(f"{machine} asks too much at once", seconds=1)))


def _require_subject(*, as_wanted: bool) -> None:
    if not as_wanted:
        raise InvalidRequest("the request came on the wrong subject", hint="update Synapse on both machines")


def open_fields(entry: AgentEntry) -> dict[str, Any]:
    """Returns the fields of an agent's entry that other machines may see."""
    return {**{name: getattr(entry, name) for name in OPEN_FIELDS}, "has_terminal": entry.terminal != 0}


def _reduced(status: dict[str, Any], *, decides: bool = False) -> dict[str, Any]:
    """Returns what every machine may see of a status; with `decides`, also what the agent asks people."""
    names = (*_STATUS_FIELDS, *(_DECISION_FIELDS if decides else ()))
    return {**_EMPTY_FIELDS, **{name: status[name] for name in names if name in status}}


class _ChangeMade(OutcomeUnknown):
    """A change was made, and its answer cannot be sent. After any other error its caller would make it again."""

    def __init__(self, machine: str) -> None:
        SynapseError.__init__(
            self,
            "it was done, but the answer is larger than the fleet's server carries",
            hint=f"look at the task before you do it again: `synapse tasks --machine {machine}` shows its state",
        )


def _too_large(ask: object, machine: str) -> SynapseError:
    """Returns the error for an answer of `machine`, this one, that is larger than the fleet's server carries."""
    if _is_change(ask):
        return _ChangeMade(machine)
    return InvalidRequest("the answer is larger than the fleet's server carries")


def _encoded(answer: asks.AskAnswer, max_payload: int) -> bytes:
    """Returns the bytes of an answer; a task that makes it too large is shortened."""
    encoded = asks.encode_answer(answer)
    if len(encoded) <= max_payload or not isinstance(answer, asks.TaskRead):
        return encoded
    text = _task_text(task_in(answer), max_payload - _OVERHEAD)
    return asks.encode_answer(asks.TaskRead(task=text, seq=answer.seq))


def _task_text(task: Task, most: int) -> str:
    """Returns a task as the store's codec writes it, shortened if it has more than `most` bytes.

    It may have more even so: of receipts and extensions, for example, nothing is left out.
    """
    text = encode_task(task)
    for letters in _SHORTER:
        if _size(text) <= most:
            break
        text = encode_task(_shortened(task, letters))
    return text


def _event_text(event: TaskEvent, most: int) -> str:
    """Returns an event as the store's codec writes it, shortened if it has more than `most` bytes; see `_task_text`."""
    text = encode_events((event,))
    for letters in _SHORTER:
        if _size(text) <= most:
            break
        text = encode_events((_shortened_event(event, letters),))
    return text


def _size(text: str) -> int:
    """Returns how many bytes a text has in an answer."""
    return len(text.encode())


def _shortened(task: Task, letters: int) -> Task:
    """Returns a task with its first and its newest messages and artifacts, and the beginning of the text of each."""
    messages = (*task.history[:1], *task.history[1:][-_NEWEST:])
    return replace(
        task,
        history=tuple(_shortened_text(one, letters) for one in messages),
        artifacts=tuple(_shortened_text(one, letters) for one in task.artifacts[-_NEWEST:]),
        metadata=_smallest(task.metadata, letters),
        note=_beginning(task.note, letters),
    )


def _shortened_event(event: TaskEvent, letters: int) -> TaskEvent:
    """Returns an event with the beginnings of its texts, and without its largest metadata."""
    match event:
        case TaskOpened():
            message, metadata = _shortened_text(event.message, letters), _smallest(event.metadata, letters)
            return replace(event, message=message, metadata=metadata)
        case MessageAdded():
            return replace(event, message=_shortened_text(event.message, letters))
        case ArtifactAdded():
            return replace(event, artifact=_shortened_text(event.artifact, letters))
        case MetadataChanged():
            return replace(event, metadata=_smallest(event.metadata, letters))
        case StateChanged():
            return replace(event, note=_beginning(event.note, letters))
        case _:
            return event


def _shortened_text(one: M, letters: int) -> M:
    """Returns a message or an artifact with the beginning of its text; its files and data are left out."""
    parts = one.parts
    if len(encode_parts(parts)) > letters + _OVERHEAD:
        parts = (TextPart(text=f"{one.text[:letters]}… ({LEFT_OUT})"),)
    return replace(one, parts=parts, metadata=_smallest(one.metadata, letters))


def _beginning(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[:letters]}… ({LEFT_OUT})"


def _smallest(metadata: Json, letters: int) -> Json:
    """Returns as many entries as fit, the smallest first: Synapse's own are small."""
    room = letters + _OVERHEAD
    if len(to_json(metadata)) <= room:
        return metadata
    sizes = {key: len(to_json({key: value})) for key, value in metadata.items()}
    kept: set[str] = set()
    for key in sorted(sizes, key=sizes.__getitem__):
        room -= sizes[key]
        if room < 0:
            break
        kept.add(key)
    return {key: value for key, value in metadata.items() if key in kept}


def _version(status: dict[str, Any], *, may_attach: bool) -> str:
    return hashlib.blake2b(msgspec.json.encode((status, may_attach), order="sorted"), digest_size=8).hexdigest()


def _events(found: Any) -> asks.EventsRead:
    """Returns as many events as one answer holds, at least one; of one that is too large, its beginning."""
    events: list[asks.EventText] = []
    size = 0
    for recorded in cast("list[Recorded]", list(found)):
        text = _event_text(recorded.event, LARGEST_UPDATE)
        size += _size(text)
        if events and size > PAGE_BYTES:
            return asks.EventsRead(events=tuple(events), more=True)
        events.append(asks.EventText(recorded.seq, text))
    return asks.EventsRead(events=tuple(events))


class _UpdatePage:
    """Gathers the updates of one answer."""

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self._updates: list[asks.UpdateText] = []
        self._told: set[str] = set()
        """The tasks of which the answer has a snapshot."""
        self._size = 0
        self._left_out = 0

    @property
    def is_empty(self) -> bool:
        return not self._updates and not self._left_out

    def add(self, update: Update) -> bool:
        """Adds an update; returns False if the answer is full, and has at least one."""
        if update.event is None:
            return True
        task_id = update.task.id
        text = encode_events((update.event,))
        task = "" if task_id in self._told else encode_task(update.task)
        size = _size(text) + _size(task)
        if size > LARGEST_UPDATE:
            self._left_out += 1
            # What follows cannot be told without it.
            self._told.discard(task_id)
            return True
        if self._updates and self._size + size > PAGE_BYTES:
            return False
        self._size += size
        self._told.add(task_id)
        self._updates.append(asks.UpdateText(update.seq, task_id, text, task))
        return True

    def read(self, *, more: bool) -> asks.UpdatesRead:
        return asks.UpdatesRead(seq=self.seq, updates=tuple(self._updates), more=more, left_out=self._left_out)


def _states(names: Iterable[str]) -> frozenset[TaskState]:
    try:
        return frozenset(map(TaskState, names))
    except ValueError as error:
        raise InvalidRequest(f"{error}", hint="update Synapse on both machines to the same version") from error


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError as error:
        raise InvalidRequest(f"'{text}' is no time") from error


def no_log(_request: RangeRequest | PieceRequest) -> Awaitable[bytes]:
    """Answers for a machine that keeps its log at home."""
    raise UnsupportedOperation("this machine does not ship its log", hint="`ship_log` in its fleet.json is off")


def no_terminal(_agent: AgentEntry, _machine: str, _ask: asks.OpenTerminal) -> Awaitable[None]:
    raise StoreFailed("this version has no terminals over machines")
