"""The tasks of one agent on another machine, as a TaskService: what its proxy socket serves.

    send                 outbox (durable) ─► relayed at once ─► accepted: the task as the other machine has it
                                                            ─► no answer, or away and to be kept: a task in the outbox
    get, list, cancel    asked of the other machine; a message that it has not accepted yet is read from the outbox
    follow, wait         asked again and again, by the seq that the reader has; see `asking.FleetClient.events`
    on_behalf_of         a gateway's command, passed on with its caller

A task whose message is still in the outbox is `submitted`, and its metadata has `outbox`: the state of the message
there. Its id is final: the other machine opens the task under it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from synapse.core.address import KEY, UNVERIFIED
from synapse.core.agent import AgentEntry
from synapse.core.caller import GATEWAY_SCOPE, Caller
from synapse.core.errors import (
    Forbidden,
    InvalidRequest,
    LinkDown,
    MachineAway,
    MessageIdReused,
    PersonRequired,
    PushNotSupported,
    RateLimited,
    SynapseError,
    TaskNotCancelable,
    UnsupportedOperation,
)
from synapse.core.events import StateChanged, Update
from synapse.core.message import Artifact, Message, MessageId, Sender
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
    HostCommand,
    HostStatus,
    LeaveTask,
    ListPushConfigs,
    ListTasks,
    OnBehalfOf,
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
)
from synapse.core.service import method_for
from synapse.core.store import TaskPage
from synapse.core.task import Receipt, ReceiptStep, ReplyTo, Task, TaskId, TaskState, new_task
from synapse.core.task_metadata import opening_metadata, reply_fields
from synapse.core.types import Clock
from synapse.core.waiting import pause
from synapse.dialects.synapse import commands
from synapse.fleet import asks
from synapse.fleet.outgoing import may_be_same_agent
from synapse.fleet.relay_io import DEFAULT_EXPIRY, LONGEST_EXPIRY, OutboxRow, OutboxState
from synapse.fleet.wire import UnreadableBody
from synapse.link.asking import FleetClient, asker, events_in, is_loss, task_in, task_of_text
from synapse.link.database import LinkDatabase
from synapse.link.deliveries import answer_of, refusal_of
from synapse.link.presence import Machines
from synapse.link.shell import RelayShell
from synapse.tasks.admission import remote_name, sender_of
from synapse.tasks.journal import rebuild
from synapse.tasks.rules import is_settled, require_updates, unsupported

QUEUE: Final = "queue"
"""In the metadata of a message: keep it while the machine is away, or the agent does not run."""
OUTBOX: Final = "outbox"
"""In the metadata of a task: the state of its message in the outbox of this machine."""
LARGEST_KEPT: Final = 512 * 1024
"""How many bytes a message has at most that is kept for a machine which is away."""
_OVERHEAD: Final = 16 * 1024
RETRY_SECONDS: Final = 1.0
"""How long a stream waits before it asks a machine again that could not be asked."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What the services of remote agents share."""

    machine: str
    """This machine."""
    client: FleetClient
    machines: Machines
    shell: RelayShell
    database: LinkDatabase
    entries: Callable[[], Iterable[AgentEntry]]
    """The agents of this machine."""
    waiting_behind: Callable[[str], Awaitable[tuple[str, ...]]]
    """Returns the inboxes that wait for the agent of an inbox here; see `tasks.waits.waiting_behind`."""
    max_payload: Callable[[], int]
    clock: Clock
    new_task_id: Callable[[], str]
    new_context_id: Callable[[], str]
    new_message_id: Callable[[], str]


class _Sending(NamedTuple):
    """A message on its way: all that its task has before the other machine tells more."""

    task_id: str
    request: SendMessage
    body: asks.SendBody
    queue: bool


