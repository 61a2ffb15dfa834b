"""What whoever keeps a server running asks it, without credentials: does it live, and can it do its work now?

GET /healthz   200 as long as the process answers
GET /readyz    200, or 503 while it could not serve a request; nothing is told but that
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from synapse.core.errors import SynapseError
from synapse.dialects.dialect import WireAnswer
from synapse.transports.asgi import Receive, Scope, Send
from synapse.transports.http import HttpLimits
from synapse.transports.served_app import ServedApp

log = logging.getLogger(__name__)

HEALTH_PATH: Final = "/healthz"
READY_PATH: Final = "/readyz"
PATIENCE_SECONDS: Final = 2.0
BELIEVED_SECONDS: Final = 1.0
"""How long an answer counts: whoever asks more often does not keep the store busy."""

Check = Callable[[], Awaitable[object]]
"""Tries whether work can be done; raises a SynapseError when not."""


class ProbedApp:
    """An application with the two paths in front, which nobody needs credentials for."""

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
            await _tell(200, b'{"status":"ok"}', send)
        else:
            await _tell(503, b'{"status":"not ready"}', send)

    async def _is_ready(self) -> bool:
        async with self._checking:
            if self._monotonic() - self._checked_at > BELIEVED_SECONDS:
                self._ready = await self._try()
                self._checked_at = self._monotonic()
        return self._ready and not self._closed

    async def _try(self) -> bool:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._check()
        except (SynapseError, TimeoutError) as error:
            log.warning("not_ready", extra={"error": getattr(error, "code", "timeout")})
            return False
        return True


async def _tell(status: int, body: bytes, send: Send) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"cache-control", b"no-store"),
        (b"content-length", b"%d" % len(body)),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
