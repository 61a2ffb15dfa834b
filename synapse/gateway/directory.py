"""The agents behind a gateway: finds them by name, and sends requests to them.

    host         an agent in a process of its own, found in the registry and called over its Unix socket
    in-process   an agent that the gateway runs in its own process; see `gateway.in_process`
    remote       an agent on another machine of the fleet, as `codex@box2`; see `gateway.remote`

An agent is known here by its given name, or by its agent id when it has none. Agents come and go: `refresh` updates the
directory.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar, cast

from synapse.core.address import on_machine, split_inbox, split_machine
from synapse.core.agent import EXITED, AgentEntry
from synapse.core.caller import Caller
from synapse.core.driver import AgentStatus
from synapse.core.errors import AgentNotResponding
from synapse.core.extension import Extensions, from_text, joined
from synapse.core.registry import CachedRegistry, Channel
from synapse.core.requests import CommandResult, HostCommand, Request
from synapse.core.task import Task

AnyRequest = TypeVar("AnyRequest", bound=Request[Any])


class AgentHosts(Protocol):
    """The part of `core.registry.HostClient` that the directory uses."""

    async def command(self, agent: AgentEntry, request: HostCommand, caller: Caller) -> CommandResult:
        """Raises a SynapseError."""
        ...

    async def status(self, agent: AgentEntry, /) -> AgentStatus:
        """Raises AgentNotResponding."""
        ...

    def watch_status(self, agent: AgentEntry, /) -> AsyncGenerator[dict[str, Any], None]:
        """Yields the whole status of the agent's host as JSON, then each other one. Raises a SynapseError."""
        ...

    async def screen(self, agent: AgentEntry, /, *, lines: int, known: str) -> dict[str, Any] | None:
        """Returns what its terminal shows as JSON; None if that is still the version `known`. Raises a SynapseError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAgent:
    """One agent behind a gateway."""

    entry: AgentEntry
    hosts: AgentHosts = field(repr=False)
    """Sends requests to the process that runs it."""
    title: str = ""
    """Its display name; empty when the entry has all there is."""
    description: str = ""
    input_modes: tuple[str, ...] = ()
    """The media types that it accepts according to its own card; empty when `entry.takes` applies."""
    output_modes: tuple[str, ...] = ()
    extensions: Extensions = ()
    """The A2A extensions that it declares itself."""
    machine: str = ""
    """The machine that it runs on; empty for this one."""
    status: AgentStatus | None = None
    """For a remote agent: the status that its machine has told."""
    open_terminal: Callable[[AgentEntry], Awaitable[Channel]] | None = field(default=None, repr=False)
    """Connects to the terminal of a remote agent; None for others, whose socket has it."""
    is_away: bool = False
    """Its machine is away; it is listed for a while, because it may come back."""
    last_state: str = ""
    """The state that it told before its machine went away, where it may run on; empty for one that is not away."""

    @property
    def name(self) -> str:
        return gateway_name(self.entry)

    async def command(self, request: HostCommand, caller: Caller) -> CommandResult:
        """Runs `request` in the agent's process on behalf of `caller`. Raises a SynapseError."""
        return await self.hosts.command(self.entry, request, caller)

    def watch_status(self) -> AsyncGenerator[dict[str, Any], None]:
        """Yields the whole status of the agent's host, then each other one. Raises a SynapseError."""
        return self.hosts.watch_status(self.entry)

    async def screen(self, *, lines: int, known: str) -> dict[str, Any] | None:
        """Returns what the agent's terminal shows; None if that is still the version `known`.

        Raises UnsupportedOperation if it has no terminal, or another SynapseError.
        """
        return await self.hosts.screen(self.entry, lines=lines, known=known)

    async def state(self) -> str:
        """Returns the agent's state, one of `core.agent.AGENT_STATES`; EXITED when its process does not answer."""
        try:
            return (await self.hosts.status(self.entry)).state
        except AgentNotResponding:
            return EXITED


def gateway_name(entry: AgentEntry) -> str:
    """Returns the name of an agent at the gateway."""
    return entry.name or entry.agent_id


class AgentSource(Protocol):
    """Provides some of the directory's agents."""

    async def refresh(self) -> None:
        """Updates the agents. Raises RegistryFailed."""
        ...

    def is_current(self) -> bool:
        """Returns whether `refresh` would change nothing. Does not block."""
        ...

    def __call__(self) -> Iterable[GatewayAgent]:
        """Returns the agents as of the last `refresh`. Does not block."""
        ...