class RemoteAgentTasks:
    """TaskService and Handler for one agent on another machine. `target` is how that machine finds the agent."""

    def __init__(self, fleet: Fleet, machine: str, target: str, entry: AgentEntry) -> None:
        self._fleet = fleet
        self._machine = machine
        self._target = target
        self._entry = entry

    def handle(self, request: Request[R], caller: Caller) -> Awaitable[R]:
        """Calls the method for the request. Raises UnsupportedOperation if there is none."""
        method = method_for(self, request)
        if method is None:
            raise self._unsupported(request)
        return method(request, caller)

    # Sending

    async def send(self, request: SendMessage, caller: Caller) -> Task:
        """Returns the task once the message is accepted, or kept in the outbox.

        Raises:
            LinkDown, MachineAway: this machine or that one has no connection, and the message is not to be kept.
            InvalidRequest: it is too large for the fleet's server, or for a machine that is away.
            MessageIdReused: the outbox has another message under its id.
            QueueFull: the outbox has no room for it, or the other machine's agent has none.
            StoreFailed: the outbox cannot be written.
            SynapseError: the error with which the other machine refuses it.
        """
        sender, verified = sender_of(request.sender, caller, self._fleet.entries())
        metadata = {key: value for key, value in request.metadata.items() if key not in (QUEUE, GATEWAY_SCOPE)}
        queue = request.metadata.get(QUEUE) is True
        sending = await self._prepared(replace(request, metadata=metadata), sender, verified=verified, queue=queue)
        row = await self._submit(sending)
        if row.state is OutboxState.REFUSED:
            raise await self._refusal(row)
        if sending.request.task_id and row.state is OutboxState.ACCEPTED:
            # It continued a task, whose messages this machine does not have.
            return await self._ask_task(row.task_id)
        return self._task_of(row)

    async def send_and_wait(self, request: SendAndWait, caller: Caller) -> PendingTask:
        task = await self.send(request.send, caller)
        if is_settled(task.state):
            return PendingTask(task)
        return PendingTask(task, asyncio.ensure_future(self._settled(task.id)))

    async def send_and_follow(self, request: SendAndFollow, caller: Caller) -> TaskStream:
        task = await self.send(request.send, caller)
        return self._until_settled(task)

    async def _prepared(self, request: SendMessage, sender: Sender, *, verified: bool, queue: bool) -> _Sending:
        """Returns the message as it goes into the outbox."""
        fleet = self._fleet
        message = request.message
        if not message.message_id:
            message = replace(message, message_id=MessageId(fleet.new_message_id()))
        if request.push is not None:
            raise PushNotSupported("an agent on another machine takes no webhooks from here")
        continues, context = request.task_id, request.context_id
        if continues and not request.exact:
            task = await self._ask_task(continues)
            continues, context = task.id, context or task.context_id
        request = replace(
            request,
            message=message,
            task_id=continues,
            exact=True,
            sender=sender,
            # A message that continues a task is refused with another context than the task's.
            context_id=context if continues else context or fleet.new_context_id(),
        )
        body = _send_body(request, sender, fleet.clock.now(), verified=verified)
        if request.response_expected and sender.inbox:
            # The other machine refuses a message that would make its agent wait for itself.
            body = msgspec.structs.replace(body, waiting=await fleet.waiting_behind(sender.inbox))
        return _Sending(task_id=continues or fleet.new_task_id(), request=request, body=body, queue=queue)

    async def _submit(self, sending: _Sending) -> OutboxRow:
        """Puts a message into the outbox, and returns what became of it so far. Raises MessageIdReused."""
        body = asks.encode_send_body(sending.body)
        self._check_size(len(body), queue=sending.queue)
        if not sending.queue:
            self._fleet.client.require_connected()
        row = await self._fleet.shell.submit(
            self._machine,
            sending.request.message.message_id,
            target=self._target,
            task_id=sending.task_id,
            body=body,
            queue=sending.queue,
            expires_in=sending.body.ttl or DEFAULT_EXPIRY,
        )
        self._require_same(row, sending.request.message, sending.request.metadata.get(GATEWAY_SCOPE))
        return row

    def _require_same(self, row: OutboxRow, message: Message, gateway_scope: object) -> None:
        """Raises MessageIdReused unless the row of the message's id is of this message.

        The outbox has one message under an id, whatever its receiver; a host has one for each inbox and scope.
        """
        if row.to == self._machine and may_be_same_agent(row.target, self._target):
            try:
                body = asks.decode_send_body(row.body)
            except UnreadableBody:
                return  # of a newer version: nobody can compare it
            given = asks.SendBody(parts=asks.part_bodies(message.parts), role=message.role.value)
            given = asks.decode_send_body(asks.encode_send_body(given))  # as the row's body was
            # A finished message may have lost its text; see `database.KEPT_BYTES`.
            is_same = (body.parts or given.parts, body.role) == (given.parts, given.role)
            if is_same and body.metadata.get(GATEWAY_SCOPE) == gateway_scope:
                return
        raise MessageIdReused(
            f"message id '{row.message_id}' was used before for another message to an agent on another machine",
            hint="give every message an id of its own, also copies for several agents",
        )

    def _check_size(self, size: int, *, queue: bool) -> None:
        most = self._fleet.max_payload() - _OVERHEAD
        if queue:
            most = min(most, LARGEST_KEPT)
        if size > most:
            kept = " that is kept for a machine which may be away" if queue else ""
            raise InvalidRequest(
                f"the message has {size // 1024} kB; one{kept} may have {most // 1024} kB",
                hint="send a link to the file instead, or copy the file to that machine",
            )

    async def _refusal(self, row: OutboxRow) -> SynapseError:
        error = refusal_of(row)
        if isinstance(error, MachineAway):
            return await self._fleet.machines.away(self._machine)
        return error

    # Reading

    async def get(self, request: GetTask, caller: Caller) -> Task:
        """Raises TaskNotFound, AmbiguousTask, or what an ask raises."""
        row = await self._row(request.task_id)
        if row is not None and not is_there(row):
            return self._task_of(row)
        try:
            wanted = row.task_id if row is not None else request.task_id
            return await self._ask_task(wanted, exact=request.exact, sender=asker(caller))
        except SynapseError as error:
            if row is None or not is_loss(error):
                raise
            return self._task_of(row, note=str(error))

    async def get_message(self, request: GetMessage, _caller: Caller) -> Task:
        row = await self._row(request.message_id)
        if row is not None and not is_there(row):
            return self._task_of(row)
        ask = asks.ReadMessage(message_id=request.message_id)
        return self._shown(task_in(await self._fleet.client.ask(self._machine, ask, asks.TaskRead)))

    async def list(self, request: ListTasks, _caller: Caller) -> TaskPage:
        ask = asks.ReadTasks(
            target=self._target,
            states=tuple(sorted(state.value for state in request.states)),
            context_id=request.context_id,
            parent_id=request.parent_id,
            updated_after=request.updated_after.isoformat() if request.updated_after is not None else "",
            text=request.text,
            limit=request.limit,
            cursor=request.cursor,
        )
        page = await self._fleet.client.ask(self._machine, ask, asks.TasksListed)
        tasks = tuple(self._shown(task_of_text(text)) for text in page.tasks)
        return TaskPage(tasks, page.next_cursor, page.total, is_counted=page.is_counted)

    async def follow(self, request: FollowTask, caller: Caller) -> TaskStream:
        task = await self.get(GetTask(request.task_id, exact=True), caller)
        require_updates(task, request.after)
        return self._followed(task, request.after)

    async def subscribe(self, request: SubscribeTask, caller: Caller) -> TaskStream:
        task = await self.get(GetTask(request.task_id), caller)
        return self._followed(task, request.after)

    async def cancel(self, request: CancelTask, caller: Caller) -> Task:
        """Cancels a task, or a message that is still in the outbox.

        Raises TaskNotFound, TaskNotCancelable, Forbidden for a message that another agent has sent, or what an ask
        raises.
        """
        row = await self._row(request.task_id)
        if row is not None and row.state is OutboxState.OPEN:
            require_own(row, caller)
            row = await self._fleet.shell.recall(row.message_id) or await self._row(request.task_id)
        if row is not None and row.state is not OutboxState.ACCEPTED:
            task = self._task_of(row)
            if task.state.is_terminal and task.state is not TaskState.CANCELED:
                raise TaskNotCancelable(f"task {task.short_id} is {task.state.value}")
            return task
        sender = self._sender_name(caller)
        task_id = row.task_id if row is not None else request.task_id
        ask = asks.CancelRemoteTask(task_id=task_id, exact=row is not None or request.exact, sender=sender)
        return self._shown(task_in(await self._fleet.client.ask(self._machine, ask, asks.TaskRead)))

    async def answer(self, request: AnswerQuestion, caller: Caller) -> Task | None:
        ask = asks.AnswerRemoteQuestion(
            target=self._target,
            task_id=request.task_id,
            verdict=request.verdict,
            option=request.option,
            text=request.text,
            question_id=request.question_id,
            sender=self._person(caller),
        )
        read = await self._fleet.client.ask(self._machine, ask, asks.TaskRead)
        return self._shown(task_in(read)) if read.task else None

    async def resolve(self, request: ResolveTask, caller: Caller) -> Task:
        asked_at = request.asked_at.isoformat() if request.asked_at is not None else ""
        ask = asks.ResolveRemoteTask(
            task_id=request.task_id, verdict=request.verdict, asked_at=asked_at, sender=self._person(caller)
        )
        return self._shown(task_in(await self._fleet.client.ask(self._machine, ask, asks.TaskRead)))

    async def on_behalf_of(self, request: OnBehalfOf, caller: Caller) -> CommandResult:
        """Passes a gateway's command on.

        Raises PersonRequired when the gateway is not run by this user, MessageIdReused, or what an ask raises.
        """
        if not caller.is_person:
            raise PersonRequired("only the user's own gateway may send requests for others", hint=caller.objection)
        command = request.request
        if not isinstance(command, HostCommand):
            raise UnsupportedOperation(f"a gateway cannot send {type(command).__name__} to an agent")
        if not isinstance(command, SendMessage):
            return await self._command(command, request.caller)
        queue = command.metadata.get(QUEUE) is True
        command = replace(command, metadata={key: value for key, value in command.metadata.items() if key != QUEUE})
        known = await self._fleet.database.find_message(command.message.message_id)
        if known is not None and known.state is not OutboxState.REFUSED:
            # It was kept before. A command with its id would open a second task.
            self._require_same(known, command.message, request.caller.scope)
            return CommandResult(task_id=known.task_id, state=self._task_of(known).state.value)
        try:
            return await self._command(command, request.caller)
        except (MachineAway, LinkDown):
            if not queue:
                raise
        return await self._keep(command, request.caller)

    async def _command(self, command: HostCommand, caller: Caller) -> CommandResult:
        body = commands.encode_command(command, caller)
        self._check_size(len(body), queue=False)
        ask = asks.RunCommand(body=body, target=self._target)
        done = await self._fleet.client.command(self._machine, ask, asks.CommandDone)
        try:
            return commands.decode_result(done.body)
        except ValueError as error:
            raise SynapseError("the other machine sent an answer that cannot be understood") from error

    async def _keep(self, command: SendMessage, caller: Caller) -> CommandResult:
        """Keeps the message of a gateway's caller in the outbox, as one of this machine that names the caller."""
        if command.push is not None:
            raise PushNotSupported(
                "a message that is kept takes no webhook; set one when its machine is back",
                hint="send the message again without the webhook",
            )
        sender = Sender(sender_id=remote_name(KEY + (caller.name or caller.scope)))
        metadata = {**command.metadata, GATEWAY_SCOPE: caller.scope}
        sending = await self._prepared(replace(command, metadata=metadata), sender, verified=True, queue=True)
        row = await self._submit(sending)
        if row.state is OutboxState.REFUSED:
            raise await self._refusal(row)
        return CommandResult(task_id=row.task_id, state=self._task_of(row).state.value)

    # Not for agents on other machines

    async def create(self, request: CreateTask, _caller: Caller) -> Task:
        raise self._unsupported(request)

    async def leave(self, request: LeaveTask, _caller: Caller) -> Task:
        raise self._unsupported(request)

    async def reply(self, request: Reply, _caller: Caller) -> Replied:
        raise self._unsupported(request)

    async def change(self, request: ChangeTask, _caller: Caller) -> Task:
        raise self._unsupported(request)

    async def delete(self, request: DeleteTask, _caller: Caller) -> Task:
        raise self._unsupported(request)

    async def status(self, request: GetStatus, _caller: Caller) -> HostStatus:
        raise self._unsupported(request)

    async def set_push(self, request: SetPushConfig, _caller: Caller) -> PushConfig:
        raise self._unsupported(request)

    async def get_push(self, request: GetPushConfig, _caller: Caller) -> PushConfig:
        raise self._unsupported(request)

    async def list_push(self, request: ListPushConfigs, _caller: Caller) -> tuple[PushConfig, ...]:
        raise self._unsupported(request)

    async def delete_push(self, request: DeletePushConfig, _caller: Caller) -> None:
        raise self._unsupported(request)

    # Streams

    async def _settled(self, task_id: TaskId) -> Task:
        task = await self.get(GetTask(task_id, exact=True), Caller())
        async with aclosing(self._until_settled(task)) as updates:
            async for update in updates:
                task = update.task
        return task

    async def _until_settled(self, task: Task) -> AsyncGenerator[Update, None]:
        async with aclosing(self._followed(task, None)) as updates:
            async for update in updates:
                yield update
                is_end = update.event is None or isinstance(update.event, StateChanged)
                if is_end and is_settled(update.task.state):
                    return

    async def _followed(self, task: Task, after: int | None) -> AsyncGenerator[Update, None]:
        """Yields the task, unless `after` names a seq, then its updates until it ends."""
        row = await self._row(task.id)
        if row is not None and not is_there(row):
            if after is None:
                yield Update(0, None, self._task_of(row))
            row = await self._left_outbox(row)
            if not is_there(row):
                yield Update(0, None, self._task_of(row))
                return
        async with aclosing(self._updates(task.id, after)) as updates:
            async for update in updates:
                yield update

    async def _updates(self, task_id: TaskId, after: int | None) -> AsyncGenerator[Update, None]:
        """Yields updates of a task that the other machine has: first the task as it is now, unless `after` is given.

        It goes on after every loss of connection, on either side.
        """
        version = 0
        async with aclosing(self._events(task_id)) as updates:
            async for update, is_last in updates:
                if after is None and version == 0:
                    if is_last:
                        version = update.task.version
                        yield update._replace(event=None)
                elif update.event is None or update.seq > (after or 0):
                    # Without an event it is the end, which came by the relay and has no seq of its own.
                    yield update

    async def _events(self, task_id: TaskId) -> AsyncGenerator[tuple[Update, bool], None]:
        """Yields each update of the task, and whether no later one is known now; ends with the task."""
        task: Task | None = None
        seen = 0
        while task is None or not task.state.is_terminal:
            # Read first: an end that comes while the other machine is asked has its events in the next answer.
            ended = await self._ended_meanwhile(task_id, task) if seen else None
            read = asks.EventsRead()
            try:
                read = await self._read_events(task_id, seen)
            except SynapseError as error:
                if not is_loss(error):
                    raise
                ended = await self._ended_meanwhile(task_id, task)
                if ended is None:
                    await pause(RETRY_SECONDS)
            if ended is not None and not read.events:
                # It is lost, or its store is a backup, whose seqs are smaller than those that were read.
                yield Update(seen, None, ended), True
                return
            for number, one in enumerate(read.events, 1):
                for event in events_in(task_id, one.event):
                    task, seen = rebuild(task, (event,)), one.seq
                    yield Update(seen, event, self._shown(task)), number == len(read.events) and not read.more

    async def _read_events(self, task_id: TaskId, seen: int) -> asks.EventsRead:
        """Returns the events after `seen`, as soon as there are any. Raises a SynapseError."""
        seconds = asks.LONG_POLL_SECONDS if seen else 0.0
        ask = asks.FollowRemoteTask(task_id=task_id, after=seen, seconds=seconds)
        while True:
            try:
                return await self._fleet.client.ask(self._machine, ask, asks.EventsRead, seconds=seconds)
            except RateLimited as error:
                # Too many readers of this machine wait there; another may end soon.
                await pause(error.retry_after)

    async def _ended_meanwhile(self, task_id: TaskId, known: Task | None) -> Task | None:
        """Returns the task if its end has come by the relay, though the other machine cannot be asked any more."""
        row = await self._row(task_id)
        if row is None or not row.state.is_closed:
            return None
        ended = self._task_of(row)
        return ended if known is None else replace(ended, version=known.version + 1, created_at=known.created_at)

    async def _left_outbox(self, row: OutboxRow) -> OutboxRow:
        """Returns the row once its message is not open any more."""
        async with self._fleet.shell.watching(row.message_id) as changed:
            while True:
                changed.clear()
                now = await self._row(row.task_id) or row
                if now.state is not OutboxState.OPEN:
                    return now
                await changed.wait()

    # Asking

    async def _ask_task(self, task_id: str, *, exact: bool = False, sender: str = asks.NOBODY) -> Task:
        ask = asks.ReadTask(task_id=task_id, exact=exact, sender=sender)
        return self._shown(task_in(await self._fleet.client.ask(self._machine, ask, asks.TaskRead)))

    async def _row(self, wanted: str) -> OutboxRow | None:
        """Returns the message of the outbox to this machine which opened the task `wanted`, or has this id."""
        found = await self._fleet.database.find_outbox(wanted)
        rows = [row for row in found if row.to == self._machine and (row.message_id == wanted or opens_task(row))]
        return rows[0] if len(rows) == 1 else None

    def _shown(self, task: Task) -> Task:
        return task

    def _sender_name(self, caller: Caller) -> str:
        sender, verified = sender_of(None, caller, self._fleet.entries())
        return sender.sender_id if verified else UNVERIFIED + sender.sender_id

    def _person(self, caller: Caller) -> str:
        """Returns who decides, for the other machine. Raises PersonRequired unless it is a person at this one."""
        if not caller.may_decide:
            raise PersonRequired("only a person may decide that", hint=caller.objection)
        return self._sender_name(caller)

    def _unsupported(self, request: Request[Any]) -> UnsupportedOperation:
        return unsupported(f"an agent on another machine ({self._machine})", request)

    def _task_of(self, row: OutboxRow, *, note: str = "") -> Task:
        return task_of_row(row, self._entry, note=note)


