"""Agents from elsewhere at a gateway: registered by their address, remembered, and run as residents.

An agent elsewhere, run like any other: its driver, and what it needs of this machine.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from synapse.config.settings import Settings
from synapse.core.caller import Caller
from synapse.core.errors import (
    AgentNotFound,
    ExternalAgentFailed,
    ExternalAgentNotFound,
    NameTaken,
    NoAgentThere,
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
from synapse.gateway.in_process import InProcessAgent, InProcessAgents, InProcessSockets, resident_entry
from synapse.host.agent import RunningAgent
from synapse.registry.local import LocalRegistry
from synapse.tasks.recovery import last_prompt

log = logging.getLogger(__name__)


class GatewayExternals:
    """Implements `service.gateway.Registration`; it knows the same agents as `synapse external list`."""

    def __init__(  # noqa: PLR0913 - all that an agent in this process needs, and who else is here
        self,
        settings: Settings,
        store: TaskStore,
        registry: LocalRegistry,
        residents: InProcessAgents,
        clock: Clock,
        *,
        hosts: HostClient,
        gateways: Registry,
        doors: InProcessSockets,
    ) -> None:
        self._doors = doors
        self._settings = settings
        self._store = store
        self._registry = registry
        self._hosts = hosts
        self._gateways = gateways
        self._residents = residents
        self._clock = clock
        self._book = store_under(settings.home)
        self._externals = open_externals(settings.home, allow_private=settings.allow_private_agents)
        self._shown: dict[str, ExternalAgent] = {}
        self._seen: object = None
        # Residents of one process share its lease, so nothing else keeps a second one of a name away.
        self._changing = asyncio.Lock()

    async def start_known(self) -> None:
        """Show those that are remembered; one that cannot be shown stops nobody.

        Raises StoreFailed.
        """
        self._seen = await self._fingerprint()
        await self._follow_book()

    async def recheck(self) -> None:
        """Take note of what `synapse external`, or another gateway, has changed. Called every few seconds.

        An agent runs in one gateway at a time: when a gateway is gone, its agents are taken over.
        """
        now = await self._fingerprint()
        if now == self._seen:
            return
        # Before it is read: what cannot be read now is not read again until it has changed.
        self._seen = now
        try:
            await self._follow_book()
        except SynapseError as error:
            log.warning("externals_not_read", extra={"error": str(error)})

    async def register(self, request: RegisterAgent, caller: Caller) -> ExternalAgent:
        """Find an agent by its card, remember and show it.

        Raises:
            NoAgentThere: there is none, or none that we can speak to.
            InvalidRequest: the address or the name cannot be one, or the caller may not name that address.
            Conflict: the name means another agent.
        """
        await self._refuse_taken(request.agent)
        adding = AddExternal(url=request.url, alias=request.agent, address_checked=not caller.is_own_user)
        try:
            agent = await self._externals.add(adding)
        except ExternalAgentFailed as error:
            raise NoAgentThere(str(error), hint=error.hint) from error
        try:
            await self._refuse_taken(agent.alias)
        except NameTaken:
            await self._externals.remove(RemoveExternal(agent.alias))
            raise
        async with self._changing:
            await self._show(agent)
        return agent

    async def remove(self, agent: str) -> ExternalAgent:
        """Forget an agent that was registered. Raises AgentNotFound."""
        try:
            known = await self._externals.remove(RemoveExternal(agent))
        except ExternalAgentNotFound:
            raise AgentNotFound(agent) from None
        async with self._changing:
            await self._retire(agent)
        return known

    async def _fingerprint(self) -> object:
        others = frozenset(one.agent_id for one in await self._gateways.agents())
        return await asyncio.to_thread(self._book.fingerprint), others - {self._doors.gateway}

    async def _follow_book(self) -> None:
        """Show exactly those that are known. Raises StoreFailed."""
        async with self._changing:
            # Read only now: whoever is shown was written down before.
            known = await self._externals.list()
            for gone in self._shown.keys() - {agent.alias for agent in known}:
                await self._retire(gone)
            for agent in known:
                try:
                    await self._refuse_taken(agent.alias)
                    await self._show(agent)
                except SynapseError as error:
                    log.warning("external_not_shown", extra={"agent": agent.alias, "error": str(error)})

    async def _refuse_taken(self, name: str) -> None:
        ours = [agent.entry for agent in self._residents() if agent.entry.agent_type != AGENT_TYPE]
        # Those that live here, and have a door to the registry, are all in the first of the two.
        others = [entry for entry in await self._registry.agents() if entry.gateway != self._doors.gateway]
        if name and any(gateway_name(entry) == name for entry in (*ours, *others)):
            raise NameTaken(f"an agent of this machine is named '{name}'", hint="choose another id")
        await self._refuse_heir(name)

    async def _refuse_heir(self, name: str) -> None:
        """What waits for an agent of this machine that does not run now is nothing for a stranger of its name."""
        if name and any(task.agent_id != name for task in await self._store.open_tasks(name)):
            raise NameTaken(f"messages wait for an agent of this machine named '{name}'", hint="choose another id")

    async def _show(self, agent: ExternalAgent) -> None:
        """Run it, unless it runs as it is; one that has changed meanwhile is run anew."""
        if self._shown.get(agent.alias) == agent:
            return
        await self._hide(agent.alias)
        entry = resident_entry(agent.alias, AGENT_TYPE, self._clock, endpoint=agent.url)
        allow_private = self._settings.allow_private_agents
        running = external_agent(agent, self._settings.home, self._clock, allow_private=allow_private)
        resident = InProcessAgent(
            entry,
            running,
            store=self._store,
            registry=self._registry,
            hosts=self._hosts,
            settings=self._settings,
            open_door=None if agent.address_checked else self._doors.open,
        )
        await self._residents.add(resident)
        self._shown[agent.alias] = agent

    async def _hide(self, name: str) -> None:
        if self._shown.pop(name, None) is not None:
            await self._residents.remove(name)

    async def _retire(self, name: str) -> None:
        if self._shown.pop(name, None) is not None:
            await self._residents.retire(name)


AGENT_TYPE: Final = "a2a"
THREADS: Final = "threads"


def external_agent(agent: ExternalAgent, home: Path, clock: Clock, *, allow_private: bool = False) -> RunningAgent:
    """The agent, as those around its driver see it. It has a client of its own: a slow one delays no other."""
    client = A2AClient(credentials=credentials_under(home).find, allow_private=allow_private)
    threads = FileTaskRefs(home / FOLDER / THREADS / f"{agent.alias}.json")
    driver = RemoteDriver(agent, client, threads, clock)
    return RunningAgent(
        driver=driver,
        stop=driver.leave,
        retire=driver.give_up,
        exit_status=lambda: None,
        title=agent.name or agent.alias,
        description=agent.description,
        pty_wrapped=False,
        can_resume=lambda task: threads.has(task.id, last_prompt(task).message_id),
        input_modes=modes_in(agent.card, "Input"),
        output_modes=modes_in(agent.card, "Output"),
    )
