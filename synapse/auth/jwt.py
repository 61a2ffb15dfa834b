"""Checks OAuth 2.0 access tokens that are JWTs (RFC 9068): signature, issuer, audience and times.

The keys come from a shared secret, from a key set in a file, or from a key set at a URL.

A key set at a URL is cached. It is fetched again when it is old or lacks the key that a token names, but not too often:
forged tokens must not make the gateway flood the issuer. Requests that need the new set wait for one fetch together;
all others are not delayed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, cast
from urllib.parse import urlsplit

import jwt

from synapse.auth.authenticators import Credentials, Refusal, Verdict
from synapse.core.caller import Caller
from synapse.core.errors import ExternalAgentFailed, InvalidSettings
from synapse.core.types import Clock
from synapse.net.http import HttpClient
from synapse.net.http_types import HttpFailed, HttpRequest, Reason

log = logging.getLogger(__name__)

LONGEST_TOKEN: Final = 16 * 1024
FRESH_SECONDS: Final = 600.0
"""An older key set is fetched again, while it is still used."""
STALE_SECONDS: Final = 3600.0
"""An older key set is not used."""
RETRY_SECONDS: Final = 10.0
"""The shortest time between two fetches."""
FETCH_SECONDS: Final = 5.0
LARGEST_SET: Final = 1024 * 1024

FAMILIES: Final[Mapping[str, frozenset[str]]] = {
    "RSA": frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
    "EC": frozenset({"ES256", "ES384", "ES512"}),
    "OKP": frozenset({"EdDSA"}),
}
"""The algorithms of each kind of key in a set. No shared secrets: a set is public."""
SYMMETRIC: Final = frozenset({"HS256", "HS384", "HS512"})

_FAULTS: Final[tuple[tuple[type[jwt.PyJWTError], str], ...]] = (
    (jwt.InvalidSignatureError, "the token's signature is wrong"),
    (jwt.InvalidAudienceError, "the token is for another audience"),
    (jwt.InvalidIssuerError, "the token is from another issuer"),
    (jwt.MissingRequiredClaimError, "the token lacks a claim: exp, iss, aud and sub are required"),
)
_KEY_SET_HINT: Final = (
    '[auth.jwt] jwks_file must name a JSON Web Key Set (RFC 7517): {"keys": […]} with public keys '
    "of the kinds RSA, EC or OKP; not a certificate or a PEM file"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """Which tokens are accepted, and what they allow."""

    issuer: str
    audience: str
    algorithms: frozenset[str]
    leeway: float = 30.0
    """Seconds by which the issuer's clock may differ from ours."""
    actions: Mapping[str, frozenset[str]]
    """The actions that each scope of a token allows."""
    agents_claim: str = ""
    """The claim that lists the agents that the token may use; without it, all."""


