"""Authenticates the callers of a gateway and limits their rate, by one set of rules for HTTP, WebSockets and gRPC.

    foreign web page                   → ForeignOrigin
    session of a browser               → only for the gateway's own page, by Host, Origin and Sec-Fetch-Site
    an authenticator accepts           → its caller, within the rate limit
    public path without credentials    → the anonymous caller, who may only read
    otherwise                          → CredentialsRefused with a challenge; RateLimited after too many failures

A decision that needs no waiting is returned directly. Only one that waits for a key set or for a custom authenticator
is returned as an awaitable.
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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NoReturn
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
from synapse.auth.sessions import SessionAuthenticator
from synapse.auth.settings import AccessSettings, JwtSettings
from synapse.core.address import on_machine
from synapse.core.caller import ANONYMOUS_SCOPE, READ, AuthMethods, Caller
from synapse.core.errors import CredentialsRefused, Forbidden, InvalidSettings, RateLimited
from synapse.core.loopback import is_loopback
from synapse.core.types import Clock
from synapse.dialects.dialect import Headers
from synapse.dialects.paths import SESSION_PATH
from synapse.server.asgi import Scope
from synapse.server.middleware import WebNames, hosts_of
from synapse.server.peer import PEER, UNKNOWN_PEER, Peer

log = logging.getLogger(__name__)

MOST_KEYS: Final = 10_000
ANONYMOUS: Final = Caller(scope=ANONYMOUS_SCOPE, actions=frozenset({READ}), name="anonymous")
"""Reads public paths without credentials. No task is ever created in its scope."""
_READING: Final = ("GET", "HEAD", "OPTIONS")
_KEY_HINT: Final = "`synapse keys create NAME` makes a key; send it as `Authorization: Bearer …`"


class RateLimit:
    """Token buckets, one for each key. A bucket holds `burst` tokens and gains `per_minute`; a rate of 0 is no limit.

    Pure: the time is an argument. Keeps the `most_keys` buckets that were used last; a dropped bucket counts as full.
    """

    def __init__(self, *, per_minute: float, burst: int, most_keys: int = MOST_KEYS) -> None:
        self._per_second = per_minute / 60
        self._burst = float(max(1, burst))
        self._most_keys = most_keys
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str, now: float) -> float:
        """Takes a token and returns 0, or takes none and returns the seconds until one is there."""
        if not self._per_second:
            return 0.0
        tokens = self._tokens(key, now)
        wait = self._wait(tokens)
        self._buckets[key] = (tokens if wait else tokens - 1, now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._most_keys:
            self._buckets.popitem(last=False)
        return wait

    def wait(self, key: str, now: float) -> float:
        """Returns the seconds until a token can be taken, and takes none."""
        return self._wait(self._tokens(key, now)) if self._per_second else 0.0

    def _tokens(self, key: str, now: float) -> float:
        tokens, at = self._buckets.get(key, (self._burst, now))
        return min(self._burst, tokens + (now - at) * self._per_second)

    def _wait(self, tokens: float) -> float:
        return 0.0 if tokens >= 1 else (1 - tokens) / self._per_second


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthLimits:
    """Rate limits: of requests by caller, and of wrong credentials by address."""

    requests: RateLimit = field(default_factory=lambda: RateLimit(per_minute=0, burst=1))
    failures: RateLimit = field(default_factory=lambda: RateLimit(per_minute=0, burst=1))
    behind_proxy: bool = False
    """Whether a proxy connects, and tells the caller's address in X-Forwarded-For."""


def nothing_is_public(_path: str) -> bool:
    return False