def require_own(row: OutboxRow, caller: Caller) -> None:
    """Raises Forbidden if an agent cancels what another one has sent."""
    if not caller.is_agent:
        return
    with suppress(UnreadableBody):
        if asks.decode_send_body(row.body).sender == caller.agent_id:
            return
    raise Forbidden("an agent cancels only messages that it has sent")


def opens_task(row: OutboxRow) -> bool:
    """Decides whether the message opens its task. What becomes of one that continues a task says nothing about it."""
    try:
        return not asks.decode_send_body(row.body).task_id
    except UnreadableBody:
        return True  # of a newer version: most messages do


def task_of_row(row: OutboxRow, entry: AgentEntry, *, note: str = "") -> Task:
    """Returns the task of a message in the outbox, as far as this machine knows it."""
    try:
        body = asks.decode_send_body(row.body)
    except UnreadableBody:
        body = asks.SendBody(parts=())
    created, changed = _moment(row.created_at), _moment(row.changed_at)
    verified = not body.sender.startswith(UNVERIFIED)
    sender = Sender(
        sender_id=body.sender.removeprefix(UNVERIFIED), sender_type=body.sender_type, inbox=body.sender_inbox
    )
    reply_to = ReplyTo(task_id=body.sender_task_id) if body.response_expected else None
    metadata = opening_metadata(body.metadata, sender, verified=verified, reply_to=reply_to)
    if row.state is not OutboxState.ACCEPTED:
        metadata[OUTBOX] = row.state.value
    state, reason, said = _state_of(row)
    receipts = [Receipt(step=ReceiptStep.QUEUED, at=created, source="journal")]
    if state.is_terminal:
        receipts.append(Receipt(step=_FINAL_STEPS[state], at=changed, source="fleet", evidence=said))
    return new_task(
        {
            "id": TaskId(row.task_id),
            "agent_id": entry.agent_id,
            "inbox": entry.inbox,
            "context_id": body.context_id,
            "scope": "local",
            "dialect": body.dialect or "synapse",
            "state": state,
            "history": (asks.message_of(body, row.message_id),),
            "created_at": created,
            "updated_at": changed,
            "version": 1,
            "priority": body.priority or 3,
            "receipts": tuple(receipts),
            "artifacts": _artifacts(row) if state is TaskState.COMPLETED else (),
            "reason": reason,
            "note": note or said,
            "attention": said if row.state is OutboxState.UNCERTAIN else "",
            "metadata": metadata,
            "parent_id": body.parent_id,
            **reply_fields(metadata),
        }
    )


