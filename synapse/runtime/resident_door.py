"""How this user's own commands reach an agent inside a gateway: by a socket and a registry entry, like a host's.

Only agents that the user has named have a door: a stranger with a key who registers an agent must not come between the
user and whoever a message was meant for.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from synapse.core.agent import AgentEntry
from synapse.core.errors import SynapseError
from synapse.registries.files import FileRegistry
from synapse.runtime.host_dialects import DialectChoice, host_dialects
from synapse.runtime.place import check_name, take_socket
from synapse.runtime.running_agent import RunningAgent
from synapse.runtime.settings import Settings
from synapse.transports.credentials import Gate, loopback_hosts
from synapse.transports.http import HttpApp, HttpLimits, Service
from synapse.transports.listener import UnixListener
from synapse.transports.server import Server

log = logging.getLogger(__name__)

GRACE_SECONDS = 1


class ResidentDoors:
    """The doors of one gateway's residents; `gateway` is its own entry."""

    def __init__(self, gateway: AgentEntry, registry: FileRegistry, settings: Settings) -> None:
        self._gateway = gateway
        self._registry = registry
        self._settings = settings
        self._open: list[AgentEntry] = []

    @property
    def gateway(self) -> str:
        """Whose they are, as their entries say it."""
        return self._gateway.agent_id

    @asynccontextmanager
    async def open(self, entry: AgentEntry, agent: RunningAgent, service: Service) -> AsyncGenerator[None]:
        """Let commands in until the end of the block. An agent that cannot have a door lives without."""
        try:
            listener = self._listen(entry)
        except SynapseError as error:
            log.warning("resident_not_listed", extra={"agent": entry.agent_id, "error": str(error)})
            yield
            return
        entry.socket, entry.gateway = str(listener.path), self._gateway.agent_id
        entry.endpoint = f"{self._gateway.endpoint}/agents/{entry.name}"
        server = self._server(entry, agent, service, listener)
        serving = asyncio.create_task(server.serve())
        keeping = asyncio.create_task(server.keep_in_place(listener))
        try:
            await server.wait_started()
            # Only now: whoever sees the entry may send.
            self._registry.write(entry)
            self._open.append(entry)
            yield
        finally:
            self._open = [one for one in self._open if one is not entry]
            self._registry.remove(entry.agent_id)
            keeping.cancel()
            server.stop()
            await asyncio.wait({serving})
            listener.close()

    def restore(self) -> None:
        """Write the entries again whose files are lost. Raises OSError."""
        for entry in self._open:
            self._registry.restore(entry)

    def _listen(self, entry: AgentEntry) -> UnixListener:
        """Raises InvalidRequest for a name that means others on a command line; PortTaken or InvalidSettings."""
        check_name(entry.name, self._settings)
        return take_socket(f"{self._gateway.agent_id}-{entry.name}", self._settings)

    def _server(self, entry: AgentEntry, agent: RunningAgent, service: Service, listener: UnixListener) -> Server:
        dialects = host_dialects(entry, title=agent.title, pty_wrapped=agent.pty_wrapped)
        gate = Gate(
            uid=os.getuid(),
            hosts=loopback_hosts(self._gateway.port),
            entries=self._registry.entries,
            terminal_decides=self._settings.terminal_decides,
        )
        app = HttpApp(
            service,
            dialects,
            admit=gate.admit,
            choose=DialectChoice(dialects),
            limits=HttpLimits(max_body_bytes=self._settings.max_body_bytes),
        )
        return Server(app, [listener.socket], grace_seconds=GRACE_SECONDS)
