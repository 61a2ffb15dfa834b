"""Carries out what the relay asks of this machine's hosts: open a task, take a message back, find one, tell an end.

    OpenTask   find the message id in all inboxes ─► else the agent's host claims it ─► else StoppedTasks, if to be kept
    VoidTask   the agent's host, or StoppedTasks where it does not run
    FindTask   find the message id in all inboxes
    TellEnd    the host of the agent that waits on this machine gets the answer as a reply, or StoppedTasks

Every call may be repeated: hosts claim message ids, and a waiting task takes one reply.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, assert_never

import msgspec

from synapse.core.address import PERSON, matching, on_machine, resolve, split_inbox, split_machine
from synapse.core.agent import AgentEntry
from synapse.core.caller import GATEWAY_SCOPE, MACHINE_SCOPE, ORDINARY, Caller
from synapse.core.errors import (
    AccessDenied,
    AgentNotFound,
    AgentNotResponding,
    Ambiguous,
    Conflict,
    InternalFailure,
    InvalidRequest,
    QueueFull,
    SenderMismatch,
    StoreFailed,
    SynapseError,
    TaskNotFound,
    WaitCycle,
    from_wire,
    to_wire,
)
from synapse.core.message import Message, MessageId, Part, Role, Sender, TextPart
from synapse.core.registry import CachedRegistry, HostClient
from synapse.core.requests import SendMessage, VoidMessage
from synapse.core.store import KnownMessage, TaskQuery, TaskStore
from synapse.core.task import DEFAULT_PRIORITY, Task, TaskId, TaskState
from synapse.fleet.asks import (
    AnswerBody,
    decode_answer_body,
    decode_send_body,
    encode_answer_body,
    message_of,
    part_bodies,
    parts_of,
)
from synapse.fleet.relay_io import (
    FindTask,
    HostAbsent,
    HostAccepted,
    HostCall,
    HostOutcome,
    HostRefused,
    HostTold,
    HostUnknown,
    HostVoided,
    OpenTask,
    OutboxRow,
    OutboxState,
    TellEnd,
    VoidTask,
)
from synapse.fleet.wire import End, UnreadableBody
from synapse.tasks.admission import message_digest, sender_of
from synapse.tasks.relayed import find_relayed
from synapse.tasks.replies import reply_parts
from synapse.tasks.rules import VOID, find_repeated
from synapse.tasks.waits import named_here

log = logging.getLogger(__name__)

LARGEST_ANSWER: Final = 512 * 1024
"""How many bytes an answer has at most that goes to another machine, perhaps by mail; the server carries 1 MiB."""
LEAST_TTL: Final = 0.1
_BEGINNING: Final = 64 * 1024
"""How many characters of a larger answer are sent, and of a note; each has six bytes at most."""
NOT_DELIVERED: Final = "answer_not_delivered"
"""Why a wait has ended though there is an answer."""
_LONGEST_WHY: Final = 500
_AGENT: Final = "agent"
"""Stands for an agent of another machine whose name is not known, or cannot be that of a sender."""
_TAKEN: Final = End(state=TaskState.COMPLETED, answer=encode_answer_body(AnswerBody(parts=())))
"""The end of a message that is a reply: it has arrived, and nobody answers it."""
_BUSY: Final = (AgentNotResponding, StoreFailed)
"""After these errors nobody knows whether it was done, or it can be done soon: it is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitReply:
    """What ends a task of this machine that waits for an agent of another one; see `SendMessage.in_reply_to`."""

    inbox: str
    """Of the agent that waits."""
    task_id: str
    machine: str
    """Of the agent that was asked."""
    agent: str
    """The name of that agent on its machine."""
    message_id: str
    """The same for every copy."""
    parts: tuple[Part, ...]
    marks: Mapping[str, Any]
    """`failed`, `inferred`, and `end_reason` if Synapse itself ends the wait."""


class StoppedAgents(Protocol):
    """The part of `tasks.stopped.StoppedTasks` that serves one inbox."""

    async def send(self, request: SendMessage, caller: Caller, /) -> Task: ...

    async def void(self, request: VoidMessage, caller: Caller, /) -> Task: ...


