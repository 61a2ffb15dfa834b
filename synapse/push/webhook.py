"""Sends notifications to webhooks: one POST each, to an address that the guard has checked.

`HttpClient` resolves the name once, verifies TLS against it and follows no redirect. Of the answer only the head
counts.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

from synapse import __version__
from synapse.core.errors import InvalidField
from synapse.net.address_guard import AddressGuard, Resolve, parse_target, resolve
from synapse.net.http import HttpClient, deadline_in
from synapse.net.http_types import HttpFailed, HttpRequest, Reason
from synapse.push.outbox import Headers, Posted

_MOST_BODY: Final = 16 * 1024
_AT_ONCE: Final = 64
_AT_ONCE_PER_HOST: Final = 8

_WHY: Final[Mapping[Reason, str]] = {
    Reason.BAD_REQUEST: "the notification cannot be sent as HTTP",
    Reason.NAME_UNKNOWN: "its name cannot be resolved",
    Reason.CONNECT_TIMEOUT: "it cannot be connected to in time",
    Reason.CERTIFICATE: "its certificate is not good: {detail}",
    Reason.NO_TLS: "it does not speak TLS",
    Reason.CLOSED: "it closed the connection without an answer",
    Reason.NOT_HTTP: "its answer is not HTTP",
    Reason.HEAD_TOO_LARGE: "the head of its answer is too long",
    Reason.TIMED_OUT: "no answer in time",
}
"""What is told of a failure; of others, what the system says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookLimits:
    """Seconds that each step may take; `whole` is from the look-up of the name to the answer."""

    check: float = 3.0
    connect: float = 5.0
    whole: float = 15.0


class WebhookSender:
    """Implements `service.push_outbox.Webhooks` and `service.push_configs.WebhookGuard`."""

    def __init__(
        self,
        *,
        allow_private: bool = False,
        limits: WebhookLimits | None = None,
        resolve: Resolve = resolve,
        trust: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        self._limits = limits or WebhookLimits()
        self._guard = AddressGuard(allow_private=allow_private, resolve=resolve)
        self._client = HttpClient(self._guard, connect_seconds=self._limits.connect, trust=trust)
        self._berths = _Berths()

    async def check(self, url: str) -> None:
        """Raises InvalidField for an address that is never called. A name that cannot be resolved now may be later."""
        target = parse_target(url)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(self._limits.check):
                await self._guard.addresses(target.host, target.port)

    async def post(self, url: str, headers: Headers, body: bytes) -> Posted:
        """Send one notification. It does not raise: the result says what went wrong."""
        try:
            target = parse_target(url)
            agent = ("User-Agent", f"synapse/{__version__}")
            request = HttpRequest(method="POST", url=url, headers=(agent, *headers), body=body)
            async with self._berths.taken(f"{target.host}:{target.port}"):
                return await self._exchange(request)
        except InvalidField as refused:
            return Posted(error=refused.why, is_hopeless=True)
        except HttpFailed as failed:
            return Posted(error=_WHY.get(failed.reason, "{detail}").format(detail=failed.detail) or str(failed))

    async def _exchange(self, request: HttpRequest) -> Posted:
        async with self._client.open(request, deadline=deadline_in(self._limits.whole)) as response:
            if "content-length" in response.headers:
                # Read so that the other side is not cut off while it writes; what it says is not used.
                with suppress(HttpFailed):
                    await response.read(_MOST_BODY)
        status, retry_after = response.status, response.headers.get("retry-after", "")
        is_seconds = retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 10
        return Posted(
            status=status,
            error="" if status < 300 else f"it answered {status}",
            retry_after=float(retry_after) if is_seconds else None,
        )


class _Berths:
    """How many notifications are on their way at once: in all, and to one receiver, so that a slow one delays few."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(_AT_ONCE)
        self._of: dict[str, asyncio.Semaphore] = {}
        self._wanted: Counter[str] = Counter()

    @asynccontextmanager
    async def taken(self, place: str) -> AsyncGenerator[None]:
        own = self._of.setdefault(place, asyncio.Semaphore(_AT_ONCE_PER_HOST))
        self._wanted[place] += 1
        try:
            async with own, self._all:
                yield
        finally:
            self._wanted[place] -= 1
            if not self._wanted[place]:
                del self._wanted[place], self._of[place]
