"""The gateway process: one address for all agents. Builds the object graph, serves it, and shuts it down in order.

open the store → in-process agents → serve → start configured agents → stop signal → drain → shut down
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import stat
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from operator import sub
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from synapse import __version__
from synapse.auth.gateway import build_gateway_auth, gateway_names, new_tickets
from synapse.auth.local import LocalAdmission, LocalAuth, loopback_hosts
from synapse.auth.sessions import SessionAuthenticator, SessionFile, cookie_name, session_idle
from synapse.config.fleet import load_fleet
from synapse.config.process import Limit, SystemClock, new_id, open_file_limit, raise_file_limit, stop_signal, tune_gc
from synapse.core.caller import ACTIONS, APPROVE, ATTACH, REGISTER, Caller
from synapse.core.errors import InvalidSettings, NameTaken, RegistryFailed, StoreFailed
from synapse.core.requests import CAPABILITIES, ListedAgent
from synapse.core.store import TaskStore
from synapse.core.text import with_role
from synapse.core.waiting import pause
from synapse.dialects.dashboard.routes import dashboard_dialect
from synapse.dialects.dialect import Dialect
from synapse.dialects.hub.routes import hub_dialect
from synapse.dialects.paths import WEBSOCKET_PATH
from synapse.drivers.scripted.script import read_script
from synapse.gateway.autostart import AgentAutostart
from synapse.gateway.cards import GatewayCards, is_discovery, status_dialect
from synapse.gateway.config import AgentConfig, GatewayPlan, gateway_addresses, page_url
from synapse.gateway.directory import GatewayAgent, GatewayDirectory, LocalAgents
from synapse.gateway.external import GatewayExternals
from synapse.gateway.figures import FigureCollector
from synapse.gateway.fleet_store import FleetStore, ReplicaReader, logs_of, missed_events
from synapse.gateway.grpc import GatewayGrpc
from synapse.gateway.hub_socket import HubSocket
from synapse.gateway.in_process import InProcessAgent, InProcessAgents, InProcessSockets, in_process_entry
from synapse.gateway.mcp import mcp_dialect
from synapse.gateway.metrics import Metrics, MetricsCollector, ObservedService
from synapse.gateway.openapi import operations_dialect, public_paths
from synapse.gateway.overview import OverviewFollower, Overviews
from synapse.gateway.pages import Pages
from synapse.gateway.remote import RemoteAgents
from synapse.gateway.revoked import RevokedWebhooks
from synapse.gateway.routes import GatewayChoice, gateway_dialects
from synapse.gateway.search import keep_search_current
from synapse.gateway.service import GatewayService, LimitedStreams, StreamLimit
from synapse.gateway.sessions import SessionPages
from synapse.gateway.tasks import GatewayFleet, GatewayTasks
from synapse.gateway.terminals import PATH as TERMINALS_PATH
from synapse.gateway.terminals import TerminalsSocket, terminal_relays
from synapse.host.identity import SCRIPTED
from synapse.host.open_store import open_replica, open_store
from synapse.host.scripted import play
from synapse.host.stopped import stopped_tasks
from synapse.net.hosts import open_host_client
from synapse.registry.files import gateways
from synapse.registry.local import open_local_registry
from synapse.server.acceptor import limits_within
from synapse.server.app import HttpApp
from synapse.server.asgi import HttpLimits, Scope, ServedApp
from synapse.server.http import Server
from synapse.server.middleware import CorsApp, ProbedApp
from synapse.server.peer import PEER, UNKNOWN_PEER, Peer
from synapse.server.websocket import ForEveryCaller
from synapse.store.usage import totals_by_inbox, usage_path
from synapse.tasks.feed import Feed, LogFollower
from synapse.tasks.journal import Journal
from synapse.tasks.quota import KeyQuotas

if TYPE_CHECKING:
    from synapse.server.grpc_server import GrpcServer

log = logging.getLogger(__name__)

GRACE_SECONDS: Final = 3
SWEEP_SECONDS: Final = 2.0
MAX_UNPROVEN: Final = 512
"""The limit of connections whose first request was not authenticated yet."""
MAX_UNPROVEN_PER_ADDRESS: Final = 64
_ACTIONS_OF_AGENTS: Final = frozenset(ACTIONS) - {APPROVE, ATTACH, REGISTER}


class Gateway:
    """The object graph of one gateway process."""

    def __init__(
        self, plan: GatewayPlan, store: TaskStore, *, file_limit: Limit, replica: ReplicaReader | None = None
    ) -> None:
        """`file_limit` is the limit of open files that this process was started with; its agents get it back.

        `replica` has the logs of the other machines of the fleet, if this machine keeps them.
        """
        self._file_limit = file_limit
        self._plan = plan
        self._config, self._settings = plan.config, plan.settings
        self._me = plan.identity.entry
        self._own_store = store
        self._fleet_store = FleetStore(store, replica) if replica is not None else None
        self._store = self._fleet_store or store
        self._clock = SystemClock()
        self._registry = open_local_registry(plan.settings.registry, self._clock.monotonic)
        self._gateways = open_local_registry(gateways(plan.settings.home).folder, self._clock.monotonic)
        self._hosts = open_host_client(self._registry, self._clock, self._registry.recheck)
        self._remote = self._remote_agents()
        self._in_process = InProcessAgents()
        self._sockets = InProcessSockets(self._me, self._registry, plan.settings)
        self.directory = GatewayDirectory(
            # Hosts first: an external agent that someone registers cannot replace an agent of this machine.
            LocalAgents(self._registry, self._hosts, me=self._me.agent_id),
            self._in_process,
            *([self._remote] if self._remote is not None else []),
            extensions={agent.id: agent.extensions for agent in plan.config.agents},
            lacks={agent.id: agent.lacks for agent in plan.config.agents},
            machine=self._remote.machine if self._remote is not None else "",
        )
        self._externals = GatewayExternals(
            plan.settings,
            self._own_store,
            self._registry,
            self._in_process,
            self._clock,
            hosts=self._hosts,
            gateways=self._gateways,
            sockets=self._sockets,
        )
        self._terminals = terminal_relays(self.directory, self._hosts)
        self._pages = Pages()
        self._tickets = new_tickets()
        self._sessions = SessionFile(plan.settings.home, self._clock)
        # Reads the file now, as that of the keys: a damaged one must stop the start.
        self._sessions.all()
        self._metrics = Metrics()
        self._streams = StreamLimit(plan.access.open_streams)
        self.auth = build_gateway_auth(
            plan.access,
            home=plan.settings.home,
            names=gateway_names(
                plan.access, host=plan.config.host, port=self._me.port, public_url=plan.config.public_url
            ),
            clock=self._clock,
            tickets=self._tickets,
            sessions=SessionAuthenticator(self._sessions, cookie_name(self._me.port)),
            is_public=self._is_public,
            machine=self.directory.machine,
        )
        self.service = self._new_service()
        self.grpc_url = ""
        """The address of the gRPC server; empty until it listens."""

    @property
    def url(self) -> str:
        """The address under which clients reach it."""
        return self._me.endpoint

    async def run(self, on_ready: Callable[[Gateway], None]) -> None:
        """Serves until a stop signal. Raises NameTaken, InvalidScript, InvalidSettings or StoreFailed at the start."""
        stop = stop_signal()
        servers = self._servers()
        try:
            for agent in self._config.agents:
                if agent.driver:
                    await self._start_scripted(agent)
            await self._externals.start_known()
            if self._remote is not None:
                await self._remote.start()
            await self.directory.refresh()
            self._check_default_agent()
            async with asyncio.TaskGroup() as group:
                serving = [group.create_task(server.serve()) for server in servers]
                for server in servers:
                    await server.wait_started()
                tune_gc()
                await self._gateways.publish(self._me)
                jobs = [group.create_task(job) for job in self._background(servers[1])]
                log.info("gateway_started", extra={"url": self.url, "grpc": self.grpc_url})
                on_ready(self)
                await stop
                log.info("gateway_stopping")
                with suppress(StoreFailed):
                    # As in a host: in-process agents may have results to record.
                    await self._own_store.recover()
                await self._gateways.withdraw(self._me.agent_id)
                for server in servers:
                    server.stop()
                await asyncio.wait(serving)
                for job in jobs:
                    job.cancel()
        finally:
            await self._gateways.withdraw(self._me.agent_id)
            await self._terminals.close()
            await self._in_process.stop()
            self._hosts.close()

    def _background(self, unix: Server) -> list[Coroutine[Any, Any, None]]:
        """Returns what runs beside the servers until the gateway stops; `unix` serves this user's commands."""
        jobs: list[Coroutine[Any, Any, None]] = [one.keep() for one in self._autostarts()]
        jobs.append(self._sweep())
        jobs.append(keep_search_current(self._store, is_on=self._settings.search))
        jobs.append(unix.keep_in_place(self._plan.identity.unix))
        if (fleet := self._fleet()) is not None:
            jobs.append(fleet.agents.run())
            jobs.append(RevokedWebhooks(self._settings.home, self.directory, fleet).run())
        return jobs

    def _check_default_agent(self) -> None:
        """Raises InvalidSettings for a default agent that is neither configured nor running at the start."""
        wanted = self._config.default_agent
        known = {agent.id for agent in self._config.agents} | {agent.name for agent in self.directory.agents()}
        if not wanted or wanted in known:
            return
        shown = f"known here: {', '.join(sorted(known))}; " if known else ""
        raise InvalidSettings(
            f"default_agent '{wanted}' is not one of this gateway's agents",
            hint=f'{shown}name one that is started later in gateway.toml: [[agents]] with id = "{wanted}"',
        )

    async def _start_scripted(self, agent: AgentConfig) -> None:
        in_process = InProcessAgent(
            in_process_entry(agent.id, SCRIPTED, self._clock),
            play(read_script(Path(agent.script)), self._clock),
            store=self._own_store,
            registry=self._registry,
            hosts=self._hosts,
            settings=self._settings,
            open_socket=self._sockets.open,
        )
        try:
            await self._in_process.add(in_process)
        except NameTaken as error:
            raise NameTaken(
                f"'{agent.id}' runs already, perhaps in another gateway",
                hint="see `synapse list`; give this gateway a --config of its own, or stop the other",
            ) from error

    def _autostarts(self) -> list[AgentAutostart]:
        return [
            AgentAutostart(
                agent,
                self._registry,
                self._settings.logs,
                self._clock,
                secrets=self._config.secret_variables,
                file_limit=self._file_limit,
            )
            for agent in self._config.agents
            if agent.profile and agent.start
        ]

    async def _sweep(self) -> None:
        """Every few seconds, does what no event triggers; also restores registry entries whose files were removed."""
        while True:
            await pause(SWEEP_SECONDS)
            try:
                await self.service.recheck()
            except RegistryFailed as error:
                log.warning("registry_not_read", extra={"error": str(error)})
            try:
                if await self._gateways.find(self._me.agent_id) is None:
                    await self._gateways.publish(self._me)
                await self._sockets.restore()
            except RegistryFailed as error:
                log.warning("registry_entry_not_restored", extra={"error": str(error)})
            await self._externals.recheck()

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
            stopped=stopped_tasks(self._own_store, self._settings),
            fleet=self._fleet(),
        )
        follower = OverviewFollower(self.directory, self._settings.home, self._clock)
        usage = usage_path(self._settings.home)
        return GatewayService(
            self.directory,
            tasks,
            self._externals,
            self._describe,
            new_ticket=lambda caller: self._tickets.issue(caller, self._clock),
            collect_metrics=self._metrics_collector(usage).collect,
            collect_figures=FigureCollector(self.directory, logs_of(self._store), self._clock).collect,
            quotas=KeyQuotas(
                self._plan.access.stored_bytes_per_key, lambda scope: self._store.stored_bytes(scope=scope), self._clock
            ),
            overviews=Overviews(
                follower,
                store=self._store,
                feed=feed,
                tail=tail,
                clock=self._clock,
                missed=missed_events if self._fleet_store is not None else sub,
            ),
        )

    def _remote_agents(self) -> RemoteAgents | None:
        """Returns the agents of the other machines; None outside of a fleet. Raises InvalidSettings."""
        membership = load_fleet(self._settings.home) if self._fleet_store is not None else None
        if membership is None:
            return None
        return RemoteAgents(self._settings.home, membership.machine, self._hosts, self._clock)

    def _metrics_collector(self, usage: Path) -> MetricsCollector:
        read_usage = partial(totals_by_inbox, usage)
        if self._remote is None:
            return MetricsCollector(self.directory, self._store, read_usage)
        return MetricsCollector(self.directory, self._store, read_usage, self._remote.link_metrics)

    def _fleet(self) -> GatewayFleet | None:
        if self._remote is None or self._fleet_store is None:
            return None
        return GatewayFleet(self._remote, self._fleet_store, self._clock, new_id)

    def _describe(self, agent: GatewayAgent, state: str) -> ListedAgent:
        lacks = self.directory.lacks_of(agent.name)
        return replace(
            describe(agent, state),
            extensions=self.directory.extensions_of(agent.name),
            capabilities=tuple(one for one in CAPABILITIES if one not in lacks),
        )

    @cached_property
    def _is_public(self) -> Callable[[str], bool]:
        """Decides which paths need no credentials."""
        config = self._config
        discovery = is_discovery if config.public_discovery else None
        return public_paths(discovery=discovery, metrics=config.public_metrics, always=self._pages.paths)

    def _servers(self) -> tuple[Server, Server, GrpcServer]:
        """Returns the HTTP server for the network, the one for this user's commands, and the gRPC server.

        Those for the network use TLS when there is a certificate.
        """
        access = self._plan.access
        # First, because gRPC reports a bad certificate as a taken port.
        tls = tls_context(access.tls_cert, access.tls_key) if access.tls_cert and access.tls_key else None
        grpc = self._open_grpc()
        app = self._app(grpc)
        # Behind a proxy all connections come from one address.
        per_source = MAX_UNPROVEN if access.behind_proxy else MAX_UNPROVEN_PER_ADDRESS
        limits = limits_within(open_file_limit(), unproven=MAX_UNPROVEN, per_source=per_source)
        identity = self._plan.identity
        return (
            Server(app, [identity.tcp], grace_seconds=GRACE_SECONDS, tls=tls, limits=limits),
            Server(app, [identity.unix.socket], grace_seconds=GRACE_SECONDS),
            grpc.server,
        )

    def _open_grpc(self) -> GatewayGrpc:
        grpc = GatewayGrpc(
            self._config,
            self._plan.access,
            service=ObservedService(LimitedStreams(self.service, self._streams), "grpc", self._metrics.count),
            auth=self.auth,
            admitted=self._refreshed,
            public_url=self._me.endpoint,
            max_message_bytes=self._settings.max_body_bytes,
        )
        self.grpc_url = grpc.url
        return grpc

    def _app(self, grpc: GatewayGrpc) -> ServedApp:
        cards = GatewayCards(
            addresses=gateway_addresses(self._config, self._me.endpoint, self._me.port),
            methods=self.auth.methods,
            config_of=self._config.agent,
            grpc_port=grpc.port,
            default_agent=self._config.default_agent,
            is_public=self._is_public,
        )
        dialects = gateway_dialects(
            cards,
            hub_dialect(self.directory.name_of, self.auth.methods),
            mcp_dialect(
                self.directory.name_of, self.auth.count, self._streams.acquire, most_wait=self._config.mcp_wait
            ),
            dashboard_dialect(self.directory.name_of),
            self._session_dialect(),
            status_dialect(self._me),
            extensions_of=self.directory.extensions_of,
        )
        grpc.offer({dialect.name: dialect for dialect in dialects})
        dialects.append(operations_dialect(self._metrics, tuple(dialects), self.auth.methods, self._me.endpoint))
        # After it, because files are no part of the API that it describes.
        dialects.append(self._pages.dialect())
        observed = ObservedService(self.service, "hub_websocket", self._metrics.count)
        hub_socket = HubSocket(
            observed, self.directory.name_of, count=self.auth.count, acquire_slot=self._streams.acquire
        )
        app = HttpApp(
            LimitedStreams(self.service, self._streams),
            dialects,
            admit=self._admission(),
            choose=GatewayChoice(dialects),
            websockets={
                WEBSOCKET_PATH: ForEveryCaller(hub_socket),
                TERMINALS_PATH: ForEveryCaller(TerminalsSocket(self._terminals, acquire_slot=self._streams.acquire)),
            },
            limits=HttpLimits(max_body_bytes=self._settings.max_body_bytes),
            observe=self._metrics.count,
        )
        probed = ProbedApp(app, self._store.last_seq, self._clock.monotonic)
        return CorsApp(probed, self._plan.access.origins) if self._plan.access.origins else probed

    def _session_dialect(self) -> Dialect:
        pages = SessionPages(
            self._sessions,
            self._clock,
            url=page_url(self._config, self._me.endpoint, self._me.port),
            cookie=cookie_name(self._me.port),
            idle=session_idle(self._settings.session_hours),
            max_body_bytes=self._settings.max_body_bytes,
            refuse_link=self.auth.refuse_link,
        )
        return pages.dialect()

    def _admission(self) -> Callable[[Scope], Caller | Awaitable[Caller]]:
        """Returns the check of each request: LocalAuth for the Unix socket, as in a host, else GatewayAuth."""
        auth = LocalAuth(
            uid=os.getuid(),
            hosts=loopback_hosts(self._me.port),
            entries=lambda: self._registry.latest,
            terminal_decides=self._settings.terminal_decides,
        )
        local = LocalAdmission(auth, self._registry.agents)

        def admit(scope: Scope) -> Caller | Awaitable[Caller]:
            peer: Peer = scope["state"].get(PEER, UNKNOWN_PEER)
            if not peer.via_socket:
                return self._refreshed(self.auth.admit(scope))
            caller = local(scope)
            return self._refreshed(limited(caller) if isinstance(caller, Caller) else _limited_later(caller))

        return admit

    def _refreshed(self, admitted: Caller | Awaitable[Caller]) -> Caller | Awaitable[Caller]:
        """Refreshes the directory before a request is decoded: what its agent declares decides how it is answered."""
        return admitted if self.directory.is_current() else self._refresh_for(admitted)

    async def _refresh_for(self, admitted: Caller | Awaitable[Caller]) -> Caller:
        caller = admitted if isinstance(admitted, Caller) else await admitted
        await self.directory.refresh()
        return caller


