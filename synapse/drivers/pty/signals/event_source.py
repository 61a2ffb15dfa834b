"""A stream of server-sent events from a CLI's own server, opened when it is up and again when it breaks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, cast

from synapse.terminal.signals.report import Record
from synapse.transports.chunks import ChunkDecoder
from synapse.transports.events import EventDecoder

_PAUSE_SECONDS: Final = 0.2
_ANSWER_SECONDS: Final = 2.0
_SILENCE_SECONDS: Final = 25.0
"""Its heart beats every ten seconds."""
_READ_SIZE: Final = 65536


class EventSource:
    """Calls `take` for each event of `path`. `probes` are asked first: a stream opened too early stays silent."""

    def __init__(
        self, port: int, path: str, probes: tuple[str, ...], authorization: str, take: Callable[[Record], None]
    ) -> None:
        self._port = port
        self._path = path
        self._probes = probes
        self._authorization = authorization
        self._take = take
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        never = asyncio.Event()
        while True:
            with suppress(OSError, ValueError, TimeoutError, EOFError):
                for probe in self._probes:
                    await self._probe(probe)
                await self._follow()
            with suppress(TimeoutError):
                await asyncio.wait_for(never.wait(), _PAUSE_SECONDS)

    async def _probe(self, path: str) -> None:
        async with asyncio.timeout(_ANSWER_SECONDS):
            _, writer, _ = await self._open(path)
        writer.close()

    async def _follow(self) -> None:
        """Read until the stream ends."""
        async with asyncio.timeout(_ANSWER_SECONDS):
            reader, writer, head = await self._open(self._path)
        chunks = ChunkDecoder() if b"transfer-encoding: chunked" in head.lower() else None
        decoder = EventDecoder()
        try:
            while data := await asyncio.wait_for(reader.read(_READ_SIZE), _SILENCE_SECONDS):
                for event in decoder.receive(chunks.receive(data) if chunks else data):
                    self._pass_on(event.data)
        finally:
            writer.close()

    async def _open(self, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
        """Ask for a path; return once the answer's head is there.

        Raises:
            OSError, EOFError: nobody answers.
            ValueError: the answer is no success.
        """
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            lines = (f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{self._port}", f"Authorization: {self._authorization}")
            writer.write("\r\n".join((*lines, "Connection: close", "", "")).encode("ascii"))
            head = await reader.readuntil(b"\r\n\r\n")
            _check_success(head)
        except BaseException:
            writer.close()
            raise
        return reader, writer, head

    def _pass_on(self, data: str) -> None:
        with suppress(ValueError):
            value: object = json.loads(data)
            if isinstance(value, Mapping):
                self._take(cast("Record", value))


def _check_success(head: bytes) -> None:
    if head.split(b" ", 2)[1:2] != [b"200"]:
        raise ValueError("it refuses")
