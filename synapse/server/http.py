"""The HTTP server: uvicorn on the sockets that it is given, silent, without signal handlers, with our own HTTP.

Importing this costs what uvicorn costs; a host does it late.

One HTTP/1.1 connection, as uvicorn's server wants it: bytes in, requests to the application, answers in order.

    LISTENING ──────► DEAF ───────► LINGERING ──────► CLOSING
              last          last              time
              request       answer            is over

    LISTENING   requests are read; each is answered when those before it have been
    DEAF        no more are taken: the last one said so, or what came is no HTTP; what was asked is still answered
    LINGERING   all is said; what the caller still sends is thrown away, so that it can read our last words
    CLOSING     the rest is written, and that is all

Nothing grows: reading stops while requests wait, or a body waits for the application; no request is begun while the
caller does not read its answers. Nobody who takes nothing is waited for without end.

One request of a connection and its answer: ASGI on one side, HTTP/1.1 on the other.

                  start               last piece
    WAITING ───────────────► STREAMING ─────────► ANSWERED
       └──────────────────────────────────────────────▲
                        a whole answer

A request whose body breaks off is told to the application as a caller who left. If it did not need the body, its
answer counts; otherwise the fault is answered when the application has ended. So what is answered does not depend on
how the bytes were cut.

From bytes to requests: what llhttp reads, with limits, and as scopes of ASGI. It does no I/O.

What it tells does not depend on how the bytes were cut, but for the pieces that a body comes in.

The head of an answer as bytes. What is the same in nearly every answer is made once a second, with its date.

A time limit that is moved often: with each request of a connection. Moving it costs no timer.

A time limit for whoever does not read what was written: it is moved as long as something of it is read.

Whether the other side of a connection has hung up, asked without reading what it sent before.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
import select
import socket
import ssl
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, MutableMapping, Sequence
from enum import Enum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol, cast
from urllib.parse import unquote

import httptools
import uvicorn
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl

from synapse.core.errors import (
    AgentExited,
    BodyTooSlow,
    InternalFailure,
    InvalidRequest,
    InvalidSettings,
    RateLimited,
    SynapseError,
)
from synapse.core.override import override
from synapse.dialects.dialect import WireAnswer
from synapse.server.acceptor import SLOT, Acceptor, ConnectionLimits
from synapse.server.asgi import Receive, Scope, Send, ServedApp
from synapse.server.listener import UnixListener
from synapse.server.peer import PEER, peer_of

if TYPE_CHECKING:
    from uvicorn.server import ServerState

log = logging.getLogger(__name__)

FRAME_LIMIT: Final = 1024 * 1024
UNLIMITED: Final = ConnectionLimits(total=sys.maxsize, unproven=sys.maxsize, unproven_per_source=sys.maxsize)
RETRY_SECONDS: Final = 5
LOOK_SECONDS: Final = 2.0

# Nothing may be printed where a person's CLI is drawn. What root has handlers for is still logged there.
logging.getLogger("uvicorn").addHandler(logging.NullHandler())


class Server:
    """Serves one application on some listening sockets; with `tls`, nothing else is spoken there.

    `limits` bound the connections of TCP ports; a Unix socket is only this user's, and always has room.
    """

    def __init__(
        self,
        app: ServedApp,
        sockets: Sequence[socket.socket],
        *,
        grace_seconds: int = 3,
        tls: ssl.SSLContext | None = None,
        limits: ConnectionLimits = UNLIMITED,
    ) -> None:
        config = uvicorn.Config(
            app,
            http=HttpConnection,
            ws=LateWebSocket,
            ws_max_size=FRAME_LIMIT,
            ws_per_message_deflate=False,
            interface="asgi3",
            lifespan="off",
            workers=1,
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=grace_seconds,
        )
        if tls is not None:
            # Loading would make a context from files; ours is made already, with its errors told.
            config.load()
            config.ssl = tls
        self._sockets = list(sockets)
        self._uvicorn = _QuietServer(config, app, limits)

    async def serve(self) -> None:
        """Serve until `stop`; then end the streams, wait for what runs, and close the sockets."""
        try:
            await self._uvicorn.serve(sockets=self._sockets)
        except asyncio.CancelledError:
            if self._uvicorn.started:
                await self._uvicorn.shutdown(self._sockets)
            raise
        finally:
            for listener in self._sockets:
                listener.close()

    async def keep_in_place(self, unix: UnixListener) -> None:
        """Make the socket again whenever it was removed: nobody could reach us there, nor end us by a command.

        Never returns by itself.
        """
        never = asyncio.Event()
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(never.wait(), LOOK_SECONDS)
            if not unix.is_missing():
                continue
            try:
                # It looks whether somebody else listens there by now.
                await self._uvicorn.listen_also(await asyncio.to_thread(unix.renew))
            except (OSError, InvalidSettings) as error:
                log.warning("socket_not_renewed", extra={"path": str(unix.path), "error": str(error)})
            else:
                log.warning("socket_renewed", extra={"path": str(unix.path)})

    async def wait_started(self) -> None:
        """Return when connections are taken."""
        await self._uvicorn.running.wait()

    def stop(self) -> None:
        """Ask `serve` to return soon."""
        self._uvicorn.stopping.set()


class _QuietServer(uvicorn.Server):
    """uvicorn's server, without its signal handlers and without ten wake-ups a second."""

    def __init__(self, config: uvicorn.Config, app: ServedApp, limits: ConnectionLimits) -> None:
        super().__init__(config)
        self._app = app
        self._limits = limits
        self._acceptors: list[Acceptor] = []
        self.running = asyncio.Event()
        self.stopping = asyncio.Event()

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        listeners = sockets or []
        await super().startup([one for one in listeners if one.family == socket.AF_UNIX])
        for listener in listeners:
            if listener.family != socket.AF_UNIX:
                acceptor = Acceptor(
                    listener, self._new_connection, self._limits, refusal=_too_many(self._app), tls=self.config.ssl
                )
                self._acceptors.append(acceptor)
                acceptor.start()

    async def listen_also(self, listener: socket.socket) -> None:
        """Take the connections of one more Unix socket, until the end."""
        loop = asyncio.get_running_loop()
        self.servers.append(await loop.create_server(lambda: self._new_connection({}), sock=listener))

    def _new_connection(self, state: dict[str, Any]) -> HttpConnection:
        return HttpConnection(self.config, self.server_state, {**self.lifespan.state, **state})

    @override
    async def main_loop(self) -> None:
        self.running.set()
        while not self.stopping.is_set():
            await self.on_tick(0)  # the Date header, once a second
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self.stopping.wait()

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.close()
        for acceptor in self._acceptors:
            acceptor.close()
        await super().shutdown(sockets)