class Stopped(Protocol):
    """Serves agents that do not run; see `tasks.stopped.StoppedTasks`."""

    def of(self, inbox: str, agent_id: str, /) -> StoppedAgents: ...


class AgentFinder:
    """Finds agents of this machine by the names that other machines use: an inbox, or any name as on a command line."""

    def __init__(
        self, registry: CachedRegistry, store: TaskStore, past: Callable[[], Iterable[AgentEntry]] = tuple
    ) -> None:
        """`past` returns the agents that ran here, also those that have stopped. It may read files."""
        self._registry = registry
        self._store = store
        self._past = past

    async def running(self, target: str) -> AgentEntry:
        """Returns a running agent. Raises AgentNotFound, AmbiguousTarget or RegistryFailed."""
        entries = list(await self._registry.agents())
        by_inbox = next((entry for entry in entries if entry.inbox == target), None)
        return by_inbox if by_inbox is not None else resolve(target, entries)

    async def running_exactly(self, target: str) -> AgentEntry:
        """Returns the running agent of exactly this inbox, name or id. Raises AgentNotFound, which names no other one.

        The keys of gateways name agents so: what is allowed for `codex` must not reach an agent with that profile.
        """
        for entry in await self._registry.agents():
            if _is_exactly(entry, target):
                return entry
        raise AgentNotFound(target)

    async def of_inbox(self, inbox: str) -> AgentEntry | None:
        """Returns the running agent of an inbox."""
        return next((entry for entry in await self._registry.agents() if entry.inbox == inbox), None)

    async def stopped(self, target: str) -> AgentEntry | None:
        """Returns an agent that does not run: its inbox and its last id. None if no such agent is known.

        Raises AmbiguousTarget.
        """
        wanted = target.removeprefix("@")
        past = await asyncio.to_thread(lambda: list(self._past()))
        ran = next((entry for entry in past if entry.inbox == wanted), None)
        if ran is not None or matching(wanted, past):
            return ran or resolve(wanted, past)
        return await self._in_tasks(wanted)

    async def stopped_exactly(self, target: str) -> AgentEntry | None:
        """Returns an agent as `stopped` does, but only by exactly its inbox, its name or an id of it."""
        past = [entry for entry in await asyncio.to_thread(lambda: list(self._past())) if _is_exactly(entry, target)]
        ran = next((entry for entry in past if entry.inbox == target), None)
        if ran is not None or past:
            return ran or resolve(target, past)
        return await self._in_tasks(target)

    async def _in_tasks(self, wanted: str) -> AgentEntry | None:
        """Returns an agent that has tasks, by its inbox or by an id that it had."""
        for query in (TaskQuery(inbox=wanted, limit=1), TaskQuery(agent_id=wanted, limit=1)):
            if tasks := (await self._store.list(query)).tasks:
                name = "" if "@" in tasks[0].inbox else tasks[0].inbox
                return AgentEntry(tasks[0].agent_id, _type_in(tasks[0].agent_id), name=name, inbox=tasks[0].inbox)
        return None


