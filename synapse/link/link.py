"""The link process, `synapse link`: this machine's part of its fleet. Builds the parts, runs them, ends in order.

    lock ─► store, link.db ─► own socket ─► bus ─► relay, tail, shipping, presence, answers, proxies ─► stop signal

    callers of this machine ─► LinkApi, Proxies ─► RelayShell ─► Bus ─► other machines
    other machines ─► Bus ─► RelayShell ─► Deliveries ─► hosts         Bus ─► Answers ─► store, hosts

Hosts do without it: it reads their store and calls their sockets, and nothing waits for it.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import logging
import os
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from synapse import __version__
from synapse.auth.local import LocalAdmission, LocalAuth
from synapse.config.fleet import (
    LOCK_FILE,
    FleetConfig,
    FleetRules,
    fleet_file,
    fleet_folder,
    load_fleet,
    without_password,
)
from synapse.config.process import (
    SystemClock,
    new_context_id,
    new_id,
    new_task_id,
    raise_file_limit,
    stop_signal,
    tune_gc,
)
from synapse.config.settings import Settings
from synapse.core.agent import AgentEntry
from synapse.core.caller import ATTACH
from synapse.core.errors import Conflict, LinkDown, MachineNotFound, NotInFleet, SynapseError
from synapse.core.registry import KEEP_ALIVE_SECONDS
from synapse.core.store import TaskStore
from synapse.core.waiting import pause
from synapse.fleet import asks
from synapse.fleet.bus import Bus, BusError
from synapse.fleet.log import PieceRequest, RangeAnswer, RangeRequest, encode_log
from synapse.fleet.names import ask_subject, command_subject
from synapse.fleet.relay import JOINED
from synapse.fleet.relay_io import Announce, Notify, OutboxLimits, Outdated, StoreMark
from synapse.fleet.wire import Incarnation
from synapse.host.conversations import last_runs
from synapse.host.identity import listen_at_socket, new_entry
from synapse.host.open_store import open_store
from synapse.host.stopped import stopped_tasks
from synapse.link.agent_states import AgentStates
from synapse.link.answers import Answers
from synapse.link.api import LinkApi, NoRequests
from synapse.link.asking import FleetClient
from synapse.link.database import FILE, LinkDatabase
from synapse.link.deliveries import AgentFinder, Deliveries
from synapse.link.key_mirror import KeyMirror
from synapse.link.metrics import metrics_text
from synapse.link.presence import Machines, PresencePublisher, instant
from synapse.link.proxies import Proxies
from synapse.link.remote_tasks import Fleet
from synapse.link.shell import RelayShell
from synapse.link.shipping import LogShipping
from synapse.link.store_log import LogTail, StoreLog
from synapse.link.streams import StreamKind, Streams
from synapse.link.terminals import proxy_websockets, serve_terminal
from synapse.link.waits import RemoteWaits
from synapse.net.hosts import open_host_client
from synapse.registry.files import links
from synapse.registry.local import open_local_registry
from synapse.server.app import HttpApp
from synapse.server.asgi import HttpLimits
from synapse.server.http import Server
from synapse.server.middleware import ProbedApp
from synapse.store.file import migrations
from synapse.tasks.waits import waiting_behind

if TYPE_CHECKING:
    from synapse.link.replicas import ReplicaKeeper

log = logging.getLogger(__name__)

LINK: Final = "synapse-link"
"""The agent id of the link's registry entry, and the name of its log."""
REPLICA_FILE: Final = "replica.db"
CONFIG_SECONDS: Final = 2.0
CHECK_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 3.0
MOST_LOOKS: Final = 20
"""How many machines are looked for at a time."""
OVERDUE_SECONDS: Final = 600.0
"""After how long a message to a machine that is present should have been accepted."""
MOST_NOTES: Final = 50
RESTART_SECONDS: Final = 2.0
"""How long a part of the link waits after a defect before it starts again."""
FORBIDDEN_SECONDS: Final = 30.0
"""How often a part is tried that the fleet's server forbids."""
_GRACE_SECONDS: Final = 2


Part = Callable[[], Coroutine[Any, Any, None]]
"""Runs a part of the link until it is cancelled; may be called again after it has failed."""


