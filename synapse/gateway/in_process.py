"""Agents that a gateway runs in its own process, with any driver and the AgentRuntime that a host uses.

    start: lease acquired, unfinished tasks recovered ─► serves requests ─► its driver ends, or `stop` is called

An in-process agent can have a socket and a registry entry, as a host has, so that this user's commands reach it. Only
agents that the user named get one: an agent that was registered with a key must not receive messages that the user
means for another agent.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from typing import Any, Final

from synapse.auth.local import LocalAdmission, LocalAuth, loopback_hosts
from synapse.config.settings import Settings
from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.driver import AgentStatus
from synapse.core.errors import AgentFailed, AgentNotResponding, RegistryFailed, SynapseError, UnsupportedOperation
from synapse.core.extension import to_text
from synapse.core.registry import KEEP_ALIVE_SECONDS, CachedRegistry, HostClient, Registry
from synapse.core.requests import MOST_FINISHED, CommandResult, HostCommand, OnBehalfOf, WatchStatus
from synapse.core.service import Handler
from synapse.core.store import Lease, TaskStore
from synapse.core.types import Clock
from synapse.dialects.synapse.encode import status_object
from synapse.gateway.directory import GatewayAgent
from synapse.host.agent import AgentRuntime, RunningAgent
from synapse.host.identity import acquire_inbox, check_name, holders_of, listen_at_socket, new_entry, release_inbox
from synapse.host.routes import DialectChoice, host_dialects
from synapse.registry.files import FileRegistry
from synapse.server.app import HttpApp
from synapse.server.asgi import HttpLimits
from synapse.server.http import Server
from synapse.server.listener import UnixListener
from synapse.tasks.service import AgentTasks

log = logging.getLogger(__name__)

_GATEWAY: Final = Caller(via_socket=True)
"""The caller of an in-process agent: the gateway itself, as if over the socket of a host."""
_GRACE_SECONDS: Final = 1

OpenSocket = Callable[[AgentEntry, RunningAgent, AgentTasks], AbstractAsyncContextManager[None]]
"""Serves an agent on a socket for the length of a block; see `InProcessSockets.open`."""


class InProcessAgent:
    """One agent in this process, from `start` to `stop`. Implements the directory's `AgentHosts` for itself."""

    def __init__(  # noqa: PLR0913 - the agent, and what AgentRuntime needs
        self,
        entry: AgentEntry,
        agent: RunningAgent,
        *,
        store: TaskStore,
        registry: Registry,
        hosts: HostClient,
        settings: Settings,
        open_socket: OpenSocket | None = None,
    ) -> None:
        self.entry = entry
        entry.takes = agent.acceptance.as_text
        entry.extensions = to_text(agent.extensions)
        entry.lacks = " ".join(agent.lacks)
        self._open_socket = open_socket
        self._agent = agent
        self._store = store
        self._registry = registry
        self._hosts = hosts
        self._settings = settings
        self._service: AgentTasks | None = None
        self._stopping = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._commands: set[asyncio.Task[CommandResult]] = set()
        """Kept until they are done, because the event loop has only weak references to tasks."""

    @property
    def is_running(self) -> bool:
        """Whether it serves requests."""
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
        """Returns when the agent serves requests.

        Raises NameTaken when another agent has the name, StoreFailed, or AgentFailed when it cannot be started.
        """
        holds = holders_of(FileRegistry(self._settings.registry))
        lease = await acquire_inbox(self.entry, self._store, self._registry, holds)
        try:
            runtime = AgentRuntime(
                self.entry,
                self._agent,
                store=self._store,
                lease=lease,
                registry=self._registry,
                hosts=self._hosts,
                settings=self._settings,
            )
            plan = await runtime.plan_recovery()
            started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._running = asyncio.create_task(self._run(runtime, lease, started))
            await started
            await runtime.resume(plan)
        except BaseException:
            await self.stop()
            await release_inbox(lease, self._store)
            raise

    async def retire(self) -> None:
        """Cancels work that only this agent could resume. Called before `stop` when the agent is removed for good."""
        await self._agent.retire()

    async def stop(self) -> None:
        """Stops the agent. Messages in its queue stay there for its next start."""
        self._stopping.set()
        if self._running is not None:
            await asyncio.wait({self._running})

    async def _run(self, runtime: AgentRuntime, lease: Lease, started: asyncio.Future[None]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                jobs = runtime.start(group)
                self._service = runtime.service
                open_socket = self._open_socket
                socket = open_socket(self.entry, self._agent, runtime.service) if open_socket else nullcontext()
                async with socket:
                    if not started.done():
                        started.set_result(None)
                    stopping = asyncio.ensure_future(self._stopping.wait())
                    replaced = asyncio.ensure_future(runtime.lease_lost())
                    await asyncio.wait({jobs[0], stopping, replaced}, return_when=asyncio.FIRST_COMPLETED)
                    stopping.cancel()
                    replaced.cancel()
                self._service = None
                await self._agent.stop()
                await runtime.finish()
                for job in jobs:
                    job.cancel()
        except ExceptionGroup as failure:
            # A defect of one agent must not stop the others.
            log.exception("in_process_agent_failed", extra={"agent": self.entry.agent_id})
            if not started.done():
                why = failure.exceptions[0]
                started.set_exception(AgentFailed(f"{self.entry.agent_id} could not be started: {why}"))
        finally:
            self._service = None
            started.cancel()
            await release_inbox(lease, self._store)

    async def command(self, agent: AgentEntry, request: HostCommand, caller: Caller) -> CommandResult:
        """Runs a command as a host would; see `core.registry.HostClient.command`."""
        if self._service is None:
            raise AgentNotResponding(agent.agent_id, agent.port, agent.agent_type)
        # A caller that leaves is cancelled here: a gRPC call at its deadline, or a WebSocket that closes. The command
        # goes on, as it does in a host: a message that is durable by then must still be queued.
        command = asyncio.create_task(self._service.on_behalf_of(OnBehalfOf(caller, request), _GATEWAY))
        self._commands.add(command)
        command.add_done_callback(self._commands.discard)
        return await asyncio.shield(command)

    async def status(self, _agent: AgentEntry) -> AgentStatus:
        """Returns the agent's status."""
        return self._agent.driver.view().status

    async def watch_status(self, agent: AgentEntry) -> AsyncGenerator[dict[str, Any], None]:
        """Yields the whole status of the agent, then each change of it. Raises AgentNotResponding."""
        if self._service is None:
            raise AgentNotResponding(agent.agent_id, agent.port, agent.agent_type)
        async with aclosing(await self._service.watch_status(WatchStatus(MOST_FINISHED), _GATEWAY)) as statuses:
            async for status in statuses:
                yield status_object(status)

    async def screen(self, _agent: AgentEntry, *, lines: int, known: str) -> dict[str, Any] | None:  # noqa: ARG002 - as the protocol has it
        """Raises UnsupportedOperation: an in-process agent has no terminal."""
        raise UnsupportedOperation("this agent has no terminal", hint="its row shows what the agent does")


class InProcessAgents:
    """The agents of this process, by name. Implements the directory's `AgentSource`."""

    def __init__(self) -> None:
        self._agents: dict[str, InProcessAgent] = {}

    async def refresh(self) -> None:
        """Does nothing: the agents are always up to date."""

    def is_current(self) -> bool:
        return True

    def __call__(self) -> Sequence[GatewayAgent]:
        return [agent.as_agent() for agent in self._agents.values() if agent.is_running]

    async def add(self, agent: InProcessAgent) -> None:
        """Starts an agent and lists it. Raises what `InProcessAgent.start` raises."""
        await agent.start()
        self._agents[agent.entry.name] = agent

    async def remove(self, name: str) -> bool:
        """Stops the agent of that name. Returns False when there is none."""
        agent = self._agents.pop(name, None)
        if agent is not None:
            await agent.stop()
        return agent is not None

    async def retire(self, name: str) -> None:
        """Stops the agent of that name for good, and cancels its work."""
        if name in self._agents:
            await self._agents[name].retire()
            await self.remove(name)

    async def stop(self) -> None:
        """Stops all agents."""
        await asyncio.gather(*(agent.stop() for agent in self._agents.values()))
        self._agents.clear()


def in_process_entry(name: str, agent_type: str, clock: Clock, *, endpoint: str = "") -> AgentEntry:
    """Returns the registry entry of an in-process agent called `name`."""
    return new_entry(name, agent_type, clock, name=name, endpoint=endpoint)


class InProcessSockets:
    """Opens the sockets of a gateway's in-process agents; `gateway` is the gateway's own entry."""

    def __init__(self, gateway: AgentEntry, registry: CachedRegistry, settings: Settings) -> None:
        self._gateway = gateway
        self._registry = registry
        self._settings = settings
        self._open: list[AgentEntry] = []

    @property
    def gateway(self) -> str:
        """The gateway's agent id, which the entries of its agents name."""
        return self._gateway.agent_id

    @asynccontextmanager
    async def open(self, entry: AgentEntry, agent: RunningAgent, service: Handler) -> AsyncGenerator[None]:
        """Serves and lists an agent until the end of the block; without a socket when it cannot have one."""
        try:
            listener = await asyncio.to_thread(self._listen, entry)
        except SynapseError as error:
            log.warning("in_process_agent_not_listed", extra={"agent": entry.agent_id, "error": str(error)})
            yield
            return
        entry.socket, entry.gateway = str(listener.path), self._gateway.agent_id
        entry.endpoint = f"{self._gateway.endpoint}/agents/{entry.name}"
        server = self._server(entry, agent, service, listener)
        serving = asyncio.create_task(server.serve())
        keeping = asyncio.create_task(server.keep_in_place(listener))
        try:
            await _wait_started(server, serving)
            self._open.append(entry)
            # Only now, because commands send as soon as they see the entry.
            await self._publish(entry)
            yield
        finally:
            self._open = [one for one in self._open if one is not entry]
            await self._registry.withdraw(entry.agent_id)
            keeping.cancel()
            server.stop()
            await asyncio.wait({serving})
            listener.close()

    async def restore(self) -> None:
        """Writes registry entries again whose files were removed. Raises RegistryFailed."""
        for entry in tuple(self._open):
            if await self._registry.find(entry.agent_id) is None and entry in self._open:
                await self._registry.publish(entry)

    async def _publish(self, entry: AgentEntry) -> None:
        try:
            await self._registry.publish(entry)
        except RegistryFailed as error:
            # `restore` tries again; meanwhile the gateway serves the agent.
            log.warning("in_process_agent_not_listed", extra={"agent": entry.agent_id, "error": str(error)})

    def _listen(self, entry: AgentEntry) -> UnixListener:
        """Raises InvalidRequest for a name that means other agents to commands, PortTaken or InvalidSettings."""
        check_name(entry.name, self._settings)
        return listen_at_socket(f"{self._gateway.agent_id}-{entry.name}", self._settings)

    def _server(self, entry: AgentEntry, agent: RunningAgent, service: Handler, listener: UnixListener) -> Server:
        dialects = host_dialects(entry, title=agent.title, pty_wrapped=agent.pty_wrapped)
        auth = LocalAuth(
            uid=os.getuid(),
            hosts=loopback_hosts(self._gateway.port),
            entries=lambda: self._registry.latest,
            terminal_decides=self._settings.terminal_decides,
        )
        app = HttpApp(
            service,
            dialects,
            admit=LocalAdmission(auth, self._registry.agents),
            choose=DialectChoice(dialects),
            limits=HttpLimits(max_body_bytes=self._settings.max_body_bytes, keep_alive_seconds=KEEP_ALIVE_SECONDS),
        )
        return Server(app, [listener.socket], grace_seconds=_GRACE_SECONDS)


async def _wait_started(server: Server, serving: asyncio.Task[None]) -> None:
    """Waits until the server accepts connections. Raises what `serve` raises before that."""
    starting = asyncio.ensure_future(server.wait_started())
    await asyncio.wait({starting, serving}, return_when=asyncio.FIRST_COMPLETED)
    starting.cancel()
    if serving.done():
        await serving
