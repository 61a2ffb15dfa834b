"""The HTTP server: uvicorn on the sockets that it is given, silent, without signal handlers, with known peers.

Importing this costs what uvicorn costs; a host does it late.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from synapse.core.errors import BodyTooSlow, InvalidRequest, SynapseError
from synapse.dialects.dialect import WireAnswer
from synapse.transports.asgi import Receive, Scope, Send
from synapse.transports.credentials import PEER, peer_of
from synapse.transports.http import HttpLimits

if TYPE_CHECKING:
    from typing_extensions import override
else:

    def override(method):
        """Typing has it from Python 3.12 on."""
        return method


HEAD_LIMIT: Final = 64 * 1024
FRAME_LIMIT: Final = 1024 * 1024

# Nothing may be printed where a person's CLI is drawn. What root has handlers for is still logged there.
logging.getLogger("uvicorn").addHandler(logging.NullHandler())


class ServedApp(Protocol):
    """An application: HttpApp, or something around one."""

    @property
    def limits(self) -> HttpLimits: ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def close(self) -> None:
        """End all streams."""
        ...

    def refusal(self, error: SynapseError) -> WireAnswer:
        """How an error is told to somebody whose bytes never became a request."""
        ...


class Server:
    """Serves one application on some listening sockets; with `tls`, nothing else is spoken there."""

    def __init__(
        self,
        app: ServedApp,
        sockets: Sequence[socket.socket],
        *,
        grace_seconds: int = 3,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        config = uvicorn.Config(
            app,
            http=KnownPeerProtocol,
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
        self._uvicorn = _QuietServer(config, app)

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

    async def wait_started(self) -> None:
        """Return when connections are taken."""
        await self._uvicorn.running.wait()

    def stop(self) -> None:
        """Ask `serve` to return soon."""
        self._uvicorn.stopping.set()


class _QuietServer(uvicorn.Server):
    """uvicorn's server, without its signal handlers and without ten wake-ups a second."""

    def __init__(self, config: uvicorn.Config, app: ServedApp) -> None:
        super().__init__(config)
        self._app = app
        self.running = asyncio.Event()
        self.stopping = asyncio.Event()

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

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
        await super().shutdown(sockets)


class KnownPeerProtocol(HttpToolsProtocol):
    """One connection. Who it is from is found out once; a request must arrive in time, its head with a sane size."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._http_app = cast("ServedApp", self.config.app)
        self._arriving = False
        self._in_head = False
        self._head_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(transport)
        # Copied by uvicorn into the scope of every request and WebSocket of this connection.
        self.app_state = {PEER: peer_of(transport.get_extra_info("socket"))}
        self._start_timer()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        in_head = self._in_head
        super().data_received(data)
        if not self._arriving:
            return
        # Only unfinished requests get here; most arrive in one piece and cost no timer.
        if self._timer is None:
            self._start_timer()
        if in_head and self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_LIMIT:
                self._refuse(431, InvalidRequest(f"the head of the request is larger than {HEAD_LIMIT} bytes"))

    @override
    def on_message_begin(self) -> None:
        self._arriving = self._in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    @override
    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    @override
    def on_message_complete(self) -> None:
        self._arriving = False
        self._stop_timer()
        super().on_message_complete()

    @override
    def send_400_response(self, msg: str) -> None:
        self._refuse(400, InvalidRequest(msg, hint="speak HTTP/1.1"))

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self._http_app.limits.arrival_seconds, self._too_slow)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        seconds = self._http_app.limits.arrival_seconds
        self._refuse(408, BodyTooSlow(f"the request did not arrive within {seconds:g} seconds"))

    def _refuse(self, status: int, error: SynapseError) -> None:
        """Answer what never became a request, unless an answer is under way, and hang up."""
        self._arriving = False
        self._stop_timer()
        if self.transport.is_closing():
            return
        # uvicorn's type says that there is always a cycle; before the first request there is none.
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or cycle.response_complete or not cycle.response_started:
            body = self._http_app.refusal(error).body
            head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
            self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()


class LateWebSocket(asyncio.Protocol):
    """Stands for uvicorn's WebSocket protocol until the first one is asked for: few hosts ever need it loaded."""

    def __new__(cls, **arguments: Any) -> Any:
        from synapse.transports import websocket_protocol as late  # noqa: PLC0415 - see above, it is late

        return late.WebSocketProtocol(**arguments)
