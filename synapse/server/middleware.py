"""ASGI middleware and checks of headers: CORS, the host names and origins of a server, and its probes.

    CorsApp      lets the web pages of named origins use an application
    WebNames     checks the Host and Origin headers of requests
    Addresses    chooses the URL that a server names in its cards
    ProbedApp    GET /healthz   200 as long as the process answers
                 GET /readyz    200, or 503 while it could not serve a request, without details

Credentials travel in headers that a page sets itself, so no page can use another's identity. The one exception is the
session of the gateway's own page, whose cookie the browser adds: `check_own_page` lets no other page use it.

A page can let its own name point to this machine; its requests then come from the owner's browser. It has no
credentials, so a foreign `Host` matters only where none are needed; a foreign `Origin` is always refused.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final
from urllib.parse import urlsplit

from synapse.core.errors import ForeignOrigin, SynapseError
from synapse.dialects.dialect import Headers, WireAnswer
from synapse.server.asgi import HttpLimits, Receive, Scope, Send, ServedApp

log = logging.getLogger(__name__)

HEALTH_PATH: Final = "/healthz"
READY_PATH: Final = "/readyz"
CHECK_SECONDS: Final = 2.0
"""How long a readiness check may take."""
CACHE_SECONDS: Final = 1.0
"""How long its result counts: frequent probes must not keep the store busy."""

Check = Callable[[], Awaitable[object]]
"""Checks whether the server can work; raises a SynapseError when it cannot."""

_ALLOWED_METHODS: Final = b"GET, HEAD, POST, PUT, PATCH, DELETE"
_ALLOWED_HEADERS: Final = (
    b"Authorization, Content-Type, X-API-Key, A2A-Version, A2A-Extensions, X-A2A-Extensions, Last-Event-ID,"
    b" If-None-Match, traceparent, MCP-Protocol-Version, Mcp-Method, Mcp-Name"
)
_EXPOSED_HEADERS: Final = b"WWW-Authenticate, Retry-After, ETag, A2A-Version, A2A-Extensions, X-A2A-Extensions"
_MAX_AGE_SECONDS: Final = b"600"
_SCHEMES: Final = ("http", "https")
_AUTHORITY: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9]([a-z0-9.-]*[a-z0-9])?)(:[0-9]{1,5})?")
_LONGEST_AUTHORITY: Final = 255
_SAME_SITES: Final = frozenset({b"same-origin", b"none"})
"""`none`: the person typed the address, or opened a bookmark."""
_OPEN_PAGE: Final = "open the page with `synapse dashboard`"


class CorsApp:
    """Lets pages of `origins` read the answers of an application, and answers their preflights."""

    def __init__(self, app: ServedApp, origins: Iterable[str]) -> None:
        self._app = app
        self._origins = frozenset(origin.lower().encode("ascii") for origin in origins)

    @property
    def limits(self) -> HttpLimits:
        return self._app.limits

    def close(self) -> None:
        self._app.close()

    def refusal(self, error: SynapseError, scope: Scope | None = None) -> WireAnswer:
        return self._app.refusal(error, scope)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = _header(scope["headers"], b"origin") if scope["type"] == "http" else b""
        if origin.lower() not in self._origins:
            await self._app(scope, receive, send)
        elif scope["method"] == "OPTIONS" and _header(scope["headers"], b"access-control-request-method"):
            await _allow(origin, send)
        else:
            await self._app(scope, receive, _readable_send(origin, send))


async def _allow(origin: bytes, send: Send) -> None:
    """Answers a preflight: it carries no credentials, and asks only whether the page may send the real request."""
    headers = [
        *_readable_by(origin),
        (b"access-control-allow-methods", _ALLOWED_METHODS),
        (b"access-control-allow-headers", _ALLOWED_HEADERS),
        (b"access-control-max-age", _MAX_AGE_SECONDS),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _readable_send(origin: bytes, send: Send) -> Send:
    async def send_readable(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = [*message["headers"], *_readable_by(origin), (b"access-control-expose-headers", _EXPOSED_HEADERS)]
            message = {**message, "headers": headers}
        await send(message)

    return send_readable


def _readable_by(origin: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]


def _header(headers: Headers, name: bytes) -> bytes:
    return next((value for key, value in headers if key == name), b"")


class WebNames:
    """Checks the names of a server.

    `hosts` None accepts any Host. `own` are further origins of the server's own pages; `origins` are the foreign pages
    that may call it with credentials of their own.
    """

    def __init__(self, hosts: Iterable[str] | None, *, own: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        self._hosts = None if hosts is None else frozenset(host.lower().encode("ascii") for host in hosts)
        self._own = frozenset(origin.lower().encode("ascii") for origin in own)
        of_hosts = [origin for host in self._hosts or () for origin in _origins_at(host)]
        self._origins = frozenset([*self._own, *of_hosts, *(origin.lower().encode("ascii") for origin in origins)])

    def check_origin(self, headers: Headers) -> None:
        """Raises ForeignOrigin when a page that may not call the server sent the request."""
        host = b""
        origin: bytes | None = None
        for name, value in headers:
            if name == b"origin":
                origin = value.lower()
            elif name == b"host":
                host = value.lower()
        if origin is None or origin in self._origins:
            return
        if self._hosts is None and origin in _origins_at(host):
            return
        raise ForeignOrigin(
            "requests from this web page are not accepted", hint="add its origin to [cors] of the gateway's settings"
        )

    def check_own_page(self, headers: Headers, *, needs_origin: bool) -> None:
        """Raises ForeignOrigin unless the server's own page may have sent the request.

        `needs_origin`: the request changes something or opens a WebSocket, so a browser names the page in `Origin`.
        """
        self.check_host(headers)
        origins = [value.lower() for name, value in headers if name == b"origin"]
        if len(origins) > 1 or (needs_origin and not origins):
            raise ForeignOrigin("browsers send one Origin header with this", hint=_OPEN_PAGE)
        # Not any name of ours: `localhost` may be another program's on the other version of IP.
        expected = {*self._own, *_origins_at(_header(headers, b"host").lower())}
        # Browsers tell how the page and this server are related, also where they send no Origin.
        relations = [value for name, value in headers if name == b"sec-fetch-site"]
        if not expected.issuperset(origins) or not _SAME_SITES.issuperset(relations):
            raise ForeignOrigin("another web page than the gateway's own sent this", hint=_OPEN_PAGE)

    def check_host(self, headers: Headers) -> None:
        """Raises ForeignOrigin when the Host header names another server."""
        if self._hosts is None:
            return
        named = [value.lower() for name, value in headers if name == b"host"]
        if len(named) != 1 or named[0] not in self._hosts:
            ours = " or ".join(sorted(host.decode("ascii") for host in self._hosts))
            raise ForeignOrigin("the Host header does not name this gateway", hint=f"send the request to {ours}")


def _origins_at(host: bytes) -> tuple[bytes, bytes]:
    """Returns the origins of pages that come from `host`, a Host header."""
    return b"http://" + host, b"https://" + host


class Addresses:
    """Chooses the URL that a server names in its cards: the one that the request was sent to, if it is one of its own.

    Some clients accept a card only if its URLs have the origin that it was read from. A foreign name is never repeated:
    then `url` is used. With `behind_proxy`, the proxy tells the requested address in X-Forwarded-Host and
    X-Forwarded-Proto, and `Host` is only the name by which the proxy reaches us.
    """

    def __init__(self, url: str, hosts: Iterable[str] = (), *, behind_proxy: bool = False) -> None:
        self.url = url
        self._scheme = urlsplit(url).scheme
        self._hosts = frozenset(host.lower() for host in hosts)
        self._behind_proxy = behind_proxy

    def of(self, headers: Headers) -> str:
        """Returns the URL by which the sender of these headers reaches the server."""
        if self._behind_proxy:
            # Our own proxy wrote the last value; those before it came from further away.
            host = _last(headers, b"x-forwarded-host")
            scheme = _last(headers, b"x-forwarded-proto")
            if len(host) > _LONGEST_AUTHORITY or not _AUTHORITY.fullmatch(host):
                return self.url
            return f"{scheme if scheme in _SCHEMES else self._scheme}://{host}"
        named = [value.decode("latin-1").lower() for name, value in headers if name == b"host"]
        return f"{self._scheme}://{named[0]}" if len(named) == 1 and named[0] in self._hosts else self.url


def _last(headers: Headers, wanted: bytes) -> str:
    values = [value for name, value in headers if name == wanted]
    return values[-1].rpartition(b",")[2].strip().decode("latin-1").lower() if values else ""


def hosts_of(url: str) -> frozenset[str]:
    """Returns the Host headers of requests to `url`: with its port, and without if the scheme implies it."""
    place = urlsplit(url)
    name = place.netloc.rpartition("@")[2].lower()
    default = {"http": 80, "https": 443}.get(place.scheme)
    if place.port is None:
        return frozenset({name, f"{name}:{default}"})
    return frozenset({name, name.rpartition(":")[0]}) if place.port == default else frozenset({name})


class ProbedApp:
    """Answers the two probes in front of an application, without credentials."""

    def __init__(self, app: ServedApp, check: Check, monotonic: Callable[[], float]) -> None:
        self._app = app
        self._check = check
        self._monotonic = monotonic
        self._checking = asyncio.Lock()
        self._checked_at = float("-inf")
        self._ready = False
        self._closed = False

    @property
    def limits(self) -> HttpLimits:
        return self._app.limits

    def close(self) -> None:
        self._closed = True
        self._app.close()

    def refusal(self, error: SynapseError, scope: Scope | None = None) -> WireAnswer:
        return self._app.refusal(error, scope)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path not in (HEALTH_PATH, READY_PATH) or scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
        elif path == HEALTH_PATH or await self._is_ready():
            await _send_json(200, b'{"status":"ok"}', send)
        else:
            await _send_json(503, b'{"status":"not ready"}', send)

    async def _is_ready(self) -> bool:
        async with self._checking:
            if self._monotonic() - self._checked_at > CACHE_SECONDS:
                self._ready = await self._run_check()
                self._checked_at = self._monotonic()
        return self._ready and not self._closed

    async def _run_check(self) -> bool:
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await self._check()
        except (SynapseError, TimeoutError) as error:
            log.warning("not_ready", extra={"error": getattr(error, "code", "timeout")})
            return False
        return True


async def _send_json(status: int, body: bytes, send: Send) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"cache-control", b"no-store"),
        (b"content-length", b"%d" % len(body)),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