class Deliveries:
    """Implements `shell.LocalHosts`."""

    def __init__(
        self, machine: str, finder: AgentFinder, *, store: TaskStore, hosts: HostClient, stopped: Stopped
    ) -> None:
        self._machine = machine
        self._finder = finder
        self._store = store
        self._hosts = hosts
        self._stopped = stopped

    async def ask(self, call: HostCall) -> HostOutcome:
        """Carries out a call of the relay. Never raises a SynapseError."""
        try:
            match call:
                case OpenTask():
                    return await self._open(call)
                case VoidTask():
                    return await self._void(call)
                case FindTask():
                    return await self._find_any(call)
                case TellEnd():
                    return await self._tell(call.row)
                case _:
                    assert_never(call)
        except SynapseError as error:
            log.info("host_not_asked", extra={"call": type(call).__name__, "error": str(error)})
            return HostUnknown()

    async def _open(self, call: OpenTask) -> HostOutcome:
        known = await self._find(call.machine, call.message_id)
        if known is not None:
            return taken_before(known)
        try:
            request, caller = sent_message(call, self._machine)
            if (taken := await self._find_command(call, request)) is not None:
                # The task is not of that machine, so its end is not relayed: the gateway reads it in the replica.
                # The sender closes the message with what is known now.
                end = End(state=taken.state.value, reason=taken.reason, note=taken.note)
                return HostAccepted(task_id=taken.id, end=end)
            done = await self._send(call, request, caller)
        except _BUSY as error:
            log.info("message_not_delivered", extra={"target": call.target, "error": str(error)})
            return HostUnknown()
        except WaitCycle as error:
            # Its sentence is read on the sender's machine, where a bare name means another agent.
            agents = tuple(one if split_machine(one)[1] else on_machine(one, self._machine) for one in error.agents)
            return HostRefused(error=msgspec.json.encode(to_wire(WaitCycle(agents))))
        except SynapseError as error:
            return await self._refused(call, error)
        return done

    async def _refused(self, call: OpenTask, error: SynapseError) -> HostOutcome:
        """Returns the outcome for an error of the host, which may have failed after it had recorded the message."""
        known = await self._find(call.machine, call.message_id)
        if known is not None:
            return taken_before(known)
        if isinstance(error, InternalFailure) or type(error) is SynapseError:
            # A defect, or an error of another version: neither says that the message will not be recorded.
            log.warning("message_not_delivered", extra={"target": call.target, "error": str(error)})
            return HostUnknown()
        return HostRefused(error=msgspec.json.encode(to_wire(error)))

    async def _send(self, call: OpenTask, request: SendMessage, caller: Caller) -> HostOutcome:
        is_gateways = GATEWAY_SCOPE in request.metadata
        find = self._finder.running_exactly if is_gateways else self._finder.running
        try:
            entry = await find(call.target)
        except AgentNotFound:
            if not call.queue:
                raise
            return await self._queue(call, request, caller)
        done = await self._hosts.command(entry, request, caller)
        task_id = done.task_id or call.task_id
        # A reply opens no task whose end could be told later. The task that it has ended belongs to this machine.
        return HostAccepted(task_id=task_id, end=_TAKEN if request.in_reply_to else None)

    async def _queue(self, call: OpenTask, request: SendMessage, caller: Caller) -> HostOutcome:
        """Keeps a message for the next start of its agent, as `synapse send --queue` does here."""
        is_gateways = GATEWAY_SCOPE in request.metadata
        find = self._finder.stopped_exactly if is_gateways else self._finder.stopped
        last = await find(call.target)
        if last is None:
            raise AgentNotFound(
                call.target, hint="no agent of that name runs there now, and none ever had a message to keep"
            )
        try:
            task = await self._stopped.of(last.inbox, last.agent_id).send(request, caller)
        except QueueFull:
            raise
        except Conflict:
            return HostUnknown()  # it has just started: its host takes the next try
        return HostAccepted(task_id=task.id, end=_TAKEN) if request.in_reply_to else accepted(task)

    async def _void(self, call: VoidTask) -> HostOutcome:
        task = await self._find(call.machine, call.message_id)
        if task is None or not task.state.is_terminal:
            task = await self._take_back(call, task.inbox if task is not None else "")
        if not task.state.is_terminal:
            return HostUnknown()
        claim = await self._claim(call.machine, call.message_id)
        is_claimed_by_cancel = claim is not None and claim.digest == VOID
        return HostVoided(task_id=task.id, end=end_of(task), known=not is_claimed_by_cancel)

    async def _take_back(self, call: VoidTask, inbox: str) -> Task:
        """Cancels the message in the inbox of its task, or claims its id in that of its target if it has none."""
        request, caller = void_message(call)
        is_gateways = bool(request.gateway_scope)
        entry = await self._finder.of_inbox(inbox) if inbox else await self._running(call.target, is_exact=is_gateways)
        if entry is not None:
            done = await self._hosts.command(entry, request, caller)
            return await self._store.load(TaskId(done.task_id))
        last = None if inbox else await self._stopped_agent(call.target, is_exact=is_gateways)
        agent = last or AgentEntry("", "", inbox=inbox or call.target)
        return await self._stopped.of(agent.inbox, agent.agent_id).void(request, caller)

    async def _stopped_agent(self, target: str, *, is_exact: bool) -> AgentEntry | None:
        """Returns the only agent that is known by the name. An id is looked for in all inboxes, so any may claim it."""
        find = self._finder.stopped_exactly if is_exact else self._finder.stopped
        try:
            return await find(target)
        except Ambiguous:
            return None

    async def _running(self, target: str, *, is_exact: bool) -> AgentEntry | None:
        find = self._finder.running_exactly if is_exact else self._finder.running
        try:
            return await find(target)
        except (AgentNotFound, Ambiguous):
            return None

    async def _find(self, machine: str, message_id: str) -> Task | None:
        claim = await self._claim(machine, message_id)
        if claim is None:
            return None
        try:
            return await self._store.load(claim.task_id)
        except TaskNotFound:
            return None  # pruned meanwhile

    async def _find_any(self, call: FindTask) -> HostOutcome:
        """Finds the task that the message opened, or the one that it has ended as a reply."""
        found = await self._find(call.machine, call.message_id)
        if found is not None:
            return accepted(found)
        # This reads many tasks, so it is not done for every message that arrives: hosts know a reply that they have.
        replied = await find_relayed(call.message_id, machine_caller(call.machine), "", self._store)
        return HostAbsent() if replied is None else HostAccepted(task_id=replied, end=_TAKEN)

    async def _claim(self, machine: str, message_id: str) -> KnownMessage | None:
        return await self._store.find_message("", MACHINE_SCOPE + machine, message_id)

    async def _find_command(self, call: OpenTask, request: SendMessage) -> Task | None:
        """Returns the task that the agent opened when a gateway sent this message as a command, before it was kept.

        Raises MessageIdReused when the gateway's caller used the id for a message with other content.
        """
        scope = request.metadata.get(GATEWAY_SCOPE)
        if not isinstance(scope, str) or not scope:
            return None
        # A caller may use one id for several agents.
        try:
            entry = await self._finder.running_exactly(call.target)
        except AgentNotFound:
            stopped = await self._finder.stopped_exactly(call.target)
            if stopped is None:
                return None
            entry = stopped
        task_id = await find_repeated(request.message, message_digest(request.message), scope, entry.inbox, self._store)
        return None if task_id is None else await self._store.load(task_id)

    async def _tell(self, row: OutboxRow) -> HostOutcome:
        """Delivers the answer to the agent of this machine that waits for it."""
        try:
            body = decode_send_body(row.body)
        except UnreadableBody:
            return HostTold()
        if not body.sender_task_id or not body.sender_inbox:
            return HostTold()
        agent = remote_name(row.target) if row.target else await self._asked_by(body.sender_task_id)
        answer, reason = answer_of(row), reason_of(row)
        marks: dict[str, Any] = {"failed": answer.failed, "inferred": answer.inferred, "end_reason": reason}
        reply = WaitReply(
            inbox=body.sender_inbox,
            task_id=body.sender_task_id,
            machine=row.to,
            agent=agent,
            message_id=f"end-{row.message_id}",
            parts=parts_of(answer.parts),
            marks={mark: value for mark, value in marks.items() if value},
        )
        return HostTold() if await self.end_wait(reply) else HostUnknown()

    async def _asked_by(self, task_id: str) -> str:
        """Returns the name of the agent that a task waits for. The outbox has lost the message to it."""
        try:
            asked = (await self._store.load(TaskId(task_id))).waits_for
        except TaskNotFound:
            return _AGENT
        return remote_name(split_inbox(asked.inbox)[0]) if asked is not None else _AGENT

    async def end_wait(self, reply: WaitReply) -> bool:
        """Ends a task of this machine that waits for an agent of another one, also if its own agent does not run.

        It may be repeated. Returns whether nothing is left to do; False if it must be tried again.
        """
        try:
            await self._reply(reply)
        except TaskNotFound as error:
            log.info("answer_not_needed", extra={"task": reply.task_id, "why": str(error)})
        except (AccessDenied, InvalidRequest) as error:
            return await self._end_without_answer(reply, error)
        except SynapseError as error:
            log.info("answer_not_delivered", extra={"task": reply.task_id, "why": str(error)})
            return False
        return True

    async def _end_without_answer(self, reply: WaitReply, refusal: SynapseError) -> bool:
        """Ends the task with a short failure: its host does not take the answer, and never will."""
        said = (
            f"the answer of {on_machine(reply.agent, reply.machine)} cannot be delivered: {str(refusal)[:_LONGEST_WHY]}"
        )
        failure = replace(
            reply,
            agent=_AGENT,
            parts=(TextPart(text=said),),
            marks={"failed": True, "inferred": True, "end_reason": reply.marks.get("end_reason") or NOT_DELIVERED},
        )
        try:
            await self._reply(failure)
        except (TaskNotFound, AccessDenied, InvalidRequest) as error:
            # The task waits for another agent, or for none.
            log.info("answer_not_needed", extra={"task": reply.task_id, "why": str(error)})
        except SynapseError as error:
            log.info("answer_not_delivered", extra={"task": reply.task_id, "why": str(error)})
            return False
        else:
            log.warning("answer_rejected", extra={"task": reply.task_id, "why": str(refusal)})
        return True

    async def _reply(self, reply: WaitReply) -> None:
        """Gives the reply to the host of the agent that waits. Raises what the host raises."""
        request = SendMessage(
            message=Message(message_id=MessageId(reply.message_id), role=Role.AGENT, parts=reply.parts),
            dialect="synapse",
            sender=Sender(sender_id=reply.agent, inbox=reply.agent),
            in_reply_to=reply.task_id,
            metadata=reply.marks,
        )
        caller = machine_caller(reply.machine, reply.agent)
        entry = await self._finder.of_inbox(reply.inbox)
        if entry is not None:
            await self._hosts.command(entry, request, caller)
        else:
            await self._stopped.of(reply.inbox, "").send(request, caller)