_FINAL_STEPS: Final = {
    TaskState.COMPLETED: ReceiptStep.ANSWERED,
    TaskState.FAILED: ReceiptStep.FAILED,
    TaskState.REJECTED: ReceiptStep.FAILED,
    TaskState.CANCELED: ReceiptStep.CANCELED,
}


def _state_of(row: OutboxRow) -> tuple[TaskState, str, str]:  # noqa: C901, PLR0911 - one case for each state
    """Returns the state, the reason and the note of the task of a row."""
    match row.state:
        case OutboxState.OPEN if row.kind == "void":
            # Not canceled yet: an earlier copy may reach the agent first.
            return TaskState.SUBMITTED, "", f"taken back ({row.why}); {row.to} has yet to confirm it"
        case OutboxState.OPEN:
            return TaskState.SUBMITTED, "", f"kept in the outbox of this machine until {row.to} takes it"
        case OutboxState.ACCEPTED:
            return TaskState.SUBMITTED, "", ""
        case OutboxState.REFUSED:
            return TaskState.FAILED, "refused", str(refusal_of(row))
        case OutboxState.UNCERTAIN:
            return TaskState.FAILED, "uncertain", f"it is not known whether the agent got it: {row.why}"
        case OutboxState.VOID:
            reason = "expired" if row.why == "expired" else "canceled"
            state = TaskState.FAILED if reason == "expired" else TaskState.CANCELED
            return state, reason, row.why
        case OutboxState.SETTLED:
            end = row.end
            if end is None:
                return TaskState.COMPLETED, "", ""
            known = TaskState(end.state) if end.state in set(TaskState) else TaskState.FAILED
            return known, end.reason, end.note


