"""The gateway: one address for all agents. Builds the object graph, serves it, and takes it down in order.

take a place → open the store → residents → serve → keep agents running → told to stop → drain → take down
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from synapse import __version__
from synapse.core.caller import ACTIONS, APPROVE, REGISTER, Caller
from synapse.core.capability import CAPABILITIES
from synapse.core.errors import InvalidSettings, NameTaken, StoreFailed
from synapse.core.listed_agent import ListedAgent
from synapse.dialects.hub.paths import WEBSOCKET_PATH
from synapse.dialects.hub.routes import hub_dialect
from synapse.drivers.scripted.script import read_script
from synapse.registries.files import FileRegistry
from synapse.runtime.agent_keeper import AgentKeeper
from synapse.runtime.file_limit import Limit, open_file_limit, raise_file_limit
from synapse.runtime.gateway_cards import GatewayCards
from synapse.runtime.gateway_config import AgentConfig
from synapse.runtime.gateway_dialects import GatewayChoice, gateway_dialects
from synapse.runtime.gateway_discovery import is_discovery, status_dialect
from synapse.runtime.gateway_externals import GatewayExternals
from synapse.runtime.gateway_grpc import GrpcDoor
from synapse.runtime.gateway_hosts import HostAgents
from synapse.runtime.gateway_operations import operations_dialect, public_paths
from synapse.runtime.gateway_place import GatewayPlan, gateway_addresses, gateways
from synapse.runtime.host import spare_the_collector, told_to_stop
from synapse.runtime.metrics import Metrics
from synapse.runtime.open_gate import gateway_names, new_tickets, open_gate
from synapse.runtime.open_store import open_store
from synapse.runtime.resident import Resident, Residents, resident_entry
from synapse.runtime.resident_door import ResidentDoors
from synapse.runtime.scripted_agent import AGENT_TYPE as SCRIPTED
from synapse.runtime.scripted_agent import play
from synapse.runtime.system_clock import SystemClock
from synapse.runtime.tls import tls_context
from synapse.runtime.unowned import Unowned
from synapse.service.feed import Feed
from synapse.service.figures import FigureTaker
from synapse.service.gateway import GatewayService
from synapse.service.gateway_directory import GatewayAgent, GatewayDirectory
from synapse.service.gateway_tasks import GatewayTasks
from synapse.service.journal import Journal
from synapse.service.open_streams import CountedStreams, OpenStreams
from synapse.service.quota import KeyQuotas
from synapse.service.store_tail import StoreTail
from synapse.service.tickets import Ticket
from synapse.stores.sqlite import SqliteStore
from synapse.transports.acceptor import ConnectionLimits, limits_within
from synapse.transports.asgi import Scope
from synapse.transports.cors import CorsApp
from synapse.transports.credentials import PEER, Gate, loopback_hosts
from synapse.transports.gateway_gate import GatewayGate
from synapse.transports.host_client import HostClient
from synapse.transports.http import HttpApp, HttpLimits
from synapse.transports.hub_socket import HubSocket
from synapse.transports.observed_service import ObservedService
from synapse.transports.probes import ProbedApp
from synapse.transports.served_app import ServedApp
from synapse.transports.server import Server
from synapse.transports.websocket import ForEveryCaller

if TYPE_CHECKING:
    from synapse.transports.grpc_server import GrpcServer

log = logging.getLogger(__name__)

GRACE_SECONDS: Final = 3
SWEEP_SECONDS: Final = 2.0
MOST_UNPROVEN: Final = 512
"""Connections on which nobody was admitted yet; the first request on one decides."""
MOST_UNPROVEN_PER_ADDRESS: Final = 64
_AN_AGENTS_ACTIONS: Final = frozenset(ACTIONS) - {APPROVE, REGISTER}


class Gateway:
    """Everything that one gateway process has."""

    def __init__(self, plan: GatewayPlan, store: SqliteStore, *, file_limit: Limit) -> None:
        """`file_limit` is the limit of open files that this process was started with."""
        self._file_limit = file_limit
        self._plan = plan
        self._config, self._settings = plan.config, plan.settings
        self._me = plan.place.entry
        self._store = store
        self._clock = SystemClock()
        self._registry = FileRegistry(plan.settings.registry)
        self._client = HostClient(self._clock.monotonic)
        self._residents = Residents()
        self._doors = ResidentDoors(self._me, self._registry, plan.settings)
        hosts = HostAgents(self._registry, self._client, self._clock, me=self._me.agent_id)
        # A host before a resident: nobody registers an agent from elsewhere in the place of one that runs here.
        told = {agent.id: agent.extensions for agent in plan.config.agents}
        lacks = {agent.id: agent.lacks for agent in plan.config.agents}
        self.directory = GatewayDirectory(hosts, self._residents, extensions=told, lacks=lacks)
        self._externals = GatewayExternals(
            plan.settings, store, self._registry, self._residents, self._clock, doors=self._doors
        )
        self._tickets = new_tickets()
        self._metrics = Metrics()
        self._streams = OpenStreams(plan.access.open_streams)
        self.gate = self._open_gate()
        self.service = self._new_service()
        self.grpc_url = ""
        """Where gRPC is served, once it is."""

    @property
    def url(self) -> str:
        """Where others reach it."""
        return self._me.endpoint

    async def run(self, on_ready: Callable[[Gateway], None]) -> None:
        """Serve until this process is told to end. Raises NameTaken, InvalidScript,
        InvalidSettings or StoreFailed at the start.
        """
        stop = told_to_stop()
        servers = self._servers()
        try:
            await self._start_residents()
            self._check_default_agent()
            async with asyncio.TaskGroup() as group:
                serving = [group.create_task(server.serve()) for server in servers]
                for server in servers:
                    await server.wait_started()
                spare_the_collector()
                gateways(self._settings.home).write(self._me)
                keepers = [group.create_task(keeper.keep()) for keeper in self._keepers()]
                keepers.append(group.create_task(self._sweep()))
                keepers.append(group.create_task(servers[1].keep_in_place(self._plan.place.unix)))
                log.info("gateway_started", extra={"url": self.url, "grpc": self.grpc_url})
                on_ready(self)
                await stop
                log.info("gateway_stopping")
                with suppress(StoreFailed):
                    # As in a host: what its residents wait to record.
                    await self._store.recover()
                gateways(self._settings.home).remove(self._me.agent_id)
                for server in servers:
                    server.stop()
                await asyncio.wait(serving)
                for keeping in keepers:
                    keeping.cancel()
        finally:
            gateways(self._settings.home).remove(self._me.agent_id)
            await self._residents.stop()
            self._client.close()

    async def _start_residents(self) -> None:
        for agent in self._config.agents:
            if agent.driver:
                await self._play(agent)
        await self._externals.start_known()

    def _check_default_agent(self) -> None:
        """Raise InvalidSettings for a default agent that is neither configured nor here when the gateway starts."""
        wanted = self._config.default_agent
        known = {agent.id for agent in self._config.agents} | {agent.name for agent in self.directory.agents()}
        if not wanted or wanted in known:
            return
        shown = f"known here: {', '.join(sorted(known))}; " if known else ""
        raise InvalidSettings(
            f"default_agent '{wanted}' is not one of this gateway's agents",
            hint=f'{shown}name one that is started later in gateway.toml: [[agents]] with id = "{wanted}"',
        )

    async def _play(self, agent: AgentConfig) -> None:
        entry = resident_entry(agent.id, SCRIPTED, self._clock)
        playing = play(read_script(Path(agent.script)), self._clock)
        resident = Resident(
            entry,
            playing,
            store=self._store,
            registry=self._registry,
            settings=self._settings,
            open_door=self._doors.open,
        )
        try:
            await self._residents.add(resident)
        except NameTaken as error:
            raise NameTaken(
                f"'{agent.id}' runs already, perhaps in another gateway",
                hint="`synapse list` shows who is here; give this gateway a --config of its own, or end the other",
            ) from error

    def _keepers(self) -> list[AgentKeeper]:
        kept = [agent for agent in self._config.agents if agent.profile and agent.start]
        return [
            AgentKeeper(
                agent,
                self._registry,
                self._settings.logs,
                self._clock,
                secrets=self._config.secret_variables,
                file_limit=self._file_limit,
            )
            for agent in kept
        ]

    async def _sweep(self) -> None:
        never = asyncio.Event()
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(never.wait(), SWEEP_SECONDS)
            self.service.look_again()
            self._stay_listed()
            await self._externals.look_again()

    def _stay_listed(self) -> None:
        """Write our entry, and those of the residents with a door, again where their files are lost."""
        try:
            gateways(self._settings.home).restore(self._me)
            self._doors.restore()
        except OSError as error:
            log.warning("registry_entry_not_restored", extra={"error": str(error)})

    def _new_service(self) -> GatewayService:
        journal = Journal(self._store)
        tail = StoreTail(self._store, journal)
        feed = Feed(journal, self._store, source=tail)
        tail.only(feed.has_readers_of)
        tasks = GatewayTasks(
            self.directory,
            store=self._store,
            journal=journal,
            feed=feed,
            tail=tail,
            unclaimed=Unowned(self._store, self._settings),
        )
        figures = FigureTaker(self.directory, self._store, self._store.pushes)
        return GatewayService(
            self.directory,
            tasks,
            self._externals,
            self._describe,
            new_ticket=self._new_ticket,
            take_figures=figures.take,
            quotas=KeyQuotas(self._plan.access.stored_bytes_per_key, self._bytes_of, self._clock),
        )

    async def _bytes_of(self, scope: str) -> int:
        return await self._store.stored_bytes(scope=scope)

    def _describe(self, agent: GatewayAgent, state: str) -> ListedAgent:
        lacks = self.directory.lacks_of(agent.name)
        return replace(
            describe(agent, state),
            extensions=self.directory.extensions_of(agent.name),
            capabilities=tuple(one for one in CAPABILITIES if one not in lacks),
        )

    def _new_ticket(self, caller: Caller) -> Ticket:
        return self._tickets.issue(caller, self._clock)

    @cached_property
    def _is_public(self) -> Callable[[str], bool]:
        """Tells which paths need no credentials."""
        config = self._config
        discovery = is_discovery if config.public_discovery else None
        return public_paths(discovery=discovery, metrics=config.public_metrics)

    def _open_gate(self) -> GatewayGate:
        config, access = self._config, self._plan.access
        return open_gate(
            access,
            home=self._settings.home,
            names=gateway_names(access, host=config.host, port=self._me.port, public_url=config.public_url),
            clock=self._clock,
            tickets=self._tickets,
            is_public=self._is_public,
        )

    def _servers(self) -> tuple[Server, Server, GrpcServer]:
        """Two for the network, with TLS where there is a certificate, and one for this user's own commands."""
        access = self._plan.access
        # First: gRPC cannot tell a bad certificate from a port that is taken.
        tls = tls_context(access.tls_cert, access.tls_key) if access.tls_cert and access.tls_key else None
        door = self._open_grpc()
        app = self._app(door)
        place = self._plan.place
        return (
            Server(app, [place.tcp], grace_seconds=GRACE_SECONDS, tls=tls, limits=self._connection_limits()),
            Server(app, [place.unix.socket], grace_seconds=GRACE_SECONDS),
            door.server,
        )

    def _connection_limits(self) -> ConnectionLimits:
        # Behind a proxy all connections come from one address.
        per_source = MOST_UNPROVEN if self._plan.access.behind_proxy else MOST_UNPROVEN_PER_ADDRESS
        return limits_within(open_file_limit(), unproven=MOST_UNPROVEN, per_source=per_source)

    def _open_grpc(self) -> GrpcDoor:
        door = GrpcDoor(
            self._config,
            self._plan.access,
            service=ObservedService(CountedStreams(self.service, self._streams), "grpc", self._metrics.count),
            gate=self.gate,
            public_url=self._me.endpoint,
            max_message_bytes=self._settings.max_body_bytes,
        )
        self.grpc_url = door.url
        return door

    def _app(self, door: GrpcDoor) -> ServedApp:
        cards = GatewayCards(
            addresses=gateway_addresses(self._config, self._me.endpoint, self._me.port),
            methods=self.gate.methods,
            config_of=self._config.agent,
            grpc_port=door.port,
            default_agent=self._config.default_agent,
            is_public=self._is_public,
        )
        dialects = gateway_dialects(
            cards,
            hub_dialect(self.directory.name_of, self.gate.methods),
            status_dialect(self._me),
            extensions_of=self.directory.extensions_of,
        )
        door.offer({dialect.name: dialect for dialect in dialects})
        dialects.append(operations_dialect(self._metrics, tuple(dialects), self.gate.methods, self._me.endpoint))
        app = HttpApp(
            CountedStreams(self.service, self._streams),
            dialects,
            admit=self._admission(),
            choose=GatewayChoice(dialects),
            websockets={WEBSOCKET_PATH: ForEveryCaller(self._hub_socket())},
            limits=HttpLimits(max_body_bytes=self._settings.max_body_bytes),
            observe=self._metrics.count,
        )
        probed = ProbedApp(app, self._store.last_seq, self._clock.monotonic)
        return CorsApp(probed, self._plan.access.origins) if self._plan.access.origins else probed

    def _hub_socket(self) -> HubSocket:
        service = ObservedService(self.service, "hub_websocket", self._metrics.count)
        return HubSocket(service, self.directory.name_of, count=self.gate.count, take_place=self._streams.take)

    def _admission(self) -> Callable[[Scope], Caller | Awaitable[Caller]]:
        """Who comes over the Unix socket is this user, as at a host; everybody else comes through the gate."""
        own = Gate(
            uid=os.getuid(),
            hosts=loopback_hosts(self._me.port),
            entries=self._registry.entries,
            terminal_decides=self._settings.terminal_decides,
        )

        def admit(scope: Scope) -> Caller | Awaitable[Caller]:
            peer: Any = scope["state"].get(PEER)
            if peer is None or not peer.via_socket:
                return self.gate.admit(scope)
            caller = own.admit(scope)
            return caller if caller.may_decide else replace(caller, actions=_AN_AGENTS_ACTIONS)

        return admit


def describe(agent: GatewayAgent, state: str) -> ListedAgent:
    """An agent as lists and cards show it."""
    kind = agent.entry.agent_type
    return ListedAgent(
        id=agent.name,
        name=agent.title or f"Synapse {kind.capitalize()}",
        description=agent.description or f"{kind} agent with A2A communication",
        version=__version__,
        agent_type=kind,
        state=state,
        input_modes=agent.input_modes or tuple(agent.entry.takes.split()),
        output_modes=agent.output_modes,
    )


async def run_gateway(plan: GatewayPlan, on_ready: Callable[[Gateway], None]) -> None:
    """Open the store, run the gateway, and leave everything as it was found.

    Raises StoreFailed, and what `Gateway.run` raises.
    """
    limit = raise_file_limit()
    try:
        store = await open_store(plan.settings)
        try:
            await Gateway(plan, store, file_limit=limit).run(on_ready)
        finally:
            await store.close()
    finally:
        plan.place.leave()
