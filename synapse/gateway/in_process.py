"""Agents that a gateway runs in its own process: any driver, with the same parts around it as in a host.

started: the inbox is taken, what was left is taken over ─► asked ─► its driver ends, or it is told to stop

How this user's own commands reach an agent inside a gateway: by a socket and a registry entry, like a host's.

Only agents that the user has named have a door: a stranger with a key who registers an agent must not come between the
user and whoever a message was meant for.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Final

from synapse import __version__
from synapse.auth.local import LocalAdmission, LocalAuth, loopback_hosts
from synapse.config.settings import Settings
from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.driver import AgentStatus
from synapse.core.errors import AgentNotResponding, SynapseError
from synapse.core.extension import to_text
from synapse.core.registry import HostClient
from synapse.core.requests import CommandResult, HostCommand, OnBehalfOf
from synapse.core.service import Handler
from synapse.core.store import Lease, TaskStore
from synapse.core.types import Clock
from synapse.gateway.directory import GatewayAgent
from synapse.host.agent import AgentRuntime, RunningAgent
from synapse.host.identity import check_name, leave_inbox, take_inbox, take_socket
from synapse.host.routes import DialectChoice, host_dialects
from synapse.registry.files import own_namespace, own_start_time
from synapse.registry.local import LocalRegistry
from synapse.server.app import HttpApp
from synapse.server.asgi import HttpLimits
from synapse.server.http import Server
from synapse.server.listener import UnixListener
from synapse.tasks.service import AgentTasks

log = logging.getLogger(__name__)

_GATEWAY: Final = Caller(via_socket=True)
"""Who asks a resident: the gateway itself, as if over the socket of a host."""


OpenDoor = Callable[[AgentEntry, RunningAgent, AgentTasks], AbstractAsyncContextManager[None]]
"""Lets this user's own commands in for a while; see `runtime.resident_door`."""


def _no_door(_entry: AgentEntry, _agent: RunningAgent, _service: AgentTasks) -> AbstractAsyncContextManager[None]:
    return nullcontext()


class InProcessAgent:
    """One agent in this process, from `start` to `stop`."""

    def __init__(  # noqa: PLR0913 - the agent, and all that its parts need
        self,
        entry: AgentEntry,
        agent: RunningAgent,
        *,
        store: TaskStore,
        registry: LocalRegistry,
        hosts: HostClient,
        settings: Settings,
        open_door: OpenDoor | None = None,
    ) -> None:
        self.entry = entry
        entry.takes = agent.acceptance.as_text
        entry.extensions = to_text(agent.extensions)
        entry.lacks = " ".join(agent.lacks)
        self._open_door = open_door or _no_door
        self._agent = agent
        self._store = store
        self._registry = registry
        self._hosts = hosts
        self._settings = settings
        self._service: AgentTasks | None = None
        self._stopping = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    @property
    def is_here(self) -> bool:
        """Whether it can be asked."""
        return self._service is not None

    def as_agent(self) -> GatewayAgent:
        return GatewayAgent(
            entry=self.entry,
            hosts=self,
            title=self._agent.title,
            description=self._agent.description,
            input_modes=self._agent.input_modes,
            output_modes=self._agent.output_modes,
            extensions=self._agent.extensions,
        )

    async def start(self) -> None:
        """Return when it can be asked.

        Raises NameTaken when another agent has the name, and StoreFailed.
        """
        lease = await take_inbox(self.entry, self._store, self._registry)
        try:
            parts = AgentRuntime(
                self.entry,
                self._agent,
                store=self._store,
                lease=lease,
                registry=self._registry,
                hosts=self._hosts,
                settings=self._settings,
            )
            left = await parts.left()
            started = asyncio.Event()
            self._running = asyncio.create_task(self._run(parts, lease, started))
            await started.wait()
            await parts.resume(left)
        except BaseException:
            await self.stop()
            await leave_inbox(lease, self._store)
            raise

    async def retire(self) -> None:
        """End what only it could go on with: there will be no next start."""
        await self._agent.retire()

    async def stop(self) -> None:
        """End it; what waits in its queue waits for its next start."""
        self._stopping.set()
        if self._running is not None:
            await asyncio.wait({self._running})

    async def _run(self, parts: AgentRuntime, lease: Lease, started: asyncio.Event) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                jobs = parts.start(group)
                self._service = parts.service
                async with self._open_door(self.entry, self._agent, parts.service):
                    started.set()
                    told = asyncio.ensure_future(self._stopping.wait())
                    replaced = asyncio.ensure_future(parts.lease_lost())
                    await asyncio.wait({jobs[0], told, replaced}, return_when=asyncio.FIRST_COMPLETED)
                    told.cancel()
                    replaced.cancel()
                self._service = None
                await self._agent.stop()
                await parts.say_farewell()
                for job in jobs:
                    job.cancel()
        except ExceptionGroup:
            # One agent's defect is not the end of the others.
            log.exception("resident_failed", extra={"agent": self.entry.agent_id})
        finally:
            self._service = None
            started.set()
            await leave_inbox(lease, self._store)

    async def command(self, agent: AgentEntry, request: HostCommand, caller: Caller) -> CommandResult:
        """Do what a host does that is sent a command; see `core.registry.HostClient`."""
        if self._service is None:
            raise AgentNotResponding(agent.agent_id, agent.port, agent.agent_type)
        return await self._service.on_behalf_of(OnBehalfOf(caller, request), _GATEWAY)

    async def status(self, _agent: AgentEntry) -> AgentStatus:
        """Return what the agent does now."""
        return self._agent.driver.view().status