class GatewayAuth:
    """Admits callers. `methods` names the kinds of credentials that are accepted; empty means that none are needed."""

    def __init__(  # noqa: PLR0913 - each is a rule of who may call
        self,
        authenticators: Sequence[Authenticator],
        methods: AuthMethods,
        *,
        clock: Clock,
        names: WebNames,
        limits: AuthLimits,
        is_public: Callable[[str], bool] = nothing_is_public,
        sessions: SessionAuthenticator | None = None,
        machine: str = "",
    ) -> None:
        """`machine` is the name of this machine in its fleet: credentials may name its agents with it."""
        self.methods = methods
        # First: a page's session counts, and not that its browser is a process of this user.
        self._authenticators = (*([sessions] if sessions is not None else []), *authenticators)
        self._unguessable = tuple(one for one in self._authenticators if one.unguessable)
        self._sessions = sessions
        self._needs_none = methods == AuthMethods()
        self._clock = clock
        self._names = names
        self._limits = limits
        self._is_public = is_public
        self._own_suffix = on_machine("", machine)

    def admit(self, scope: Scope) -> Caller | Awaitable[Caller]:
        """Returns the caller of a request or of a WebSocket.

        Raises, also when awaited:
            ForeignOrigin: a foreign web page sent it, or its Host header names another server.
            CredentialsRefused: the credentials are missing or not valid.
            RateLimited: too many requests, or too many wrong credentials.
            InternalFailure: the credentials cannot be checked; the log says why.
        """
        headers: Headers = scope["headers"]
        self._names.check_origin(headers)
        credentials = Credentials(
            headers,
            path=scope["path"],
            query=scope["query_string"],
            peer=scope.get("state", {}).get(PEER, UNKNOWN_PEER),
            handshake=scope["type"] == "websocket",
        )
        client = scope.get("client")
        address = client[0] if client else ""
        changes = scope.get("method", "GET") not in _READING
        if credentials.path == SESSION_PATH and changes:
            self._names.check_own_page(headers, needs_origin=True)
            if scope["method"] == "POST":
                return self._admit_new_page(credentials, address)
        if self._sessions is not None and self._sessions.is_shown(credentials):
            # The browser adds the cookie to whatever a page lets it send.
            self._names.check_own_page(headers, needs_origin=changes or credentials.handshake)
        if self._needs_none or (self._is_public(credentials.path) and not credentials.given):
            self._names.check_host(headers)
        return self._admit(credentials, address)

    def _admit_new_page(self, credentials: Credentials, peer: str) -> Caller:
        """Returns the anonymous caller for the request that opens a session; its body has the one-time code.

        Not what its cookie says: that may be left over from an earlier session. Command lines show the link to other
        users of this machine while a browser starts, so it is worth nothing to them.
        """
        uid = credentials.peer.uid
        if uid not in (None, 0, os.getuid()) and not self._limits.behind_proxy:
            raise Forbidden("links of this gateway are for its own user", hint=f"the connection belongs to uid {uid}")
        address = _address(credentials.headers, peer, behind_proxy=self._limits.behind_proxy)
        return self._within_limits(ANONYMOUS, f"address {address}")

    def refuse_link(self) -> NoReturn:
        """Refuses a code of a link that does not exist, counted with all such codes.

        Raises:
            CredentialsRefused: the link was used or has expired.
            RateLimited: there were too many of them.
        """
        if seconds := self._limits.failures.take("links", self._clock.monotonic()):
            raise RateLimited("too many wrong links", seconds=seconds)
        raise CredentialsRefused(
            "the link was used before, or has expired",
            challenge=self.methods.challenge(),
            hint="`synapse dashboard` makes a new one",
        )

    def admit_headers(
        self, headers: Headers, *, path: str, peer: str, query: bytes = b"", owner: Peer = UNKNOWN_PEER
    ) -> Caller | Awaitable[Caller]:
        """Returns the caller of a request that no browser sends, such as gRPC; `peer` is the caller's address.

        Raises what `admit` raises.
        """
        return self._admit(Credentials(headers, path=path, query=query, peer=owner), peer)

    def count(self, caller: Caller) -> None:
        """Counts one more request of an admitted caller. Raises RateLimited, CredentialsRefused."""
        if not caller.holds():
            raise CredentialsRefused(
                "these credentials are no longer valid", challenge=self.methods.challenge("invalid_token")
            )
        self._within_limits(caller, caller.limited_as)

    def _admit(self, credentials: Credentials, peer: str) -> Caller | Awaitable[Caller]:
        attempt = _Attempt(credentials, _address(credentials.headers, peer, behind_proxy=self._limits.behind_proxy))
        attempt.wait = self._limits.failures.wait(attempt.address, self._clock.monotonic())
        # Keys cannot be guessed, so a caller who shares an address with a guesser still gets in with a key.
        return self._authenticate(attempt, iter(self._unguessable if attempt.wait else self._authenticators))

    def _authenticate(self, attempt: _Attempt, authenticators: Iterator[Authenticator]) -> Caller | Awaitable[Caller]:
        for authenticator in authenticators:
            verdict = authenticator.authenticate(attempt.credentials)
            if isinstance(verdict, Awaitable):
                return self._authenticate_later(attempt, verdict, authenticators)
            if isinstance(verdict, Caller):
                return self._accepted(verdict)
            if verdict is not None and verdict.final_hint:
                # Not counted as an attempt to guess: a page may have many requests under way when its session ends.
                raise CredentialsRefused(
                    verdict.why, challenge=self.methods.challenge("invalid_token"), hint=verdict.final_hint
                )
            attempt.note(verdict)
        return self._anonymous_or_refused(attempt)

    async def _authenticate_later(
        self, attempt: _Attempt, pending: Awaitable[Verdict], authenticators: Iterator[Authenticator]
    ) -> Caller:
        verdict = await pending
        if isinstance(verdict, Caller):
            return self._accepted(verdict)
        attempt.note(verdict)
        caller = self._authenticate(attempt, authenticators)
        return caller if isinstance(caller, Caller) else await caller

    def _accepted(self, caller: Caller) -> Caller:
        """Returns an authenticated caller with the agents of this machine by their names here: `ada`, not `ada@hub`."""
        if self._own_suffix and caller.agents is not None:
            caller = replace(caller, agents=frozenset(name.removesuffix(self._own_suffix) for name in caller.agents))
        return self._within_limits(caller, caller.limited_as)

    def _within_limits(self, caller: Caller, key: str) -> Caller:
        seconds = self._limits.requests.take(key, self._clock.monotonic())
        if seconds:
            raise RateLimited("too many requests", seconds=seconds)
        return caller

    def _anonymous_or_refused(self, attempt: _Attempt) -> Caller:
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
            hint=_KEY_HINT if self.methods.api_keys else "",
        )


