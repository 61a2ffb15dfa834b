"""Who is let in at a gateway: the same rules for HTTP, the handshakes of WebSockets, and gRPC.

    foreign web page        → ForeignOrigin
    an authenticator knows  → its caller, if that has not asked too often
    public, and no credentials brought → somebody who may only read
    otherwise               → CredentialsRefused, with a challenge; RateLimited after too many wrong ones

What can be decided at once is returned at once; only what must be waited for (a key set, an owner's own authenticator)
is returned as an awaitable.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from synapse.core.access_errors import CredentialsRefused, RateLimited
from synapse.core.auth_methods import AuthMethods
from synapse.core.caller import ANONYMOUS_SCOPE, READ, Caller
from synapse.core.clock import Clock
from synapse.dialects.dialect import Headers
from synapse.service.rate_limit import RateLimit
from synapse.transports.asgi import Scope
from synapse.transports.authentication import Authenticator, Credentials, Refusal, Verdict
from synapse.transports.credentials import NOBODY, PEER, Peer
from synapse.transports.web_names import WebNames

log = logging.getLogger(__name__)

ANONYMOUS: Final = Caller(scope=ANONYMOUS_SCOPE, actions=frozenset({READ}), name="anonymous")
"""Who reads what is public. Nothing is ever made in its scope."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLimits:
    """How often a caller may ask, and how often an address may be wrong about who it is."""

    requests: RateLimit = field(default_factory=lambda: RateLimit(per_minute=0, burst=1))
    failures: RateLimit = field(default_factory=lambda: RateLimit(per_minute=0, burst=1))
    behind_proxy: bool = False
    """Whether it is a proxy that connects, and tells the caller's address."""


def nothing_is_public(_path: str) -> bool:
    return False


class GatewayGate:
    """Admits callers. `methods` says what the authenticators understand; when it says nothing, none is needed."""

    def __init__(
        self,
        authenticators: Sequence[Authenticator],
        methods: AuthMethods,
        *,
        clock: Clock,
        names: WebNames,
        limits: GateLimits,
        is_public: Callable[[str], bool] = nothing_is_public,
    ) -> None:
        self.methods = methods
        self._authenticators = tuple(authenticators)
        self._unguessable = tuple(one for one in authenticators if one.unguessable)
        self._unlocked = methods == AuthMethods()
        self._clock = clock
        self._names = names
        self._limits = limits
        self._is_public = is_public

    def admit(self, scope: Scope) -> Caller | Awaitable[Caller]:
        """Return on whose behalf a request or a WebSocket runs.

        Raises, also when awaited:
            ForeignOrigin: it comes from a web page, or was sent to a name, that is not ours.
            CredentialsRefused: nobody is known by what it brings.
            RateLimited: too many requests, or too many wrong credentials.
            InternalFailure: it cannot be judged; the log says why.
        """
        headers: Headers = scope["headers"]
        self._names.check_origin(headers)
        credentials = Credentials(
            headers,
            path=scope["path"],
            query=scope["query_string"],
            peer=scope.get("state", {}).get(PEER, NOBODY),
            handshake=scope["type"] == "websocket",
        )
        if self._unlocked or (self._is_public(credentials.path) and not credentials.given):
            self._names.check_host(headers)
        client = scope.get("client")
        return self._admit(credentials, client[0] if client else "")

    def admit_headers(
        self, headers: Headers, *, path: str, peer: str, query: bytes = b"", owner: Peer = NOBODY
    ) -> Caller | Awaitable[Caller]:
        """The same for what no browser sends, such as gRPC; `peer` is the caller's address. Raises as `admit` does."""
        return self._admit(Credentials(headers, path=path, query=query, peer=owner), peer)

    def count(self, caller: Caller) -> None:
        """Note one more request of somebody who was admitted before. Raises RateLimited, CredentialsRefused."""
        if not caller.holds():
            raise CredentialsRefused(
                "these credentials count no longer", challenge=self.methods.challenge("invalid_token")
            )
        self._within_limits(caller, f"{caller.scope} {caller.name}")

    def _admit(self, credentials: Credentials, peer: str) -> Caller | Awaitable[Caller]:
        attempt = _Attempt(credentials, _address(credentials.headers, peer, behind_proxy=self._limits.behind_proxy))
        attempt.wait = self._limits.failures.wait(attempt.address, self._clock.monotonic())
        # Keys cannot be guessed, so whoever shares an address with a guesser still gets in with one.
        return self._ask(attempt, iter(self._unguessable if attempt.wait else self._authenticators))

    def _ask(self, attempt: _Attempt, authenticators: Iterator[Authenticator]) -> Caller | Awaitable[Caller]:
        for authenticator in authenticators:
            verdict = authenticator.authenticate(attempt.credentials)
            if isinstance(verdict, Awaitable):
                return self._ask_on(attempt, verdict, authenticators)
            if isinstance(verdict, Caller):
                return self._within_limits(verdict, f"{verdict.scope} {verdict.name}")
            attempt.note(verdict)
        return self._unknown(attempt)

    async def _ask_on(
        self, attempt: _Attempt, coming: Awaitable[Verdict], authenticators: Iterator[Authenticator]
    ) -> Caller:
        verdict = await coming
        if isinstance(verdict, Caller):
            return self._within_limits(verdict, f"{verdict.scope} {verdict.name}")
        attempt.note(verdict)
        caller = self._ask(attempt, authenticators)
        return caller if isinstance(caller, Caller) else await caller

    def _within_limits(self, caller: Caller, key: str) -> Caller:
        seconds = self._limits.requests.take(key, self._clock.monotonic())
        if seconds:
            raise RateLimited("too many requests", seconds=seconds)
        return caller

    def _unknown(self, attempt: _Attempt) -> Caller:
        given = attempt.credentials.given
        if not given and not attempt.why and self._is_public(attempt.credentials.path):
            return self._within_limits(ANONYMOUS, f"address {attempt.address}")
        if given and not attempt.wait:
            attempt.wait = self._limits.failures.take(attempt.address, self._clock.monotonic())
        if attempt.wait:
            raise RateLimited("too many wrong credentials from this address", seconds=attempt.wait)
        if given:
            log.info("credentials_refused", extra={"address": attempt.address, "why": attempt.why})
        raise CredentialsRefused(
            attempt.why or ("these credentials are not known here" if given else "this needs credentials"),
            challenge=self.methods.challenge("invalid_token" if given else ""),
            hint=_HOW_TO_GET_IN if self.methods.api_keys else "",
        )


class _Attempt:
    """One caller at the gate, and what was found wrong so far."""

    __slots__ = ("address", "credentials", "wait", "why")

    def __init__(self, credentials: Credentials, address: str) -> None:
        self.credentials = credentials
        self.address = address
        self.wait = 0.0
        self.why = ""

    def note(self, verdict: Refusal | None) -> None:
        if verdict is not None:
            self.why = verdict.why


_HOW_TO_GET_IN: Final = "`synapse keys create NAME` makes a key; send it as `Authorization: Bearer …`"


def _address(headers: Headers, peer: str, *, behind_proxy: bool) -> str:
    """Whom a wrong attempt is counted for."""
    if behind_proxy:
        for name, value in headers:
            if name == b"x-forwarded-for":
                # The last one is what our own proxy saw; those before it are what the caller said.
                peer = value.rpartition(b",")[2].strip().decode("latin-1")
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return peer[:64]
    if address.version == 4:
        return peer
    # One household has a /64 of its own, and could be somebody else with each attempt.
    return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