class FleetFile:
    """This machine's `fleet.json`, while its link runs."""

    def __init__(self, home: Path) -> None:
        """Raises NotInFleet or InvalidSettings."""
        config = load_fleet(home)
        if config is None:
            raise NotInFleet
        self._path = fleet_file(home)
        self._rules = FleetRules(home)
        self._last = config

    @property
    def config(self) -> FleetConfig:
        """What the file says now. While it cannot be read: what it said last, without the rights of other machines."""
        config = self._rules.current()
        if config is None:
            return replace(self._last, allow={})
        self._last = config
        return config

    def allowed(self, machine: str) -> frozenset[str]:
        """Returns what a machine may do here beyond the ordinary, as the file says now: it may just have changed."""
        return self.config.allowed(machine)

    async def follow(self) -> None:
        """Logs the rights of other machines when they change. Returns when this machine has left the fleet."""
        logged = self._last.allow
        while not self._is_gone():
            if (allow := self.config.allow) != logged:
                log.info("fleet_rights_changed", extra={"allow": {name: sorted(one) for name, one in allow.items()}})
                logged = allow
            await pause(CONFIG_SECONDS)

    def _is_gone(self) -> bool:
        try:
            self._path.stat()
        except OSError as error:
            return isinstance(error, FileNotFoundError)
        return False