class _Attempt:
    """One attempt to authenticate: the seconds that it must wait, and why its credentials are not valid."""

    __slots__ = ("address", "credentials", "wait", "why")

    def __init__(self, credentials: Credentials, address: str) -> None:
        self.credentials = credentials
        self.address = address
        self.wait = 0.0
        self.why = ""

    def note(self, verdict: Refusal | None) -> None:
        if verdict is not None:
            self.why = verdict.why


def _address(headers: Headers, peer: str, *, behind_proxy: bool) -> str:
    """Returns the address, or the IPv6 network, that failed attempts are counted by."""
    if behind_proxy:
        for name, value in headers:
            if name == b"x-forwarded-for":
                # Our own proxy wrote the last address; the caller may have written those before it.
                peer = value.rpartition(b",")[2].strip().decode("latin-1")
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return peer[:64]
    if address.version == 4:
        return peer
    # One household has a /64 of its own, and could use another address for each attempt.
    return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))


def build_gateway_auth(  # noqa: PLR0913 - the settings, and what the gateway keeps for itself
    access: AccessSettings,
    *,
    home: Path,
    names: WebNames,
    clock: Clock,
    tickets: TicketBook | None = None,
    sessions: SessionAuthenticator | None = None,
    is_public: Callable[[str], bool] = nothing_is_public,
    machine: str = "",
) -> GatewayAuth:
    """Builds the authentication of a gateway from its settings; `machine` is the gateway's own in its fleet.

    Raises:
        InvalidSettings: no kind of credentials is enabled, or one cannot be used.
        StoreCorrupt, StoreFailed: the file of API keys cannot be used.
    """
    authenticators: list[Authenticator] = [] if tickets is None else [TicketAuthenticator(tickets, clock)]
    if access.no_auth:
        # Other systems than Linux do not tell which user owns a TCP connection.
        authenticators.append(SameUserAuthenticator(os.getuid() if sys.platform == "linux" else None))
    else:
        authenticators += _authenticators(access, home, clock)
    return GatewayAuth(
        authenticators,
        AuthMethods() if access.no_auth else auth_methods(access),
        clock=clock,
        names=names,
        limits=AuthLimits(
            requests=RateLimit(per_minute=0 if access.no_auth else access.requests_per_minute, burst=access.burst),
            failures=RateLimit(per_minute=access.failures_per_minute, burst=access.failures_per_minute),
            behind_proxy=access.behind_proxy,
        ),
        is_public=is_public,
        sessions=sessions,
        machine=machine,
    )


def new_tickets() -> TicketBook:
    """Returns an empty ticket book that mints random texts of 256 bits."""
    return TicketBook(lambda: secrets.token_urlsafe(32))


def gateway_names(access: AccessSettings, *, host: str, port: int, public_url: str = "") -> WebNames:
    """Returns the host names of a gateway: on loopback those of this machine and of its public address, else any.

    Callers of a gateway that is open to the network may use an address, or a name of their own network.
    """
    public = hosts_of(public_url) if public_url else frozenset[str]()
    own = [f"{urlsplit(public_url).scheme}://{name}" for name in public]
    hosts = public | loopback_hosts(port) if is_loopback(host) else None
    return WebNames(hosts, own=own, origins=access.origins)


def auth_methods(access: AccessSettings) -> AuthMethods:
    """Returns the kinds of credentials that cards and challenges name."""
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
        # Reads the file now: a damaged one must stop the start, and not show up in answers to callers.
        keys.all()
        found.append(KeyAuthenticator(keys, clock))
    if access.jwt is not None:
        found.append(JwtAuthenticator(access.jwt.rules, _open_signing_keys(access.jwt, clock), clock))
    if access.custom:
        found.append(CustomAuthenticator(load_custom(access.custom)))
    if not found:
        raise InvalidSettings(
            "no caller could authenticate: API keys are off, and there is no [auth.jwt] and no custom authenticator",
            hint="enable one of them, or use --no-auth to serve only this machine",
        )
    return found


def _open_signing_keys(jwt: JwtSettings, clock: Clock) -> SigningKeys:
    if jwt.jwks_file is not None:
        return KeySetFile(jwt.jwks_file)
    if jwt.jwks_url:
        return FetchedKeySet(fetcher(jwt.jwks_url), clock)
    return IssuerSecret(jwt.secret)


def load_custom(path: str) -> Custom:
    """Imports the callable that `package.module:callable` names.

    Raises:
        InvalidSettings: it cannot be imported, or is not callable.
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
