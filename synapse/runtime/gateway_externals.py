"""Agents from elsewhere at a gateway: registered by their address, remembered, and run as residents."""

from __future__ import annotations

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
from synapse.stores.sqlite import SqliteStore
from synapse.transports.a2a_client import A2AClient

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
        self._client = A2AClient(clock)

    async def start_known(self) -> None:
        """Show those that are remembered; one that cannot be shown stops nobody."""
        for agent in await self._externals.list():
            try:
                await self._show(agent)
            except SynapseError as error:
                log.warning("external_not_shown", extra={"agent": agent.alias, "error": str(error)})

    async def register(self, request: RegisterAgent) -> ExternalAgent:
        """Find an agent by its card, remember and show it.

        Raises InvalidRequest, Conflict or ExternalAgentFailed.
        """
        self._refuse_taken(request.agent)
        agent = await self._externals.add(AddExternal(url=request.url, alias=request.agent))
        try:
            self._refuse_taken(agent.alias)
        except NameTaken:
            await self._externals.remove(RemoveExternal(agent.alias))
            raise
        await self._residents.remove(agent.alias)
        await self._show(agent)
        return agent

    async def remove(self, agent: str) -> ExternalAgent:
        """Forget an agent that was registered. Raises AgentNotFound."""
        try:
            known = await self._externals.remove(RemoveExternal(agent))
        except ExternalAgentNotFound:
            raise AgentNotFound(agent) from None
        await self._residents.remove(agent)
        return known

    def _refuse_taken(self, name: str) -> None:
        ours = (agent.entry for agent in self._residents() if agent.entry.agent_type != AGENT_TYPE)
        if name and any(entry.name == name for entry in (*ours, *self._registry.entries())):
            raise NameTaken(f"an agent of this machine is named '{name}'", hint="choose another id")

    async def _show(self, agent: ExternalAgent) -> None:
        entry = resident_entry(agent.alias, AGENT_TYPE, self._clock, endpoint=agent.url)
        running = external_agent(agent, self._client, self._clock)
        resident = Resident(entry, running, store=self._store, registry=self._registry, settings=self._settings)
        await self._residents.add(resident)