def _too_many(app: ServedApp) -> bytes:
    """What a connection is told that finds no room, as a whole answer."""
    error = RateLimited("too many connections are open to this port", seconds=RETRY_SECONDS)
    answer = app.refusal(error)
    headers = (
        *((name, value) for name, value in answer.headers),
        (b"content-type", answer.media_type),
        (b"content-length", str(len(answer.body)).encode("ascii")),
        (b"connection", b"close"),
    )
    return status_line(answer.status) + header_lines(headers) + b"\r\n" + answer.body


class LateWebSocket(asyncio.Protocol):
    """Stands for uvicorn's WebSocket protocol until the first one is asked for: few hosts ever need it loaded."""

    def __new__(cls, **arguments: Any) -> Any:
        from synapse.server import websocket as late  # noqa: PLC0415 - see above, it is late

        return late.WebSocketProtocol(**arguments)


LINGER_SECONDS: Final = 5.0
"""So long is read what nobody wants any more."""
FAREWELL_SECONDS: Final = 30.0
"""Whoever reads nothing of the last answers for so long is hung up on."""
STALLED_SECONDS: Final = 120.0
"""The same for all other answers. Who reads little gets more only now and then: a kernel tells of much at once."""
HALF_CLOSED_SECONDS: Final = 2.0
"""Whoever stops talking may wait for an answer or have left: it looks the same, and is taken for the first so long.

Not longer, as a caller that gives up and tries again would have many connections of which it knows nothing.
"""
CALLER_LOOK_SECONDS: Final = 15.0
"""While nothing is read, this is how often somebody looks whether the caller is still there."""
GULP: Final = 16 * 1024
"""So many bytes are read before it is asked whether requests wait: one read can bring ten thousand of them."""

_ASGI: Final = {"version": "3.0", "spec_version": "2.3"}


class Stage(Enum):
    """How far the conversation is; see above."""

    LISTENING = "listening"
    DEAF = "deaf"
    LINGERING = "lingering"
    CLOSING = "closing"


