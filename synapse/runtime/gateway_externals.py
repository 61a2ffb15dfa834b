"""Agents from elsewhere at a gateway: registered by their address, remembered, and run as residents."""

from __future__ import annotations

import asyncio
import logging

from synapse.core.clock import Clock
from synapse.core.errors import AgentNotFound, ExternalAgentNotFound, NameTaken, SynapseError
from synapse.core.requests import AddExternal, RegisterAgent, RemoveExternal
from synapse.core.status import ExternalAgent
from synapse.registries.files import FileRegistry
from synapse.runtime.external_agent import AGENT_TYPE, external_agent
from synapse.runtime.externals import open_externals
from synapse.runtime.resident import Resident, Residents, resident_entry
from synapse.runtime.settings import Settings
from synapse.service.gateway_directory import gateway_name
from synapse.stores.sqlite import SqliteStore

log = logging.getLogger(__name__)


class GatewayExternals:
    """Implements `service.gateway.Registration`; it knows the same agents as `synapse external list`."""

    def __init__(
        self, settings: Settings, store: SqliteStore, registry: FileRegistry, residents: Residents, clock: Clock
    ) -> None:
        self._settings = settings
        self._store = store
        self._registry = registry
        self._residents = residents
        self._clock = clock
        self._externals = open_externals(settings.home)
        # Residents of one process share its lease, so nothing else keeps a second one of a name away.
        self._changing = asyncio.Lock()

    async def start_known(self) -> None:
        """Show those that are remembered; one that cannot be shown stops nobody."""
        for agent in await self._externals.list():
            try:
                await self._refuse_heir(agent.alias)
                await self._show(agent)
            except SynapseError as error:
                log.warning("external_not_shown", extra={"agent": agent.alias, "error": str(error)})

    async def register(self, request: RegisterAgent) -> ExternalAgent:
        """Find an agent by its card, remember and show it.

        Raises InvalidRequest, Conflict or ExternalAgentFailed.
        """
        await self._refuse_taken(request.agent)
        agent = await self._externals.add(AddExternal(url=request.url, alias=request.agent))
        try:
            await self._refuse_taken(agent.alias)
        except NameTaken:
            await self._externals.remove(RemoveExternal(agent.alias))
            raise
        async with self._changing:
            await self._residents.remove(agent.alias)
            await self._show(agent)
        return agent

    async def remove(self, agent: str) -> ExternalAgent:
        """Forget an agent that was registered. Raises AgentNotFound."""
        try:
            known = await self._externals.remove(RemoveExternal(agent))
        except ExternalAgentNotFound:
            raise AgentNotFound(agent) from None
        async with self._changing:
            await self._residents.remove(agent)
        return known

    async def _refuse_taken(self, name: str) -> None:
        ours = (agent.entry for agent in self._residents() if agent.entry.agent_type != AGENT_TYPE)
        if name and any(gateway_name(entry) == name for entry in (*ours, *self._registry.entries())):
            raise NameTaken(f"an agent of this machine is named '{name}'", hint="choose another id")
        await self._refuse_heir(name)

    async def _refuse_heir(self, name: str) -> None:
        """What waits for an agent of this machine that does not run now is nothing for a stranger of its name."""
        if name and any(task.agent_id != name for task in await self._store.open_tasks(name)):
            raise NameTaken(f"messages wait for an agent of this machine named '{name}'", hint="choose another id")

    async def _show(self, agent: ExternalAgent) -> None:
        entry = resident_entry(agent.alias, AGENT_TYPE, self._clock, endpoint=agent.url)
        running = external_agent(agent, self._settings.home, self._clock)
        resident = Resident(entry, running, store=self._store, registry=self._registry, settings=self._settings)
        await self._residents.add(resident)
