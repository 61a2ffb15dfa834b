"""A slow and faulty line over the loopback, for tests and benchmarks. It needs no root, unlike `network`.

client ──► TcpProxy.port ──(delay)──► target        and the same on the way back
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Generator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

from synapse.core.waiting import pause

MOST_UNDER_WAY: Final = 1000
"""Pieces on the line in one direction; what comes after them waits at its sender."""
PIECE_BYTES: Final = 65536
SLOW_PIECE_BYTES: Final = 8192


class TcpProxy:
    """Hands all bytes on to a port of this computer, `delay` seconds after they came. Any thread may call it.

    With `rate`, so many bytes a second pass in each direction, and what is ahead of them waits at its sender.
    """

    def __init__(self, target: int, delay: float = 0.0, rate: float = 0.0) -> None:
        self.port = 0
        self._target = target
        self._delay = delay
        self._rate = rate
        self._loop = asyncio.new_event_loop()
        self._is_whole = asyncio.Event()
        self._is_whole.set()
        self._over = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._connections: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Lets nothing pass, as if a cable were pulled: connections stay half open, and new ones get no answer."""
        self._loop.call_soon_threadsafe(self._is_whole.clear)

    def mend(self) -> None:
        """Ends a cut. What was held back passes now, as TCP would send it again."""
        self._loop.call_soon_threadsafe(self._is_whole.set)

    def reset(self) -> None:
        """Breaks all connections at both ends, as a router does that restarts; what is under way is lost."""
        self._loop.call_soon_threadsafe(self._break)

    def end(self) -> None:
        """Ends the proxy and its connections."""
        self._loop.call_soon_threadsafe(self._over.set)

    def run(self, ready: Event) -> None:
        """Serves until `end`; sets `ready` when it listens."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve(ready))

    async def _serve(self, ready: Event) -> None:
        server = await asyncio.start_server(self._accept, sock=self._listener(), limit=PIECE_BYTES)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await self._over.wait()
        server.close()
        self._is_whole.set()
        self._break()
        while self._connections:
            await asyncio.wait(self._connections)

    def _listener(self) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", 0))
        if self._rate:
            # Else the kernel takes megabytes at once.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PIECE_BYTES)
        return listener

    def _break(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._connect(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = {writer}
        self._writers |= ends
        try:
            await self._is_whole.wait()
            if self._over.is_set():
                return
            answers, there = await asyncio.open_connection("127.0.0.1", self._target)
            ends.add(there)
            self._writers |= ends
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._carry(reader, there))
                ways.create_task(self._carry(answers, writer))
        except* OSError:
            pass  # nobody listens at the target, or an end has left
        finally:
            self._writers -= ends
            for one in ends:
                one.close()

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Carries the bytes of one direction. Its end closes the sink, which ends the other direction too."""
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(1 if self._rate else MOST_UNDER_WAY)
        async with asyncio.TaskGroup() as both:
            both.create_task(self._take(source, under_way))
            both.create_task(self._deliver(under_way, sink))

    async def _take(self, source: asyncio.StreamReader, under_way: asyncio.Queue[tuple[float, bytes]]) -> None:
        piece = b"any"
        while piece:
            piece = await source.read(SLOW_PIECE_BYTES if self._rate else PIECE_BYTES)
            await under_way.put((self._loop.time() + self._delay, piece))

    async def _deliver(self, under_way: asyncio.Queue[tuple[float, bytes]], sink: asyncio.StreamWriter) -> None:
        while True:
            due, piece = await under_way.get()
            await pause(max(0.0, due - self._loop.time()) + (len(piece) / self._rate if self._rate else 0.0))
            await self._is_whole.wait()
            if not piece:
                sink.close()
                return
            sink.write(piece)
            await sink.drain()


@contextmanager
def tcp_proxy(target: int, *, delay: float = 0.0, rate: float = 0.0) -> Generator[TcpProxy]:
    """Runs a proxy in a thread of its own for the length of a block."""
    proxy, ready = TcpProxy(target, delay, rate), Event()
    thread = Thread(target=proxy.run, args=(ready,), daemon=True)
    thread.start()
    ready.wait()
    try:
        yield proxy
    finally:
        proxy.end()
        thread.join()