def machine_caller(machine: str, sender: str = PERSON, extra: frozenset[str] = frozenset()) -> Caller:
    """Returns the caller for requests of another machine: what it may do, and as whom it is known here."""
    return Caller(
        scope=MACHINE_SCOPE + machine,
        machine=machine,
        remote_sender=sender,
        actions=frozenset(ORDINARY) | extra,
        sees_all="read" in extra,
    )


def remote_name(target: str) -> str:
    """Returns the name of an agent on another machine for a reply of it: its inbox may have a folder."""
    return target.partition("@")[0] or _AGENT


def sent_message(call: OpenTask, here: str) -> tuple[SendMessage, Caller]:
    """Returns the request to the host for a message of another machine, and its caller. Raises InvalidRequest.

    `here` is the name of this machine.
    """
    try:
        body = decode_send_body(call.body)
    except UnreadableBody as error:
        raise InvalidRequest(
            f"the message cannot be read here: {error}", hint="update Synapse on both machines to the same version"
        ) from error
    metadata: dict[str, Any] = dict(body.metadata)
    if body.ttl is not None:
        # The time in the outbox counts. What is nearly over is still given to the host, which lets it expire.
        left = body.ttl if call.expires_in is None else max(call.expires_in, LEAST_TTL)
        metadata["ttl"] = min(body.ttl, left)
    request = SendMessage(
        message=message_of(body, call.message_id),
        dialect=body.dialect or "synapse",
        priority=body.priority or DEFAULT_PRIORITY,
        sender=Sender(sender_id=body.sender, sender_type=body.sender_type, inbox=body.sender_inbox),
        response_expected=body.response_expected,
        sender_task_id=body.sender_task_id,
        in_reply_to=body.in_reply_to,
        context_id=body.context_id,
        task_id=body.task_id,
        exact=True,
        metadata=metadata,
        parent_id=body.parent_id,
        opens="" if body.task_id or body.in_reply_to else call.task_id,
        waiting=named_here(body.waiting, here),
    )
    return request, machine_caller(call.machine, body.sender)


