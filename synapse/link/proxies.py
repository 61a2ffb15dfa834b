"""Proxy sockets: agents on other machines, served on this one as a host serves its own agent.

    POST /fleet/proxies ─► the other machine resolves the name ─► a socket for that agent, kept while it is used

A proxy serves the dialects of a host over `RemoteAgentTasks`; what a host answers from its own memory (the status, the
screen) is asked of the other machine as JSON. Only this user can connect. It closes after an hour without a request;
above MOST_OPEN proxies earlier, the least recently used first. The next one who asks for its agent opens it again.

    open ─► retired: its file is gone, and who is connected is served to the end ─► closed
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from synapse.auth.local import LocalAdmission, LocalAuth
from synapse.client.attention import ATTACH_AFTER
from synapse.config.process import SystemClock, open_file_limit
from synapse.config.settings import Settings
from synapse.core.address import on_machine, remote_inbox, short_name, split_machine
from synapse.core.agent import EXITED, AgentEntry, entry_from
from synapse.core.caller import ATTACH, Caller
from synapse.core.errors import InvalidRequest, MachineAway, RateLimited, SynapseError
from synapse.core.registry import KEEP_ALIVE_SECONDS, CachedRegistry
from synapse.core.service import Handler
from synapse.core.waiting import pause
from synapse.dialects.dialect import (
    AnyRoute,
    Dialect,
    EventAnswer,
    LateAnswer,
    ServiceRoute,
    WireAnswer,
    WireEvent,
    WireRequest,
)
from synapse.dialects.proto_json import to_json
from synapse.dialects.synapse import commands
from synapse.dialects.synapse.encode import encode_error, encode_screen_error
from synapse.dialects.task_json import task_object
from synapse.fleet import asks
from synapse.fleet.bus import BusError
from synapse.fleet.names import is_machine_name
from synapse.host.identity import listen_at_socket
from synapse.host.routes import DialectChoice, host_dialects
from synapse.link.asking import MachineSilent, asker, is_loss, task_of_text
from synapse.link.presence import LOOK_SECONDS, no_machine
from synapse.link.remote_tasks import Fleet, RemoteAgentTasks
from synapse.server.app import HttpApp
from synapse.server.asgi import HttpLimits
from synapse.server.http import Server
from synapse.server.listener import UnixListener

if TYPE_CHECKING:
    from synapse.server.websocket import ForEveryCaller, WebSocketHandler

log = logging.getLogger(__name__)

UNUSED_SECONDS: Final = 3600.0
CHECK_SECONDS: Final = 10.0
MOST_OPEN: Final = 256
"""Above so many proxies, those that nobody uses are closed. As many as are used at a time may be open."""
CONNECT_SECONDS: Final = 10.0
"""How long a caller may take to connect to the socket that it was told; so long the proxy counts as used."""
_DRAIN_SECONDS: Final = 0.2
_ROUND_SECONDS: Final = 0.01
_ROUNDS: Final = 5
_SHARE: Final = 4
"""Of the files that the link may open, proxies have a quarter: each has its socket, and one for each connection."""
_GRACE_SECONDS: Final = 1
ServeRoute = Callable[[WireRequest, Handler, Caller], Awaitable[WireAnswer | LateAnswer | EventAnswer]]
_AWAY_SECONDS: Final = 2.0

OpenWebSockets = Callable[[str, str], "Mapping[str, WebSocketHandler | ForEveryCaller]"]
"""Returns the WebSockets of the proxy of an agent, by its machine and its target there; see `link.terminals`."""


@dataclass(slots=True)
class _Proxy:
    """One open proxy socket."""

    entry: AgentEntry
    listener: UnixListener
    server: Server
    serving: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])
    used_at: float = 0.0


class OpenedProxy(NamedTuple):
    """An agent on another machine, with its proxy socket."""

    entry: AgentEntry
    is_stopped: bool
    """Its machine says that it does not run, and keeps messages for its next start."""


class Proxies:
    """Opens proxy sockets, and closes them when they are not used."""

    def __init__(  # noqa: PLR0913 - what they serve, and three limits
        self,
        fleet: Fleet,
        *,
        me: AgentEntry,
        registry: CachedRegistry,
        settings: Settings,
        websockets: OpenWebSockets = lambda _machine, _target: {},
        most_open: int = MOST_OPEN,
        connect_seconds: float = CONNECT_SECONDS,
        most_at_all: int | None = None,
    ) -> None:
        self._fleet = fleet
        self._me = me
        self._registry = registry
        self._settings = settings
        self._websockets = websockets
        self._most_open = most_open
        self._connect_seconds = connect_seconds
        self._most_at_all = open_file_limit() // _SHARE if most_at_all is None else most_at_all
        self._open: dict[str, _Proxy] = {}
        self._starting = 0
        self._retiring: dict[asyncio.Task[None], _Proxy] = {}
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._open)

    async def open(self, target: str, *, queue: bool, exact: bool = False) -> OpenedProxy:
        """Opens the proxy socket of an agent on another machine.

        With `queue`, an agent that cannot be asked for now has a proxy too: messages to it are kept. With `exact`, no
        agent is found by its profile.

        Raises:
            InvalidRequest: the target names no other machine.
            MachineNotFound, MachineAway, LinkDown, AgentNotFound, AmbiguousTarget: it is not reachable, or not there.
            RateLimited: too many proxies are in use.
        """
        name, machine = split_machine(target)
        if not machine or machine == self._fleet.machine:
            raise InvalidRequest(f"'{target}' names no agent on another machine", hint="write it as codex@box2")
        if not is_machine_name(machine):
            raise no_machine(machine)
        found, known_as = await self._resolve(name, machine, queue=queue, exact=exact)
        return found._replace(entry=(await self._proxy(found.entry, machine, known_as)).entry)

    async def run(self) -> None:
        """Closes unused proxies, until it is cancelled; then closes all."""
        try:
            while True:
                await pause(CHECK_SECONDS)
                now = asyncio.get_running_loop().time()
                for key, proxy in tuple(self._open.items()):
                    if proxy.server.has_connections:
                        proxy.used_at = now
                    elif now - proxy.used_at > UNUSED_SECONDS:
                        self._retire(key)
                self._retire_surplus()
        finally:
            left = [*self._retiring.values(), *self._open.values()]
            for draining in tuple(self._retiring):
                draining.cancel()
            self._open.clear()
            for proxy in left:
                await self._close(proxy)

    async def _resolve(self, name: str, machine: str, *, queue: bool, exact: bool) -> tuple[OpenedProxy, str]:
        """Returns the agent, and how its machine finds it: by its inbox, which outlives a restart, else by the name."""
        try:
            if not queue:
                self._fleet.client.require_connected()
            ask = asks.ResolveAgent(target=name, queue=queue, exact=exact)
            found = await self._fleet.client.ask(machine, ask, asks.AgentResolved)
        except SynapseError as error:
            if not queue or not is_loss(error):
                if isinstance(error, MachineAway):
                    # Says so for a machine that nobody knows.
                    await self._fleet.machines.find(machine)
                if isinstance(error, MachineSilent):
                    # It was only asked for the agent: nothing was sent that could be taken twice.
                    error.hint = MachineAway(machine).hint
                raise
            await self._require_machine(machine)
            return OpenedProxy(self._unresolved(name, machine), is_stopped=False), name
        entry = entry_from(found.agent)
        if entry is None:
            raise SynapseError("the other machine described an agent that cannot be read")
        known_as = entry.inbox or name
        return OpenedProxy(self._shown(entry, machine), is_stopped=not found.running), known_as

    async def _require_machine(self, machine: str) -> None:
        """Raises MachineNotFound if the fleet surely has no such machine; without a connection nobody knows."""
        with suppress(BusError, TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await self._fleet.machines.find(machine)

    def _unresolved(self, name: str, machine: str) -> AgentEntry:
        entry = AgentEntry(f"{name}@{machine}", name, name=on_machine(name, machine), inbox=remote_inbox(name, machine))
        return self._as_proxy(entry)

    def _shown(self, entry: AgentEntry, machine: str) -> AgentEntry:
        name = short_name(entry)
        entry.agent_id = on_machine(entry.agent_id, machine)
        entry.name = on_machine(name, machine)
        entry.inbox = remote_inbox(entry.inbox, machine)
        return self._as_proxy(entry)

    def _as_proxy(self, entry: AgentEntry) -> AgentEntry:
        me = self._me
        entry.pid, entry.pid_started, entry.pid_namespace = me.pid, me.pid_started, me.pid_namespace
        entry.port = 0
        entry.endpoint = ""
        return entry

    async def _proxy(self, entry: AgentEntry, machine: str, target: str) -> _Proxy:
        lock = self._opening.setdefault(entry.inbox, asyncio.Lock())
        async with lock:
            proxy = self._open.get(entry.inbox)
            if proxy is None:
                self._make_room()
                self._starting += 1
                try:
                    proxy = await self._start(entry, machine, target)
                finally:
                    self._starting -= 1
                self._open[entry.inbox] = proxy
            proxy.used_at = asyncio.get_running_loop().time()
            entry.socket = str(proxy.listener.path)
            proxy.entry = entry
        return proxy

    async def _start(self, entry: AgentEntry, machine: str, target: str) -> _Proxy:
        name = socket_name(self._me.agent_id, self._settings.home, entry.inbox)
        listener = await asyncio.to_thread(listen_at_socket, name, self._settings)
        entry.socket = str(listener.path)
        service = RemoteAgentTasks(self._fleet, machine, target, entry)
        server = self._server(entry, machine, target, service, listener)
        proxy = _Proxy(entry, listener, server)
        proxy.serving = [
            asyncio.create_task(server.serve()),
            asyncio.create_task(server.keep_in_place(listener)),
        ]
        await server.wait_started()
        log.info("proxy_opened", extra={"agent": entry.name, "target": target})
        return proxy

    # Closing

    def _make_room(self) -> None:
        """Retires what nobody uses, so that one more may open. Raises RateLimited when too many are in use."""
        self._retire_surplus(room=1)
        if len(self._open) + len(self._retiring) + self._starting >= self._most_at_all:
            raise RateLimited(
                f"{self._most_at_all} agents on other machines are in use from here already",
                seconds=self._connect_seconds,
            )

    def _retire_surplus(self, *, room: int = 0) -> None:
        """Retires proxies that nobody uses, the least recently used first, as far as there are too many."""
        surplus = len(self._open) + self._starting + room - self._most_open
        if surplus <= 0:
            return
        before = asyncio.get_running_loop().time() - self._connect_seconds
        unused = [
            (proxy.used_at, key)
            for key, proxy in self._open.items()
            if proxy.used_at <= before and not proxy.server.has_connections
        ]
        for _, key in sorted(unused)[:surplus]:
            self._retire(key)

    def _retire(self, key: str) -> None:
        """Takes a proxy out of use, and closes it once it has served who is connected.

        Who connects from now on finds no socket, and asks the link again: nothing is sent to one that closes.
        """
        proxy = self._open.pop(key)
        _, keeping = proxy.serving
        keeping.cancel()  # it would put the file back
        proxy.listener.withdraw()
        draining = asyncio.create_task(self._drain(proxy))
        self._retiring[draining] = proxy
        draining.add_done_callback(self._retiring.pop)

    async def _drain(self, proxy: _Proxy) -> None:
        while not await _is_quiet(proxy):
            await pause(_DRAIN_SECONDS)
        await self._close(proxy)

    async def _close(self, proxy: _Proxy) -> None:
        serving, keeping = proxy.serving
        keeping.cancel()
        proxy.server.stop()
        await asyncio.wait({serving})
        proxy.listener.close()
        log.info("proxy_closed", extra={"agent": proxy.entry.name})

    def _used(self, inbox: str) -> None:
        if (proxy := self._open.get(inbox)) is not None:
            proxy.used_at = asyncio.get_running_loop().time()

    def _server(
        self, entry: AgentEntry, machine: str, target: str, service: RemoteAgentTasks, listener: UnixListener
    ) -> Server:
        dialects = host_dialects(entry, title=entry.name, pty_wrapped=False)
        dialects[0] = _with_remote_status(dialects[0], RemoteStatus(self._fleet, machine, target))
        auth = LocalAuth(
            uid=os.getuid(),
            hosts=(),
            entries=lambda: self._registry.latest,
            terminal_decides=self._settings.terminal_decides,
        )
        app = HttpApp(
            service,
            dialects,
            admit=LocalAdmission(auth, self._registry.agents),
            choose=DialectChoice(dialects),
            websockets=self._websockets(machine, target),
            observe=lambda _exchange: self._used(entry.inbox),
            limits=HttpLimits(max_body_bytes=self._settings.max_body_bytes, keep_alive_seconds=KEEP_ALIVE_SECONDS),
        )
        return Server(app, [listener.socket], grace_seconds=_GRACE_SECONDS)


async def _is_quiet(proxy: _Proxy) -> bool:
    """Decides whether nobody is connected to a proxy whose file is gone.

    asyncio takes three rounds of its loop from a connection that waits to one that the server counts.
    """
    for _ in range(_ROUNDS):
        if proxy.server.has_connections or proxy.listener.has_waiting():
            return False
        await pause(_ROUND_SECONDS)
    return True


class RemoteStatus:
    """The routes of a host about its agent's state, answered by the other machine."""

    def __init__(self, fleet: Fleet, machine: str, target: str) -> None:
        self._fleet = fleet
        self._machine = machine
        self._target = target

    async def status(self, wire: WireRequest, _service: Handler, caller: Caller) -> WireAnswer:
        """`GET /status`"""
        ask = asks.ReadStatus(target=self._target, finished=_number(wire, "finished"), sender=asker(caller))
        read = await self._fleet.client.ask(self._machine, ask, asks.StatusRead)
        return WireAnswer(200, to_json(self._shown(read)))

    async def queue(self, _wire: WireRequest, _service: Handler, _caller: Caller) -> WireAnswer:
        """`GET /queue`: the tasks that wait, as far as this machine may see them."""
        ask = asks.ReadTasks(target=self._target, states=("submitted",), limit=500)
        page = await self._fleet.client.ask(self._machine, ask, asks.TasksListed)
        return WireAnswer(200, to_json({"tasks": [task_object(task_of_text(text)) for text in page.tasks]}))

    async def watch(self, wire: WireRequest, _service: Handler, caller: Caller) -> EventAnswer:
        """`GET /status/watch`: the whole status, then each change of it."""
        ask = asks.ReadStatus(target=self._target, finished=_number(wire, "finished"), sender=asker(caller))
        return EventAnswer(self._statuses(ask, whole=True), encode_error)

    async def follow(self, _wire: WireRequest, _service: Handler, caller: Caller) -> EventAnswer:
        """`GET /status/subscribe`: the state, then each change of it."""
        ask = asks.ReadStatus(target=self._target, sender=asker(caller))
        return EventAnswer(self._statuses(ask, whole=False), encode_error)

    async def screen(self, wire: WireRequest, _service: Handler, caller: Caller) -> WireAnswer:
        """`GET /screen`"""
        known = wire.header(b"if-none-match").strip().removeprefix("W/").strip('"')
        lines = _number(wire, "lines")
        ask = asks.ReadScreen(target=self._target, lines=lines, known=known, sender=asker(caller))
        try:
            read = await self._fleet.client.ask(self._machine, ask, asks.ScreenRead)
        except SynapseError as error:
            return encode_screen_error(error)
        if read.screen is None:
            return WireAnswer(304, b"")
        etag = f'"{read.screen.get("version", "")}"'.encode("ascii", "replace")
        return WireAnswer(200, to_json(read.screen), ((b"etag", etag),))

    async def _statuses(self, wanted: asks.ReadStatus, *, whole: bool) -> AsyncGenerator[WireEvent, None]:
        """Yields the status and its changes. While the machine cannot be asked, the agent reads as `exited`."""
        known, last = "", ""
        while True:
            ask = msgspec.structs.replace(wanted, known=known, seconds=asks.LONG_POLL_SECONDS if known else 0.0)
            try:
                read = await self._fleet.client.ask(self._machine, ask, asks.StatusRead, seconds=ask.seconds)
            except RateLimited as error:
                # Too many readers of this machine wait there; another may end soon.
                await pause(error.retry_after)
                continue
            except SynapseError as error:
                if not is_loss(error):
                    raise
                if known or not last:
                    known, last = "", EXITED
                    yield WireEvent("", "status", to_json(_away_status(error)))
                await pause(_AWAY_SECONDS)
                continue
            known = read.version
            if read.status is None or (not whole and read.status.get("state") == last):
                continue
            last = str(read.status.get("state"))
            yield WireEvent("", "status", to_json(self._shown(read)))

    def _shown(self, read: asks.StatusRead) -> dict[str, Any]:
        """Returns the status with the command that lets this machine attach, until it may.

        A command that the other machine names is left out: people would type it there.
        """
        status = {key: value for key, value in (read.status or {}).items() if key != ATTACH_AFTER}
        return (
            status
            if read.may_attach
            else {**status, ATTACH_AFTER: f"synapse fleet allow {self._fleet.machine} {ATTACH}"}
        )