class HttpConnection(asyncio.Protocol):
    """One connection. Who it is from is found out once; a request must arrive in time."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.openings = Openings(lambda: server_state.default_headers)
        self.is_clogged = False
        self._config = config
        self._app = cast("ServedApp", config.app)
        self._server = server_state
        # It names only classes of its own.
        self._connections = cast("set[Any]", server_state.connections)
        self._loop = _loop or asyncio.get_running_loop()
        self._state = dict(app_state)
        self._deadline = Deadline(self._loop, self._too_late)
        self._stage = Stage.LISTENING
        self._is_ours = True
        """False as soon as a WebSocket has it."""
        self._ending = False
        self._writable = asyncio.Event()
        self._reads = True
        self._backlog: bytes = b""
        """What has come and is not read yet."""
        self._awaits_request = True
        """One is on its way and must come in time: the first, or one that has begun."""
        self._incoming: Cycle | None = None
        """The request whose body is on its way."""
        self._current: Cycle | None = None
        """The request that is being answered."""
        self._waiting: deque[Cycle | Fault] = deque()

    # What the transport tells.

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = wire = cast("asyncio.Transport", transport)
        self._unread = UnreadLimit(self._loop, wire)
        self._connections.add(self)
        # Who it is, is known to every request and WebSocket of this connection.
        if PEER not in self._state:
            self._state[PEER] = peer_of(wire.get_extra_info("socket"))
        common: Scope = {
            "type": "http",
            "asgi": _ASGI,
            "server": get_local_addr(wire),
            "client": get_remote_addr(wire),
            "scheme": "https" if is_ssl(wire) else "http",
            "root_path": "",
            "state": self._state,
        }
        self._reader = RequestReader(self, common)
        self._deadline.set(self._app.limits.arrival_seconds)

    @override
    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why does not matter
        self._connections.discard(self)
        if SLOT in self._state:
            self._state[SLOT].release()
        self._stage = Stage.CLOSING
        self._deadline.close()
        self._unread.close()
        self._reader.close()
        self._waiting.clear()
        self._backlog = b""
        current, self._current = self._current, None
        if current is not None:
            current.lose()
        self._writable.set()

    @override
    def data_received(self, data: bytes) -> None:
        if self._stage is not Stage.LISTENING:
            return
        if len(data) > GULP or self._backlog:
            self._backlog += data
            self._read_backlog()
        else:
            self._read(data)

    @override
    def eof_received(self) -> bool:
        """Whoever stops talking may still listen: what was asked is answered. False closes."""
        last = self._waiting[-1] if self._waiting else self._current
        # A stream has no end that could be waited for. Over TLS nothing can be said behind the end of the other side.
        is_stream = self._current is not None and self._current.phase is Phase.STREAMING
        if last is None or is_stream or self._incoming is not None or not self._transport.can_write_eof():
            return False
        self._turn_deaf()
        self._awaits_request = False
        if isinstance(last, Cycle):
            last.keep_alive = False
        self._deadline.set(HALF_CLOSED_SECONDS)
        return True

    def _read(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
        except Fault as fault:
            self._give_up(fault)
            return
        if self._reader.is_within and not self._awaits_request and self._is_ours:
            self._awaits_request = True
            self._limit_arrival()

    @override
    def pause_writing(self) -> None:
        self.is_clogged = True
        self._writable.clear()
        self._unread.set(STALLED_SECONDS)

    @override
    def resume_writing(self) -> None:
        self.is_clogged = False
        self._writable.set()
        if self._stage is not Stage.CLOSING:
            self._unread.clear()
        self._begin_next()

    # What the server asks.

    def shutdown(self) -> None:
        """End; what is being answered is answered first."""
        self._ending = True
        if self._current is None:
            self._close()
        else:
            self._current.keep_alive = False

    # What the reader tells.

    def on_request(self, scope: Scope, *, keep_alive: bool, wants_continue: bool) -> None:
        cycle = Cycle(self, scope, keep_alive=keep_alive and not self._ending, wants_continue=wants_continue)
        self._incoming = cycle
        if self._current is None and not self._waiting and not self.is_clogged:
            self._begin(cycle)
        else:
            self._waiting.append(cycle)
            self._stop_reading()

    def on_piece(self, piece: bytes) -> None:
        cycle = cast("Cycle", self._incoming)
        cycle.add_body(piece)
        if cycle.unread > HIGH_WATER:
            self._stop_reading()

    def on_whole(self) -> None:
        cycle = cast("Cycle", self._incoming)
        self._incoming = None
        self._awaits_request = False
        cycle.complete()
        if not cycle.keep_alive:
            self._turn_deaf()
        if self._current is None and not self._waiting:
            self._rest()  # it was answered before all of it had come
        elif self._reads:
            self._deadline.clear()

    def on_upgrade(self, head: bytes) -> bool:
        """Hand the connection over to a WebSocket, unless answers are still to come on it."""
        if self._current is not None or self._waiting or self._config.ws_protocol_class is None:
            return False
        self._connections.discard(self)
        self._is_ours = False
        self._deadline.close()
        self._unread.close()
        # The type says only that it is some protocol.
        new_websocket: Any = self._config.ws_protocol_class
        websocket = new_websocket(config=self._config, server_state=self._server, app_state=self._state)
        websocket.connection_made(self._transport)
        websocket.data_received(head)
        self._transport.set_protocol(websocket)
        return True

    # What a request asks.

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    async def drained(self) -> None:
        await self._writable.wait()

    def go_on_reading(self) -> None:
        if self._reads or self._waiting or self._stage is Stage.CLOSING:
            return
        self._reads = True
        if self._backlog:
            self._loop.call_soon(self._read_backlog)
        else:
            self._transport.resume_reading()
        if self._awaits_request:
            self._limit_arrival()
        else:
            self._deadline.clear()

    def answered(self, cycle: Cycle) -> None:
        self._server.total_requests += 1
        self._current = None
        if not cycle.keep_alive:
            self._hang_up(lingering=not cycle.whole)
        elif self._waiting:
            self._begin_next()
        else:
            self._rest()

    def ended(self, cycle: Cycle, fault: Fault | None) -> None:
        if cycle.task is not None:
            self._server.tasks.discard(cycle.task)
        if fault is None or cycle.phase is Phase.ANSWERED or self._stage is Stage.CLOSING:
            return
        self._current = None
        if cycle.phase is Phase.WAITING:
            self._refuse(fault, cycle.scope)
        else:
            self._close()  # only so can it be told that the answer is not whole

    # Requests, one after the other.

    def _begin(self, cycle: Cycle) -> None:
        self._current = cycle
        cycle.task = self._loop.create_task(cycle.run(self._app))
        # The loop itself remembers no task.
        self._server.tasks.add(cycle.task)

    def _begin_next(self) -> None:
        if self._current is not None or not self._waiting or self.is_clogged:
            return
        waiting = self._waiting.popleft()
        if isinstance(waiting, Fault):
            self._refuse(waiting, waiting.scope)
            return
        self._begin(waiting)
        if waiting.unread <= HIGH_WATER:
            self.go_on_reading()

    def _rest(self) -> None:
        """Nothing is asked: wait for the next request, or for the rest of one that was answered early."""
        self.go_on_reading()
        if not self._awaits_request:
            self._deadline.set(self._config.timeout_keep_alive)

    def _read_backlog(self) -> None:
        while self._backlog and self._reads:
            gulp = self._backlog[:GULP]
            self._backlog = self._backlog[GULP:]
            if self._stage is Stage.LISTENING:
                self._read(gulp)
        if self._reads and self._stage is not Stage.CLOSING:
            self._transport.resume_reading()

    def _stop_reading(self) -> None:
        if self._reads:
            self._reads = False
            self._transport.pause_reading()
            self._deadline.set(CALLER_LOOK_SECONDS)

    # Time.

    def _limit_arrival(self) -> None:
        # While we do not read, nobody can be blamed for not sending.
        if self._reads:
            self._deadline.set(self._app.limits.arrival_seconds)

    def _too_late(self) -> None:
        # Whoever is slow to read its answers may have stopped talking long ago; how slow is judged elsewhere.
        if not self._reads and (self.is_clogged or not has_left(self._transport)):
            self._deadline.set(CALLER_LOOK_SECONDS)
        elif self._reads and self._stage is not Stage.LINGERING and self._awaits_request:
            seconds = self._app.limits.arrival_seconds
            self._give_up(Fault(408, BodyTooSlow(f"the request did not arrive within {seconds:g} seconds")))
        else:
            self._close()

    # The end.

    def _turn_deaf(self) -> None:
        if self._stage is Stage.LISTENING:
            self._stage = Stage.DEAF
            self._reader.stop()

    def _give_up(self, fault: Fault) -> None:
        """Nothing more can be read. What was asked before is answered first."""
        self._turn_deaf()
        self._awaits_request = False
        if self._reads:
            self._deadline.clear()
        if self._incoming is not None:
            self._incoming.break_off(fault)
            if self._incoming.phase is Phase.ANSWERED:
                self._hang_up(lingering=True)
        else:
            self._waiting.append(fault)
            self._begin_next()

    def _refuse(self, fault: Fault, scope: Scope | None = None) -> None:
        """Answer what never became a whole request, and hang up; `scope` is its head, if that came."""
        answer = self._app.refusal(fault.error, scope)
        opening = self.openings.plain(fault.status, answer.media_type)
        body = b"" if scope is not None and scope["method"] == "HEAD" else answer.body
        self.write(b"%b%d\r\n%b\r\n%b" % (opening, len(answer.body), CLOSE, body))
        self._hang_up(lingering=True)

    def _hang_up(self, *, lingering: bool) -> None:
        """All is said. Closing on somebody who still talks would reset the connection, with our last words on it."""
        self._waiting.clear()
        if not lingering or self._ending or self.is_clogged or not self._transport.can_write_eof():
            self._close()
            return
        self._turn_deaf()
        self._stage = Stage.LINGERING
        self._transport.write_eof()
        self.go_on_reading()
        self._deadline.set(LINGER_SECONDS)

    def _close(self) -> None:
        self._stage = Stage.CLOSING
        self._reader.stop()
        self._waiting.clear()
        self._deadline.clear()
        current, self._current = self._current, None
        if current is not None:
            current.lose()
        self._transport.close()
        self._unread.set(FAREWELL_SECONDS)


App = Callable[[Scope, Receive, Send], Awaitable[None]]
Message = MutableMapping[str, Any]

HIGH_WATER: Final = 64 * 1024
"""So many bytes of a body wait for the application; then no more are read."""

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
CLOSE: Final = b"connection: close\r\n"
_CHUNKED: Final = b"transfer-encoding: chunked\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"


class Line(Protocol):
    """The connection, as one request needs it."""

    openings: Openings
    is_clogged: bool
    """The caller does not read what was written."""

    def write(self, data: bytes) -> None: ...
    async def drained(self) -> None:
        """Return when the caller has read, or is gone."""
        ...

    def go_on_reading(self) -> None:
        """The application waits for more of the body, or for the caller to leave."""
        ...

    def answered(self, cycle: Cycle) -> None:
        """All of the answer is written."""
        ...

    def ended(self, cycle: Cycle, fault: Fault | None) -> None:
        """The application has ended; with a fault when there is an answer missing, or the rest of one."""
        ...


class Phase(Enum):
    """How far the answer is."""

    WAITING = "waiting"
    STREAMING = "streaming"
    ANSWERED = "answered"


class _Framing(Enum):
    """How the reader of an answer knows where its body ends."""

    NO_BODY = "no body"
    COUNTED = "counted"
    CHUNKED = "chunked"
    UNTIL_CLOSE = "until close"


class Cycle:
    """One request. It is itself the `send` of the application."""

    __slots__ = (
        "_arrived",
        "_body_taken",
        "_fault",
        "_framing",
        "_left",
        "_line",
        "_on_leave",
        "_pieces",
        "_void",
        "_wants_continue",
        "keep_alive",
        "phase",
        "scope",
        "task",
        "unread",
        "whole",
    )

    def __init__(self, line: Line, scope: Scope, *, keep_alive: bool, wants_continue: bool) -> None:
        self.scope = scope
        self.keep_alive = keep_alive
        self.phase = Phase.WAITING
        self.whole = False
        """All of the request has come."""
        self.unread = 0
        """Bytes of the body that wait for the application."""
        self.task: asyncio.Task[None] | None = None
        self._line = line
        self._wants_continue = wants_continue
        self._pieces: list[bytes] = []
        self._body_taken = False
        self._arrived: asyncio.Event | None = None
        self._fault: Fault | None = None
        self._void = False
        self._on_leave: Callable[[], object] | None = None
        self._framing = _Framing.NO_BODY
        self._left = 0

    # What the connection tells.

    def add_body(self, piece: bytes) -> None:
        """Some of the body has come."""
        if self.phase is not Phase.ANSWERED:
            self._pieces.append(piece)
            self.unread += len(piece)
            self._tell()

    def complete(self) -> None:
        """All of the body has come."""
        self.whole = True
        self._tell()

    def break_off(self, fault: Fault) -> None:
        """The rest of the body will never come, or means nothing."""
        self._fault = fault
        self.keep_alive = False
        self._tell()

    def lose(self) -> None:
        """The caller has left."""
        self._void = True
        self._tell()
        if self._on_leave is not None:
            self._on_leave()

    # What the application asks.

    async def run(self, app: App) -> None:
        """Let the application answer, and see to it that there is an answer."""
        fault: Fault | None = None
        try:
            await app(self.scope, self.receive, self)
            fault = self._missing()
        except Exception:
            # The outermost handler, for what the application itself did not catch.
            log.exception("application_failed", extra={"path": self.scope["path"]})
            fault = Fault(500, InternalFailure())
        except asyncio.CancelledError:
            # The server ends and waits no longer.
            fault = Fault(503, AgentExited("this server ends"))
            raise
        finally:
            self._line.ended(self, fault)

    def body_at_hand(self) -> bytes | None:
        """The whole body, if it has come in one piece and nothing else has happened: the short way for nearly all."""
        if not self.whole or len(self._pieces) != 1 or self._void or self._wants_continue or self._body_taken:
            return None
        self._body_taken = True
        self.unread = 0
        return self._pieces.pop()

    async def receive(self) -> Message:
        """The next piece of the body; or that the caller has left."""
        if self._wants_continue:
            self._wants_continue = False
            if not self._has_news():
                self._line.write(CONTINUE)
        while not self._has_news():
            self._line.go_on_reading()
            if self._arrived is None:
                self._arrived = asyncio.Event()
            self._arrived.clear()
            await self._arrived.wait()
        if self._void or self.phase is Phase.ANSWERED or not (self._pieces or self.whole):
            # Whatever is answered now is nobody's answer.
            self._void = True
            return {"type": "http.disconnect"}
        pieces = self._pieces
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._pieces = []
        self.unread = 0
        self._body_taken = self.whole
        return {"type": "http.request", "body": body, "more_body": not self.whole}

    async def __call__(self, message: Message) -> None:
        """Send one of ASGI's messages; waits while the caller does not read."""
        if self._line.is_clogged and not self._void:
            await self._line.drained()
        if self._void:
            return
        if self.phase is Phase.WAITING and message["type"] == "http.response.start":
            self._start(message["status"], [*message.get("headers", ())])
        elif self.phase is Phase.STREAMING and message["type"] == "http.response.body":
            self._send_piece(message.get("body", b""), is_last=not message.get("more_body", False))
        else:
            raise RuntimeError(f"{message['type']} does not come while an answer is {self.phase.value}")

    def answer(self, answer: WireAnswer, *, last: bool = False) -> None:
        """Send a whole answer at once: the short way for nearly all of them."""
        if self._void:
            return
        if self.phase is not Phase.WAITING:
            raise RuntimeError(f"an answer does not come while another is {self.phase.value}")
        status, body, headers, media_type, _ = answer
        if status in WITHOUT_BODY:
            head, body = self._line.openings.of(status, headers), b""
        elif headers:
            about = (*headers, (b"content-type", media_type), (b"content-length", b"%d" % len(body)))
            head = self._line.openings.of(status, about)
        else:
            head = b"%b%d\r\n" % (self._line.openings.plain(status, media_type), len(body))
        if last or self._wants_continue:
            self.keep_alive = False
        if not self.keep_alive:
            head += CLOSE
        self._line.write(b"%b\r\n%b" % (head, b"" if self.scope["method"] == "HEAD" else body))
        self._finish()

    def when_left(self, call: Callable[[], object] | None) -> None:
        """Call this when the caller leaves; there is one such call at most."""
        self._on_leave = call
        if call is None:
            return
        if self._void:
            call()
        else:
            self._line.go_on_reading()

    def _has_news(self) -> bool:
        if self._void or self._pieces or self._fault is not None or self.phase is Phase.ANSWERED:
            return True
        return self.whole and not self._body_taken

    def _tell(self) -> None:
        if self._arrived is not None:
            self._arrived.set()

    def _missing(self) -> Fault | None:
        """What is to be answered when the application has not."""
        if self.phase is Phase.ANSWERED or (self._void and self._fault is None):
            return None
        if self._fault is None:
            log.error("request_unanswered", extra={"path": self.scope["path"]})
        return self._fault or Fault(500, InternalFailure())

    def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        named = {name.lower(): value for name, value in headers}
        length = named.get(b"content-length")
        head = self._line.openings.of(status, headers)
        if b"close" in named.get(b"connection", b"").lower():
            self.keep_alive = False
        elif not self.keep_alive or self._wants_continue:
            # Who asked whether to send a body and got an answer instead may send it or not: nobody could tell.
            self.keep_alive = False
            head += CLOSE
        self._framing = self._framing_of(status, length)
        if self._framing is _Framing.CHUNKED:
            head += _CHUNKED
        self._left = int(length or b"0")
        self.phase = Phase.STREAMING
        self._line.write(head + b"\r\n")

    def _framing_of(self, status: int, length: bytes | None) -> _Framing:
        if self.scope["method"] == "HEAD" or status in WITHOUT_BODY:
            return _Framing.NO_BODY
        if length is not None:
            return _Framing.COUNTED
        # Chunks are an invention of 1.1; who speaks less gets a connection of its own for each answer.
        return _Framing.CHUNKED if self.scope["http_version"] == "1.1" else _Framing.UNTIL_CLOSE

    def _send_piece(self, body: bytes, *, is_last: bool) -> None:
        match self._framing:
            case _Framing.NO_BODY:
                pass
            case _Framing.CHUNKED:
                framed = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
                self._line.write(framed + _LAST_CHUNK if is_last else framed)
            case _Framing.COUNTED:
                self._left -= len(body)
                if self._left < 0 or (is_last and self._left):
                    raise RuntimeError("the body is not as long as its content-length says")
                self._line.write(body)
            case _Framing.UNTIL_CLOSE:
                self._line.write(body)
        if is_last:
            self._finish()

    def _finish(self) -> None:
        self.phase = Phase.ANSWERED
        self._pieces = []
        self.unread = 0
        self._tell()
        self._line.answered(self)


