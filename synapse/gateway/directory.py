"""The agents that have hosts of their own, as a gateway sees them: who is in the registry, asked over Unix sockets.

Who can be asked at a gateway, under which name, and how each is asked.

host       an agent's own process, found in the registry, asked over its Unix socket
resident   an agent that the gateway runs itself, in its own process

An agent's name here is its given name, else its agent id. Agents come and go: whoever asks is told who is here now.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from synapse.client.http import NoAnswer
from synapse.core.agent import EXITED, AgentEntry
from synapse.core.caller import Caller
from synapse.core.errors import AgentNotResponding, OutcomeUnknown
from synapse.core.extension import Extensions, from_text, joined
from synapse.core.requests import CommandResult, HostCommand, SendMessage
from synapse.core.task import Task
from synapse.core.types import Clock
from synapse.dialects.synapse.commands import PATH, decode_done, decode_failure, encode_command
from synapse.net.hosts import HostClient
from synapse.registry.files import FileRegistry

FRESH_SECONDS: Final = 1.0
"""How long it is believed that a host lives which has not taken its entry away."""
STATUS_SECONDS: Final = 2.0


class LocalAgents:
    """Implements `AgentSource` over the registry. Reading it costs a file for each agent, so that is done only when
    the folder has changed, and once a second for hosts that could not say goodbye. Those that live in the gateway `me`
    itself are no hosts.
    """

    def __init__(self, registry: FileRegistry, client: HostClient, clock: Clock, *, me: str) -> None:
        self._me = me
        self._registry = registry
        self._folder = registry.folder
        self._client = client
        self._clock = clock
        self._agents: tuple[GatewayAgent, ...] = ()
        self._changed = 0
        self._read_at = float("-inf")

    def __call__(self) -> tuple[GatewayAgent, ...]:
        now, changed = self._clock.monotonic(), _changed(self._folder)
        if changed != self._changed or now - self._read_at > FRESH_SECONDS:
            self._agents = tuple(self._agent(one) for one in self._registry.entries() if one.gateway != self._me)
            self._changed, self._read_at = changed, now
        return self._agents

    def _agent(self, entry: AgentEntry) -> GatewayAgent:
        return GatewayAgent(
            entry=entry,
            command=partial(self._command, entry),
            state=partial(self._state, entry),
            extensions=from_text(entry.extensions),
        )

    async def _command(self, entry: AgentEntry, request: HostCommand, caller: Caller) -> CommandResult:
        try:
            answer = await self._client.ask(entry.socket, "POST", PATH, encode_command(request, caller))
            if answer.status >= 400:
                raise decode_failure(answer.body)
            return decode_done(answer.body)
        except (NoAnswer, ValueError) as silence:
            # Whoever asks next looks into the registry again.
            self._read_at = float("-inf")
            if isinstance(silence, NoAnswer) and not silence.sent:
                raise AgentNotResponding(entry.agent_id, entry.port, entry.agent_type) from silence
            message_id = request.message.message_id if isinstance(request, SendMessage) else ""
            raise OutcomeUnknown(entry.agent_id, entry.port, entry.agent_type, message_id) from silence

    async def _state(self, entry: AgentEntry) -> str:
        try:
            answer = await self._client.ask(entry.socket, "GET", "/status", seconds=STATUS_SECONDS)
            status: dict[str, Any] = msgspec.json.decode(answer.body, type=dict[str, Any])
        except (NoAnswer, ValueError):
            return EXITED
        return str(status.get("state", EXITED))


def _changed(folder: str) -> int:
    try:
        # Each request comes by here more than once, and `Path.stat` takes half as long again.
        return os.stat(folder).st_mtime_ns  # noqa: PTH116 - see above
    except OSError:
        return 0


Command = Callable[[HostCommand, Caller], Awaitable[CommandResult]]
"""Asks an agent's owner for something on behalf of a caller; raises a SynapseError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAgent:
    """One agent as a gateway knows it."""

    entry: AgentEntry
    command: Command = field(repr=False)
    state: Callable[[], Awaitable[str]] = field(repr=False)
    """Tells what the agent does now, one of AGENT_STATES in `core.agent`."""
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


def gateway_name(entry: AgentEntry) -> str:
    """What an agent is called at the gateway."""
    return entry.name or entry.agent_id


class AgentSource(Protocol):
    """Some agents that are here now."""

    def __call__(self) -> Iterable[GatewayAgent]: ...


class GatewayDirectory:
    """Finds agents. Of two with the same name the one of the earlier source counts."""

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
