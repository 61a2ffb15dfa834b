"""The link's own API for commands and gateways of this user, on its Unix socket.

    GET  /fleet/status               this link, the machines, the outbox, what an operator should see
    GET  /fleet/agents?machine=M     the agents of all machines that are present, or of one; `fresh=1` asks them now
    POST /fleet/proxies              {"target": …, "queue": false, "exact": false} ─► {"agent": …, "stopped": true} with
                                     a proxy socket
    GET  /fleet/outbox               the messages of this machine to others
    GET  /fleet/failures             how many messages to others have failed in the last day when nobody waited
    GET  /fleet/outbox/{id}          the task of a message in the outbox, by its whole id, as the store writes tasks
    POST /fleet/outbox/cancel        {"task_id": …} ─► the message after it, and the state of its task
    GET  /fleet/tasks?machine=M      its tasks that this machine may read, also of agents that have stopped
    GET  /fleet/tasks/{id}           a task on another machine, or in the outbox, and its agent
    POST /fleet/tasks/{id}/events    {"machine": …, "caller": …, "after": 0, "seconds": 3} ─► the events of a task on
                                     a machine, for a caller of this machine's gateway
    GET  /fleet/events?machine=M     the next events of its tasks, or of one: a reader asks again with the seq it has
    GET  /fleet/approvals            what agents of other machines ask people, and the machines that do not tell, or
                                     cannot be asked
    GET  /fleet/metrics              for Prometheus

Errors are those of the synapse dialect, with their fields (`core.errors.to_wire`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import msgspec

from synapse.config.process import SystemClock
from synapse.core.address import on_machine, remote_inbox, split_machine
from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.errors import (
    AmbiguousTask,
    Conflict,
    Forbidden,
    InvalidRequest,
    LinkDown,
    MachineAway,
    PersonRequired,
    SynapseError,
    TaskNotFound,
)
from synapse.core.requests import Request
from synapse.core.service import Handler
from synapse.dialects.dialect import Dialect, ServiceRoute, WireAnswer, WireRequest
from synapse.dialects.proto_json import to_json
from synapse.dialects.synapse.commands import encode_failure
from synapse.dialects.task_json import task_object
from synapse.fleet import asks
from synapse.fleet.bus import BusError, NoReply
from synapse.fleet.names import is_machine_name
from synapse.fleet.relay_io import OutboxLoad, OutboxRow, OutboxState
from synapse.link.asking import asker, is_loss, no_connection, task_in
from synapse.link.deliveries import refusal_of
from synapse.link.presence import Lasting, Machine, no_machine
from synapse.link.proxies import Proxies
from synapse.link.remote_tasks import Fleet, is_there, opens_task, require_own, task_of_row
from synapse.store.codec import encode_task

R = TypeVar("R")
A = TypeVar("A", bound=asks.AskAnswer)
ReadStatus = Callable[[], Awaitable[dict[str, Any]]]
ReadMetrics = Callable[[], Awaitable[str]]
MOST_ASKED: Final = 64
"""How many machines are asked for their agents at a time; of more, what they said last is told."""
ASK_SECONDS: Final = 1.0
FAILED_SECONDS: Final = 86_400.0
"""For how long people are told that a message has failed."""
_NO_LEADER_HINT: Final = "try again in some seconds; if it stays so, the server or its cluster has a problem of its own"
_METRICS_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"


class _Proxy(msgspec.Struct):
    target: str
    queue: bool = False
    exact: bool = False


class _Cancel(msgspec.Struct):
    task_id: str


class _Follow(msgspec.Struct):
    machine: str
    caller: dict[str, Any]
    after: int = 0
    seconds: float = 0.0


class NoRequests:
    """The Handler of the link's own socket, whose routes need none."""

    async def handle(self, request: Request[R], caller: Caller) -> R:  # noqa: ARG002 - as the protocol has it
        """Raises InvalidRequest."""
        raise InvalidRequest(f"a link does not support {type(request).__name__}")