def void_message(call: VoidTask) -> tuple[VoidMessage, Caller]:
    """Returns the request that takes a message of another machine back, and its caller.

    The caller may do no more than that of the message. If the machine does not say who sent it, as an earlier version,
    or names one who cannot send, the message is taken back all the same, as one of the machine's user.
    """
    request = VoidMessage(message_id=call.message_id, opens=call.task_id, expired=call.expired)
    try:
        body = decode_send_body(call.body)
        caller = machine_caller(call.machine, body.sender or PERSON)
        sender = Sender(sender_id=body.sender, sender_type=body.sender_type, inbox=body.sender_inbox)
        sender_of(sender, caller, ())
    except (UnreadableBody, SenderMismatch):
        return request, machine_caller(call.machine)
    scope = body.metadata.get(GATEWAY_SCOPE)
    told = replace(
        request,
        sender=sender,
        context_id=body.context_id,
        gateway_scope=scope if isinstance(scope, str) else "",
    )
    return told, caller


def accepted(task: Task) -> HostAccepted:
    """Returns the outcome for a task that a message of another machine has opened."""
    return HostAccepted(task_id=task.id, end=end_of(task) if task.state.is_terminal else None)


def taken_before(task: Task) -> HostOutcome:
    """Returns the outcome for a copy of a message that a task has recorded: refused if it closed a cycle of waits."""
    if task.reason != WaitCycle.code:
        return accepted(task)
    return HostRefused(error=msgspec.json.encode(to_wire(WaitCycle(()).reworded(task.note))))