HEAD_LIMIT: Final = 64 * 1024
_RAW_LIMIT: Final = 2 * HEAD_LIMIT
"""Of bytes that bring nothing: a head without end, or a trailer. Blanks count here, though not as the head's size."""


class Fault(Exception):
    """Why bytes never became a request, and the status that tells it."""

    def __init__(self, status: int, error: SynapseError) -> None:
        super().__init__(status, error)
        self.status = status
        self.error = error
        self.scope: Scope | None = None
        """What was read of the head before it went wrong: enough to tell which dialect it speaks."""


class Listener(Protocol):
    """Is told what was read."""

    def on_request(self, scope: Scope, *, keep_alive: bool, wants_continue: bool) -> None:
        """A head is there. A body may follow."""
        ...

    def on_piece(self, piece: bytes) -> None:
        """Some of its body."""
        ...

    def on_whole(self) -> None:
        """All of it was read."""
        ...

    def on_upgrade(self, head: bytes) -> bool:
        """Somebody asks for a WebSocket; true if that gets all that follows. Otherwise it is a request like others."""
        ...


class RequestReader:
    """Reads the requests of one connection. `common` is what the scopes of all of them have."""

    def __init__(self, listener: Listener, common: Scope) -> None:
        self._listener = listener
        self._common = dict(common)
        self._parser = httptools.HttpRequestParser(self)
        self.is_within = False
        """A request has begun that is not whole."""
        self._in_body = False
        self._stopped = False
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._expects = False
        self._measures = False
        self._moved = False
        self._fruitless = 0

    def feed(self, data: bytes) -> None:
        """Read on.

        Raises:
            Fault: this is no HTTP, or too much of it. Nothing can be read after that.
        """
        # Most heads come in one small piece, which needs no measuring.
        self._measures = self.is_within or len(data) > HEAD_LIMIT
        self._moved = False
        rest: bytes | memoryview = data
        while rest:
            rest = self._parse(rest)
        if not self.is_within or self._stopped:
            return
        self._fruitless = 0 if self._moved else self._fruitless + len(data)
        if self._fruitless > _RAW_LIMIT:
            raise _head_too_large()

    def stop(self) -> None:
        """Tell nothing of what is still to come, also of what was fed already."""
        self._stopped = True

    def close(self) -> None:
        """The connection is gone: let go of it, and of the parser, which holds on to us.

        What holds on to itself stays in memory until the collector comes, which is seldom.
        """
        self.stop()
        self._listener = _NOBODY
        self._parser = _NO_PARSER

    # What the parser calls.

    def on_message_begin(self) -> None:
        self.is_within = self._moved = True
        self._url = b""
        self._headers = []
        self._expects = False

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_body:
            return  # a trailer: nothing may be said there that belongs to the head
        name = name.lower()
        self._headers.append((name, value))
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects = True

    def on_headers_complete(self) -> None:
        parser = self._parser
        # What becomes of an upgrade is decided when the parser has let go of it.
        if self._stopped or parser.should_upgrade():
            return
        if self._measures:
            self._check_size()
        self._moved = self._in_body = True
        scope = self._scope()
        version = scope["http_version"]
        # Before 1.1 only the end of the connection can tell the end of an answer.
        keep_alive = version == "1.1" and parser.should_keep_alive()
        self._listener.on_request(scope, keep_alive=keep_alive, wants_continue=self._expects and version == "1.1")

    def on_body(self, body: bytes) -> None:
        self._moved = True
        if self._in_body:
            self._listener.on_piece(body)

    def on_message_complete(self) -> None:
        if self._in_body:
            self._in_body = self.is_within = False
            self._listener.on_whole()

    def _parse(self, data: bytes | memoryview) -> bytes | memoryview:
        """Read; return what is left behind a request for another protocol that was not granted."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            return memoryview(data)[upgrade.args[0] :] if self._forgoes_upgrade() else b""
        except httptools.HttpParserError as error:
            # Behind the last request anything may come.
            if not self._stopped:
                fault = _fault(error)
                fault.scope = self._scope_so_far()
                raise fault from error
        return b""

    def _scope_so_far(self) -> Scope | None:
        """Return the head as far as it was read, or None while not even its path is whole."""
        if self._in_body or not self._headers:
            return None
        try:
            return self._scope()
        except (Fault, UnicodeDecodeError):
            return None

    def _scope(self) -> Scope:
        scope = self._common.copy()
        scope["http_version"] = self._parser.get_http_version()
        scope["method"] = self._parser.get_method().decode("ascii")
        scope["headers"] = self._headers
        raw_path, scope["query_string"] = _split(self._url)
        path = raw_path.decode("ascii")
        scope["raw_path"] = raw_path
        scope["path"] = unquote(path) if "%" in path else path
        return scope

    def _forgoes_upgrade(self) -> bool:
        """Decide about an upgrade; true if the request is served like any other.

        The parser takes all that follows for the other protocol, also a body. So it is read once more, without the
        header: what a proxy takes for a body must never be a request of its own.
        """
        if self._stopped:
            return False
        wanted = dict(self._headers).get(b"upgrade", b"").lower()
        if wanted == b"websocket" and self._listener.on_upgrade(self._head(self._headers)):
            self.stop()
            return False
        if self._parser.get_method() == b"CONNECT":
            raise Fault(400, InvalidRequest("this is no proxy", hint="leave CONNECT to proxies"))
        head = self._head([line for line in self._headers if line[0] != b"upgrade"])
        self._parser = httptools.HttpRequestParser(self)
        return self._parse(head) == b""

    def _head(self, headers: list[tuple[bytes, bytes]]) -> bytes:
        version = self._parser.get_http_version().encode("ascii")
        lines = [b"%b %b HTTP/%b" % (self._parser.get_method(), self._url, version)]
        lines += [b"%b: %b" % line for line in headers]
        return b"\r\n".join([*lines, b"", b""])

    def _check_size(self) -> None:
        size = len(self._url) + sum([len(name) + len(value) + 4 for name, value in self._headers])
        if size > HEAD_LIMIT:
            raise _head_too_large()


def _split(url: bytes) -> tuple[bytes, bytes]:
    """The path and the query."""
    if url.startswith(b"/") and b"#" not in url:
        path, _, query = url.partition(b"?")
        return path, query
    try:
        parsed = httptools.parse_url(url)
    except httptools.HttpParserInvalidURLError as error:
        raise Fault(400, InvalidRequest("this address cannot be read", hint="send a path")) from error
    return parsed.path or b"/", parsed.query or b""


def _head_too_large() -> Fault:
    return Fault(431, InvalidRequest(f"the head of the request is larger than {HEAD_LIMIT} bytes"))


def _fault(error: httptools.HttpParserError) -> Fault:
    if not isinstance(error, httptools.HttpParserCallbackError):
        return Fault(400, InvalidRequest("this cannot be read as HTTP", hint="speak HTTP/1.1"))
    if isinstance(error.__context__, Fault):
        return error.__context__
    log.error("request_unreadable", exc_info=error.__context__)
    return Fault(500, InternalFailure())


class _Nobody:
    """Is told of what comes when the connection is gone already."""

    def on_request(self, scope: Scope, *, keep_alive: bool, wants_continue: bool) -> None: ...

    def on_piece(self, piece: bytes) -> None: ...

    def on_whole(self) -> None: ...

    def on_upgrade(self, head: bytes) -> bool:  # noqa: ARG002 - as a listener has it
        return False


_NOBODY: Final = _Nobody()
_NO_PARSER: Final = httptools.HttpRequestParser(_NOBODY)


HeaderLines = Iterable[tuple[bytes, bytes]]

WITHOUT_BODY: Final = frozenset({204, 304})
"""Statuses whose answers have no body, nor headers about one."""

_BAD_NAME: Final = re.compile(rb'[\x00-\x20\x7f-\xff()<>@,;:\\"/\[\]?={}]')
_BAD_VALUE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


def status_line(status: int) -> bytes:
    """The first line of an answer."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return b"HTTP/1.1 %d %b\r\n" % (status, phrase.encode("ascii"))


