"""The HTTP server: uvicorn on given sockets, without output and without signal handlers.

Importing this loads uvicorn, so a host does it late.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import sys
from collections.abc import Generator, Sequence
from typing import Any, Final

import uvicorn

from synapse.core.errors import InvalidSettings, RateLimited
from synapse.core.override import override
from synapse.core.waiting import pause
from synapse.server.acceptor import Acceptor, ConnectionLimits
from synapse.server.asgi import ServedApp
from synapse.server.http_protocol import HttpProtocol, answer_bytes
from synapse.server.listener import UnixListener

log = logging.getLogger(__name__)

FRAME_LIMIT: Final = 1024 * 1024
UNLIMITED: Final = ConnectionLimits(total=sys.maxsize, unproven=sys.maxsize, unproven_per_source=sys.maxsize)
RETRY_SECONDS: Final = 5
LOOK_SECONDS: Final = 2.0

# Nothing may be printed on a terminal that shows a CLI. Handlers of the root logger still get the records.
logging.getLogger("uvicorn").addHandler(logging.NullHandler())


class Server:
    """Serves one application on listening sockets; with `tls`, only over TLS.

    `limits` bound the connections of TCP ports. A Unix socket is open to this user only, and has no limit.
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
            http=HttpProtocol,
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
            # uvicorn would load the context from files; ours is loaded already, and its errors were reported.
            config.load()
            config.ssl = tls
        self._sockets = list(sockets)
        self._uvicorn = _QuietServer(config, app, limits)

    async def serve(self) -> None:
        """Serves until `stop`; then ends the streams, waits for running requests, and closes the sockets."""
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
        """Creates the socket again whenever it was removed: without it no command reaches this process.

        Runs until it is cancelled.
        """
        while True:
            await pause(LOOK_SECONDS)
            if not unix.is_missing():
                continue
            try:
                # `renew` checks whether another process listens there now.
                await self._uvicorn.listen_also(await asyncio.to_thread(unix.renew))
            except (OSError, InvalidSettings) as error:
                log.warning("socket_not_renewed", extra={"path": str(unix.path), "error": str(error)})
            else:
                log.warning("socket_renewed", extra={"path": str(unix.path)})

    async def wait_started(self) -> None:
        """Waits until connections are accepted."""
        await self._uvicorn.running.wait()

    @property
    def has_connections(self) -> bool:
        """Whether anybody is connected now; a stream counts as long as it runs."""
        return bool(self._uvicorn.server_state.connections)

    def stop(self) -> None:
        """Makes `serve` return soon."""
        self._uvicorn.stopping.set()


class _QuietServer(uvicorn.Server):
    """uvicorn's server, without its signal handlers and its ten wake-ups a second."""

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
        too_many = RateLimited("too many connections are open to this port", seconds=RETRY_SECONDS)
        refusal = answer_bytes(self._app.refusal(too_many))
        await super().startup([one for one in listeners if one.family == socket.AF_UNIX])
        for listener in listeners:
            if listener.family != socket.AF_UNIX:
                acceptor = Acceptor(listener, self._new_connection, self._limits, refusal=refusal, tls=self.config.ssl)
                self._acceptors.append(acceptor)
                acceptor.start()

    async def listen_also(self, listener: socket.socket) -> None:
        """Accepts the connections of one more Unix socket, until the server ends."""
        loop = asyncio.get_running_loop()
        self.servers.append(await loop.create_server(lambda: self._new_connection({}), sock=listener))

    def _new_connection(self, state: dict[str, Any]) -> HttpProtocol:
        return HttpProtocol(self.config, self.server_state, {**self.lifespan.state, **state})

    @override
    async def main_loop(self) -> None:
        self.running.set()
        while not self.stopping.is_set():
            await self.on_tick(0)  # the Date header, once a second
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                if isinstance(connection, HttpProtocol):
                    connection.enforce_time_limits(now)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self.stopping.wait()

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.close()
        for acceptor in self._acceptors:
            acceptor.close()
        await super().shutdown(sockets)


class LateWebSocket(asyncio.Protocol):
    """Loads uvicorn's WebSocket protocol for the first WebSocket: few hosts ever need it."""

    def __new__(cls, **arguments: Any) -> Any:
        from synapse.server.websocket_protocol import WebSocketProtocol  # noqa: PLC0415 - see above

        return WebSocketProtocol(**arguments)
