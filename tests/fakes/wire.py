"""A connection without a socket: what is sent to it comes at once, unless it has stopped reading."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from synapse.core.override import override
from synapse.server.asgi import ServedApp
from synapse.server.http_protocol import HttpProtocol

DATE = b"Sun, 06 Nov 1994 08:49:37 GMT"


class FakeTransport(asyncio.Transport):
    """Keeps what is written; `unsent` are the answers to how much of it was not read yet, the last one for good."""

    def __init__(self, peer: socket.socket) -> None:
        super().__init__({"socket": peer})
        self.written = bytearray()
        self.writes = 0
        self.reads = True
        self.closed = self.eof_written = self.aborted = False
        self.connection: asyncio.Protocol | None = None
        self.unsent = [0]

    @override
    def write(self, data: Any) -> None:
        assert not self.closed, "nothing is written to a connection that is closed"
        self.written += data
        self.writes += 1

    @override
    def get_write_buffer_size(self) -> int:
        return self.unsent.pop(0) if len(self.unsent) > 1 else self.unsent[0]

    @override
    def pause_reading(self) -> None:
        self.reads = False

    @override
    def resume_reading(self) -> None:
        self.reads = True

    @override
    def can_write_eof(self) -> bool:
        return True

    @override
    def write_eof(self) -> None:
        self.eof_written = True

    @override
    def is_closing(self) -> bool:
        return self.closed

    @override
    def close(self) -> None:
        if not self.closed:
            self.closed = True
            if self.unsent == [0]:
                self._lose()

    @override
    def abort(self) -> None:
        self.closed = self.aborted = True
        self._lose()

    def _lose(self) -> None:
        assert self.connection is not None
        asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)


class Wire:
    """One connection to an application, to be made within a running loop."""

    def __init__(self, app: ServedApp, *, keep_alive: int = 5) -> None:
        self._ours, self._theirs = socket.socketpair()
        self.config = uvicorn.Config(
            app,
            http=HttpProtocol,
            ws="none",
            interface="asgi3",
            lifespan="off",
            log_config=None,
            proxy_headers=False,
            timeout_keep_alive=keep_alive,
        )
        self.config.load()
        self.server = ServerState()
        self.server.default_headers = [(b"date", DATE)]
        self.failures: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.failures.append(context))
        self.transport = FakeTransport(self._ours)
        self.connection = HttpProtocol(self.config, self.server, {}, loop)
        self.transport.connection = self.connection
        self.connection.connection_made(self.transport)
        self._unread: deque[bytes] = deque()

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()

    def give(self, data: bytes) -> None:
        """Send bytes; they wait while nobody reads."""
        self._unread.append(data)
        self._deliver()

    async def settle(self) -> None:
        """Return when nothing happens any more by itself."""
        for _ in range(20):
            turn = asyncio.Event()
            asyncio.get_running_loop().call_soon(turn.set)
            await turn.wait()
            self._deliver()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await self.settle()

    async def leave(self) -> None:
        if self.connection in self.server.connections:
            self.transport.closed = True
            self.connection.connection_lost(None)
        await self.settle()

    def tick(self, second: float) -> None:
        """Look at the time limits, as the server does about once a second."""
        self.connection.enforce_time_limits(second)

    def stop_talking(self) -> None:
        """Say that nothing more comes: the loop closes the connection then, as the protocol does not object."""
        self.connection.eof_received()
        self.transport.close()

    @property
    def written(self) -> bytes:
        return bytes(self.transport.written)

    @property
    def is_over(self) -> bool:
        """All was said: it is closed, or waits only for the other side to close."""
        return self.transport.closed or self.transport.eof_written

    def _deliver(self) -> None:
        while self._unread and self.transport.reads and not self.transport.closed:
            self.connection.data_received(self._unread.popleft())


def answers(written: bytes) -> list[tuple[int, dict[bytes, bytes], bytes]]:
    """The answers in what was written, none of which is to a HEAD: status, headers, body. Interim ones are left out."""
    found: list[tuple[int, dict[bytes, bytes], bytes]] = []
    while written:
        head, _, written = written.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        status = int(first.split()[1])
        headers = {line.partition(b": ")[0]: line.partition(b": ")[2] for line in lines}
        if status == 100:
            continue
        if headers.get(b"transfer-encoding") == b"chunked":
            body, written = _dechunked(written)
        else:
            length = int(headers.get(b"content-length", b"0"))
            body, written = written[:length], written[length:]
        found.append((status, headers, body))
    return found


def _dechunked(data: bytes) -> tuple[bytes, bytes]:
    body = b""
    while True:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        body, data = body + data[:length], data[length + 2 :]
        if not length:
            return body, data
