"""Shared by tests of GatewayAuth: requests with headers, API keys in memory, and a GatewayAuth around both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from synapse.auth.api_keys import ApiKey, compose
from synapse.auth.authenticators import Authenticator, KeyAuthenticator
from synapse.auth.gateway import AuthLimits, GatewayAuth, RateLimit, nothing_is_public
from synapse.auth.record_file import digest_of
from synapse.auth.sessions import SessionAuthenticator
from synapse.core.caller import AuthMethods, Caller
from synapse.core.errors import StoreFailed
from synapse.server.asgi import Scope
from synapse.server.middleware import WebNames
from synapse.server.peer import PEER, Peer
from tests.fakes.clock import FakeClock

HOST = "gateway.example"


class KeyShelf:
    """API keys in memory."""

    def __init__(self) -> None:
        self.keys: dict[str, ApiKey] = {}
        self.used: list[str] = []
        self.broken = False

    def add(self, name: str, **fields: Any) -> str:
        """Creates a key and returns its text."""
        key_id = f"{len(self.keys):012x}"
        text = compose(key_id, name * 8)
        created = datetime.fromisoformat("2026-01-01T00:00:00Z")
        self.keys[key_id] = ApiKey(key_id=key_id, name=name, digest=digest_of(text), created_at=created, **fields)
        return text

    def find(self, key_id: str) -> ApiKey | None:
        if self.broken:
            raise StoreFailed("the file with the secret path is broken")
        return self.keys.get(key_id)

    def mark_used(self, key_id: str) -> None:
        self.used.append(key_id)


def a_scope(
    kind: str = "http", path: str = "/agents", query: bytes = b"", uid: int | None = None, **headers: str
) -> Scope:
    named = {"host": HOST, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return {
        "type": kind,
        "path": path,
        "query_string": query,
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in named.items() if value],
        "client": ("192.0.2.7", 5555),
        "state": {PEER: Peer(via_socket=False, uid=uid)},
    }


def make_auth(  # noqa: PLR0913 - the rules of who may call
    *authenticators: Authenticator,
    clock: FakeClock,
    shelf: KeyShelf | None = None,
    methods: AuthMethods | None = None,
    names: WebNames | None = None,
    is_public: Callable[[str], bool] = nothing_is_public,
    limits: AuthLimits | None = None,
    sessions: SessionAuthenticator | None = None,
    machine: str = "",
) -> GatewayAuth:
    known: Sequence[Authenticator] = (KeyAuthenticator(shelf, clock), *authenticators) if shelf else authenticators
    return GatewayAuth(
        known,
        methods or AuthMethods(api_keys=True),
        clock=clock,
        names=names or WebNames([HOST]),
        limits=limits or AuthLimits(),
        is_public=is_public,
        sessions=sessions,
        machine=machine,
    )


def limits(requests: int = 0, failures: int = 0, *, behind_proxy: bool = False) -> AuthLimits:
    return AuthLimits(
        requests=RateLimit(per_minute=requests, burst=requests),
        failures=RateLimit(per_minute=failures, burst=failures),
        behind_proxy=behind_proxy,
    )


async def admitted(auth: GatewayAuth, scope: Scope) -> Caller:
    """Returns the caller that `auth` admits."""
    async with asyncio.timeout(10):
        caller = auth.admit(scope)
        return caller if isinstance(caller, Caller) else await caller