class JwtAuthenticator:
    """Checks bearer tokens that look like JWTs."""

    unguessable = False

    def __init__(self, rules: TokenRules, keys: SigningKeys, clock: Clock) -> None:
        self._rules = rules
        self._keys = keys
        self._clock = clock

    def authenticate(self, credentials: Credentials) -> Verdict | Awaitable[Verdict]:
        token = credentials.bearer
        if token.count(".") != 2:
            return None
        if len(token) > LONGEST_TOKEN:
            return Refusal("the token is too long")
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            return Refusal("the token cannot be read")
        algorithm = header.get("alg")
        if algorithm not in self._rules.algorithms:
            return Refusal("the token's signing algorithm is not accepted here")
        key = self._keys.find(str(header.get("kid", "")))
        if isinstance(key, Awaitable):
            return self._verify_later(token, algorithm, key)
        return self._verify(token, algorithm, key)

    async def _verify_later(self, token: str, algorithm: str, key: Awaitable[SigningKey | None]) -> Verdict:
        return self._verify(token, algorithm, await key)

    def _verify(self, token: str, algorithm: str, key: SigningKey | None) -> Verdict:
        if key is None or algorithm not in key.algorithms:
            return Refusal("the token is signed with a key that is not known here")
        try:
            claims = jwt.decode(
                token,
                key.material,
                algorithms=[algorithm],
                issuer=self._rules.issuer,
                audience=self._rules.audience,
                # `_untimely` checks the times, by our own clock.
                options={
                    "require": ["exp", "iss", "aud", "sub"],
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except jwt.PyJWTError as error:
            return Refusal(next((why for kind, why in _FAULTS if isinstance(error, kind)), "the token is not valid"))
        except (TypeError, ValueError, AttributeError):
            # Such as a curve that the algorithm does not use: the libraries raise different errors for it.
            return Refusal("the token is signed with a key that does not fit its algorithm")
        return self._caller(claims)

    def _caller(self, claims: Mapping[str, Any]) -> Verdict:
        why = _untimely(claims, self._clock.now().timestamp(), self._rules.leeway)
        if why:
            return Refusal(why)
        subject: object = claims["sub"]
        if not isinstance(subject, str) or not subject:
            return Refusal("the token names no subject")
        scopes = _words(claims.get("scope", claims.get("scp", ())))
        claim = self._rules.agents_claim
        none = frozenset[str]()
        return Caller(
            scope=f"sub:{self._rules.issuer}|{subject}",
            actions=none.union(*(self._rules.actions.get(scope, none) for scope in scopes)),
            # A claim that cannot be read allows no agent, not all.
            agents=_words(claims[claim]) if claim and claim in claims else None,
            name=subject,
            holds=partial(self._is_still_valid, claims),
        )

    def _is_still_valid(self, claims: Mapping[str, Any]) -> bool:
        return not _untimely(claims, self._clock.now().timestamp(), self._rules.leeway)


def _untimely(claims: Mapping[str, Any], now: float, leeway: float) -> str:
    """Says why the token is not valid at `now`, or returns an empty string."""
    if not now < _seconds(claims["exp"], -math.inf) + leeway:
        return "the token has expired"
    if not _seconds(claims.get("nbf", now), math.inf) <= now + leeway:
        return "the token is not valid yet"
    if not _seconds(claims.get("iat", now), math.inf) <= now + leeway:
        return "the token was issued in the future"
    return ""


def _seconds(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else otherwise


def _words(value: object) -> frozenset[str]:
    """Returns the words of a claim: of one string, or of a list of strings."""
    if isinstance(value, str):
        return frozenset(value.split())
    if isinstance(value, list | tuple):
        return frozenset(item for item in cast("list[object]", value) if isinstance(item, str))
    return frozenset()


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key, and the algorithms that it may be used with: the token must not choose how its key is used."""

    material: Any = field(repr=False)
    algorithms: frozenset[str]


class SigningKeys(Protocol):
    """Finds the key that a token names; an empty `kid` means the only key."""

    def find(self, kid: str, /) -> SigningKey | Awaitable[SigningKey | None] | None: ...


class IssuerSecret:
    """A secret that the issuer shares with this gateway."""

    def __init__(self, secret: bytes) -> None:
        self._key = SigningKey(secret, SYMMETRIC)

    def find(self, _kid: str) -> SigningKey | None:
        return self._key


class KeySetFile:
    """A key set in a file, which is read again when it has changed."""

    def __init__(self, path: Path) -> None:
        """Raises InvalidSettings when the file cannot be used."""
        self._path = path
        self._seen: tuple[int, int, int] = (0, 0, 0)
        self._keys: Mapping[str, SigningKey] = {}
        try:
            self._read()
        except OSError as error:
            raise InvalidSettings(f"the key set {path} cannot be read: {error.strerror}", hint=_KEY_SET_HINT) from error
        except ValueError as error:
            raise InvalidSettings(f"{path} is not a key set: {error}", hint=_KEY_SET_HINT) from error
        if not self._keys:
            # Later its owner may empty it to lock all tokens out; at the start it is the wrong file.
            raise InvalidSettings(
                f"{path} is not a key set: none of its keys can check a signature", hint=_KEY_SET_HINT
            )

    def find(self, kid: str) -> SigningKey | None:
        try:
            self._read()
        except (OSError, ValueError) as error:
            # Perhaps it is just being written; the keys that were read last still count.
            log.warning("key_set_unreadable", extra={"path": str(self._path), "error": str(error)})
        return _find_key(self._keys, kid)

    def _read(self) -> None:
        status = self._path.stat()
        seen = (status.st_ino, status.st_mtime_ns, status.st_size)
        if seen != self._seen:
            self._keys = read_key_set(self._path.read_bytes())
            self._seen = seen


class FetchedKeySet:
    """A key set that `fetch` downloads; `fetch` may raise OSError or ExternalAgentFailed."""

    def __init__(self, fetch: Callable[[], Awaitable[bytes]], clock: Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._keys: Mapping[str, SigningKey] = {}
        self._fetched_at = float("-inf")
        self._tried_at = float("-inf")
        self._fetching: asyncio.Task[None] | None = None

    def find(self, kid: str) -> SigningKey | Awaitable[SigningKey | None] | None:
        known = self._known(kid)
        if known is not None:
            if self._age() >= FRESH_SECONDS and self._may_fetch():
                self._start_fetching()
            return known
        if self._fetching is None and not self._may_fetch():
            return None
        return self._find_after_fetch(kid)

    async def _find_after_fetch(self, kid: str) -> SigningKey | None:
        # A request that is cancelled must not cancel the fetch for the others.
        await asyncio.shield(self._fetching or self._start_fetching())
        return self._known(kid)

    def _start_fetching(self) -> asyncio.Task[None]:
        self._tried_at = self._clock.monotonic()
        self._fetching = asyncio.create_task(self._update())
        return self._fetching

    async def _update(self) -> None:
        try:
            self._keys = read_key_set(await self._fetch())
            self._fetched_at = self._clock.monotonic()
        except (OSError, ValueError, ExternalAgentFailed) as error:
            log.warning("key_set_not_fetched", extra={"error": str(error)})
        finally:
            self._fetching = None

    def _known(self, kid: str) -> SigningKey | None:
        """Returns a key of the cached set, which counts for STALE_SECONDS while the issuer does not answer."""
        return _find_key(self._keys, kid) if self._age() < STALE_SECONDS else None

    def _age(self) -> float:
        return self._clock.monotonic() - self._fetched_at

    def _may_fetch(self) -> bool:
        return self._fetching is None and self._clock.monotonic() - self._tried_at >= RETRY_SECONDS


def fetcher(url: str) -> Callable[[], Awaitable[bytes]]:
    """Returns a function that downloads the document at `url`.

    It follows no redirects, so that the keys come from this URL only. It raises ExternalAgentFailed.
    """
    client = HttpClient()

    async def fetch() -> bytes:
        request = HttpRequest(method="GET", url=url, headers=(("Accept", "application/json"),))
        try:
            answer = await client.fetch(request, seconds=FETCH_SECONDS, limit=LARGEST_SET)
        except HttpFailed as failed:
            if failed.reason is Reason.BODY_TOO_LARGE:
                raise ExternalAgentFailed(f"the key set is larger than {LARGEST_SET} bytes") from failed
            place = urlsplit(url)
            raise ExternalAgentFailed(
                f"the key set of {place.scheme}://{place.netloc} cannot be fetched: {failed}"
            ) from failed
        if answer.status != 200:
            raise ExternalAgentFailed(f"the key set cannot be fetched: status {answer.status}")
        return answer.body

    return fetch


def read_key_set(content: bytes) -> Mapping[str, SigningKey]:
    """Returns the keys of a JSON Web Key Set that can check signatures, by their `kid`. Raises ValueError."""
    try:
        document: object = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError("it is not JSON") from error
    rows: object = cast("dict[str, object]", document).get("keys") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise ValueError("it has no list 'keys'")  # noqa: TRY004 - callers handle one error for any invalid document
    keys: dict[str, SigningKey] = {}
    for row in cast("list[object]", rows):
        if isinstance(row, dict):
            fields = cast("dict[str, Any]", row)
            key = _signing_key(fields)
            if key is not None:
                keys[str(fields.get("kid", ""))] = key
    return keys


def _signing_key(fields: dict[str, Any]) -> SigningKey | None:
    """Returns one key of a set, or None if it is not for signatures or cannot be used."""
    family = FAMILIES.get(str(fields.get("kty")), frozenset[str]())
    if fields.get("use", "sig") != "sig" or not family:
        return None
    algorithms = family & {str(fields["alg"])} if "alg" in fields else family
    try:
        return SigningKey(jwt.PyJWK(fields).key, algorithms) if algorithms else None
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None


def _find_key(keys: Mapping[str, SigningKey], kid: str) -> SigningKey | None:
    if not kid and len(keys) == 1:
        return next(iter(keys.values()))
    return keys.get(kid)
