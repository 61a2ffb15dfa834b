"""What can go wrong with who asks, at a gateway; the same tree as `core.errors`.

AccessDenied
├── Forbidden                       known, but not allowed that
└── Unauthenticated
    └── CredentialsRefused          nobody is known by these credentials; says which ones are taken
Conflict
└── RateLimited                     too many requests for now
    └── TooManyStreams              too many that are open at once
NotFound
└── KeyNotFound                     no API key has that name
"""

from __future__ import annotations

import math

from synapse.core.errors import AccessDenied, Conflict, NotFound, Unauthenticated


class Forbidden(AccessDenied):
    """The caller is known, but may not do that."""

    code = "forbidden"


class CredentialsRefused(Unauthenticated):
    """The request has no credentials, or none that are valid here."""

    code = "credentials_refused"

    def __init__(self, message: str = "", *, challenge: str, hint: str = "") -> None:
        self.challenge = challenge
        super().__init__(message, hint=hint)


class RateLimited(Conflict):
    """Too many requests in too short a time."""

    code = "rate_limited"
    retry_after = 1
    """Whole seconds until it is worth trying again."""

    def __init__(self, message: str, *, seconds: float) -> None:
        self.retry_after = max(1, math.ceil(seconds))
        super().__init__(message, hint=f"try again in {self.retry_after} s")


class TooManyStreams(RateLimited):
    """Too many streams are open with the same credentials."""

    code = "too_many_streams"

    def __init__(self, most: int) -> None:
        super().__init__(f"{most} streams are open with these credentials already", seconds=1)
        self.hint = "close one first; `open_streams` in the gateway's configuration says how many there may be"


class KeyNotFound(NotFound):
    """No API key has that name."""

    code = "key_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"no API key '{name}'", hint="`synapse keys list` shows them")