def header_lines(headers: HeaderLines) -> bytes:
    """Headers as they are written.

    Raises:
        ValueError: one of them could be read as something else.
    """
    lines: list[bytes] = []
    for name, value in headers:
        if not name or _BAD_NAME.search(name) or _BAD_VALUE.search(value):
            raise ValueError(f"not a header: {name[:80]!r}")
        lines.append(b"%b: %b\r\n" % (name, value))
    return b"".join(lines)


class Openings:
    """The beginnings of plain answers: all that stands before the length of the body."""

    __slots__ = ("_common", "_made", "_made_with")

    def __init__(self, common: Callable[[], list[tuple[bytes, bytes]]]) -> None:
        """`common` gives the headers of all answers: another list when they have changed."""
        self._common = common
        self._made_with: list[tuple[bytes, bytes]] = []
        self._made: dict[tuple[int, bytes], bytes] = {}

    def plain(self, status: int, media_type: bytes) -> bytes:
        """The beginning of an answer that has only a body."""
        if self._common() is not self._made_with:
            self._made_with = self._common()
            self._made.clear()
        key = (status, media_type)
        opening = self._made.get(key)
        if opening is None:
            lines = header_lines([*self._made_with, (b"content-type", media_type)])
            opening = self._made[key] = status_line(status) + lines + b"content-length: "
        return opening

    def of(self, status: int, headers: HeaderLines) -> bytes:
        """The beginning of any other answer, with its headers and without the empty line behind them."""
        return status_line(status) + header_lines([*self._common(), *headers])