class Link:
    """The parts of one link, over a bus that is open."""

    def __init__(
        self,
        config_file: FleetFile,
        entry: AgentEntry,
        settings: Settings,
        store: TaskStore,
        database: LinkDatabase,
        bus: Bus,
    ) -> None:
        self._config_file = config_file
        self._entry = entry
        self._settings = settings
        self._store = store
        self._database = database
        self._bus = bus
        self._clock = SystemClock()
        self._since = instant(self._clock)
        self.notes: deque[str] = deque(maxlen=MOST_NOTES)
        self.incarnations = 0
        machine = config_file.config.machine
        self._machine = machine
        self._me = asks.Greeted(instance=secrets.token_hex(8), version=__version__, since=self._since)
        self.registry = open_local_registry(settings.registry, self._clock.monotonic)
        self._hosts = open_host_client(self.registry, self._clock, self.registry.recheck)
        self._finder = AgentFinder(self.registry, store, past=lambda: [run.entry for run in last_runs(settings.home)])
        stopped = stopped_tasks(store, settings)
        self._store_log = StoreLog(settings.store)
        self._deliveries = Deliveries(machine, self._finder, store=store, hosts=self._hosts, stopped=stopped)
        self._shell = RelayShell(
            machine,
            bus=bus,
            database=database,
            hosts=self._deliveries,
            read_mark=self._read_mark,
            clock=self._clock,
            limits=OutboxLimits(messages=settings.outbox_limit, total_bytes=settings.outbox_quota_bytes),
        )
        self._machines = Machines(machine, bus, self._shell.saw)
        self._client = FleetClient(machine, bus, self._machines)
        self._waits = RemoteWaits(store, database, self._client, self._machines, self._deliveries.end_wait, self._clock)
        self._shipping = LogShipping(
            machine,
            migrations()[-1][0],
            bus=bus,
            database=database,
            store_log=self._store_log,
            on_outdated=self._outdated,
        )
        self._tail = LogTail(store, self._store_log, self._shell, self._shipping.grew)
        self._presence = PresencePublisher(
            machine,
            self._me,
            bus=bus,
            clock=self._clock,
            read_agents=self._read_agents,
            incarnation=lambda: self._shell.incarnation,
            is_gateway=lambda: config_file.config.is_gateway,
            ships_log=config_file.config.ship_log,
        )
        self._states = AgentStates(self.registry, self._hosts, self._presence.changed)
        self._streams = Streams(bus, machine, self._ask_terminal, lambda: secrets.token_hex(8))
        self._answers = Answers(
            machine=machine,
            instance=self._me,
            finder=self._finder,
            registry=self.registry,
            store=store,
            hosts=self._hosts,
            tasks=stopped,
            allowed=config_file.allowed,
            answer_log=self._answer_log,
            serve_terminal=self._serve_terminal,
            ships_log=config_file.config.ship_log,
        )
        self._fleet = Fleet(
            machine=machine,
            client=self._client,
            machines=self._machines,
            shell=self._shell,
            database=database,
            entries=lambda: self.registry.latest,
            waiting_behind=lambda inbox: waiting_behind(store, inbox, machine),
            max_payload=lambda: bus.max_payload,
            clock=self._clock,
            new_task_id=new_task_id,
            new_context_id=new_context_id,
            new_message_id=new_id,
        )
        self._proxies = Proxies(
            self._fleet,
            me=entry,
            registry=self.registry,
            settings=settings,
            websockets=partial(proxy_websockets, self._streams),
        )
        self.api = LinkApi(self._fleet, self._proxies, status=self._status, metrics=self._metrics)
        self._replicas, self._keys = self._replica_keeper(), self._key_mirror()
        self._writing: set[asyncio.Task[None]] = set()
        self._shell.on_announce, self._shell.on_notify = self._announced, self._notified
        self._shell.on_loaded = self._shipping.loaded
        self._shell.tell_incarnations = self._machines.tell_incarnations
        if config_file.config.ship_log:
            self._shell.read_own_log = self._shipping.read_engine
            self._shell.on_disconnected = self._shipping.lose_engine

    async def run(self) -> None:
        """Runs all parts until it is cancelled. Raises Conflict when another link has this machine's name."""
        parts: list[Part] = [
            self._shell.run,
            self._tail.run,
            self._states.run,
            self._proxies.run,
            self._streams.run,
            self._answer,
            self._check_outbox,
            partial(look_for_receivers, self._bus, self._database, self._machines),
            self._waits.run,
        ]
        if self._config_file.config.ship_log:
            parts.append(self._shipping.run)
        if self._replicas is not None:
            parts.append(self._replicas.run)
        if self._keys is not None:
            parts.append(self._keys.run)
        if self._config_file.config.runs_server:
            from synapse.link.enrolment import serve_fleet  # noqa: PLC0415 - only one machine runs the server

            parts.append(partial(serve_fleet, self._settings.home, self._settings.logs, self._bus))
        async with asyncio.TaskGroup() as group:
            for part in parts:
                group.create_task(keep_running(part, self.note))

    async def leave(self) -> None:
        """Says good-bye to the other machines, and closes what `run` has opened."""
        await self._presence.leave()
        await self._store_log.close()
        self._hosts.close()

    async def _answer(self) -> None:
        """Answers other machines once it is certain that this is the only link of its name."""
        async for connected in self._bus.changes():
            if connected:
                break
        await self._presence.require_alone()
        async with asyncio.TaskGroup() as group:
            for subject in (ask_subject(self._machine, "*"), command_subject(self._machine, "*")):
                group.create_task(keep_running(partial(self._answers.hear, self._bus, subject), self.note))
            group.create_task(self._presence.run())

    async def _check_outbox(self) -> None:
        """Notes messages that a machine which is present does not accept."""
        noted: set[str] = set()
        while True:
            await pause(CHECK_SECONDS)
            try:
                late = await self._database.read_overdue(self._clock.now().timestamp() - OVERDUE_SECONDS)
            except SynapseError:
                continue  # the status says it
            for row in late:
                if row.message_id not in noted and await self._is_present(row.to):
                    noted.add(row.message_id)
                    self.note(f"a message to {row.to} is open for more than 10 minutes, though it is present")

    async def _is_present(self, machine: str) -> bool:
        with suppress(BusError, SynapseError):
            return (await self._machines.find(machine)).present is not None
        return False

    async def _read_mark(self, seq: int) -> StoreMark:
        return await self._store_log.mark(await self._store.store_id(), seq)

    async def _read_agents(self) -> tuple[dict[str, Any], ...]:
        return self._states.rows()

    async def _answer_log(self, request: RangeRequest | PieceRequest) -> bytes:
        if request.machine == self._machine and self._config_file.config.ship_log:
            return await self._shipping.answer(request)
        if self._replicas is not None:
            return await self._replicas.answer(request)
        return encode_log(RangeAnswer())

    async def _ask_terminal(self, machine: str, agent: str, kind: StreamKind, stream_id: str) -> None:
        ask = asks.OpenTerminal(target=agent, kind=kind.value, stream_id=stream_id)
        await self._client.ask(machine, ask, asks.Opened)

    async def _serve_terminal(self, agent: AgentEntry, machine: str, ask: asks.OpenTerminal) -> None:
        await serve_terminal(
            self._streams,
            self._hosts,
            agent,
            StreamKind(ask.kind),
            from_machine=machine,
            stream_id=ask.stream_id,
            holds=lambda: ATTACH in self._config_file.allowed(machine),
        )

    def _replica_keeper(self) -> ReplicaKeeper | None:
        config = self._config_file.config
        if not config.replica and not config.is_gateway:
            return None
        from synapse.link.replicas import ReplicaKeeper  # noqa: PLC0415 - few machines keep a replica

        path = fleet_folder(self._settings.home) / REPLICA_FILE
        return ReplicaKeeper(path, self._bus, self._machine, clock=self._clock, keep_days=self._settings.keep_days)

    def _key_mirror(self) -> KeyMirror | None:
        if not self._config_file.config.is_gateway:
            return None
        return KeyMirror(self._settings.home, self._bus, self._machine, clock=self._clock, note=self.note)

    def _outdated(self, event: Outdated) -> None:
        self._shell.give(event)

    def _announced(self, event: Announce) -> None:
        self.incarnations += 1
        if event.why != JOINED:
            self.note(f"this machine has a new incarnation, {event.incarnation.text}: {event.why}")
        self._shipping.loaded(event.incarnation)
        writing = asyncio.get_running_loop().create_task(self._presence.write_incarnation())
        self._writing.add(writing)  # the loop itself keeps no reference
        writing.add_done_callback(self._writing.discard)

    def _notified(self, event: Notify) -> None:
        self.note(event.text)

    def note(self, text: str) -> None:
        self.notes.append(f"{instant(self._clock)} {text}")

    async def require_connected(self) -> None:
        """Raises LinkDown without a connection to the fleet's server."""
        if not self._bus.connected:
            raise LinkDown(self._bus.problem)

    async def _status(self) -> dict[str, Any]:
        config = self._config_file.config
        incarnation: Incarnation | None = self._shell.incarnation
        return {
            "fleet": config.fleet,
            "machine": config.machine,
            "version": __version__,
            "pid": os.getpid(),
            "since": self._since,
            "incarnation": incarnation.text if incarnation is not None else "",
            "connected": self._bus.connected,
            "problem": self._bus.problem or self._shell.problem,
            "server": without_password(next(iter(config.servers), "")),
            "is_gateway": config.is_gateway,
            "runs_server": config.runs_server,
            "ship_log": config.ship_log,
            "ship_lag": self._shipping.lag,
            "replica": self._replicas.status() if self._replicas is not None else None,
            "keys": self._keys.status() if self._keys is not None else None,
            "allow": {name: sorted(actions) for name, actions in config.allow.items()},
            "agents": len(self._states.rows()),
            "proxies": len(self._proxies),
            "notes": list(self.notes),
        }

    async def _metrics(self) -> str:
        return metrics_text(
            connected=self._bus.connected,
            waiting=await self._database.count_open(),
            load=self._shell.outbox_load,
            proxies=len(self._proxies),
            now=self._clock.now().timestamp(),
            outcomes=self._shell.outcomes,
            received=self._shell.received,
            log_seq=self._shell.tail_seq,
            ship_lag=self._shipping.lag,
            replica=self._replicas.status() if self._replicas is not None else None,
            incarnations=self.incarnations,
        )