class LocalAgents:
    """AgentSource over the registry. It leaves out the agents that run in the gateway `me` itself."""

    def __init__(self, registry: CachedRegistry, hosts: AgentHosts, *, me: str) -> None:
        self._me = me
        self._registry = registry
        self._hosts = hosts
        self._entries: Sequence[AgentEntry] = ()
        self._agents: tuple[GatewayAgent, ...] = ()

    async def refresh(self) -> None:
        """Reads the registry if it has changed. Raises RegistryFailed."""
        entries = await self._registry.agents()
        if entries is not self._entries:
            self._entries = entries
            self._agents = tuple(
                GatewayAgent(entry=entry, hosts=self._hosts, extensions=from_text(entry.extensions))
                for entry in entries
                if entry.gateway != self._me
            )

    def is_current(self) -> bool:
        return self._registry.is_fresh() and self._registry.latest is self._entries

    def __call__(self) -> tuple[GatewayAgent, ...]:
        return self._agents


class GatewayDirectory:
    """Finds agents by name. Of two agents with one name, the agent of the earlier source wins.

    It answers from the last `refresh`: the handler of a request refreshes first, so that encoding the answer does not
    have to wait.
    """

    def __init__(
        self,
        *sources: AgentSource,
        extensions: Mapping[str, Extensions] | None = None,
        lacks: Mapping[str, tuple[str, ...]] | None = None,
        machine: str = "",
    ) -> None:
        """`extensions` and `lacks`, by agent name, add to what the agents declare themselves: A2A extensions, and
        capabilities that are switched off. `machine` is the name of this one in its fleet.
        """
        self._sources = sources
        self.machine = machine
        self._own_suffix = f"@{machine}" if machine else ""
        self._extensions: Mapping[str, Extensions] = {} if extensions is None else extensions
        self._lacks: Mapping[str, tuple[str, ...]] = {} if lacks is None else lacks

    async def refresh(self) -> None:
        """Updates all sources. Raises RegistryFailed."""
        for source in self._sources:
            await source.refresh()

    def is_current(self) -> bool:
        """Returns whether `refresh` would change nothing. Does not block."""
        return all(source.is_current() for source in self._sources)

    def agents(self) -> tuple[GatewayAgent, ...]:
        """Returns all agents, sorted by name."""
        found: dict[str, GatewayAgent] = {}
        for source in self._sources:
            for agent in source():
                found.setdefault(agent.name, agent)
        return tuple(found[name] for name in sorted(found))

    def own_name(self, name: str) -> str:
        """Returns the name without this machine: clients may use `codex@box2` at every gateway, also at box2's."""
        return name.removesuffix(self._own_suffix) if self._own_suffix else name

    def with_own_name(self, request: AnyRequest) -> AnyRequest:
        """Returns the request; names an agent of this machine without the machine."""
        if not self._own_suffix or not getattr(request, "agent", "").endswith(self._own_suffix):
            return request
        named: Any = request
        return cast("AnyRequest", replace(named, agent=self.own_name(named.agent)))

    def find(self, name: str) -> GatewayAgent | None:
        """Returns the agent of that name, or None."""
        return next((agent for source in self._sources for agent in source() if agent.name == name), None)

    def extensions_of(self, name: str) -> Extensions:
        """Returns the A2A extensions of an agent, its own and those that the gateway adds."""
        here = self.find(name)
        return joined(self._extensions.get(name, ()), here.extensions if here is not None else ())

    def lacks_of(self, name: str) -> frozenset[str]:
        """Returns the A2A capabilities that an agent lacks, at the gateway or altogether."""
        here = self.find(name)
        return frozenset((*self._lacks.get(name, ()), *(here.entry.lacks.split() if here is not None else ())))

    def owner(self, task: Task) -> GatewayAgent | None:
        """Returns the running agent that owns the task, or None."""
        return next((agent for source in self._sources for agent in source() if agent.entry.inbox == task.inbox), None)

    def name_of(self, task: Task) -> str:
        """Returns the name of a task's agent, also when the agent does not run."""
        owner = self.owner(task)
        return owner.name if owner is not None else left_name(task)


def left_name(task: Task) -> str:
    """Returns the name of a stopped agent from one of its tasks; an inbox with a folder in it is not a given name."""
    return name_when_left(task.inbox, task.agent_id)


def name_when_left(inbox: str, agent_id: str) -> str:
    """Returns the name of a stopped agent from its inbox and its id, which may name its machine already."""
    own, machine = split_inbox(inbox)
    if "@" not in own:
        return on_machine(own, machine)
    return agent_id if split_machine(agent_id)[1] == machine else on_machine(agent_id, machine)