class InProcessAgents:
    """The agents of this process, by name. Implements `AgentSource`."""

    def __init__(self) -> None:
        self._residents: dict[str, InProcessAgent] = {}

    async def refresh(self) -> None:
        """Who is here is known at any moment."""

    def is_current(self) -> bool:
        return True

    def __call__(self) -> Sequence[GatewayAgent]:
        return [resident.as_agent() for resident in self._residents.values() if resident.is_here]

    async def add(self, resident: InProcessAgent) -> None:
        """Start it, and show it. Raises what `InProcessAgent.start` raises."""
        await resident.start()
        self._residents[resident.entry.name] = resident

    async def remove(self, name: str) -> bool:
        """Stop the resident of that name; False when there is none."""
        resident = self._residents.pop(name, None)
        if resident is not None:
            await resident.stop()
        return resident is not None

    async def retire(self, name: str) -> None:
        """Stop the resident of that name for good: what it works on is canceled."""
        if name in self._residents:
            await self._residents[name].retire()
            await self.remove(name)

    async def stop(self) -> None:
        """Stop all."""
        await asyncio.gather(*(resident.stop() for resident in self._residents.values()))
        self._residents.clear()


def resident_entry(name: str, agent_type: str, clock: Clock, *, endpoint: str = "") -> AgentEntry:
    """The identity of an agent that lives in this process and is asked under `name`."""
    return AgentEntry(
        name,
        agent_type,
        name=name,
        pid=os.getpid(),
        pid_started=own_start_time(),
        pid_namespace=own_namespace(),
        endpoint=endpoint,
        working_dir=str(Path.cwd()),
        started_at=clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        version=__version__,
    )


GRACE_SECONDS = 1


class InProcessSockets:
    """The doors of one gateway's residents; `gateway` is its own entry."""

    def __init__(self, gateway: AgentEntry, registry: LocalRegistry, settings: Settings) -> None:
        self._gateway = gateway
        self._registry = registry
        self._settings = settings
        self._open: list[AgentEntry] = []

    @property
    def gateway(self) -> str:
        """Whose they are, as their entries say it."""
        return self._gateway.agent_id

    @asynccontextmanager
    async def open(self, entry: AgentEntry, agent: RunningAgent, service: Handler) -> AsyncGenerator[None]:
        """Let commands in until the end of the block. An agent that cannot have a door lives without."""
        try:
            listener = await asyncio.to_thread(self._listen, entry)
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
            await self._registry.publish(entry)
            self._open.append(entry)
            yield
        finally:
            self._open = [one for one in self._open if one is not entry]
            await self._registry.withdraw(entry.agent_id)
            keeping.cancel()
            server.stop()
            await asyncio.wait({serving})
            listener.close()

    async def restore(self) -> None:
        """Write the entries again whose files are lost. Raises OSError."""
        for entry in tuple(self._open):
            if await self._registry.find(entry.agent_id) is None and entry in self._open:
                await self._registry.publish(entry)

    def _listen(self, entry: AgentEntry) -> UnixListener:
        """Raises InvalidRequest for a name that means others on a command line; PortTaken or InvalidSettings."""
        check_name(entry.name, self._settings)
        return take_socket(f"{self._gateway.agent_id}-{entry.name}", self._settings)

    def _server(self, entry: AgentEntry, agent: RunningAgent, service: Handler, listener: UnixListener) -> Server:
        dialects = host_dialects(entry, title=agent.title, pty_wrapped=agent.pty_wrapped)
        gate = LocalAuth(
            uid=os.getuid(),
            hosts=loopback_hosts(self._gateway.port),
            entries=lambda: self._registry.latest,
            terminal_decides=self._settings.terminal_decides,
        )
        app = HttpApp(
            service,
            dialects,
            admit=LocalAdmission(gate, self._registry.agents),
            choose=DialectChoice(dialects),
            limits=HttpLimits(max_body_bytes=self._settings.max_body_bytes),
        )
        return Server(app, [listener.socket], grace_seconds=GRACE_SECONDS)
