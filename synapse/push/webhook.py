"""Sends notifications to webhooks: one POST each, to an address that the guard has checked.

`HttpClient` resolves the name once, verifies the certificate for it and follows no redirect. Only the head of the
response counts.
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
from synapse.push.outbox import Headers, PostResult

_MAX_BODY: Final = 16 * 1024
_MAX_POSTS: Final = 64
_MAX_POSTS_PER_HOST: Final = 8

_ERRORS: Final[Mapping[Reason, str]] = {
    Reason.BAD_REQUEST: "the notification cannot be sent as HTTP",
    Reason.NAME_UNKNOWN: "its name cannot be resolved",
    Reason.CONNECT_TIMEOUT: "it cannot be connected to in time",
    Reason.CERTIFICATE: "its certificate is not valid: {detail}",
    Reason.NO_TLS: "it does not speak TLS",
    Reason.CLOSED: "it closed the connection without an answer",
    Reason.NOT_HTTP: "its answer is not HTTP",
    Reason.HEAD_TOO_LARGE: "the head of its answer is too long",
    Reason.TIMED_OUT: "no answer in time",
}
"""The error for each reason; other reasons show the system's message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookLimits:
    """Time limits in seconds; `whole` is from resolving the name to the response."""

    check: float = 3.0
    connect: float = 5.0
    whole: float = 15.0


class WebhookSender:
    """Implements `push.outbox.Webhooks` and `push.service.WebhookGuard`."""

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
        self._limit = _PostLimit()

    async def check(self, url: str) -> None:
        """Raises InvalidField for an address that Synapse never calls. Accepts a name that cannot be resolved now."""
        target = parse_target(url)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(self._limits.check):
                await self._guard.addresses(target.host, target.port)

    async def post(self, url: str, headers: Headers, body: bytes) -> PostResult:
        """Sends one notification. It does not raise; the result has the error."""
        return await self._send("POST", url, headers, body)

    async def delete(self, url: str) -> PostResult:
        """Deletes a notification where the receiver keeps them. It does not raise; the result has the error."""
        return await self._send("DELETE", url, (), b"")

    async def _send(self, method: str, url: str, headers: Headers, body: bytes) -> PostResult:
        try:
            target = parse_target(url)
            agent = ("User-Agent", f"synapse/{__version__}")
            request = HttpRequest(method=method, url=url, headers=(agent, *headers), body=body)
            async with self._limit.slot(f"{target.host}:{target.port}"):
                return await self._exchange(request)
        except InvalidField as refused:
            return PostResult(error=f"{refused.why}  ({refused.hint})" if refused.hint else refused.why, is_final=True)
        except HttpFailed as failed:
            return PostResult(error=_ERRORS.get(failed.reason, "{detail}").format(detail=failed.detail) or str(failed))

    async def _exchange(self, request: HttpRequest) -> PostResult:
        async with self._client.open(request, deadline=deadline_in(self._limits.whole)) as response:
            if "content-length" in response.headers:
                # Read and ignore the body, so that the receiver can finish writing.
                with suppress(HttpFailed):
                    await response.read(_MAX_BODY)
        status, retry_after = response.status, response.headers.get("retry-after", "")
        is_seconds = retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 10
        return PostResult(
            status=status,
            error="" if status < 300 else f"it answered {status}",
            retry_after=float(retry_after) if is_seconds else None,
        )


class _PostLimit:
    """Limits concurrent posts, in total and to one host, so that a slow host does not delay all others."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(_MAX_POSTS)
        self._by_host: dict[str, asyncio.Semaphore] = {}
        self._users: Counter[str] = Counter()

    @asynccontextmanager
    async def slot(self, host: str) -> AsyncGenerator[None]:
        for_host = self._by_host.setdefault(host, asyncio.Semaphore(_MAX_POSTS_PER_HOST))
        self._users[host] += 1
        try:
            async with for_host, self._all:
                yield
        finally:
            self._users[host] -= 1
            if not self._users[host]:
                del self._users[host], self._by_host[host]