def limited(caller: Caller) -> Caller:
    """Returns the caller; an agent on the Unix socket has fewer rights than a person."""
    return caller if caller.may_decide else replace(caller, actions=_ACTIONS_OF_AGENTS)


async def _limited_later(admitted: Awaitable[Caller]) -> Caller:
    return limited(await admitted)


def describe(agent: GatewayAgent, state: str) -> ListedAgent:
    """Describes an agent for lists and cards."""
    kind = agent.entry.agent_type
    return ListedAgent(
        id=agent.name,
        name=agent.title or f"Synapse {kind.capitalize()}",
        description=with_role(agent.description or f"{kind} agent with A2A communication", agent.entry.role),
        version=__version__,
        agent_type=kind,
        state=agent.last_state or state,
        away_since=agent.status.since if agent.is_away and agent.status is not None else None,
        input_modes=agent.input_modes or tuple(agent.entry.takes.split()),
        output_modes=agent.output_modes,
        role=agent.entry.role,
    )


async def run_gateway(plan: GatewayPlan, on_ready: Callable[[Gateway], None]) -> None:
    """Opens the store, runs the gateway, and releases everything.

    Raises StoreFailed, and what `Gateway.run` raises.
    """
    limit = raise_file_limit()
    try:
        store = await open_store(plan.settings)
        try:
            await _run_with_replica(plan, store, limit, on_ready)
        finally:
            await store.close()
    finally:
        plan.identity.release()


