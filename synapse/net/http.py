"""An errand to a server that is not ours: some requests, one deadline, bounded answers; it can be called off.

It blocks, so it runs in a thread; `call_off` comes from another one and ends it at once.

Sends requests to servers that are not ours: external agents, webhooks, issuers of keys, a CLI's own server.

    url ─► Target ─► addresses (resolved once, checked by a guard) ─► connection ─► request ─► head ─► body

Every request has a connection of its own, a deadline and limits; cancelling the caller closes the connection. The
client follows no redirect, uses no proxy of the environment, decompresses nothing and never sends a request twice.

httpcore does the HTTP. It takes some 50 ms to import, so `outbound_connection`, which imports it, loads with the first
request.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead, RemoteDisconnected
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import SplitResult, quote, urlsplit

from synapse.client.events import EventDecoder, ServerEvent
from synapse.core.errors import ExternalAgentFailed, ExternalAgentUnreachable
from synapse.net.address_guard import PORTS, AddressGuard, Dial, Target, dial_anywhere, parse_target, resolve
from synapse.net.http_types import HttpAnswer, HttpFailed, HttpRequest, HttpTimedOut, Reason

if TYPE_CHECKING:
    from synapse.net.http_connection import OutboundConnection

CONNECT_SECONDS: Final = 5.0
LARGEST_ANSWER: Final = 16 * 1024 * 1024
_READ_SIZE: Final = 65_536


@dataclass(frozen=True, slots=True)
class Call:
    """One request; a body makes it a POST."""

    url: str
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, whatever its status. `location` is where it sends us instead, or empty."""

    status: int
    body: bytes
    location: str = ""


