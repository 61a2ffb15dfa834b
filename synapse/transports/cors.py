"""Lets the web pages of named origins use an application (CORS); all others stay as they are: refused at the gate.

Credentials travel in headers that the page sets itself, never in cookies, so no page can borrow somebody's identity.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import Any, Final

from synapse.core.errors import SynapseError
from synapse.dialects.dialect import Headers, WireAnswer
from synapse.transports.asgi import Receive, Scope, Send
from synapse.transports.http import HttpLimits
from synapse.transports.served_app import ServedApp

_METHODS: Final = b"GET, HEAD, POST, PUT, PATCH, DELETE"
_HEADERS: Final = (
    b"Authorization, Content-Type, X-API-Key, A2A-Version, A2A-Extensions, X-A2A-Extensions, Last-Event-ID,"
    b" If-None-Match, traceparent"
)
_SHOWN: Final = b"WWW-Authenticate, Retry-After, ETag, A2A-Version, A2A-Extensions, X-A2A-Extensions"
_REMEMBERED_SECONDS: Final = b"600"


class CorsApp:
    """An application with answers that pages of `origins` may read, and with preflights."""

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
            await self._app(scope, receive, _shown_to(origin, send))


async def _allow(origin: bytes, send: Send) -> None:
    """Answer a preflight: it carries no credentials, and asks only whether the page may send the real request."""
    headers = [
        *_readable_by(origin),
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", _HEADERS),
        (b"access-control-max-age", _REMEMBERED_SECONDS),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _shown_to(origin: bytes, send: Send) -> Send:
    async def send_readable(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = [*message["headers"], *_readable_by(origin), (b"access-control-expose-headers", _SHOWN)]
            message = {**message, "headers": headers}
        await send(message)

    return send_readable


def _readable_by(origin: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]


def _header(headers: Headers, name: bytes) -> bytes:
    return next((value for key, value in headers if key == name), b"")
