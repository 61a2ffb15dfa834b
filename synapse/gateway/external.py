"""External agents at a gateway: registers them by URL, stores them, and runs each as an in-process agent."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from synapse.config.settings import Settings
from synapse.core.caller import Caller
from synapse.core.errors import (
    AgentNotFound,
    ExternalAgentFailed,
    ExternalAgentNotFound,
    NameTaken,
    NoAgentThere,
    RegistryFailed,
    SynapseError,
)
from synapse.core.registry import HostClient, Registry
from synapse.core.requests import AddExternal, ExternalAgent, RegisterAgent, RemoveExternal
from synapse.core.store import TaskStore
from synapse.core.types import Clock
from synapse.external.card import modes_in
from synapse.external.client import FOLDER, A2AClient, credentials_under, open_externals, store_under
from synapse.external.driver import FileTaskRefs, RemoteDriver
from synapse.gateway.directory import gateway_name
from synapse.gateway.in_process import InProcessAgent, InProcessAgents, InProcessSockets, in_process_entry
from synapse.host.agent import RunningAgent
from synapse.host.background import EXTERNAL
from synapse.tasks.recovery import last_prompt

log = logging.getLogger(__name__)


class GatewayExternals:
    """Implements `gateway.service.Registration`, for the agents that `synapse external list` shows."""

    def __init__(  # noqa: PLR0913 - what an in-process agent needs, and the other agents and gateways
        self,
        settings: Settings,
        store: TaskStore,
        registry: Registry,
        agents: InProcessAgents,
        clock: Clock,
        *,
        hosts: HostClient,
        gateways: Registry,
        sockets: InProcessSockets,
    ) -> None:
        self._sockets = sockets
        self._settings = settings
        self._store = store
        self._registry = registry
        self._hosts = hosts
        self._gateways = gateways
        self._agents = agents
        self._clock = clock
        self._external_store = store_under(settings.home)
        self._externals = open_externals(settings.home, allow_private=settings.allow_private_agents)
        self._running: dict[str, ExternalAgent] = {}
        self._last_fingerprint: object = None
        # All in-process agents have this process as lease holder, so the lease does not prevent a second one of a name.
        self._changing = asyncio.Lock()

    async def start_known(self) -> None:
        """Runs the stored agents; logs those that cannot be run. Raises StoreFailed."""
        self._last_fingerprint = await self._fingerprint()
        await self._follow_store()

    async def recheck(self) -> None:
        """Applies changes by `synapse external` and by other gateways. Called every few seconds.

        An external agent runs in one gateway at a time; when that gateway is gone, another takes the agent over.
        """
        try:
            now = await self._fingerprint()
            if now == self._last_fingerprint:
                return
            # Set before reading, so that a file that cannot be read is not read again until it has changed.
            self._last_fingerprint = now
            await self._follow_store()
        except SynapseError as error:
            log.warning("externals_not_read", extra={"error": str(error)})

    async def register(self, request: RegisterAgent, caller: Caller) -> ExternalAgent:
        """Fetches an agent's card, stores the agent and runs it.

        Raises:
            NoAgentThere: no agent answers at the URL, or none with a supported interface.
            InvalidRequest: the URL or the name is invalid, or the caller may not use that address.
            Conflict: the name is that of another agent.
        """
        await self._check_name_free(request.agent)
        adding = AddExternal(url=request.url, alias=request.agent, address_checked=not caller.is_own_user)
        try:
            agent = await self._externals.add(adding)
        except ExternalAgentFailed as error:
            raise NoAgentThere(str(error), hint=error.hint) from error
        try:
            await self._check_name_free(agent.alias)
        except SynapseError:
            await self._externals.remove(RemoveExternal(agent.alias))
            raise
        async with self._changing:
            await self._run(agent)
        return agent

    async def remove(self, agent: str) -> ExternalAgent:
        """Removes a registered agent. Raises AgentNotFound."""
        try:
            known = await self._externals.remove(RemoveExternal(agent))
        except ExternalAgentNotFound:
            raise AgentNotFound(agent) from None
        async with self._changing:
            await self._retire(agent)
        return known

    async def _fingerprint(self) -> object:
        others = frozenset(one.agent_id for one in await self._gateways.agents())
        return await asyncio.to_thread(self._external_store.fingerprint), others - {self._sockets.gateway}

    async def _follow_store(self) -> None:
        """Runs exactly the stored agents. Raises StoreFailed."""
        async with self._changing:
            # Read under the lock: every running agent was stored before.
            known = await self._externals.list()
            for gone in self._running.keys() - {agent.alias for agent in known}:
                await self._retire(gone)
            for agent in known:
                try:
                    await self._check_name_free(agent.alias)
                    await self._run(agent)
                except SynapseError as error:
                    log.warning("external_not_shown", extra={"agent": agent.alias, "error": str(error)})
                    if isinstance(error, RegistryFailed):
                        self._last_fingerprint = None  # the next recheck tries again

    async def _check_name_free(self, name: str) -> None:
        """Raises NameTaken if an agent of this machine has the name, or if messages wait for one."""
        ours = [agent.entry for agent in self._agents() if agent.entry.agent_type != EXTERNAL]
        # In-process agents of this gateway are in `ours`, also when the registry lists them.
        others = [entry for entry in await self._registry.agents() if entry.gateway != self._sockets.gateway]
        if name and any(gateway_name(entry) == name for entry in (*ours, *others)):
            raise NameTaken(f"an agent of this machine is named '{name}'", hint="choose another id")
        # Messages that wait for a stopped agent of this machine must not go to an external agent of its name.
        if name and any(task.agent_id != name for task in await self._store.open_tasks(name)):
            raise NameTaken(f"messages wait for an agent of this machine named '{name}'", hint="choose another id")

    async def _run(self, agent: ExternalAgent) -> None:
        """Runs an agent; restarts it if it has changed since it was started."""
        if self._running.get(agent.alias) == agent:
            return
        if self._running.pop(agent.alias, None) is not None:
            await self._agents.remove(agent.alias)
        entry = in_process_entry(agent.alias, EXTERNAL, self._clock, endpoint=agent.url)
        allow_private = self._settings.allow_private_agents
        running = await external_agent(agent, self._settings.home, self._clock, allow_private=allow_private)
        in_process = InProcessAgent(
            entry,
            running,
            store=self._store,
            registry=self._registry,
            hosts=self._hosts,
            settings=self._settings,
            open_socket=None if agent.address_checked else self._sockets.open,
        )
        await self._agents.add(in_process)
        self._running[agent.alias] = agent

    async def _retire(self, name: str) -> None:
        if self._running.pop(name, None) is not None:
            await self._agents.retire(name)


async def external_agent(
    agent: ExternalAgent, home: Path, clock: Clock, *, allow_private: bool = False
) -> RunningAgent:
    """Returns the running agent around a RemoteDriver. It has a client of its own, so a slow agent delays no other."""
    client = A2AClient(credentials=credentials_under(home).find, allow_private=allow_private)
    refs = await asyncio.to_thread(FileTaskRefs, home / FOLDER / "threads" / f"{agent.alias}.json")
    driver = RemoteDriver(agent, client, refs, clock)
    return RunningAgent(
        driver=driver,
        stop=driver.leave,
        retire=driver.give_up,
        exit_status=lambda: None,
        title=agent.name or agent.alias,
        description=agent.description,
        pty_wrapped=False,
        can_resume=lambda task: refs.has(task.id, last_prompt(task).message_id),
        input_modes=modes_in(agent.card, "Input"),
        output_modes=modes_in(agent.card, "Output"),
    )
