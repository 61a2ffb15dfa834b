"""Two ports: `Registry` tells which agents run, `HostClient` asks the host of one of them.

Both are asynchronous, so that neither a slow disk nor a silent host stalls an event loop. `LocalRegistry` and
`UnixHostClient` implement them for one machine.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.driver import AgentStatus
from synapse.core.message import Part
from synapse.core.requests import CommandResult, HostCommand, Sender

RETURN_SECONDS: Final = 10.0
"""How long a host may be away to be started again; whoever follows its agent waits so long for it."""


class Registry(Protocol):
    """The agents that run. Every method raises OSError when the registry cannot be read or written."""

    async def agents(self) -> Sequence[AgentEntry]:
        """Return the agents whose hosts live, by agent id."""
        ...

    async def find(self, agent_id: str) -> AgentEntry | None:
        """Return the entry with exactly this id, whether its host lives or not."""
        ...

    async def publish(self, entry: AgentEntry) -> None:
        """Show `entry` to others, in the place of an earlier entry with its id."""
        ...

    async def withdraw(self, agent_id: str) -> None:
        """Remove an entry; a missing one is no error."""
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
    """A connection to an agent's terminal: bytes are terminal bytes, text is a frame of `attach.frames`."""

    async def send(self, data: bytes | str) -> None:
        """Send one frame. Raises ConnectionError when the connection is closed."""
        ...

    async def receive(self) -> bytes | str | None:
        """Return the next frame, or None when the connection is closed."""
        ...

    async def close(self) -> None:
        """Close the connection; closing it again does nothing."""
        ...


class HostClient(Protocol):
    """Asks the hosts of agents."""

    async def command(self, agent: AgentEntry, request: HostCommand, caller: Caller) -> CommandResult:
        """Let the agent's host do `request` on behalf of `caller`.

        Raises:
            AgentNotResponding: the host was not reached, so it did nothing.
            OutcomeUnknown: the host was sent the request and did not answer.
            SynapseError: the error that the host answered with.
        """
        ...

    async def status(self, agent: AgentEntry) -> AgentStatus:
        """Return what the agent does now. Raises AgentNotResponding."""
        ...

    def follow_status(self, agent: AgentEntry) -> AsyncGenerator[AgentStatus, None]:
        """Yield what the agent does now, then each change of its state.

        When the host ends, the stream yields the state `exited`. It goes on when the host is back at the same socket
        within RETURN_SECONDS, as after `synapse restart`, and ends otherwise. A reader that does not keep up misses
        the oldest changes, never the last one.

        Raises:
            AgentNotResponding: the host neither answers nor closes the connection.
            AgentFailed: the host refuses to tell.
        """
        ...

    async def deliver_reply(self, to: Sender, reply: AgentReply) -> None:
        """Bring `reply` to the host of the agent `to`, which is known by its inbox and may have another port by now.

        Raises:
            TaskNotFound: the agent does not wait, or no longer.
            AgentNotFound, AgentNotResponding: the agent is gone.
            AgentFailed: its host refuses the reply.
        """
        ...

    async def open_terminal(self, agent: AgentEntry) -> Channel:
        """Connect to the agent's terminal, as `synapse attach` does; the first frame to send is `attach.frames.Hello`.

        Raises:
            UnsupportedOperation: the agent has no terminal.
            AccessDenied: the host refuses, because only a person may attach.
            AgentNotResponding: the host was not reached, or does not answer.
        """
        ...