class HttpClient:
    """Some requests, one after the other, that share one deadline."""

    def __init__(self, monotonic: Callable[[], float], seconds: float, dial: Dial = dial_anywhere) -> None:
        self._monotonic = monotonic
        self._dial = dial
        self._deadline = monotonic() + seconds
        self._connection: HTTPConnection | None = None
        self._socket: socket.socket | None = None
        self._response: HTTPResponse | None = None
        self._off = False
        self.spoke = False
        """Whether a request has left us: from then on it may have been heard."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close()

    def ask(self, call: Call) -> Answer:
        """Send a request and read the whole answer.

        Raises:
            ExternalAgentUnreachable: nobody answers there.
            ExternalAgentFailed: the answer is too large, or breaks off.
            TimeoutError: the deadline passed while the answer was waited for.
        """
        with _translated(call.url):
            return self._whole(self._send(call))

    def follow(self, call: Call) -> Iterator[ServerEvent] | Answer:
        """Ask for a stream of events; an answer of another kind is returned whole. Raises as `ask` does."""
        with _translated(call.url):
            response = self._send(call)
            if response.headers.get_content_type() != "text/event-stream":
                return self._whole(response)
        return self._events(response, call.url)

    def call_off(self) -> None:
        """End the errand: whatever it waits for breaks off."""
        self._off = True
        if self._socket is not None:
            with suppress(OSError):  # it may be closed already
                # Not the TLS socket's own method: that one takes apart what the other thread is reading with.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _send(self, call: Call) -> HTTPResponse:
        self._close()
        place = urlsplit(call.url)
        secure = ssl.create_default_context() if place.scheme == "https" else None
        self._connection = _connection(place, secure)
        seconds = min(CONNECT_SECONDS, self._left())
        try:
            self._socket = self._connection.sock = self._connected(call.url, secure, seconds)
        except TimeoutError as error:
            raise ExternalAgentUnreachable(f"{_origin(place)} does not take a connection") from error
        self._bound()
        self.spoke = True
        headers = {"Accept": "application/json", "Connection": "close", **call.headers}
        if call.body is None:
            self._connection.request("GET", _target(place), headers=headers)
        else:
            content = json.dumps(call.body).encode()
            headers = {"Content-Type": "application/json", **headers}
            self._connection.request("POST", _target(place), body=content, headers=headers)
        self._response = self._connection.getresponse()
        return self._response

    def _connected(self, url: str, secure: ssl.SSLContext | None, seconds: float) -> socket.socket:
        plain = self._dial(url, seconds)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return plain if secure is None else secure.wrap_socket(plain, server_hostname=urlsplit(url).hostname)
        except BaseException:
            plain.close()
            raise

    def _whole(self, response: HTTPResponse) -> Answer:
        self._bound()
        body = response.read(LARGEST_ANSWER + 1)
        if len(body) > LARGEST_ANSWER:
            raise ExternalAgentFailed(f"its answer is larger than {LARGEST_ANSWER} bytes")
        if response.length:
            raise IncompleteRead(body, response.length)
        location = response.headers.get("Location", "") if 300 <= response.status < 400 else ""
        return Answer(response.status, body, location)

    def _events(self, response: HTTPResponse, url: str) -> Iterator[ServerEvent]:
        decoder, size = EventDecoder(), 0
        with _translated(url):
            while not response.isclosed():
                self._bound()
                data = response.read1(_READ_SIZE)
                size += len(data)
                if size > LARGEST_ANSWER:
                    raise ExternalAgentFailed(f"its stream is longer than {LARGEST_ANSWER} bytes")
                yield from decoder.receive(data)
                if not data:
                    return

    def _bound(self) -> None:
        """Let the next step wait no longer than the deadline."""
        if self._socket is not None:
            self._socket.settimeout(self._left())

    def _left(self) -> float:
        left = self._deadline - self._monotonic()
        if left <= 0 or self._off:
            raise TimeoutError
        return left

    def _close(self) -> None:
        if self._response is not None:
            self._response.close()
        if self._connection is not None:
            self._connection.close()


def _connection(place: SplitResult, secure: ssl.SSLContext | None) -> HTTPConnection:
    host = place.hostname or ""
    return HTTPConnection(host, place.port) if secure is None else HTTPSConnection(host, place.port, context=secure)


def _target(place: SplitResult) -> str:
    # What is percent-encoded stays as it is; what may not stand in a request line is encoded.
    path = quote(place.path or "/", safe="/%:@!$&'()*+,;=~")
    return f"{path}?{quote(place.query, safe='/%:@!$&()*+,;=~?')}" if place.query else path


@contextmanager
def _translated(url: str) -> Generator[None]:
    """Foreign errors become ours, with a sentence for the person who can act. TimeoutError passes."""
    try:
        yield
    except TimeoutError:
        raise
    except (OSError, HTTPException, UnicodeError) as error:
        place = _origin(urlsplit(url))
        for kind, ours, sentence, hint in _MEANINGS:
            if isinstance(error, kind):
                # Not every OSError comes from the system and has its sentence.
                why = getattr(error, "strerror", None) or error
                raise ours(sentence.format(place=place, error=error, why=why), hint=hint) from error
        raise


_MEANINGS: Final[tuple[tuple[type[Exception], type[ExternalAgentFailed], str, str], ...]] = (
    (socket.gaierror, ExternalAgentUnreachable, "the host name of {place} is not known", ""),
    # A name that cannot be written for the DNS: with an empty part, or one that is too long.
    (UnicodeError, ExternalAgentUnreachable, "the host name of {place} is none", ""),
    (ConnectionRefusedError, ExternalAgentUnreachable, "nobody listens at {place}", "is it running, on that port?"),
    (
        ssl.SSLCertVerificationError,
        ExternalAgentUnreachable,
        "the certificate of {place} is not accepted: {error.verify_message}",
        "",
    ),
    (ssl.SSLError, ExternalAgentUnreachable, "{place} does not speak TLS", "perhaps it is http, not https?"),
    (RemoteDisconnected, ExternalAgentUnreachable, "{place} closed the connection without an answer", ""),
    (IncompleteRead, ExternalAgentFailed, "{place} broke off in the middle of its answer", ""),
    (HTTPException, ExternalAgentFailed, "what listens at {place} does not speak HTTP", ""),
    (OSError, ExternalAgentUnreachable, "{place} cannot be reached: {why}", ""),
)
"""What foreign errors mean, the narrow ones first."""


def _origin(place: SplitResult) -> str:
    return f"{place.scheme}://{place.netloc}"


class HttpResponse:
    """An answer whose head is here and whose body is on its way."""

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        connection: OutboundConnection,
        deadline: float | None,
    ) -> None:
        self.status = status
        self.headers = headers
        """By name in lower case; the first of those with the same name."""
        self._connection = connection
        self._deadline = deadline

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def receive(self) -> bytes:
        """Return the next bytes of the body, or nothing at its end. Raises HttpFailed."""
        async with _until(self._deadline, self._connection):
            return await self._connection.receive()

    async def read(self, limit: int) -> bytes:
        """Return the body to its end. Raises HttpFailed, also when it is larger than `limit`."""
        whole = bytearray()
        while data := await self.receive():
            whole += data
            if len(whole) > limit:
                raise HttpFailed(Reason.BODY_TOO_LARGE, sent=True)
        return bytes(whole)

    async def answer(self, limit: int) -> HttpAnswer:
        """Return the whole answer. Raises as `read` does."""
        location = self.headers.get("location", "") if 300 <= self.status < 400 else ""
        return HttpAnswer(self.status, await self.read(limit), location)

    async def events(self, limit: int) -> AsyncGenerator[ServerEvent]:
        """Yield the server-sent events of the body. Raises HttpFailed, also when it is larger than `limit`."""
        decoder, size = EventDecoder(), 0
        while data := await self.receive():
            size += len(data)
            if size > limit:
                raise HttpFailed(Reason.BODY_TOO_LARGE, sent=True)
            for event in decoder.receive(data):
                yield event


class OutboundHttpHttpClient:
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
        """Send a request and return the whole answer, of at most `limit` bytes. Raises as `open` does."""
        async with self.open(request, deadline=deadline_in(seconds)) as response:
            return await response.answer(limit)

    @asynccontextmanager
    async def open(self, request: HttpRequest, *, deadline: float | None) -> AsyncGenerator[HttpResponse]:
        """Send a request and return the answer as soon as its head is here. Leaving the block closes the connection.

        `deadline`, by the event loop's clock, ends the wait for the head and for every part of the body.

        Raises:
            InvalidField: the guard refuses the address.
            HttpFailed: no answer came, or not all of it. HttpTimedOut, a TimeoutError, after `deadline`.
        """
        target = parse_target(request.url) if self._guard else _parse_any_target(request.url)
        find = self._guard.addresses if self._guard else resolve
        connect, secure = await self._loaded(target.scheme)
        connection = connect(target, secure, find)
        try:
            async with _until(deadline, connection):
                status, headers = await connection.send(request, self._connect_seconds)
            yield HttpResponse(status, headers, connection, deadline)
        finally:
            await connection.close()

    async def _loaded(self, scheme: str) -> tuple[type[OutboundConnection], ssl.SSLContext | None]:
        """Return what a connection is made of. The first time it loads httpcore, and the system's certificates.

        That happens in a thread: meanwhile the event loop serves others.
        """
        if self._connect is None:
            self._connect = await asyncio.to_thread(_load)
        if scheme == "https" and self._secure is None:
            self._secure = await asyncio.to_thread(self._trust)
        return self._connect, self._secure if scheme == "https" else None


def _load() -> type[OutboundConnection]:
    from synapse.net.http_connection import OutboundConnection  # noqa: PLC0415 - see above

    return OutboundConnection


def deadline_in(seconds: float) -> float:
    """Return the event loop's time in so many seconds."""
    return asyncio.get_running_loop().time() + seconds


@asynccontextmanager
async def _until(deadline: float | None, connection: OutboundConnection) -> AsyncGenerator[None]:
    limit = asyncio.timeout_at(deadline)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise HttpTimedOut(sent=connection.has_sent) from error


def _parse_any_target(url: str) -> Target:
    """Read an address that this machine's user has chosen; the guard's parser is for those that strangers choose."""
    place = urlsplit(url)
    try:
        host = (place.hostname or "").encode("idna").decode("ascii")
    except UnicodeError as error:
        raise HttpFailed(Reason.NAME_INVALID) from error
    if not host:
        raise HttpFailed(Reason.NAME_INVALID)
    # What is percent-encoded stays as it is; what may not stand in a request line is encoded.
    path = quote(place.path or "/", safe="/%:@!$&'()*+,;=~")
    query = f"?{quote(place.query, safe='/%:@!$&()*+,;=~?')}" if place.query else ""
    return Target(scheme=place.scheme, host=host, port=place.port or PORTS[place.scheme], path=path + query)
