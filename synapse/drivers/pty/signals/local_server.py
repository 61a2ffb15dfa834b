"""A CLI's own HTTP server on loopback: one request, one connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from synapse.transports.chunks import ChunkDecoder

_ANSWER_SECONDS: Final = 10.0
_CONNECT_SECONDS: Final = 2.0
_READ_SIZE: Final = 65536
_NO_CONTENT: Final = 204


class NotReached(Exception):
    """Nobody listens there: nothing was said to anybody."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What it answered."""

    status: int
    body: bytes

    @property
    def is_success(self) -> bool:
        return self.status // 100 == 2

    def value(self) -> object:
        """The body as JSON; None if it is none."""
        try:
            value: object = json.loads(self.body)
        except ValueError:
            return None
        return value


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer whose head is there, and whose body comes."""

    status: int
    is_chunked: bool
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class LocalServer:
    """Asks the server on a port of this machine."""

    def __init__(self, port: int, authorization: str) -> None:
        self._port = port
        self._authorization = authorization

    async def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Reply:
        """Ask, and wait for the whole answer.

        Raises:
            NotReached: nobody listens; it cannot have been asked.
            OSError, EOFError, ValueError: it may have been asked, and did not answer (TimeoutError is an OSError).
        """
        async with asyncio.timeout(_ANSWER_SECONDS):
            stream = await self.open(method, path, body)
            try:
                data = b"" if stream.status == _NO_CONTENT else await _read_all(stream.reader)
            finally:
                stream.writer.close()
        return Reply(stream.status, ChunkDecoder().receive(data) if stream.is_chunked else data)

    async def open(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Stream:
        """Ask, and return once the answer's head is there; raises as `ask` does."""
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError as error:
            raise NotReached(f"nobody answers on port {self._port}") from error
        try:
            writer.write(self._request(method, path, body))
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            return Stream(_status(head), b"transfer-encoding: chunked" in head.lower(), reader, writer)
        except BaseException:
            writer.close()
            raise

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None) -> bytes:
        content = b"" if body is None else json.dumps(body).encode()
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: 127.0.0.1:{self._port}",
            f"Authorization: {self._authorization}",
            "Connection: close",
        ]
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
        return "\r\n".join((*lines, "", "")).encode("ascii") + content


async def _read_all(reader: asyncio.StreamReader) -> bytes:
    data = b""
    while more := await reader.read(_READ_SIZE):
        data += more
    return data


def _status(head: bytes) -> int:
    words = head.split(b" ", 2)
    if len(words) < 3 or not words[1].isdigit():
        raise ValueError("it does not speak HTTP")
    return int(words[1])