async def look_for_receivers(bus: Bus, database: LinkDatabase, machines: Machines) -> None:
    """Looks whether machines are back for which messages wait, in turn: the relay then sends them at once."""
    last = ""
    while True:
        await pause(LOOK_SECONDS)
        with suppress(BusError, SynapseError):
            waiting = await database.read_receivers() if bus.connected else []
            in_turn = [one for one in waiting if one > last] + [one for one in waiting if one <= last]
            for last in in_turn[:MOST_LOOKS]:
                # A machine that was removed from the fleet does not come back, and the next one may.
                with suppress(MachineNotFound):
                    await machines.find(last)


async def keep_running(part: Part, note: Callable[[str], None]) -> None:
    """Runs a part of the link, and again after a defect, which another machine may have provoked.

    If the fleet's server forbids what the part needs, the others go on without it, and it is tried again: an operator
    may change that. Raises the SynapseError with which the part ends the link, such as Conflict.
    """
    noted = ""
    while True:
        try:
            await part()
        except Exception as error:
            causes = _causes(error)
            if any(isinstance(one, SynapseError) for one in causes):
                raise
            why = "; ".join(str(one) or type(one).__name__ for one in causes)
            if all(isinstance(one, BusError) for one in causes):
                log.error("part_forbidden", extra={"why": why})  # noqa: TRY400 - the reason is what counts
                if why != noted:
                    note(f"a part of this link does not run: {why}")
                noted = why
                await pause(FORBIDDEN_SECONDS)
                continue
            log.exception("part_failed")
            note(f"a part of this link has failed and starts again: {why}")
        else:
            return
        await pause(RESTART_SECONDS)


def _causes(error: BaseException) -> list[BaseException]:
    """Returns the errors in a group, and in the groups in it; or the error itself."""
    inner: Sequence[BaseException] = getattr(error, "exceptions", ())
    return [cause for one in inner for cause in _causes(one)] or [error]


