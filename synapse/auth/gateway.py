"""Who is let in at a gateway: the same rules for HTTP, the handshakes of WebSockets, and gRPC.

    foreign web page        → ForeignOrigin
    an authenticator knows  → its caller, if that has not asked too often
    public, and no credentials brought → somebody who may only read
    otherwise               → CredentialsRefused, with a challenge; RateLimited after too many wrong ones

What can be decided at once is returned at once; only what must be waited for (a key set, an owner's own authenticator)
is returned as an awaitable.

How often somebody may ask: a bucket of tokens for each key, filled at a steady rate. Pure; time is an argument.

A request takes a token. An empty bucket says how long it takes until there is one again.

Builds the gate of a gateway from its settings.
"""

from __future__ import annotations

import importlib
import ipaddress
import logging
import os
import secrets
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from synapse.auth.api_keys import KeyFile
from synapse.auth.authenticators import (
    Authenticator,
    Credentials,
    Custom,
    CustomAuthenticator,
    KeyAuthenticator,
    Refusal,
    SameUserAuthenticator,
    TicketAuthenticator,
    TicketBook,
    Verdict,
)
from synapse.auth.jwt import FetchedKeySet, IssuerSecret, JwtAuthenticator, KeySetFile, SigningKeys, fetcher
from synapse.auth.local import loopback_hosts
from synapse.auth.settings import AccessSettings, JwtSettings, is_loopback
from synapse.core.caller import ANONYMOUS_SCOPE, READ, AuthMethods, Caller
from synapse.core.errors import CredentialsRefused, InvalidSettings, RateLimited
from synapse.core.types import Clock
from synapse.dialects.dialect import Headers
from synapse.server.asgi import Scope
from synapse.server.middleware import WebNames, hosts_of
from synapse.server.peer import NOBODY, PEER, Peer

MOST_KEYS: Final = 10_000


class RateLimit:
    """Buckets that hold `burst` tokens and get `per_minute` new ones; a rate of 0 limits nothing.

    The buckets that were used last are kept, `most_keys` of them: a forgotten one is a full one.
    """

    def __init__(self, *, per_minute: float, burst: int, most_keys: int = MOST_KEYS) -> None:
        self._per_second = per_minute / 60
        self._burst = float(max(1, burst))
        self._most_keys = most_keys
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str, now: float) -> float:
        """Take a token and return 0, or take none and return the seconds until there is one."""
        if not self._per_second:
            return 0.0
        tokens = self._tokens(key, now)
        wait = self._wait(tokens)
        self._keep(key, tokens if wait else tokens - 1, now)
        return wait

    def wait(self, key: str, now: float) -> float:
        """The seconds until a token can be taken; nothing is taken."""
        return self._wait(self._tokens(key, now)) if self._per_second else 0.0

    def _tokens(self, key: str, now: float) -> float:
        tokens, at = self._buckets.get(key, (self._burst, now))
        return min(self._burst, tokens + (now - at) * self._per_second)

    def _wait(self, tokens: float) -> float:
        return 0.0 if tokens >= 1 else (1 - tokens) / self._per_second

    def _keep(self, key: str, tokens: float, now: float) -> None:
        self._buckets[key] = (tokens, now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._most_keys:
            self._buckets.popitem(last=False)


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


class GatewayAuth:
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


def build_gateway_auth(
    access: AccessSettings,
    *,
    home: Path,
    names: WebNames,
    clock: Clock,
    tickets: TicketBook | None = None,
    is_public: Callable[[str], bool] = nothing_is_public,
) -> GatewayAuth:
    """Return the gate.

    Raises:
        InvalidSettings: no method is left, or one cannot be used.
        StoreCorrupt, StoreFailed: the file of API keys cannot be used.
    """
    authenticators: list[Authenticator] = [] if tickets is None else [TicketAuthenticator(tickets, clock)]
    authenticators += [SameUserAuthenticator(_own_uid())] if access.no_auth else _authenticators(access, home, clock)
    return GatewayAuth(
        authenticators,
        AuthMethods() if access.no_auth else auth_methods(access),
        clock=clock,
        names=names,
        limits=GateLimits(
            requests=RateLimit(per_minute=0 if access.no_auth else access.requests_per_minute, burst=access.burst),
            failures=RateLimit(per_minute=access.failures_per_minute, burst=access.failures_per_minute),
            behind_proxy=access.behind_proxy,
        ),
        is_public=is_public,
    )


def new_tickets() -> TicketBook:
    """Tickets that nobody can guess."""
    return TicketBook(lambda: secrets.token_urlsafe(32))


def gateway_names(access: AccessSettings, *, host: str, port: int, public_url: str = "") -> WebNames:
    """The names that a gateway answers to: on loopback this machine's and that of its public address, else any.

    Who asks a gateway that is open to the network may call it by an address, or by a name of their own network.
    """
    public = hosts_of(public_url) if public_url else frozenset[str]()
    own = [f"{urlsplit(public_url).scheme}://{name}" for name in public]
    return WebNames(public | loopback_hosts(port) if is_loopback(host) else None, origins=[*access.origins, *own])


def auth_methods(access: AccessSettings) -> AuthMethods:
    """What cards and challenges say about how to get in."""
    rules = access.jwt.rules if access.jwt else None
    return AuthMethods(
        api_keys=access.api_keys,
        jwt_issuer=rules.issuer if rules else "",
        jwt_scopes=tuple(sorted(rules.actions)) if rules else (),
        custom=access.custom_description if access.custom else "",
    )


def _authenticators(access: AccessSettings, home: Path, clock: Clock) -> list[Authenticator]:
    found: list[Authenticator] = []
    if access.api_keys:
        keys = KeyFile(home, clock)
        # A damaged file is told to whoever starts the gateway, not to its callers.
        keys.all()
        found.append(KeyAuthenticator(keys, clock))
    if access.jwt is not None:
        found.append(JwtAuthenticator(access.jwt.rules, _signing_keys(access.jwt, clock), clock))
    if access.custom:
        found.append(CustomAuthenticator(load_custom(access.custom)))
    if not found:
        raise InvalidSettings(
            "nobody could get in: API keys are off, and there is no [auth.jwt] and no custom authenticator",
            hint="switch one of them on; --no-auth serves this machine without any",
        )
    return found


def _signing_keys(jwt: JwtSettings, clock: Clock) -> SigningKeys:
    if jwt.jwks_file is not None:
        return KeySetFile(jwt.jwks_file)
    if jwt.jwks_url:
        return FetchedKeySet(fetcher(jwt.jwks_url), clock)
    return IssuerSecret(jwt.secret)


def load_custom(path: str) -> Custom:
    """Return the callable that `package.module:callable` names.

    Raises:
        InvalidSettings: it cannot be imported, or is none.
    """
    module, _, name = path.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidSettings(
            f"the authenticator {path} cannot be imported: {error}", hint="is its folder in PYTHONPATH?"
        ) from error
    if not callable(function):
        raise InvalidSettings(f"the authenticator {path} is not callable")
    loaded: Custom = function
    return loaded


def _own_uid() -> int | None:
    """Whose connections are let in without authentication; None where the system does not tell whose one is."""
    return os.getuid() if sys.platform == "linux" else None
