"""The agents that have hosts of their own, as a gateway sees them: who is in the registry, asked by a HostClient.

Who can be asked at a gateway, under which name, and how each is asked.

host       an agent's own process, found in the registry, asked over its Unix socket
resident   an agent that the gateway runs itself, in its own process

An agent's name here is its given name, else its agent id. Agents come and go: whoever asks is told who is here now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from synapse.core.agent import EXITED, AgentEntry
from synapse.core.caller import Caller
from synapse.core.driver import AgentStatus
from synapse.core.errors import AgentNotResponding
from synapse.core.extension import Extensions, from_text, joined
from synapse.core.requests import CommandResult, HostCommand
from synapse.core.task import Task
from synapse.registry.local import LocalRegistry


class LocalAgents:
    """Implements `AgentSource` over the registry. Agents that live in the gateway `me` itself are left out."""

    def __init__(self, registry: LocalRegistry, hosts: AgentHosts, *, me: str) -> None:
        self._me = me
        self._registry = registry
        self._hosts = hosts
        self._entries: tuple[AgentEntry, ...] = ()
        self._agents: tuple[GatewayAgent, ...] = ()

    async def refresh(self) -> None:
        """Read the registry if it has changed. Raises OSError."""
        entries = await self._registry.agents()
        if entries is not self._entries:
            self._entries = entries
            self._agents = tuple(self._agent(entry) for entry in entries if entry.gateway != self._me)

    def is_current(self) -> bool:
        return self._registry.is_fresh() and self._registry.latest is self._entries

    def __call__(self) -> tuple[GatewayAgent, ...]:
        return self._agents

    def _agent(self, entry: AgentEntry) -> GatewayAgent:
        return GatewayAgent(entry=entry, hosts=self._hosts, extensions=from_text(entry.extensions))


class AgentHosts(Protocol):
    """The part of `core.registry.HostClient` that a gateway's directory uses."""

    async def command(self, agent: AgentEntry, request: HostCommand, caller: Caller) -> CommandResult:
        """Raises a SynapseError."""
        ...

    async def status(self, agent: AgentEntry, /) -> AgentStatus:
        """Raises AgentNotResponding."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAgent:
    """One agent as a gateway knows it."""

    entry: AgentEntry
    hosts: AgentHosts = field(repr=False)
    """Asks the process that runs it."""
    title: str = ""
    """Its name for people; empty when its entry says all."""
    description: str = ""
    input_modes: tuple[str, ...] = ()
    """The media types of what it takes, in the words of its own card; empty when its entry says all."""
    output_modes: tuple[str, ...] = ()
    extensions: Extensions = ()
    """The extensions of A2A that it declares itself."""

    @property
    def name(self) -> str:
        return gateway_name(self.entry)

    async def command(self, request: HostCommand, caller: Caller) -> CommandResult:
        """Let the agent's owner do `request` on behalf of `caller`. Raises a SynapseError."""
        return await self.hosts.command(self.entry, request, caller)

    async def state(self) -> str:
        """Return what the agent does now, one of AGENT_STATES in `core.agent`; EXITED when nobody answers for it."""
        try:
            return (await self.hosts.status(self.entry)).state
        except AgentNotResponding:
            return EXITED


def gateway_name(entry: AgentEntry) -> str:
    """What an agent is called at the gateway."""
    return entry.name or entry.agent_id


class AgentSource(Protocol):
    """Some agents that are here."""

    async def refresh(self) -> None:
        """Find out who is here now. Raises OSError."""
        ...

    def is_current(self) -> bool:
        """Whether a `refresh` would find nothing new; never waits."""
        ...

    def __call__(self) -> Iterable[GatewayAgent]:
        """Return who was here at the last `refresh`; never waits."""
        ...


class GatewayDirectory:
    """Finds agents. Of two with the same name the one of the earlier source counts.

    It answers from what the last `refresh` has found: whoever handles a request refreshes first, and the answer is
    then worded without waiting.
    """

    def __init__(
        self,
        *sources: AgentSource,
        extensions: Mapping[str, Extensions] | None = None,
        lacks: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """`extensions` are those that agents of these names declare here, whatever they declare themselves, and
        `lacks` the capabilities that are switched off for them here.
        """
        self._sources = sources
        self._extensions: Mapping[str, Extensions] = {} if extensions is None else extensions
        self._lacks: Mapping[str, tuple[str, ...]] = {} if lacks is None else lacks

    async def refresh(self) -> None:
        """Find out who is here now. Raises OSError."""
        for source in self._sources:
            await source.refresh()

    def is_current(self) -> bool:
        """Whether a `refresh` would find nothing new; never waits."""
        return all(source.is_current() for source in self._sources)

    def agents(self) -> tuple[GatewayAgent, ...]:
        """Everybody who is here, by name."""
        found: dict[str, GatewayAgent] = {}
        for source in self._sources:
            for agent in source():
                found.setdefault(agent.name, agent)
        return tuple(found[name] for name in sorted(found))

    def find(self, name: str) -> GatewayAgent | None:
        """The agent of that name, if it is here."""
        return next((agent for source in self._sources for agent in source() if agent.name == name), None)

    def extensions_of(self, name: str) -> Extensions:
        """The extensions of A2A that the agent of that name declares here."""
        here = self.find(name)
        return joined(self._extensions.get(name, ()), here.extensions if here is not None else ())

    def lacks_of(self, name: str) -> frozenset[str]:
        """The capabilities of A2A that the agent of that name has not, here or anywhere."""
        here = self.find(name)
        return frozenset((*self._lacks.get(name, ()), *(here.entry.lacks.split() if here is not None else ())))

    def owner(self, task: Task) -> GatewayAgent | None:
        """The agent whose task it is, if it is here."""
        return next((agent for source in self._sources for agent in source() if agent.entry.inbox == task.inbox), None)

    def name_of(self, task: Task) -> str:
        """What the agent of a task is called here, also when it is gone."""
        owner = self.owner(task)
        return owner.name if owner is not None else left_name(task)


def left_name(task: Task) -> str:
    """The name of an agent that is gone, as far as its task tells: an inbox with a folder in it is no given name."""
    return task.agent_id if "@" in task.inbox else task.inbox