async def run_link(settings: Settings, on_ready: Callable[[AgentEntry, FleetConfig], None]) -> None:
    """Runs the link of this machine until a stop signal, or until the machine leaves its fleet.

    Raises:
        NotInFleet, InvalidSettings: this machine is in no fleet, or its files cannot be read.
        Conflict: a link of this machine runs already, here or elsewhere.
        StoreFailed: the store or link.db cannot be opened.
    """
    from synapse.link.nats_bus import NatsBus, access_of  # noqa: PLC0415 - it loads nats-py

    config_file = FleetFile(settings.home)
    with only_one(settings.home):
        raise_file_limit()
        stop = stop_signal()
        store = await open_store(settings)
        try:
            database = LinkDatabase(fleet_folder(settings.home) / FILE, SystemClock())
            try:
                async with NatsBus(access_of(settings.home, config_file.config)) as bus:
                    await _serve(config_file, settings, store, database, bus, stop, on_ready)
            finally:
                await database.close()
        finally:
            await store.close()


async def _serve(  # noqa: PLR0913, PLR0917 - what is open by now
    config_file: FleetFile,
    settings: Settings,
    store: TaskStore,
    database: LinkDatabase,
    bus: Bus,
    stop: asyncio.Future[int],
    on_ready: Callable[[AgentEntry, FleetConfig], None],
) -> None:
    entry = new_entry(LINK, "link", SystemClock(), name=LINK)
    listener = await asyncio.to_thread(listen_at_socket, f"{LINK}-{_short(settings.home)}", settings)
    entry.socket = str(listener.path)
    link = Link(config_file, entry, settings, store, database, bus)
    auth = LocalAuth(
        uid=os.getuid(),
        hosts=(),
        entries=lambda: link.registry.latest,
        terminal_decides=settings.terminal_decides,
    )
    app = HttpApp(
        NoRequests(),
        [link.api.dialect()],
        admit=LocalAdmission(auth, link.registry.agents),
        limits=HttpLimits(max_body_bytes=settings.max_body_bytes, keep_alive_seconds=KEEP_ALIVE_SECONDS),
    )
    probed = ProbedApp(app, link.require_connected, SystemClock().monotonic)
    server = Server(probed, [listener.socket], grace_seconds=_GRACE_SECONDS)
    files = links(settings.home)
    try:
        async with _background(server.serve()) as serving, _background(server.keep_in_place(listener)):
            await server.wait_started()
            async with _background(link.run()) as running, _background(config_file.follow()) as leaving:
                await asyncio.to_thread(files.write, entry)
                tune_gc()
                log.info("link_started", extra={"machine": config_file.config.machine, "pid": entry.pid})
                on_ready(entry, config_file.config)
                ends: set[asyncio.Future[Any]] = {stop, running, leaving, serving}
                async with _background(keep_running(partial(_restore_entry, settings.home, entry), link.note)):
                    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                log.info("link_stopping", extra={"why": _why(stop, leaving)})
                await link.leave()
                if running.done():
                    await running
            server.stop()
            await asyncio.wait({serving})
    finally:
        files.remove(LINK)
        listener.close()


@asynccontextmanager
async def _background(job: Coroutine[Any, Any, None]) -> AsyncGenerator[asyncio.Task[None]]:
    """Runs a job for the length of a block."""
    task = asyncio.create_task(job)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _restore_entry(home: Path, entry: AgentEntry) -> None:
    """Writes the registry entry again if something removed its file."""
    while True:
        await pause(CONFIG_SECONDS)
        with suppress(OSError):
            await asyncio.to_thread(links(home).restore, entry)


@contextmanager
def only_one(home: Path) -> Generator[None]:
    """Holds the lock of the link of a home. Raises Conflict while another process holds it."""
    descriptor = os.open(fleet_folder(home) / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Conflict("the link of this machine runs already", hint="`synapse fleet status` shows it") from None
    try:
        yield
    finally:
        os.close(descriptor)


def _why(stop: asyncio.Future[int], leaving: asyncio.Task[None]) -> str:
    if stop.done():
        return f"signal {stop.result()}"
    return "this machine has left its fleet" if leaving.done() else "a part of it has ended"


def _short(home: Path) -> str:
    """Returns a short name for a home: several homes of one user share the folder for sockets."""
    return hashlib.blake2b(os.fsencode(home.resolve()), digest_size=4).hexdigest()