async def _run_with_replica(
    plan: GatewayPlan, store: TaskStore, limit: Limit, on_ready: Callable[[Gateway], None]
) -> None:
    """Runs the gateway; with the replica of the other machines' logs where this machine keeps one."""
    membership = load_fleet(plan.settings.home)
    if membership is None or not membership.replica:
        await Gateway(plan, store, file_limit=limit).run(on_ready)
        return
    replica = await open_replica(plan.settings)
    try:
        await Gateway(plan, store, file_limit=limit, replica=replica).run(on_ready)
    finally:
        await replica.close()


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Returns the TLS context of the server, for TLS 1.2 or newer.

    Raises:
        InvalidSettings: a file cannot be read or is not valid, the two do not match, or other users can read the key.
    """
    for path in (certificate, key):
        try:
            path.open("rb").close()
        except OSError as error:
            raise InvalidSettings(f"{path} cannot be read: {error.strerror}") from error
    if key.stat().st_mode & stat.S_IROTH:
        raise InvalidSettings(f"other users can read the private key {key}", hint=f"chmod 600 {key}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # Without a password callback OpenSSL would ask for a password on the terminal, and block.
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        raise InvalidSettings(
            f"{certificate} and {key} are not a certificate and its key: {error.reason or error}",
            hint="both must be PEM files; put the certificate first, then its chain",
        ) from error
    return context


def _no_password() -> NoReturn:
    raise InvalidSettings(
        "the private key is encrypted with a password", hint="use one without a password, in a file of mode 600"
    )
