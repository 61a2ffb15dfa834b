"""Builds the gate of a gateway from its settings."""

from __future__ import annotations

import importlib
import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from synapse.core.auth_methods import AuthMethods
from synapse.core.clock import Clock
from synapse.core.errors import InvalidSettings
from synapse.runtime.access_settings import AccessSettings, JwtSettings
from synapse.runtime.keys import KeyFile
from synapse.runtime.loopback import is_loopback
from synapse.service.rate_limit import RateLimit
from synapse.service.tickets import TicketBook
from synapse.transports.authentication import (
    Authenticator,
    KeyAuthenticator,
    SameUserAuthenticator,
    TicketAuthenticator,
)
from synapse.transports.bearer_jwt import JwtAuthenticator
from synapse.transports.credentials import loopback_hosts
from synapse.transports.custom_auth import Custom, CustomAuthenticator
from synapse.transports.gateway_gate import GateLimits, GatewayGate, nothing_is_public
from synapse.transports.signing_keys import FetchedKeySet, IssuerSecret, KeySetFile, SigningKeys, fetcher
from synapse.transports.web_names import WebNames, hosts_of


def open_gate(
    access: AccessSettings,
    *,
    home: Path,
    names: WebNames,
    clock: Clock,
    tickets: TicketBook | None = None,
    is_public: Callable[[str], bool] = nothing_is_public,
) -> GatewayGate:
    """Return the gate.

    Raises:
        InvalidSettings: no method is left, or one cannot be used.
        StoreCorrupt, StoreFailed: the file of API keys cannot be used.
    """
    authenticators: list[Authenticator] = [] if tickets is None else [TicketAuthenticator(tickets, clock)]
    authenticators += [SameUserAuthenticator(_own_uid())] if access.no_auth else _authenticators(access, home, clock)
    return GatewayGate(
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
        return FetchedKeySet(fetcher(jwt.jwks_url, clock.monotonic), clock)
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
