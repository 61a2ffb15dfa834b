"""The agents of other machines behind a gateway: `codex@box2`. This machine's link knows them and reaches them.

    GET /fleet/agents   read in the background, every few seconds while requests come ─► the agents, and who is away
    POST /fleet/proxies once for an agent that is called ─► its proxy socket, used as the socket of a host
    GET /fleet/outbox/{id}   the task of a message that the link keeps, or that its machine has not shipped yet
    POST /fleet/tasks/{id}/events   the events of a task on a machine that ships no log; see `gateway.unshipped`

No request waits for this list. The agents of a machine that goes away stay in it for a while, as away. A command to
them is refused with `machine_away`; a message that is to be kept goes to the link's outbox.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from synapse.client.http import NoAnswer
from synapse.core.address import can_be_typed, on_machine, remote_inbox, split_inbox, split_machine
from synapse.core.agent import EXITED, AgentEntry, entry_from
from synapse.core.caller import GATEWAY_SCOPE, MACHINE_SCOPE, Caller
from synapse.core.driver import AgentStatus
from synapse.core.errors import (
    AgentFailed,
    AgentNotFound,
    AgentNotResponding,
    AmbiguousTarget,
    LinkDown,
    MachineAway,
    MachineNotFound,
    NotFound,
    OutcomeUnknown,
    SynapseError,
    from_wire,
)
from synapse.core.events import Recorded
from synapse.core.extension import from_text
from synapse.core.json_text import decode_object, encode, object_in, objects_in
from synapse.core.registry import Channel
from synapse.core.requests import CancelTask, ChangeTask, CommandResult, DeleteTask, HostCommand, SendMessage
from synapse.core.task import Task, TaskId, TaskState
from synapse.core.types import Clock
from synapse.core.waiting import pause
from synapse.dialects.synapse.commands import encode_caller
from synapse.fleet.bus import CUT_OFF
from synapse.gateway.directory import GatewayAgent
from synapse.net.hosts import UnixHostClient
from synapse.registry.files import links
from synapse.store.codec import decode_event, decode_task, from_json

log = logging.getLogger(__name__)

FRESH_SECONDS: Final = 5.0
"""A list that is older is read again when a request comes."""
QUIET_SECONDS: Final = 30.0
"""How often the list is read without requests."""
AWAY_SECONDS: Final = 600.0
"""How long the agents of a machine that has gone away are still listed."""
START_SECONDS: Final = 2.0
LINK_SECONDS: Final = 10.0
METRICS_SECONDS: Final = 2.0
"""How long metrics wait for those of the link: Prometheus gives up the whole page after 10 seconds."""
MOST_PROXIES: Final = 1000
"""How many proxies are known at most: a message may be kept for any name, also for one that nobody has."""
QUEUE: Final = "queue"
"""In the metadata of a message to an agent on another machine: the link keeps it while the machine is away."""
KEEP_HINT: Final = (
    "send the message again with the header `Synapse-Queue: true`: it is kept until the machine is back, for a day"
)
_SAME_ID_HINT: Final = (
    "send it again with the message id '{}': a message is never taken twice; or look first, at the tasks of the agent"
)
_SOME_TERMINAL: Final = -1
_LINK_SILENT: Final = b"# TYPE synapse_link_connected gauge\nsynapse_link_connected 0\n"
_LINK_HINT: Final = "`synapse fleet doctor` on the gateway's machine finds what is wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteMachine:
    """A machine of the fleet, as the link sees it."""

    name: str
    present: bool
    since: str
    """Since when it is present, or away."""
    ships_log: bool = True
    """Whether the replica has its tasks."""


class RecalledTask(NamedTuple):
    """The task of a message in the outbox after its recall: not canceled while another machine has yet to confirm."""

    state: TaskState
    reason: str
    note: str


class RemoteAgents:
    """AgentSource of the agents on other machines. `run` keeps it current."""

    def __init__(self, home: Path, machine: str, hosts: UnixHostClient, clock: Clock) -> None:
        """`machine` is this machine's own name."""
        self.machine = machine
        self._home = home
        self._clock = clock
        self.hosts = RemoteHosts(self, hosts)
        self._client = hosts
        self._agents: tuple[GatewayAgent, ...] = ()
        self._machines: dict[str, RemoteMachine] = {}
        self._left_at: dict[str, float] = {}
        """When an agent was last listed whose machine is away."""
        self._read_at = 0.0
        self._wanted = asyncio.Event()
        self.problem = ""
        """Why the link does not answer; empty while it does."""

    def __call__(self) -> tuple[GatewayAgent, ...]:
        return self._agents

    def is_current(self) -> bool:
        """Returns True: requests are answered with what is known. An old list is read again in the background."""
        if self._clock.monotonic() - self._read_at > FRESH_SECONDS:
            self._wanted.set()
        return True

    async def refresh(self) -> None:
        """Has the list read again soon, if it is old. Does not wait for it."""
        self.is_current()

    async def start(self) -> None:
        """Reads the list for the first time, and waits a moment for it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS):
                await self.read()

    async def run(self) -> None:
        """Reads the list until it is cancelled."""
        while True:
            self._wanted.clear()
            await self.read()
            await pause(FRESH_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(QUIET_SECONDS):
                    await self._wanted.wait()

    async def read(self) -> None:
        """Reads the agents and machines from the link. If it does not answer, all machines are away."""
        try:
            answer = await self.ask_link("GET", "/fleet/agents")
            self.problem = ""
        except SynapseError as error:
            if not self.problem:
                log.warning("fleet_not_read", extra={"error": str(error)})
            self.problem = str(error)
            answer = {}
        except Exception:
            # The list of all remote agents depends on this task, so a defect must not end it.
            log.exception("fleet_not_read")
            answer = {}
        self._take(answer)
        self._read_at = self._clock.monotonic()

    def status(self, agent: AgentEntry) -> AgentStatus:
        """Returns the state of an agent as of the last list. Raises AgentNotResponding for one that has left it."""
        found = next((one for one in self._agents if one.entry.inbox == agent.inbox), None)
        if found is None or found.status is None:
            raise AgentNotResponding(agent.agent_id, agent.port, agent.agent_type)
        return found.status

    def require_present(self, machine: str, *, hint: str = "") -> None:
        """Raises LinkDown, MachineAway or MachineNotFound unless the machine can be reached, as far as is known."""
        if self.problem:
            why = self.problem.removeprefix(CUT_OFF)
            raise LinkDown(f"the gateway's machine has no connection to the fleet: {why}", hint=_LINK_HINT)
        known = self._machines.get(machine)
        if known is None:
            names = ", ".join(sorted(self._machines))
            raise MachineNotFound(f"the fleet has no machine '{machine}'", hint=f"machines: {names}" if names else "")
        if not known.present:
            raise MachineAway(machine, known.since, hint=hint or MachineAway.later_hint)

    def absent(self, name: str, *, keeps: bool) -> GatewayAgent | None:
        """Returns an agent that is not listed, so that the link keeps a message for it; None for a local name.

        Raises LinkDown, MachineAway, MachineNotFound or AgentNotFound if it is not to be kept.
        """
        own, machine = split_machine(name)
        if not machine:
            return None
        if not keeps:
            self.require_present(machine, hint=KEEP_HINT)
            raise _no_agent(name)
        if machine not in self._machines and not self.problem:
            self.require_present(machine)
        entry = AgentEntry(name, own, name=name, inbox=remote_inbox(own, machine))
        return GatewayAgent(entry=entry, hosts=self.hosts, machine=machine)

    async def open_proxy(self, name: str, *, keeps: bool) -> AgentEntry:
        """Returns the agent with its proxy socket. Raises AgentNotFound, or another SynapseError.

        With `keeps`, also an agent that does not run, or whose machine is away.
        """
        body = encode({"target": name, "queue": keeps, "exact": True}).encode()
        try:
            entry = entry_from(object_in(await self.ask_link("POST", "/fleet/proxies", body), "agent"))
        except (AgentNotFound, AmbiguousTarget) as error:
            # These errors name other agents of that machine, and not every caller may know of them.
            raise _no_agent(name) from error
        if entry is None or not entry.socket:
            raise AgentFailed("the link answered with an agent that cannot be understood", hint=_LINK_HINT)
        if name not in (entry.name, entry.agent_id):
            # A link of an earlier version finds agents as a command line does, also by their profile.
            raise _no_agent(name)
        return entry

    async def read_outbox(self, task_id: str) -> Task | None:
        """Returns the task of a message in the link's outbox, as far as the link knows it; None if it has no such one.

        It is of the caller whose message it is, else of this machine. Raises LinkDown.
        """
        try:
            told = _text(await self.ask_link("GET", f"/fleet/outbox/{quote(task_id, safe='')}"), "task")
            task = decode_task(from_json(told))
        except NotFound:
            return None
        except (LookupError, ValueError, TypeError, RecursionError) as error:
            raise AgentFailed("the link answered with a task that cannot be understood", hint=_LINK_HINT) from error
        scope = task.metadata.get(GATEWAY_SCOPE)
        return replace(task, scope=scope if isinstance(scope, str) and scope else MACHINE_SCOPE + self.machine)

    async def recall(self, task_id: str) -> RecalledTask:
        """Takes a message back from the outbox, and returns what has become of its task.

        Raises TaskNotFound, or Conflict when its machine has taken it.
        """
        answer = await self.ask_link("POST", "/fleet/outbox/cancel", encode({"task_id": task_id}).encode())
        told = object_in(answer, "task")
        try:
            state = TaskState(_text(told, "state"))
        except ValueError as error:
            raise AgentFailed("the link answered with a state that cannot be understood", hint=_LINK_HINT) from error
        return RecalledTask(state, _text(told, "reason"), _text(told, "note"))

    def ships_log(self, machine: str) -> bool:
        """Returns whether the replica gets the log of a machine, as far as is known."""
        known = self._machines.get(machine)
        return known is None or known.ships_log

    def unshipped(self) -> tuple[str, ...]:
        """Returns the machines that ship no log, also those that are away."""
        return tuple(one.name for one in self._machines.values() if not one.ships_log)

    async def read_events(
        self, machine: str, task_id: str, caller: Caller, *, after: int, seconds: float
    ) -> tuple[tuple[Recorded, ...], bool]:
        """Asks a machine for the events of a task after a seq, and waits up to `seconds` for one, at most a few.

        Also returns whether there are further ones now. Raises TaskNotFound, also for a task that the caller may not
        see, LinkDown, MachineAway, OutcomeUnknown for a machine that does not answer, or another SynapseError.
        """
        asked = {"machine": machine, "caller": encode_caller(caller), "after": after, "seconds": seconds}
        answer = await self.ask_link("POST", f"/fleet/tasks/{quote(task_id, safe='')}/events", encode(asked).encode())
        try:
            events = tuple(
                Recorded(seq, decode_event(TaskId(task_id), row))
                for seq, text in answer["events"]
                for row in from_json(text)
            )
        except (LookupError, ValueError, TypeError, RecursionError) as error:
            raise AgentFailed(
                f"{machine} sent an event that cannot be understood", hint="update Synapse on both machines"
            ) from error
        return events, answer.get("more") is True

    async def link_metrics(self) -> bytes:
        """Returns the metrics of this machine's link as text; nothing but a gauge if it does not answer."""
        running = await asyncio.to_thread(links(self._home).entries)
        try:
            if running:
                answer = await self._client.ask(running[0].socket, "GET", "/fleet/metrics", seconds=METRICS_SECONDS)
                return answer.body if answer.status < 400 else _LINK_SILENT
        except NoAnswer as silence:
            log.debug("link_metrics_not_read", extra={"error": str(silence)})
        return _LINK_SILENT

    async def ask_link(self, method: str, path: str, body: bytes = b"") -> dict[str, Any]:
        """Sends a request to this machine's link. Raises LinkDown, or the SynapseError that it answers with."""
        running = await asyncio.to_thread(links(self._home).entries)
        if not running:
            raise LinkDown("the link of the gateway's machine does not run", hint="`synapse link` runs it")
        try:
            answer = await self._client.ask(running[0].socket, method, path, body, seconds=LINK_SECONDS)
            fields = decode_object(answer.body)
        except (NoAnswer, ValueError) as silence:
            raise LinkDown("the link of the gateway's machine does not answer", hint=_LINK_HINT) from silence
        if answer.status >= 400:
            raise from_wire(object_in(fields, "error"), f"the link answered with status {answer.status}")
        return fields

    def _take(self, answer: dict[str, Any]) -> None:
        now = self._clock.monotonic()
        listed = {agent.name: agent for agent in map(self._agent, objects_in(answer, "agents")) if agent is not None}
        machines = [_machine(fields) for fields in objects_in(answer, "machines")]
        if answer:
            self._machines = {one.name: one for one in machines if one.name and one.name != self.machine}
        for agent in self._agents:
            if agent.name not in listed and not self._is_present(agent.machine):
                left_at = self._left_at.setdefault(agent.name, now)
                if now - left_at < AWAY_SECONDS:
                    listed[agent.name] = self._away(agent)
        self._left_at = {name: at for name, at in self._left_at.items() if name in listed and listed[name].is_away}
        self._agents = tuple(listed[name] for name in sorted(listed))

    def _is_present(self, machine: str) -> bool:
        known = self._machines.get(machine)
        return not self.problem and known is not None and known.present

    def _agent(self, fields: dict[str, Any]) -> GatewayAgent | None:
        entry, machine = entry_from(fields), _text(fields, "machine")
        if entry is None or not machine or machine == self.machine:
            return None
        entry = _named(entry, machine)
        # People are shown commands with these names.
        if not all(can_be_typed(split_machine(name)[0]) for name in (entry.name, entry.agent_id)):
            return None
        # Its device is another one here; that it has one is what people see.
        entry.terminal = _SOME_TERMINAL if fields.get("has_terminal") is True else 0
        status = AgentStatus(
            state=_text(fields, "state") or EXITED,
            why=_text(fields, "why"),
            source="fleet",
            since=_moment(_text(fields, "since"), self._clock),
        )
        extensions = from_text(entry.extensions)
        return GatewayAgent(
            entry=entry,
            hosts=self.hosts,
            extensions=extensions,
            machine=machine,
            status=status,
            open_terminal=self.hosts.follow_terminal,
        )

    def _away(self, agent: GatewayAgent) -> GatewayAgent:
        if agent.is_away:
            return agent
        known = self._machines.get(agent.machine)
        since = known.since if known is not None and not known.present else ""
        why = f"the machine {agent.machine} is away" + (f" since {since}" if since else "")
        status = AgentStatus(state=EXITED, why=why, source="fleet", since=_moment(since, self._clock))
        last_state = agent.status.state if agent.status is not None else EXITED
        description = f"{agent.entry.agent_type} agent; {why}"
        return replace(agent, status=status, description=description, is_away=True, last_state=last_state)