def end_of(task: Task) -> End:
    """Returns the end of a task for the machine whose message opened it. A large answer is cut, and says so."""
    answer = AnswerBody(
        parts=part_bodies(reply_parts(task)),
        failed=task.state is not TaskState.COMPLETED,
        inferred=task.replied != "explicit",
    )
    body, note = encode_answer_body(answer), task.note[:_BEGINNING]
    if len(body) > LARGEST_ANSWER:
        cut = (
            f"the answer has {len(body) // 1024} kB and is too large to send: "
            f"`synapse show {task.short_id}` on the machine of the agent shows all of it"
        )
        text = "\n".join(part.text for part in reply_parts(task) if isinstance(part, TextPart))[:_BEGINNING]
        parts = tuple(TextPart(text=one) for one in (text, f"({cut})") if one)
        body = encode_answer_body(msgspec.structs.replace(answer, parts=part_bodies(parts)))
        note = f"{note}; {cut}" if note else cut
    return End(state=task.state.value, reason=task.reason, note=note, answer=body)


def answer_of(row: OutboxRow) -> AnswerBody:
    """Returns what the agent that waits for the message of a closed row is told."""
    if row.end is not None and row.end.answer:
        try:
            return decode_answer_body(row.end.answer)
        except UnreadableBody:
            log.warning("answer_unreadable", extra={"message_id": row.message_id})
    match row.state:
        case OutboxState.REFUSED:
            text = str(refusal_of(row))
        case OutboxState.UNCERTAIN:
            text = f"it is not known what became of the message: {row.why}"
        case _:
            text = (row.end.note or row.end.reason if row.end is not None else "") or row.why or row.state.value
    return AnswerBody(parts=part_bodies((TextPart(text=text),)), failed=True, inferred=True)


def reason_of(row: OutboxRow) -> str:
    """Returns the word for why the message of a closed row has no answer; empty if its task has ended by itself."""
    match row.state:
        case OutboxState.REFUSED:
            return refusal_of(row).code
        case OutboxState.VOID:
            return "expired" if row.why == "expired" else "canceled"
        case OutboxState.UNCERTAIN:
            return "uncertain"
        case _:
            return ""


def refusal_of(row: OutboxRow) -> SynapseError:
    """Returns the error with which a message was refused."""
    try:
        return from_wire(msgspec.json.decode(row.error, type=dict[str, Any]), row.why or "the other machine refused it")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return SynapseError(row.why or "the other machine refused it")


def _is_exactly(entry: AgentEntry, target: str) -> bool:
    return bool(target) and target in (entry.inbox, entry.name, entry.agent_id)


def _type_in(agent_id: str) -> str:
    return agent_id.removeprefix("synapse-").rpartition("-")[0] or agent_id
