"""One connection of `HttpClient`, on httpcore. Only this module imports httpcore; `net.http` loads it late."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping
from socket import gaierror
from typing import Any, Final, cast

import httpcore

from synapse.core.override import override
from synapse.net.address_guard import Address, Resolve, Target
from synapse.net.http_types import HttpFailed, HttpRequest, Reason

# At DEBUG httpcore logs response headers, cookies included.
logging.getLogger("httpcore").setLevel(logging.WARNING)

_MAX_ADDRESSES: Final = 4
_MAX_HEAD_BYTES: Final = 64 * 1024
_MAX_FRAMING_BYTES: Final = 64 * 1024
_READ_SIZE: Final = 16 * 1024
"""Bytes parsed in one step; this much of a body in tiny chunks costs about 25 ms of the event loop."""
_HTTP_PREFIX: Final = b"HTTP/"


class OutboundConnection:
    """Sends one request to `target`, at an address that `find` returns."""

    def __init__(self, target: Target, secure: ssl.SSLContext | None, find: Resolve) -> None:
        self._target = target
        self._traffic = traffic = _Traffic()
        self._body: AsyncGenerator[bytes] | None = None
        self._url = httpcore.URL(
            scheme=target.scheme.encode(), host=target.host.encode(), port=target.port, target=target.path.encode()
        )
        self._connection = httpcore.AsyncHTTPConnection(
            self._url.origin, ssl_context=secure, network_backend=GuardedBackend(find, traffic)
        )

    async def send(self, request: HttpRequest, connect_seconds: float) -> tuple[int, Mapping[str, str]]:
        """Sends the request; returns the status and headers of the response. Raises InvalidField or HttpFailed."""
        try:
            response = await self._connection.handle_async_request(
                httpcore.Request(
                    request.method,
                    self._url,
                    headers=_headers(request, self._target),
                    content=request.body,
                    extensions={
                        "timeout": {"connect": connect_seconds},
                        # A host name may end with a dot; names in certificates never do.
                        "sni_hostname": self._target.host.rstrip("."),
                    },
                )
            )
        except (httpcore.LocalProtocolError, UnicodeError):
            # The texts of these errors quote the header, which may hold a secret.
            raise self._traffic.failed(Reason.BAD_REQUEST) from None
        except (httpcore.ProtocolError, httpcore.NetworkError, httpcore.TimeoutException, ssl.SSLError) as error:
            raise _http_failure(error, self._traffic) from error
        self._traffic.has_head = True
        self._body = cast("AsyncGenerator[bytes]", aiter(cast("AsyncIterable[bytes]", response.stream)))
        headers: dict[str, str] = {}
        for name, value in response.headers:
            headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
        return response.status, headers

    @property
    def has_sent(self) -> bool:
        """Whether the server may have seen a part of the request."""
        return self._traffic.sent

    async def receive(self) -> bytes:
        """Returns the next bytes of the body, or b"" at its end. Raises HttpFailed."""
        if self._body is None:
            return b""
        try:
            data = await anext(self._body, b"")
        except (httpcore.ProtocolError, httpcore.NetworkError, ssl.SSLError) as error:
            raise _http_failure(error, self._traffic) from error
        self._traffic.count_content(data)
        return data

    async def close(self) -> None:
        """Closes the connection at once, without waiting for the server."""
        try:
            if self._body is not None:
                await self._body.aclose()
        finally:
            await self._connection.aclose()


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Connects only to addresses that `find` returns; it resolves no names itself.

    The `find` of an AddressGuard raises for a name with a refused address, so nothing is connected to.
    """

    def __init__(self, find: Resolve, traffic: _Traffic) -> None:
        self._find = find
        self._traffic = traffic
        self._plain = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())

    @override
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connects to the first address that accepts the connection. Raises InvalidField or HttpFailed."""
        # The addresses share one timeout: a name with many dead addresses takes no longer than one dead address.
        tried = (await self._addresses(host, port))[:_MAX_ADDRESSES]
        seconds = None if timeout is None else timeout / max(1, len(tried))
        failure = HttpFailed(Reason.NAME_UNKNOWN)
        for address in tried:
            try:
                stream = await self._plain.connect_tcp(str(address), port, seconds, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = _http_failure(error, self._traffic)
            else:
                return _CountedStream(stream, self._traffic)
        raise failure

    async def _addresses(self, host: str, port: int) -> list[Address]:
        try:
            return list(await self._find(host, port))
        except gaierror as error:
            raise HttpFailed(Reason.NAME_UNKNOWN) from error
        except UnicodeError as error:
            raise HttpFailed(Reason.NAME_INVALID) from error
        except OSError as error:
            raise HttpFailed(Reason.UNREACHABLE, _system_message(error)) from error


class _CountedStream(httpcore.AsyncNetworkStream):
    """A stream whose bytes `_Traffic` counts."""

    def __init__(self, stream: httpcore.AsyncNetworkStream, traffic: _Traffic) -> None:
        self._stream = stream
        self._traffic = traffic

    @override
    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - see above
        data = await self._stream.read(self._traffic.next_read(max_bytes), timeout)
        self._traffic.receive(data)
        return data

    @override
    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - see above
        self._traffic.sent = True
        await self._stream.write(buffer, timeout)

    @override
    async def aclose(self) -> None:
        await self._stream.aclose()

    @override
    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - see above
    ) -> httpcore.AsyncNetworkStream:
        try:
            return _CountedStream(await self._stream.start_tls(ssl_context, server_hostname, timeout), self._traffic)
        except httpcore.ConnectError as error:
            failure = _http_failure(error, self._traffic)
            if failure.reason is Reason.CERTIFICATE:
                raise failure from error
            # A server that closes the connection during the handshake is reported like this, too.
            raise self._traffic.failed(Reason.NO_TLS) from error

    @override
    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Traffic:
    """Counts the bytes of one exchange, and limits the size of the head and of chunk framing."""

    def __init__(self) -> None:
        self.sent = False
        self.has_head = False
        self.has_ended = False
        self._start = b""
        self._received = 0
        self._content = 0

    def next_read(self, wanted: int) -> int:
        """Returns how many bytes may be read now. Raises HttpFailed when a limit is exceeded."""
        if self.has_head:
            # Framing is chunk sizes and extensions, which the limit of the body does not count.
            if self._received - self._content > self._content + _MAX_FRAMING_BYTES + _MAX_HEAD_BYTES:
                raise self.failed(Reason.BODY_TOO_LARGE)
            return min(wanted, _READ_SIZE)
        if self._received >= _MAX_HEAD_BYTES:
            raise self.failed(Reason.HEAD_TOO_LARGE)
        return min(wanted, _READ_SIZE, _MAX_HEAD_BYTES - self._received)

    def receive(self, data: bytes) -> None:
        """Counts the bytes read. Raises HttpFailed as soon as they cannot be the start of an HTTP response.

        The parser would wait for the end of the head, while a server of another protocol waits for the client.
        """
        self.has_ended = not data
        self._received += len(data)
        if len(self._start) < len(_HTTP_PREFIX):
            self._start = (self._start + data)[: len(_HTTP_PREFIX)]
            if not _HTTP_PREFIX.startswith(self._start):
                raise self.failed(Reason.NOT_HTTP)

    def count_content(self, data: bytes) -> None:
        self._content += len(data)

    def failed(self, reason: Reason, detail: str = "") -> HttpFailed:
        return HttpFailed(reason, detail, sent=self.sent)


def _headers(request: HttpRequest, target: Target) -> list[tuple[bytes, bytes]]:
    """Returns the headers that the client adds, then those of the request. Raises UnicodeError."""
    length = [] if request.body is None else [("Content-Length", str(len(request.body)))]
    ours = [("Host", target.authority), ("Accept-Encoding", "identity"), ("Connection", "close"), *length]
    given = {name.lower() for name, _ in request.headers}
    headers = [(name, value) for name, value in ours if name.lower() not in given]
    return [(name.encode("ascii"), value.encode("latin-1")) for name, value in (*headers, *request.headers)]


def _http_failure(error: Exception, traffic: _Traffic) -> HttpFailed:
    """Translates an exception of httpcore, by the system error that caused it if there is one."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return traffic.failed(Reason.CERTIFICATE, cause.verify_message)
    if isinstance(cause, OSError) and not isinstance(cause, TimeoutError | ssl.SSLError):
        is_refused = isinstance(cause, ConnectionRefusedError)
        return traffic.failed(Reason.REFUSED if is_refused else Reason.UNREACHABLE, _system_message(cause))
    if isinstance(cause, ssl.SSLError):
        return traffic.failed(Reason.NO_TLS)
    if isinstance(error, httpcore.ConnectTimeout):
        return traffic.failed(Reason.CONNECT_TIMEOUT)
    is_nonsense = isinstance(error, httpcore.ProtocolError) and not traffic.has_ended
    ending = Reason.BROKEN_OFF if traffic.has_head else Reason.CLOSED
    return traffic.failed(Reason.NOT_HTTP if is_nonsense else ending)


def _system_message(error: OSError) -> str:
    """Returns the system's message for `error`. The text that asyncio gives it names the address that was tried."""
    return os.strerror(error.errno) if error.errno else str(error)
