"""One HTTP/1.1 connection, as uvicorn's server wants it: bytes in, requests to the application, answers in order.

    LISTENING ──────► DEAF ───────► LINGERING ──────► CLOSING
              last          last              time
              request       answer            is over

    LISTENING   requests are read; each is answered when those before it have been
    DEAF        no more are taken: the last one said so, or what came is no HTTP; what was asked is still answered
    LINGERING   all is said; what the caller still sends is thrown away, so that it can read our last words
    CLOSING     the rest is written, and that is all

Nothing grows: reading stops while requests wait, or a body waits for the application; no request is begun while the
caller does not read its answers. Nobody who takes nothing is waited for without end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, cast

from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl

from synapse.core.errors import BodyTooSlow
from synapse.core.overriding import override
from synapse.transports.acceptor import SLOT
from synapse.transports.answer_head import Openings
from synapse.transports.asgi import Scope
from synapse.transports.credentials import PEER, peer_of
from synapse.transports.deadline import Deadline
from synapse.transports.departure import has_left
from synapse.transports.http_cycle import CLOSE, HIGH_WATER, Cycle, Phase
from synapse.transports.http_reader import Fault, RequestReader
from synapse.transports.served_app import ServedApp
from synapse.transports.unread import UnreadLimit

if TYPE_CHECKING:
    import uvicorn
    from uvicorn.server import ServerState


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
LOOK_SECONDS: Final = 15.0
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
            self._deadline.set(LOOK_SECONDS)

    # Time.

    def _limit_arrival(self) -> None:
        # While we do not read, nobody can be blamed for not sending.
        if self._reads:
            self._deadline.set(self._app.limits.arrival_seconds)

    def _too_late(self) -> None:
        # Whoever is slow to read its answers may have stopped talking long ago; how slow is judged elsewhere.
        if not self._reads and (self.is_clogged or not has_left(self._transport)):
            self._deadline.set(LOOK_SECONDS)
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