class RemoteHosts:
    """Sends requests to agents on other machines, through the proxy sockets of the link. Implements `AgentHosts`."""

    def __init__(self, agents: RemoteAgents, client: UnixHostClient) -> None:
        self._agents = agents
        self._client = client
        self._proxies: OrderedDict[str, AgentEntry] = OrderedDict()
        """By the names of their agents, the last one used at the end."""

    async def command(self, agent: AgentEntry, request: HostCommand, caller: Caller) -> CommandResult:
        """Runs `request` on the agent's machine on behalf of `caller`.

        Raises MachineAway at once for a machine that is known to be away, unless the message is to be kept.
        """
        keeps = isinstance(request, SendMessage) and request.metadata.get(QUEUE) is True
        hint = KEEP_HINT if isinstance(request, SendMessage) else MachineAway.later_hint
        if not keeps:
            self._agents.require_present(split_machine(agent.name)[1], hint=hint)
        # The tasks of an agent that does not run can be canceled, changed and deleted.
        keeps = keeps or isinstance(request, CancelTask | ChangeTask | DeleteTask)
        try:
            return await self._command(agent, request, caller, keeps=keeps)
        except MachineAway as error:
            error.hint = hint
            raise

    async def status(self, agent: AgentEntry) -> AgentStatus:
        """Returns the state that the agent's machine last told. Raises AgentNotResponding."""
        return self._agents.status(agent)

    async def watch_status(self, agent: AgentEntry) -> AsyncGenerator[dict[str, Any], None]:
        """Yields the whole status of the agent's host, then each other one. Raises a SynapseError."""
        proxy = await self._new_proxy(agent)
        with _hide_inbox(agent):
            async with aclosing(self._client.watch_status(proxy)) as statuses:
                async for status in statuses:
                    yield status

    async def screen(self, agent: AgentEntry, *, lines: int, known: str) -> dict[str, Any] | None:
        """Returns what the agent's terminal shows. Raises a SynapseError."""
        opened = self._opened(agent)
        with _hide_inbox(agent):
            proxy = opened or await self._new_proxy(agent)
            try:
                return await self._client.screen(proxy, lines=lines, known=known)
            except AgentNotResponding:
                self._forget(agent, proxy)
                if opened is None:
                    raise
            # The link has closed the socket, which nobody used for a while.
            return await self._client.screen(await self._proxy(agent), lines=lines, known=known)

    async def follow_terminal(self, agent: AgentEntry) -> Channel:
        """Connects to the agent's terminal; see `HostClient.follow_terminal`."""
        with _hide_inbox(agent):
            return await self._client.follow_terminal(await self._new_proxy(agent))

    async def _command(self, agent: AgentEntry, request: HostCommand, caller: Caller, *, keeps: bool) -> CommandResult:
        with _hide_inbox(agent):
            proxy = await self._proxy(agent, keeps=keeps)
            try:
                return await self._client.command(proxy, request, caller)
            except OutcomeUnknown as error:
                # It may have been done, so it is not repeated.
                self._forget(agent, proxy)
                if isinstance(request, SendMessage):
                    # A caller that named no id has not heard of the one that the gateway chose.
                    error.hint = _SAME_ID_HINT.format(request.message.message_id)
                raise
            except AgentNotResponding:
                # The link was restarted, or has closed the socket: nothing was done.
                self._forget(agent, proxy)
            return await self._client.command(await self._proxy(agent, keeps=keeps), request, caller)

    async def _proxy(self, agent: AgentEntry, *, keeps: bool = False) -> AgentEntry:
        return self._opened(agent) or await self._new_proxy(agent, keeps=keeps)

    def _opened(self, agent: AgentEntry) -> AgentEntry | None:
        """Returns the proxy that was opened for the agent, or None.

        An agent without a given name is known by its port, which another one may have after a restart: a proxy that
        was opened for the same name leads to the inbox of the earlier one.
        """
        known = self._proxies.get(agent.name)
        if known is None or known.inbox != agent.inbox:
            return None
        self._proxies.move_to_end(agent.name)
        return known

    async def _new_proxy(self, agent: AgentEntry, *, keeps: bool = False) -> AgentEntry:
        """Asks the link for the agent's proxy: the socket that it told before may be closed by now."""
        proxy = await self._agents.open_proxy(agent.name, keeps=keeps)
        self._proxies[agent.name] = proxy
        self._proxies.move_to_end(agent.name)
        if len(self._proxies) > MOST_PROXIES:
            self._proxies.popitem(last=False)
        return proxy

    def _forget(self, agent: AgentEntry, proxy: AgentEntry) -> None:
        if self._proxies.get(agent.name) is proxy:
            del self._proxies[agent.name]


