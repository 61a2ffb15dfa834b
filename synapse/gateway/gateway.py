"""The gateway: one address for all agents. Builds the object graph, serves it, and takes it down in order.

take a place → open the store → residents → serve → keep agents running → told to stop → drain → take down

The certificate that a gateway shows: read at its start, with sentences for what is wrong with it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import stat
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from synapse import __version__
from synapse.auth.gateway import GatewayAuth, build_gateway_auth, gateway_names, new_tickets
from synapse.auth.local import LocalAdmission, LocalAuth, loopback_hosts
from synapse.config.process import Limit, SystemClock, open_file_limit, raise_file_limit
from synapse.core.caller import ACTIONS, APPROVE, REGISTER, Caller
from synapse.core.errors import InvalidSettings, NameTaken, StoreFailed
from synapse.core.requests import CAPABILITIES, ListedAgent, Ticket
from synapse.core.store import TaskStore
from synapse.dialects.hub.routes import hub_dialect
from synapse.dialects.paths import WEBSOCKET_PATH
from synapse.drivers.scripted.script import read_script
from synapse.gateway.autostart import AgentAutostart
from synapse.gateway.cards import GatewayCards, is_discovery, status_dialect
from synapse.gateway.config import AgentConfig, GatewayPlan, gateway_addresses
from synapse.gateway.directory import GatewayAgent, GatewayDirectory, LocalAgents
from synapse.gateway.external import GatewayExternals
from synapse.gateway.grpc import GrpcDoor
from synapse.gateway.hub_socket import HubSocket
from synapse.gateway.in_process import InProcessAgent, InProcessAgents, InProcessSockets, resident_entry
from synapse.gateway.metrics import Metrics, MetricsCollector, ObservedService
from synapse.gateway.openapi import operations_dialect, public_paths
from synapse.gateway.routes import GatewayChoice, gateway_dialects
from synapse.gateway.service import CountedStreams, GatewayService, StreamLimit
from synapse.gateway.tasks import GatewayTasks
from synapse.host.host import stop_signal, tune_gc
from synapse.host.open_store import open_store
from synapse.host.scripted import AGENT_TYPE as SCRIPTED
from synapse.host.scripted import play
from synapse.host.stopped import stopped_tasks
from synapse.net.hosts import open_host_client
from synapse.registry.files import gateways
from synapse.registry.local import LocalRegistry, open_registry
from synapse.server.acceptor import ConnectionLimits, limits_within
from synapse.server.app import HttpApp
from synapse.server.asgi import HttpLimits, Scope, ServedApp
from synapse.server.http import Server
from synapse.server.middleware import CorsApp, ProbedApp
from synapse.server.peer import PEER
from synapse.server.websocket import ForEveryCaller
from synapse.tasks.feed import Feed, LogFollower
from synapse.tasks.journal import Journal
from synapse.tasks.quota import KeyQuotas

if TYPE_CHECKING:
    from synapse.server.grpc_server import GrpcServer

log = logging.getLogger(__name__)

GRACE_SECONDS: Final = 3
SWEEP_SECONDS: Final = 2.0
MOST_UNPROVEN: Final = 512
"""Connections on which nobody was admitted yet; the first request on one decides."""
MOST_UNPROVEN_PER_ADDRESS: Final = 64
_AN_AGENTS_ACTIONS: Final = frozenset(ACTIONS) - {APPROVE, REGISTER}


class Gateway:
    """Everything that one gateway process has."""

    def __init__(self, plan: GatewayPlan, store: TaskStore, *, file_limit: Limit) -> None:
        """`file_limit` is the limit of open files that this process was started with."""
        self._file_limit = file_limit
        self._plan = plan
        self._config, self._settings = plan.config, plan.settings
        self._me = plan.place.entry
        self._store = store
        self._clock = SystemClock()
        self._registry = open_registry(plan.settings.registry, self._clock.monotonic)
        self._gateways = LocalRegistry(gateways(plan.settings.home), self._clock.monotonic)
        self._hosts = open_host_client(self._registry, self._clock, self._registry.recheck)
        self._residents = InProcessAgents()
        self._doors = InProcessSockets(self._me, self._registry, plan.settings)
        agents = LocalAgents(self._registry, self._hosts, me=self._me.agent_id)
        # A host before a resident: nobody registers an agent from elsewhere in the place of one that runs here.
        told = {agent.id: agent.extensions for agent in plan.config.agents}
        lacks = {agent.id: agent.lacks for agent in plan.config.agents}
        self.directory = GatewayDirectory(agents, self._residents, extensions=told, lacks=lacks)
        self._externals = GatewayExternals(
            plan.settings,
            store,
            self._registry,
            self._residents,
            self._clock,
            hosts=self._hosts,
            gateways=self._gateways,
            doors=self._doors,
        )
        self._tickets = new_tickets()
        self._metrics = Metrics()
        self._streams = StreamLimit(plan.access.open_streams)
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
        stop = stop_signal()
        servers = self._servers()
        try:
            await self._start_residents()
            await self.directory.refresh()
            self._check_default_agent()
            async with asyncio.TaskGroup() as group:
                serving = [group.create_task(server.serve()) for server in servers]
                for server in servers:
                    await server.wait_started()
                tune_gc()
                await self._gateways.publish(self._me)
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
                await self._gateways.withdraw(self._me.agent_id)
                for server in servers:
                    server.stop()
                await asyncio.wait(serving)
                for keeping in keepers:
                    keeping.cancel()
        finally:
            await self._gateways.withdraw(self._me.agent_id)
            await self._residents.stop()
            self._hosts.close()

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
        resident = InProcessAgent(
            entry,
            playing,
            store=self._store,
            registry=self._registry,
            hosts=self._hosts,
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

    def _keepers(self) -> list[AgentAutostart]:
        kept = [agent for agent in self._config.agents if agent.profile and agent.start]
        return [
            AgentAutostart(
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
            try:
                await self.service.recheck()
            except OSError as error:
                log.warning("registry_not_read", extra={"error": str(error)})
            await self._stay_listed()
            await self._externals.recheck()

    async def _stay_listed(self) -> None:
        """Write our entry, and those of the residents with a door, again where their files are lost."""
        try:
            if await self._gateways.find(self._me.agent_id) is None:
                await self._gateways.publish(self._me)
            await self._doors.restore()
        except OSError as error:
            log.warning("registry_entry_not_restored", extra={"error": str(error)})

    def _new_service(self) -> GatewayService:
        journal = Journal(self._store)
        tail = LogFollower(self._store, journal)
        feed = Feed(journal, self._store, source=tail)
        tail.only(feed.has_readers_of)
        tasks = GatewayTasks(
            self.directory,
            store=self._store,
            journal=journal,
            feed=feed,
            tail=tail,
            stopped=stopped_tasks(self._store, self._settings),
        )
        figures = MetricsCollector(self.directory, self._store)
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

    def _open_gate(self) -> GatewayAuth:
        config, access = self._config, self._plan.access
        return build_gateway_auth(
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
            admitted=self._knowing_agents,
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
        gate = LocalAuth(
            uid=os.getuid(),
            hosts=loopback_hosts(self._me.port),
            entries=lambda: self._registry.latest,
            terminal_decides=self._settings.terminal_decides,
        )
        own = LocalAdmission(gate, self._registry.agents)

        def admit(scope: Scope) -> Caller | Awaitable[Caller]:
            peer: Any = scope["state"].get(PEER)
            if peer is None or not peer.via_socket:
                return self._knowing_agents(self.gate.admit(scope))
            caller = own(scope)
            return self._knowing_agents(_limited(caller) if isinstance(caller, Caller) else _limited_later(caller))

        return admit

    def _knowing_agents(self, admitted: Caller | Awaitable[Caller]) -> Caller | Awaitable[Caller]:
        """Find out who is here before a request is read: what its agent declares decides how it is answered."""
        return admitted if self.directory.is_current() else self._refreshed(admitted)

    async def _refreshed(self, admitted: Caller | Awaitable[Caller]) -> Caller:
        caller = admitted if isinstance(admitted, Caller) else await admitted
        await self.directory.refresh()
        return caller


def _limited(caller: Caller) -> Caller:
    """An agent that comes over the Unix socket may do less than a person there."""
    return caller if caller.may_decide else replace(caller, actions=_AN_AGENTS_ACTIONS)


async def _limited_later(admitted: Awaitable[Caller]) -> Caller:
    return _limited(await admitted)


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


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the context of a server, TLS 1.2 or newer.

    Raises:
        InvalidSettings: a file cannot be read, is not what it should be, does not fit the other, or is open to all.
    """
    for path in (certificate, key):
        _check_readable(path)
    if key.stat().st_mode & stat.S_IROTH:
        raise InvalidSettings(f"everybody can read the private key {key}", hint=f"chmod 600 {key}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # Without a password of ours OpenSSL would ask for one on the terminal, and wait.
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        raise InvalidSettings(
            f"{certificate} and {key} are no certificate and its key: {error.reason or error}",
            hint="both in PEM; the certificate first, then those that vouch for it",
        ) from error
    return context


def _check_readable(path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise InvalidSettings(f"{path} cannot be read: {error.strerror}") from error


def _no_password() -> NoReturn:
    raise InvalidSettings(
        "the private key is locked with a password", hint="give one that is not, in a file of mode 600"
    )