def _artifacts(row: OutboxRow) -> tuple[Artifact, ...]:
    parts = asks.parts_of(answer_of(row).parts)
    return (Artifact(artifact_id=f"{row.task_id}-answer", parts=parts, name="answer"),) if parts else ()


def is_there(row: OutboxRow) -> bool:
    """Decides whether the other machine has the task of the message."""
    return row.state in (OutboxState.ACCEPTED, OutboxState.SETTLED)


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _send_body(request: SendMessage, sender: Sender, now: datetime, *, verified: bool) -> asks.SendBody:
    message: Message = request.message
    ttl = request.metadata.get("ttl")
    if request.deadline is not None:
        ttl = (request.deadline - now).total_seconds()
    if ttl is not None and (isinstance(ttl, bool) or not isinstance(ttl, int | float) or ttl <= 0):
        raise InvalidRequest(f"metadata.ttl must be a number of seconds above 0, not {ttl!r}")
    if ttl is not None and ttl > LONGEST_EXPIRY:
        raise InvalidRequest(
            "a message to another machine waits for at most 7 days",
            hint=f"`--ttl` (metadata.ttl) takes at most {LONGEST_EXPIRY:.0f} seconds for an agent on another machine",
        )
    return asks.SendBody(
        parts=asks.part_bodies(message.parts),
        role=message.role.value,
        message_metadata=dict(message.metadata),
        extensions=message.extensions,
        reference_task_ids=message.reference_task_ids,
        dialect=request.dialect,
        priority=request.priority,
        sender=sender.sender_id if verified else UNVERIFIED + sender.sender_id,
        sender_type=sender.sender_type,
        sender_inbox=sender.inbox,
        response_expected=request.response_expected,
        sender_task_id=request.sender_task_id,
        in_reply_to=request.in_reply_to,
        context_id=request.context_id,
        task_id=request.task_id,
        parent_id=request.parent_id,
        ttl=float(ttl) if ttl is not None else None,
        metadata={key: value for key, value in request.metadata.items() if key != "ttl"},
    )