def _away_status(error: SynapseError) -> dict[str, Any]:
    since = SystemClock().now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"state": EXITED, "why": str(error), "source": "fleet", "since": since}


def _with_remote_status(dialect: Dialect, remote: RemoteStatus) -> Dialect:
    """Returns the dialect of a host with the routes that the other machine answers as JSON."""
    served: dict[str, ServeRoute] = {
        commands.STATUS: remote.status,
        commands.STATUS_WATCH: remote.watch,
        commands.STATUS_STREAM: remote.follow,
        commands.SCREEN: remote.screen,
        "/queue": remote.queue,
    }

    def changed(route: AnyRoute) -> AnyRoute:
        serve = served.get(route.path) if route.method == "GET" else None
        return route if serve is None else ServiceRoute(method="GET", path=route.path, serve=serve)

    return replace(dialect, routes=tuple(changed(route) for route in dialect.routes))


def _number(wire: WireRequest, name: str) -> int:
    text = wire.query().get(name, "0")
    return min(int(text), 1000) if text.isascii() and text.isdigit() and len(text) < 6 else 0


def socket_name(link: str, home: Path, inbox: str) -> str:
    """Returns the name of the proxy socket of an agent.

    It is short, because the path of a socket may have about a hundred letters, and another one for each link: several
    machines may live on one computer and share the folder of sockets.
    """
    digest = hashlib.blake2b(os.fsencode(home.resolve()) + b"\0" + inbox.encode(), digest_size=6).hexdigest()
    return f"{link}-{digest}"
