"""Sends notifications to webhooks: one POST on a connection of its own, to an address that was checked.

    url ─► parsed ─► resolved once ─► every address checked ─► connected to a checked one ─► POST ─► status

The name is not resolved a second time, so a name that changes its mind between the check and the call gains nothing.
TLS is verified against the name. Redirects are not followed, and of the answer only the head counts.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address
from typing import Final

from synapse import __version__
from synapse.core.errors import InvalidField
from synapse.net.address_guard import Address, Target, parse_target, refuse
from synapse.push.outbox import Headers, Posted

_MOST_HEAD: Final = 32 * 1024
_MOST_BODY: Final = 16 * 1024
_AT_ONCE: Final = 64
_AT_ONCE_PER_HOST: Final = 8

Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookLimits:
    """Seconds that each step may take; `whole` is from the first byte to the answer."""

    check: float = 3.0
    connect: float = 5.0
    whole: float = 15.0


async def resolve(host: str, port: int) -> Sequence[Address]:
    """Every address that a name has. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # A link-local address comes with its zone.
    return [ip_address(str(place[4][0]).partition("%")[0]) for place in found]


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
        self._allow_private = allow_private
        self._limits = limits or WebhookLimits()
        self._resolve = resolve
        self._trust = cache(trust)
        self._berths = _Berths()

    async def check(self, url: str) -> None:
        """Raises InvalidField for an address that we never call. A name that cannot be resolved now may be later."""
        target = parse_target(url)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(self._limits.check):
                await self._addresses(target)

    async def post(self, url: str, headers: Headers, body: bytes) -> Posted:
        """Send one notification. It does not raise: what went wrong is in the answer."""
        try:
            target = parse_target(url)
            async with self._berths.taken(f"{target.host}:{target.port}"), asyncio.timeout(self._limits.whole):
                return await self._exchange(target, headers, body)
        except InvalidField as refused:
            return Posted(error=refused.why, is_hopeless=True)
        except TimeoutError:
            return Posted(error="no answer in time")
        except ssl.SSLCertVerificationError as error:
            return Posted(error=f"its certificate is not good: {error.verify_message}")
        except (OSError, ValueError, EOFError) as error:
            return Posted(error=_why(error))

    async def _exchange(self, target: Target, headers: Headers, body: bytes) -> Posted:
        reader, writer = await self._connected(target, await self._addresses(target))
        try:
            writer.write(_request(target, headers, len(body)) + body)
            await writer.drain()
            return await _answer(reader)
        finally:
            # Nothing is left to be said, so nobody waits for the other side to agree.
            writer.transport.abort()

    async def _addresses(self, target: Target) -> Sequence[Address]:
        """Every address of the target, all of them allowed: one that is not makes the others suspect."""
        literal = target.literal
        found = [literal] if literal is not None else await self._resolve(target.host, target.port)
        for address in found:
            refuse(target, address, allow_private=self._allow_private)
        return found

    async def _connected(
        self, target: Target, addresses: Sequence[Address]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        secure = self._trust() if target.scheme == "https" else None
        failure: Exception = OSError("the name has no address")
        for address in addresses:
            try:
                async with asyncio.timeout(self._limits.connect):
                    return await asyncio.open_connection(
                        str(address),
                        target.port,
                        ssl=secure,
                        server_hostname=target.host.rstrip(".") if secure else None,
                        limit=_MOST_HEAD,
                    )
            except TimeoutError:
                failure = OSError("it cannot be connected to in time")
            except OSError as error:
                failure = error
        raise failure


def _request(target: Target, headers: Headers, length: int) -> bytes:
    lines = [
        f"POST {target.path} HTTP/1.1",
        f"Host: {target.authority}",
        f"User-Agent: synapse/{__version__}",
        f"Content-Length: {length}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in headers),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


async def _answer(reader: asyncio.StreamReader) -> Posted:
    """Raises ValueError or EOFError for what is no answer of HTTP."""
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError as error:
            raise ValueError("the head of its answer is too long") from error
        status, fields = _parsed(head)
        if status >= 200:
            break
    length = fields.get("content-length", "0")
    if length.isascii() and length.isdigit() and len(length) < 10:
        # Taken in so that the other side is not cut off while it writes; what it says is nothing to us.
        with suppress(EOFError):
            await reader.readexactly(min(int(length), _MOST_BODY))
    retry_after = fields.get("retry-after", "")
    is_seconds = retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 10
    return Posted(
        status=status,
        error="" if status < 300 else f"it answered {status}",
        retry_after=float(retry_after) if is_seconds else None,
    )


def _parsed(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    code = rest[:3]
    if not version.startswith("HTTP/1.") or not (code.isascii() and code.isdigit() and len(code) == 3):
        raise ValueError("its answer is not HTTP")
    fields = (line.partition(":") for line in lines)
    return int(code), {name.strip().lower(): value.strip() for name, _, value in fields}


def _why(error: Exception) -> str:
    match error:
        case asyncio.IncompleteReadError():
            return "it closed the connection without an answer"
        case socket.gaierror():
            return "its name cannot be resolved"
        case OSError(strerror=str() as reason):
            return reason
        case _:
            return str(error) or type(error).__name__


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