@contextmanager
def _hide_inbox(agent: AgentEntry) -> Generator[None]:
    """Names the agent as its caller did when it is not found: a proxy knows its inbox, perhaps a folder over there."""
    try:
        yield
    except AgentNotFound as error:
        raise _no_agent(agent.name) from error


def _named(entry: AgentEntry, machine: str) -> AgentEntry:
    """Returns the entry with names that say the machine. An agent without a given name is known by its id."""
    name, agent_id = split_machine(entry.name)[0], split_machine(entry.agent_id)[0]
    is_given = bool(name) and name not in (f"{entry.agent_type}-{entry.port}", agent_id)
    entry.agent_id = on_machine(agent_id, machine)
    entry.name = on_machine(name if is_given else agent_id, machine)
    entry.inbox = remote_inbox(split_inbox(entry.inbox)[0], machine)
    # Its own processes, sockets and addresses mean others here.
    entry.pid = entry.pid_started = entry.pid_namespace = entry.cli_pid = entry.terminal = entry.port = 0
    entry.socket = entry.endpoint = entry.gateway = ""
    return entry


def _no_agent(name: str) -> AgentNotFound:
    return AgentNotFound(name, hint=f"`synapse list --machine {split_machine(name)[1]}` shows the agents there")


def _machine(fields: dict[str, Any]) -> RemoteMachine:
    return RemoteMachine(
        name=_text(fields, "name"),
        present=fields.get("present") is True,
        since=_text(fields, "since"),
        ships_log=fields.get("ships_log") is not False,
    )


def _text(fields: dict[str, Any], key: str) -> str:
    value = fields.get(key)
    return value if isinstance(value, str) else ""


def _moment(text: str, clock: Clock) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return clock.now()