_NEVER: Final = math.inf


def _nothing() -> None:
    """What a deadline that is closed calls."""


class Deadline:
    """Calls `expired` when the time that was set last has come. One timer runs at most; it is put off when it rings."""

    __slots__ = ("_at", "_expired", "_loop", "_rings_at", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, expired: Callable[[], None]) -> None:
        self._loop = loop
        self._expired = expired
        self._at = _NEVER
        self._rings_at = _NEVER
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float) -> None:
        """The time is over in so many seconds from now, whatever was set before."""
        self._at = at = self._loop.time() + seconds
        if at < self._rings_at:
            self._ring_at(at)

    def clear(self) -> None:
        """There is no limit until the next one is set."""
        self._at = _NEVER

    def close(self) -> None:
        """End for good: no timer is left, and nobody is held on to."""
        self._at = _NEVER
        self._expired = _nothing
        self._stop()

    def _ring_at(self, at: float) -> None:
        self._stop()
        self._rings_at = at
        self._timer = self._loop.call_at(at, self._ring)

    def _stop(self) -> None:
        self._rings_at = _NEVER
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        self._rings_at = _NEVER
        if self._at == _NEVER:
            return
        # Timers of the loop have a resolution of a millisecond; what is due in less is due.
        if self._at - self._loop.time() > 0.001:
            self._ring_at(self._at)
            return
        self._at = _NEVER
        self._expired()


class UnreadLimit:
    """Hangs up when nothing was read for the time that was set last."""

    __slots__ = ("_deadline", "_seconds", "_transport", "_unsent")

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self._deadline = Deadline(loop, self._look)
        self._seconds = 0.0
        self._unsent = 0

    def set(self, seconds: float) -> None:
        """Something of what is written by now must be read in so many seconds; and then again, until all of it is."""
        self._seconds = seconds
        self._unsent = self._transport.get_write_buffer_size()
        self._deadline.set(seconds)

    def clear(self) -> None:
        """There is no limit until the next one is set."""
        self._deadline.clear()

    def close(self) -> None:
        """End for good: no timer is left."""
        self._deadline.close()

    def _look(self) -> None:
        before = self._unsent
        self.set(self._seconds)
        if self._unsent >= before:
            self._transport.abort()


# Only Linux tells of an end that lies behind unread bytes; elsewhere it shows when both directions have ended.
_ENDS: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


def has_left(transport: asyncio.BaseTransport) -> bool:
    """True when nothing more will come from there."""
    connection = transport.get_extra_info("socket")
    if connection is None or connection.fileno() < 0:
        return True
    asked = select.poll()
    asked.register(connection.fileno(), _ENDS)
    return bool(asked.poll(0))