class LinkApi:
    """Answers the requests of the API."""

    def __init__(self, fleet: Fleet, proxies: Proxies, *, status: ReadStatus, metrics: ReadMetrics) -> None:
        self._fleet = fleet
        self._proxies = proxies
        self._status = status
        self._metrics = metrics

    def dialect(self) -> Dialect:
        """Returns the API as a dialect for HttpApp."""
        routes = (
            ServiceRoute(method="GET", path="/fleet/status", serve=self.status),
            ServiceRoute(method="GET", path="/fleet/agents", serve=self.agents),
            ServiceRoute(method="POST", path="/fleet/proxies", serve=self.open_proxy),
            ServiceRoute(method="GET", path="/fleet/outbox", serve=self.outbox),
            ServiceRoute(method="GET", path="/fleet/failures", serve=self.failures),
            ServiceRoute(method="GET", path="/fleet/outbox/{id}", serve=self.kept),
            ServiceRoute(method="POST", path="/fleet/outbox/cancel", serve=self.cancel),
            ServiceRoute(method="GET", path="/fleet/tasks", serve=self.tasks),
            ServiceRoute(method="GET", path="/fleet/tasks/{id}", serve=self.task),
            ServiceRoute(method="POST", path="/fleet/tasks/{id}/events", serve=self.events),
            ServiceRoute(method="GET", path="/fleet/events", serve=self.next_events),
            ServiceRoute(method="GET", path="/fleet/approvals", serve=self.approvals),
            ServiceRoute(method="GET", path="/fleet/metrics", serve=self.metrics),
        )
        return Dialect(name="link", routes=routes, encode_error=encode_failure)

    async def status(self, _wire: WireRequest, _service: Handler, _caller: Caller) -> WireAnswer:
        status = await self._status()
        machines, why = await self._machines()
        waiting = await self._fleet.database.count_open()
        return _json(
            {
                **status,
                "machines": [
                    {**one.shown(), "agents": len(one.present.agents) if one.present else 0} for one in machines
                ],
                "machines_unknown": why,
                "outbox": {
                    "open": sum(one.number for one in waiting),
                    "oldest": _instant(min(one.oldest for one in waiting)) if waiting else None,
                    "cancels": sum(one.cancels for one in waiting),
                    "waiting": [
                        {"to": one.to, "open": one.number, "cancels": one.cancels, "oldest": _instant(one.oldest)}
                        for one in waiting
                    ],
                    **_fullness(self._fleet.shell.outbox_load),
                },
            }
        )

    async def agents(self, wire: WireRequest, _service: Handler, _caller: Caller) -> WireAnswer:
        query = wire.query()
        wanted = query.get("machine", "")
        try:
            machines = (await self._fleet.machines.find(wanted),) if wanted else await self._fleet.machines.all()
        except BusError as error:
            raise _link_down(error) from error
        if query.get("fresh") and len(machines) <= MOST_ASKED:
            machines = tuple(await asyncio.gather(*map(self._asked, machines)))
        agents = [
            {**agent, "machine": machine.name, "remote_name": _name(agent, machine.name)}
            for machine in machines
            if machine.present is not None
            for agent in machine.present.agents
        ]
        return _json({"agents": agents, "machines": [machine.shown() for machine in machines]})

    async def _asked(self, machine: Machine) -> Machine:
        """Returns the machine with its agents as it tells them now: its presence may be a moment old."""
        if machine.present is None:
            return machine
        try:
            async with asyncio.timeout(ASK_SECONDS):
                listed = await self._fleet.client.ask(machine.name, asks.ListRemoteAgents(), asks.AgentsListed)
        except MachineAway as away:
            left = Lasting(
                incarnation=machine.incarnation,
                seen=away.since,
                version=machine.version,
                ships_log=machine.ships_log,
            )
            return msgspec.structs.replace(machine, present=None, lasting=left)
        except (TimeoutError, SynapseError):
            return machine
        present = msgspec.structs.replace(machine.present, agents=listed.agents)
        return msgspec.structs.replace(machine, present=present)

    async def open_proxy(self, wire: WireRequest, _service: Handler, _caller: Caller) -> WireAnswer:
        wanted = _read(wire.body, _Proxy, '{"target": "codex@box2"}')
        try:
            opened = await self._proxies.open(wanted.target, queue=wanted.queue, exact=wanted.exact)
        except BusError as error:
            raise _link_down(error) from error
        return _json({"agent": opened.entry.shown(), **({"stopped": True} if opened.is_stopped else {})})

    async def outbox(self, _wire: WireRequest, _service: Handler, _caller: Caller) -> WireAnswer:
        return _json({"messages": [_row(row) for row in await self._fleet.database.read_outbox()]})

    async def failures(self, _wire: WireRequest, _service: Handler, _caller: Caller) -> WireAnswer:
        since = SystemClock().now().timestamp() - FAILED_SECONDS
        return _json({"failed": await self._fleet.database.count_failed(since)})

    async def kept(self, wire: WireRequest, _service: Handler, _caller: Caller) -> WireAnswer:
        wanted = wire.params["id"]
        found = await self._fleet.database.find_outbox(wanted)
        row = next((one for one in found if one.task_id == wanted and opens_task(one)), None)
        if row is None:
            raise TaskNotFound(wanted)
        agent_id = row.target.partition("@")[0]
        task = task_of_row(row, AgentEntry(agent_id, "", inbox=remote_inbox(row.target, row.to)))
        return _json({"task": encode_task(task)})

    async def cancel(self, wire: WireRequest, _service: Handler, caller: Caller) -> WireAnswer:
        wanted = _read(wire.body, _Cancel, '{"task_id": "0198c0de"}').task_id
        rows = await self._find_rows(wanted)
        if not rows:
            missing = TaskNotFound(wanted)
            missing.hint = "`synapse fleet outbox` lists the messages of this machine to others"
            raise missing
        row = next((one for one in rows if one.state is OutboxState.OPEN), rows[0])
        require_own(row, caller)
        if row.state is OutboxState.ACCEPTED:
            raise Conflict(
                f"{row.to} has taken the message", hint=f"`synapse cancel {row.task_id[:8]}` cancels its task"
            )
        if row.state is OutboxState.OPEN:
            recalled = await self._fleet.shell.recall(row.message_id)
            row = recalled or await self._fleet.database.find_message(row.message_id) or row
        task = task_of_row(row, AgentEntry("", ""))
        return _json(
            {"message": _row(row), "task": {"state": task.state.value, "reason": task.reason, "note": task.note}}
        )

    async def task(self, wire: WireRequest, _service: Handler, caller: Caller) -> WireAnswer:
        """Finds a task by the beginning of its id: in the outbox, else on the machines that are present."""
        wanted = wire.params["id"]
        row = next((row for row in await self._find_rows(wanted) if opens_task(row)), None)
        if row is not None:
            return _json(await self._task_of_row(row))
        if len(wanted) < _LEAST_ID:
            raise TaskNotFound(wanted)
        found = await self._search(wanted, caller)
        if len(found) > 1:
            raise AmbiguousTask(wanted, sorted(str(one["task"]["id"]) for one in found))
        if not found:
            raise TaskNotFound(wanted)
        return _json(found[0])

    async def events(self, wire: WireRequest, _service: Handler, caller: Caller) -> WireAnswer:
        """Asks a machine for the events of a task on behalf of a gateway's caller; waits for the next one at most once.

        Raises PersonRequired when the gateway is not run by this user, MachineNotFound, or what an ask raises.
        """
        if not caller.is_person:
            raise PersonRequired("only the user's own gateway may send requests for others", hint=caller.objection)
        wanted = _read(wire.body, _Follow, '{"machine": "box2", "caller": {"scope": "local"}}')
        if not is_machine_name(wanted.machine):
            raise no_machine(wanted.machine)
        seconds = min(wanted.seconds, asks.LONG_POLL_SECONDS)
        ask = asks.FollowForCaller(task_id=wire.params["id"], caller=wanted.caller, after=wanted.after, seconds=seconds)
        read = await self._fleet.client.command(wanted.machine, ask, asks.EventsRead, seconds=seconds)
        return _json({"events": [[one.seq, one.event] for one in read.events], "more": read.more})

    async def tasks(self, wire: WireRequest, _service: Handler, _caller: Caller) -> WireAnswer:
        """Lists a page of the tasks of a machine, or of one agent there, as snapshots of the store's codec."""
        query = wire.query()
        ask = asks.ReadTasks(
            target=query.get("agent", ""),
            context_id=query.get("context_id", ""),
            updated_after=query.get("updated_after", ""),
            limit=_number(query, "limit", asks.ReadTasks().limit),
            cursor=query.get("cursor", ""),
        )
        page = await self._ask(query.get("machine", ""), ask, asks.TasksListed)
        return _json({"tasks": list(page.tasks), "next_cursor": page.next_cursor})

    async def next_events(self, wire: WireRequest, _service: Handler, _caller: Caller) -> WireAnswer:
        """Reads the events after a seq: as soon as there is one, or after `seconds`."""
        query = wire.query()
        machine, task_id = query.get("machine", ""), query.get("task", "")
        after = _number(query, "after", 0 if task_id else -1)
        seconds = min(float(_number(query, "seconds", 0)), asks.LONG_POLL_SECONDS)
        if task_id:
            return _json(await self._events_of(task_id, machine, after, seconds))
        ask = asks.FollowRemoteTasks(target=query.get("agent", ""), after=after, seconds=seconds)
        read = await self._ask(machine, ask, asks.UpdatesRead, seconds)
        events = [
            {"seq": one.seq, "task_id": one.task_id, "event": one.event, "task": one.task} for one in read.updates
        ]
        return _json({"events": events, "seq": read.seq, "more": read.more, "left_out": read.left_out})

    async def _events_of(self, task_id: str, machine: str, after: int, seconds: float) -> dict[str, Any]:
        """Reads events of one task. Of one that only the outbox knows, the answer has a snapshot instead, as `task`."""
        rows = [row for row in await self._find_rows(task_id) if row.to == machine and opens_task(row)]
        row = rows[0] if rows else None
        if row is not None and not is_there(row):
            row = await self._changed_row(row, seconds)
        if row is not None and not is_there(row):
            return self._snapshot(row)
        ask = asks.FollowRemoteTask(task_id=task_id, after=after, seconds=seconds)
        try:
            read = await self._ask(machine, ask, asks.EventsRead, seconds)
        except SynapseError as error:
            if row is None or not row.state.is_closed or not is_loss(error):
                raise
            return self._snapshot(row)
        events = [{"seq": one.seq, "task_id": task_id, "event": one.event, "task": ""} for one in read.events]
        return {"events": events, "seq": read.events[-1].seq if read.events else after, "more": read.more}

    def _snapshot(self, row: OutboxRow) -> dict[str, Any]:
        return {
            "events": [],
            "seq": 0,
            "more": False,
            "task": encode_task(task_of_row(row, _unasked(row.target, row.to))),
        }

    async def _changed_row(self, row: OutboxRow, seconds: float) -> OutboxRow:
        """Returns the row as soon as it changes, or after `seconds`."""
        async with self._fleet.shell.watching(row.message_id) as changed:
            now = await self._fleet.database.find_message(row.message_id) or row
            if now.state is row.state and seconds:
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await changed.wait()
                now = await self._fleet.database.find_message(row.message_id) or row
        return now

    async def _ask(self, machine: str, ask: asks.Ask, answer: type[A], seconds: float = 0.0) -> A:
        """Asks a machine. Raises what `FleetClient.ask` raises, and MachineNotFound if nobody knows it."""
        if not is_machine_name(machine) or machine == self._fleet.machine:
            raise no_machine(machine)
        try:
            return await self._fleet.client.ask(machine, ask, answer, seconds=seconds)
        except MachineAway:
            with suppress(BusError):
                await self._fleet.machines.find(machine)
            raise

    async def approvals(self, _wire: WireRequest, _service: Handler, caller: Caller) -> WireAnswer:
        if not caller.is_person:
            raise PersonRequired("only a person may see what agents of other machines ask", hint=caller.objection)
        try:
            machines = await self._fleet.machines.all()
        except BusError as error:
            raise _link_down(error) from error
        refusing: list[str] = []
        away = {machine.name: machine.since for machine in machines if machine.present is None}

        async def read(machine: Machine) -> list[dict[str, Any]]:
            try:
                listed = await self._fleet.client.ask(machine.name, asks.ReadQuestions(), asks.QuestionsListed)
            except Forbidden:
                refusing.append(machine.name)
                return []
            except SynapseError as error:
                away[machine.name] = error.since if isinstance(error, MachineAway) else ""
                return []
            return [
                {**question, "machine": machine.name, "agent": _name(question, machine.name)}
                for question in listed.questions
            ]

        present = [machine for machine in machines if machine.present is not None]
        found = await asyncio.gather(*(read(machine) for machine in present))
        return _json(
            {
                "questions": [one for questions in found for one in questions],
                "refusing": sorted(refusing),
                "away": [{"name": name, "since": since} for name, since in sorted(away.items())],
            }
        )

    async def metrics(self, _wire: WireRequest, _service: Handler, _caller: Caller) -> WireAnswer:
        return WireAnswer(200, (await self._metrics()).encode(), media_type=_METRICS_TYPE)

    async def _machines(self) -> tuple[tuple[Machine, ...], str]:
        """Returns the other machines, and why they are not known, if they are not."""
        try:
            return await self._fleet.machines.all(), ""
        except BusError as error:
            return (), str(error)

    async def _find_rows(self, wanted: str) -> list[OutboxRow]:
        """Returns the messages of the task whose id begins so, newest first. Raises AmbiguousTask."""
        rows = await self._fleet.database.find_outbox(wanted)
        if len({row.task_id for row in rows}) > 1:
            raise AmbiguousTask(wanted, sorted({row.task_id for row in rows}))
        return rows

    async def _task_of_row(self, row: OutboxRow) -> dict[str, Any]:
        entry = await self._entry(row.target, row.to)
        task = task_of_row(row, entry)
        if is_there(row):
            try:
                ask = asks.ReadTask(task_id=row.task_id, exact=True)
                task = task_in(await self._fleet.client.ask(row.to, ask, asks.TaskRead))
            except SynapseError as error:
                if not is_loss(error) and not isinstance(error, TaskNotFound):
                    raise
        return {"agent": entry.shown(), "task": task_object(task)}

    async def _entry(self, target: str, machine: str) -> AgentEntry:
        with suppress(SynapseError, BusError):
            return (await self._proxies.open(on_machine(target, machine), queue=True)).entry
        return _unasked(target, machine)

    async def _search(self, wanted: str, caller: Caller) -> list[dict[str, Any]]:
        machines, _ = await self._machines()

        async def read(machine: Machine) -> dict[str, Any] | None:
            try:
                ask = asks.ReadTask(task_id=wanted, sender=asker(caller))
                task = task_in(await self._fleet.client.ask(machine.name, ask, asks.TaskRead))
            except SynapseError:
                return None
            entry = await self._entry(task.inbox, machine.name)
            return {"agent": entry.shown(), "task": task_object(task)}

        present = [machine for machine in machines if machine.present is not None]
        return [one for one in await asyncio.gather(*(read(machine) for machine in present)) if one is not None]


