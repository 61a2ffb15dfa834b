"""Sends HTTP requests to other servers: external agents, webhooks, issuers of keys, a CLI's own server.

    url ─► Target ─► addresses (resolved once, checked by a guard) ─► connection ─► request ─► head ─► body

Every request has a connection of its own, a deadline and limits; cancelling the caller closes the connection. The
client follows no redirect, uses no proxy of the environment, decompresses nothing and never sends a request twice.

httpcore does the HTTP. It takes some 60 ms to import, so `http_connection`, which imports it, loads with the first
request.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from synapse.client.events import EventDecoder, ServerEvent
from synapse.net.address_guard import PORTS, AddressGuard, Target, parse_target, resolve
from synapse.net.http_types import HttpAnswer, HttpFailed, HttpRequest, HttpTimedOut, Reason

if TYPE_CHECKING:
    from synapse.net.http_connection import OutboundConnection

CONNECT_SECONDS: Final = 5.0


class HttpClient:
    """Sends requests to other servers, with a deadline and size limits.

    With a `guard` it connects only to addresses that the guard allows. `trust` makes the TLS settings, once.
    """

    def __init__(
        self,
        guard: AddressGuard | None = None,
        *,
        connect_seconds: float = CONNECT_SECONDS,
        trust: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        self._guard = guard
        self._connect_seconds = connect_seconds
        self._trust = trust
        self._connect: type[OutboundConnection] | None = None
        self._secure: ssl.SSLContext | None = None

    async def fetch(self, request: HttpRequest, *, seconds: float, limit: int) -> HttpAnswer:
        """Sends a request and returns the whole answer, of at most `limit` bytes. Raises as `open` does."""
        async with self.open(request, deadline=deadline_in(seconds)) as response:
            return await response.answer(limit)

    @asynccontextmanager
    async def open(self, request: HttpRequest, *, deadline: float | None) -> AsyncGenerator[HttpResponse]:
        """Sends a request and yields the response once its head has arrived. Leaving the block closes the connection.

        `deadline`, by the event loop's clock, ends the wait for the head and for every part of the body.

        Raises:
            InvalidField: the guard refuses the address.
            HttpFailed: no answer came, or not all of it. HttpTimedOut, a TimeoutError, after `deadline`.
        """
        target = parse_target(request.url) if self._guard else _parse_any_target(request.url)
        find = self._guard.addresses if self._guard else resolve
        async with _until(deadline):
            connect, secure = await self._loaded(target.scheme)
        connection = connect(target, secure, find)
        try:
            async with _until(deadline, connection):
                status, headers = await connection.send(request, self._connect_seconds)
            yield HttpResponse(status, headers, connection, deadline)
        finally:
            await connection.close()

    async def _loaded(self, scheme: str) -> tuple[type[OutboundConnection], ssl.SSLContext | None]:
        """Returns the connection class and the TLS settings for `scheme`.

        The first call imports httpcore and reads the system's certificates, in a thread: the event loop is not blocked.
        """
        if self._connect is None:
            self._connect = await asyncio.to_thread(_load_connection)
        if scheme == "https" and self._secure is None:
            self._secure = await asyncio.to_thread(self._trust)
        return self._connect, self._secure if scheme == "https" else None


class HttpResponse:
    """A response whose head has arrived and whose body is still being received."""

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        connection: OutboundConnection,
        deadline: float | None,
    ) -> None:
        self.status = status
        self.headers = headers
        """By name in lower case; of repeated headers, the first."""
        self._connection = connection
        self._deadline = deadline

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def receive(self) -> bytes:
        """Returns the next bytes of the body, or b"" at its end. Raises HttpFailed."""
        async with _until(self._deadline, self._connection):
            return await self._connection.receive()

    async def read(self, limit: int) -> bytes:
        """Returns the body to its end. Raises HttpFailed, also when it is larger than `limit`."""
        whole = bytearray()
        while data := await self.receive():
            whole += data
            if len(whole) > limit:
                raise HttpFailed(Reason.BODY_TOO_LARGE, sent=True)
        return bytes(whole)

    async def answer(self, limit: int) -> HttpAnswer:
        """Returns the whole answer. Raises as `read` does."""
        location = self.headers.get("location", "") if 300 <= self.status < 400 else ""
        return HttpAnswer(self.status, await self.read(limit), location)

    async def events(self, limit: int) -> AsyncGenerator[ServerEvent]:
        """Yields the server-sent events of the body. Raises HttpFailed, also when it is larger than `limit`."""
        decoder, size = EventDecoder(), 0
        while data := await self.receive():
            size += len(data)
            if size > limit:
                raise HttpFailed(Reason.BODY_TOO_LARGE, sent=True)
            for event in decoder.receive(data):
                yield event


def deadline_in(seconds: float) -> float:
    """Returns the event loop's time `seconds` from now."""
    return asyncio.get_running_loop().time() + seconds


def _load_connection() -> type[OutboundConnection]:
    from synapse.net.http_connection import OutboundConnection  # noqa: PLC0415 - imports httpcore

    return OutboundConnection


@asynccontextmanager
async def _until(deadline: float | None, connection: OutboundConnection | None = None) -> AsyncGenerator[None]:
    """Raises HttpTimedOut when the block is not done by `deadline`."""
    limit = asyncio.timeout_at(deadline)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise HttpTimedOut(sent=connection is not None and connection.has_sent) from error


def _parse_any_target(url: str) -> Target:
    """Parses a URL that this machine's user chose. URLs from callers go through the stricter `parse_target`."""
    try:
        place = urlsplit(url)
        port = place.port or PORTS[place.scheme]
    except (ValueError, KeyError) as error:
        raise HttpFailed(Reason.BAD_REQUEST) from error
    try:
        host = (place.hostname or "").encode("idna").decode("ascii")
    except UnicodeError as error:
        raise HttpFailed(Reason.NAME_INVALID) from error
    if not host:
        raise HttpFailed(Reason.NAME_INVALID)
    # Keeps percent-encoded characters and encodes those that a request line cannot hold.
    path = quote(place.path or "/", safe="/%:@!$&'()*+,;=~")
    query = f"?{quote(place.query, safe='/%:@!$&()*+,;=~?')}" if place.query else ""
    return Target(scheme=place.scheme, host=host, port=port, path=path + query)
