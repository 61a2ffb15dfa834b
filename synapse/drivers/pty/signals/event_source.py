"""A stream of server-sent events from a CLI's own server, opened when it is up and again when it breaks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, cast

from synapse.drivers.pty.signals.local_server import LocalServer, NotReached, Stream
from synapse.terminal.signals.report import Record
from synapse.transports.chunks import ChunkDecoder
from synapse.transports.events import EventDecoder

_PAUSE_SECONDS: Final = 0.2
_ANSWER_SECONDS: Final = 2.0
_SILENCE_SECONDS: Final = 25.0
"""Its heart beats every ten seconds."""
_READ_SIZE: Final = 65536
_OK: Final = 200


class EventSource:
    """Calls `take` for each event of `path`. `probes` are asked first: a stream opened too early stays silent."""

    def __init__(self, server: LocalServer, path: str, probes: tuple[str, ...], take: Callable[[Record], None]) -> None:
        self._server = server
        self._path = path
        self._probes = probes
        self._take = take
        self._task: asyncio.Task[None] | None = None
        self.is_open = False
        """It is being followed right now."""

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        never = asyncio.Event()
        while True:
            with suppress(OSError, ValueError, EOFError, NotReached):
                for probe in self._probes:
                    await self._probe(probe)
                await self._follow()
            with suppress(TimeoutError):
                await asyncio.wait_for(never.wait(), _PAUSE_SECONDS)

    async def _probe(self, path: str) -> None:
        (await self._open(path)).writer.close()

    async def _follow(self) -> None:
        """Read until the stream ends."""
        stream = await self._open(self._path)
        chunks = ChunkDecoder() if stream.is_chunked else None
        decoder = EventDecoder()
        self.is_open = True
        try:
            while data := await asyncio.wait_for(stream.reader.read(_READ_SIZE), _SILENCE_SECONDS):
                for event in decoder.receive(chunks.receive(data) if chunks else data):
                    self._pass_on(event.data)
        finally:
            self.is_open = False
            stream.writer.close()

    async def _open(self, path: str) -> Stream:
        """Ask for a path; raises as `LocalServer.ask` does, and ValueError when the answer is no success."""
        async with asyncio.timeout(_ANSWER_SECONDS):
            stream = await self._server.open("GET", path)
        if stream.status != _OK:
            stream.writer.close()
            raise ValueError("it refuses")
        return stream

    def _pass_on(self, data: str) -> None:
        with suppress(ValueError):
            value: object = json.loads(data)
            if isinstance(value, Mapping):
                self._take(cast("Record", value))