_LEAST_ID: Final = 4
"""How many letters of an id are needed to look for its task on other machines."""


def _link_down(error: BusError) -> LinkDown:
    if isinstance(error, NoReply):
        return LinkDown(f"the fleet cannot be read now: {error}", hint=_NO_LEADER_HINT)
    return no_connection(str(error))


def _fullness(load: OutboxLoad) -> dict[str, Any]:
    """Returns how much of its limits the outbox uses, in percent, and which one is the nearest, in words."""
    limits = load.limits
    by_number = 100 * load.most // max(limits.messages, 1)
    by_bytes = 100 * load.held_bytes // limits.total_bytes if limits.total_bytes else 0
    nearest = f"{load.most} of {limits.messages} messages to {load.machine}" if load.most else ""
    if by_bytes > by_number:
        nearest = f"{load.held_bytes // 1024} of {limits.total_bytes // 1024} kB of messages to all machines"
    return {"bytes": load.held_bytes, "percent": max(by_number, by_bytes), "nearest": nearest}


def _row(row: OutboxRow) -> dict[str, Any]:
    return {
        "message_id": row.message_id,
        "task_id": row.task_id,
        "to": row.to,
        "target": on_machine(row.target.partition("@")[0], row.to),
        "kind": row.kind,
        "state": row.state.value,
        "created_at": _instant(row.created_at),
        "changed_at": _instant(row.changed_at),
        "expires_at": _instant(row.expires_at),
        "attempts": row.attempts,
        "queue": row.queue,
        "why": row.why or (_refusal(row) if row.state is OutboxState.REFUSED else ""),
    }


def _refusal(row: OutboxRow) -> str:
    why = str(refusal_of(row))
    return why if row.to in why else f"on {row.to}: {why}"


def _name(agent: dict[str, Any], machine: str) -> str:
    name = agent.get("name") or agent.get("agent_id") or ""
    # Whatever machine it names itself: only the one that was proven counts.
    return on_machine(split_machine(str(name))[0], machine)


def _unasked(target: str, machine: str) -> AgentEntry:
    """Returns the entry of an agent as far as the target of a message tells it: a name, or an inbox with a folder."""
    name = on_machine(target.partition("@")[0], machine)
    return AgentEntry(name, target, name=name, inbox=remote_inbox(target, machine))


def _number(query: dict[str, str], name: str, default: int) -> int:
    try:
        return int(query.get(name, default))
    except ValueError:
        raise InvalidRequest(f"{name} must be a whole number, not '{query[name]}'") from None


def _instant(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _read(body: bytes, shape: type[R], example: str) -> R:
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"the body cannot be read: {error}", hint=f"send JSON such as {example}") from error


def _json(value: dict[str, Any]) -> WireAnswer:
    return WireAnswer(200, to_json(value))
