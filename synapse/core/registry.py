"""Two ports: `Registry` lists the running agents, `HostClient` sends requests to the host of one of them.

Both are asynchronous, so that neither a slow disk nor a silent host stalls an event loop. `CachedRegistry` is a
Registry that also answers at once, with what it read last. `LocalRegistry` and `UnixHostClient` implement the ports for
one machine.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.driver import AgentStatus
from synapse.core.message import Part, Sender
from synapse.core.requests import MOST_FINISHED, CommandResult, HostCommand

RETURN_SECONDS: Final = 10.0
"""How long followers of an agent wait for its host to return, as after `synapse restart`."""

KEEP_ALIVE_SECONDS: Final = 5.0
"""How often a host sends a comment on an idle stream: its followers notice soon when it is frozen."""


class Registry(Protocol):
    """Lists the running agents. Every method raises RegistryFailed when the registry cannot be read or written."""

    async def agents(self) -> Sequence[AgentEntry]:
        """Returns the agents whose hosts are alive, sorted by agent id."""
        ...

    async def find(self, agent_id: str) -> AgentEntry | None:
        """Returns the entry with exactly this id, whether its host is alive or not."""
        ...

    async def publish(self, entry: AgentEntry) -> None:
        """Publishes `entry`, and replaces an earlier entry with its id."""
        ...

    async def withdraw(self, agent_id: str) -> None:
        """Removes an entry; does nothing if it is missing."""
        ...


class CachedRegistry(Registry, Protocol):
    """A Registry for code that decides about a connection or a request, and must not wait for each."""

    @property
    def latest(self) -> Sequence[AgentEntry]:
        """The agents that the last read found: the same object until the next read."""
        ...

    def is_fresh(self) -> bool:
        """Returns whether `agents` would return `latest` without a new read. Does not block."""
        ...

    def recheck(self) -> None:
        """Makes the next `agents` check again whether each host is alive: one of them did not answer."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReply:
    """A reply on its way to the agent that waits for it."""

    sender: Sender
    """The agent that replies."""
    in_reply_to: str
    """The task of the waiting agent that the reply settles."""
    parts: tuple[Part, ...]
    failed: bool = False
    inferred: bool = False
    """True for the final text of a turn that ended without an explicit reply."""


class Channel(Protocol):
    """A connection to an agent's terminal, with frames of `attach.frames` or `attach.terminal_frames`."""

    async def send(self, data: bytes | str) -> None:
        """Sends one frame. Raises ConnectionError when the connection is closed."""
        ...

    async def receive(self) -> bytes | str | None:
        """Returns the next frame, or None when the connection is closed."""
        ...

    async def close(self) -> None:
        """Closes the connection; idempotent."""
        ...


class HostClient(Protocol):
    """Sends requests to the hosts of agents."""

    async def command(self, agent: AgentEntry, request: HostCommand, caller: Caller) -> CommandResult:
        """Sends `request` to the agent's host on behalf of `caller`.

        Raises:
            AgentNotResponding: the host could not be reached, so it did nothing.
            OutcomeUnknown: the request was sent, and the host did not answer.
            SynapseError: the error that the host answered with.
        """
        ...

    async def status(self, agent: AgentEntry) -> AgentStatus:
        """Returns the agent's status now. Raises AgentNotResponding."""
        ...

    def follow_status(self, agent: AgentEntry) -> AsyncGenerator[AgentStatus, None]:
        """Yields the agent's status now, then each change of it.

        When the host ends, the stream yields the state `exited`. It continues if the host returns to its socket within
        RETURN_SECONDS, as after `synapse restart`, and ends otherwise. A reader that does not keep up misses the oldest
        changes, never the last one.

        Raises:
            AgentNotResponding: the host neither answers nor closes the connection.
            AgentFailed: the host refuses the request.
        """
        ...

    def watch_status(self, agent: AgentEntry, *, finished: int = MOST_FINISHED) -> AsyncGenerator[dict[str, Any], None]:
        """Yields the JSON of the host's `GET /status?finished=N`, then each change of it: what `client.overview` reads.

        When the host ends, the stream yields only the state `exited`, why, and since when. It continues and ends as
        `follow_status` does, and raises the same errors.
        """
        ...

    async def screen(self, agent: AgentEntry, *, lines: int = 0, known: str = "") -> dict[str, Any] | None:
        """Returns the JSON of the host's `GET /screen?lines=N`, or None if that is still the version `known`.

        Raises:
            UnsupportedOperation: the agent has no terminal.
            AgentNotResponding: the host does not answer.
            SynapseError: the error that the host answered with.
        """
        ...

    async def deliver_reply(self, to: Sender, reply: AgentReply) -> None:
        """Delivers `reply` to the host of the agent `to`, found by its inbox because its port may have changed.

        Raises:
            TaskNotFound: the agent does not wait for this reply.
            AgentNotFound, AgentNotResponding: the agent is gone.
            AgentFailed: its host refuses the reply.
        """
        ...

    async def open_terminal(self, agent: AgentEntry) -> Channel:
        """Connects to the agent's terminal, as `synapse attach` does; the first frame to send is `attach.frames.Hello`.

        Raises:
            UnsupportedOperation: the agent has no terminal.
            AccessDenied: the host refuses, because only a person may attach.
            AgentNotResponding: the host could not be reached, or does not answer.
        """
        ...

    async def follow_terminal(self, agent: AgentEntry) -> Channel:
        """Connects to the agent's terminal by offset; the first frame to send is `attach.terminal_frames.Open`.

        Raises what `open_terminal` raises.
        """
        ...
