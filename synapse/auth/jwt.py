"""OAuth 2.0 access tokens that are JWTs (RFC 9068): signed by an issuer that is trusted, for us, and not expired.

The keys that tokens are checked with: one shared secret, a key set in a file, or a key set at an address.

A key set at an address is kept, and fetched again when it is old or does not have the key that a token names, but not
too often: a stranger's tokens must not make us ask somebody else all the time. Those who cannot be judged without it
wait for one fetch together, all others are not delayed.
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

LONGEST_TOKEN: Final = 16 * 1024

_FAULTS: Final[tuple[tuple[type[jwt.PyJWTError], str], ...]] = (
    (jwt.InvalidSignatureError, "the token's signature is wrong"),
    (jwt.InvalidAudienceError, "the token is for somebody else"),
    (jwt.InvalidIssuerError, "the token was issued by somebody else"),
    (jwt.MissingRequiredClaimError, "the token lacks a claim: exp, iss, aud and sub are needed"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """Which tokens are taken, and what they allow."""

    issuer: str
    audience: str
    algorithms: frozenset[str]
    leeway: float = 30.0
    """Seconds by which the issuer's clock may differ from ours."""
    actions: Mapping[str, frozenset[str]]
    """What each scope of a token allows."""
    agents_claim: str = ""
    """The claim that lists the agents which the token is for; without one it is for all."""


class JwtAuthenticator:
    """Judges bearer tokens that look like JWTs."""

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
            return Refusal("the token is signed in a way that is not taken here")
        key = self._keys.find(str(header.get("kid", "")))
        if isinstance(key, Awaitable):
            return self._judge_late(token, algorithm, key)
        return self._judge(token, algorithm, key)

    async def _judge_late(self, token: str, algorithm: str, key: Awaitable[SigningKey | None]) -> Verdict:
        return self._judge(token, algorithm, await key)

    def _judge(self, token: str, algorithm: str, key: SigningKey | None) -> Verdict:
        if key is None or algorithm not in key.algorithms:
            return Refusal("the token is signed with a key that is not known here")
        try:
            claims = jwt.decode(
                token,
                key.material,
                algorithms=[algorithm],
                issuer=self._rules.issuer,
                audience=self._rules.audience,
                # Times are ours to check, by the clock that we were given.
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
            # An elliptic curve where the algorithm wants another: the libraries say it in their own ways.
            return Refusal("the token is signed with a key that does not fit its algorithm")
        return self._bearer_of(claims)

    def _bearer_of(self, claims: Mapping[str, Any]) -> Verdict:
        why = _untimely(claims, self._clock.now().timestamp(), self._rules.leeway)
        if why:
            return Refusal(why)
        subject: object = claims["sub"]
        if not isinstance(subject, str) or not subject:
            return Refusal("the token names no subject")
        scopes = _texts(claims.get("scope", claims.get("scp", ())))
        none = frozenset[str]()
        return Caller(
            scope=f"sub:{self._rules.issuer}|{subject}",
            actions=none.union(*(self._rules.actions.get(scope, none) for scope in scopes)),
            agents=self._agents_of(claims),
            name=subject,
            holds=partial(self._holds, claims),
        )

    def _holds(self, claims: Mapping[str, Any]) -> bool:
        return not _untimely(claims, self._clock.now().timestamp(), self._rules.leeway)

    def _agents_of(self, claims: Mapping[str, Any]) -> frozenset[str] | None:
        """The agents that the token is for. A claim that cannot be read is for none, not for all."""
        claim = self._rules.agents_claim
        return _texts(claims[claim]) if claim and claim in claims else None


def _untimely(claims: Mapping[str, Any], now: float, leeway: float) -> str:
    """Why the token does not count at this moment, or an empty string."""
    if not now < _seconds(claims["exp"], -math.inf) + leeway:
        return "the token has expired"
    if not _seconds(claims.get("nbf", now), math.inf) <= now + leeway:
        return "the token is not valid yet"
    if not _seconds(claims.get("iat", now), math.inf) <= now + leeway:
        return "the token was issued in the future"
    return ""


def _seconds(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else otherwise


def _texts(value: object) -> frozenset[str]:
    """A claim that is a list of texts, or one text of words."""
    if isinstance(value, str):
        return frozenset(value.split())
    if isinstance(value, list | tuple):
        return frozenset(item for item in cast("list[object]", value) if isinstance(item, str))
    return frozenset()


log = logging.getLogger(__name__)

FRESH_SECONDS: Final = 600.0
STALE_SECONDS: Final = 3600.0
AGAIN_SECONDS: Final = 10.0
FETCH_SECONDS: Final = 5.0
LARGEST_SET: Final = 1024 * 1024

FAMILIES: Final[Mapping[str, frozenset[str]]] = {
    "RSA": frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
    "EC": frozenset({"ES256", "ES384", "ES512"}),
    "OKP": frozenset({"EdDSA"}),
}
"""Which algorithms a key of a set can be used with. No shared secrets: a set is public."""
SYMMETRIC: Final = frozenset({"HS256", "HS384", "HS512"})


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key, and the algorithms that it may be used with: a token must not choose what its key means."""

    material: Any = field(repr=False)
    algorithms: frozenset[str]


_A_SET: Final = (
    '[auth.jwt] jwks_file names a JSON Web Key Set (RFC 7517): {"keys": […]} with public keys '
    "of the kinds RSA, EC or OKP; a certificate or a PEM file is none"
)


class SigningKeys(Protocol):
    """Finds the key that a token names; an empty `kid` means the only one."""

    def find(self, kid: str, /) -> SigningKey | Awaitable[SigningKey | None] | None: ...


class IssuerSecret:
    """One secret, known to the issuer and to us."""

    def __init__(self, secret: bytes) -> None:
        self._key = SigningKey(secret, SYMMETRIC)

    def find(self, _kid: str) -> SigningKey | None:
        return self._key


class KeySetFile:
    """A key set in a file, read again when it has changed."""

    def __init__(self, path: Path) -> None:
        """Raises InvalidSettings when it cannot be used."""
        self._path = path
        self._seen: tuple[int, int, int] = (0, 0, 0)
        self._keys: Mapping[str, SigningKey] = {}
        try:
            self._read()
        except OSError as error:
            raise InvalidSettings(f"the key set {path} cannot be read: {error.strerror}", hint=_A_SET) from error
        except ValueError as error:
            raise InvalidSettings(f"{path} is no key set: {error}", hint=_A_SET) from error
        if not self._keys:
            # Later it may be so, to let nobody in any more; at the start it is the wrong file.
            raise InvalidSettings(f"{path} is no key set: none of its keys can check a signature", hint=_A_SET)

    def find(self, kid: str) -> SigningKey | None:
        try:
            self._read()
        except (OSError, ValueError) as error:
            # It may be being written; what was read last still counts.
            log.warning("key_set_unreadable", extra={"path": str(self._path), "error": str(error)})
        return _named(self._keys, kid)

    def _read(self) -> None:
        status = self._path.stat()
        seen = (status.st_ino, status.st_mtime_ns, status.st_size)
        if seen != self._seen:
            self._keys = read_key_set(self._path.read_bytes())
            self._seen = seen


class FetchedKeySet:
    """A key set that `fetch` brings; it raises OSError or ExternalAgentFailed."""

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
        return self._find_again(kid)

    async def _find_again(self, kid: str) -> SigningKey | None:
        # Whoever leaves does not call it off for the others.
        await asyncio.shield(self._fetching or self._start_fetching())
        return self._known(kid)

    def _start_fetching(self) -> asyncio.Task[None]:
        self._tried_at = self._clock.monotonic()
        self._fetching = asyncio.create_task(self._fetch_once())
        return self._fetching

    async def _fetch_once(self) -> None:
        try:
            self._keys = read_key_set(await self._fetch())
            self._fetched_at = self._clock.monotonic()
        except (OSError, ValueError, ExternalAgentFailed) as error:
            log.warning("key_set_not_fetched", extra={"error": str(error)})
        finally:
            self._fetching = None

    def _known(self, kid: str) -> SigningKey | None:
        """While the issuer cannot be asked, its last keys count for some time, and not for ever."""
        return _named(self._keys, kid) if self._age() < STALE_SECONDS else None

    def _age(self) -> float:
        return self._clock.monotonic() - self._fetched_at

    def _may_fetch(self) -> bool:
        return self._fetching is None and self._clock.monotonic() - self._tried_at >= AGAIN_SECONDS


def fetcher(url: str) -> Callable[[], Awaitable[bytes]]:
    """Return a function that gets the document at `url`.

    It follows no redirect, so the keys come from there or not at all. It raises ExternalAgentFailed.
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
            raise ExternalAgentFailed(f"{place.scheme}://{place.netloc} gives no key set: {failed}") from failed
        if answer.status != 200:
            raise ExternalAgentFailed(f"the key set is not there: status {answer.status}")
        return answer.body

    return fetch


def read_key_set(content: bytes) -> Mapping[str, SigningKey]:
    """The keys of a JSON Web Key Set that signatures can be checked with, by their `kid`. Raises ValueError."""
    try:
        document: object = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError("it is not JSON") from error
    rows: object = cast("dict[str, object]", document).get("keys") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise ValueError("it has no list 'keys'")  # noqa: TRY004 - a document that cannot be meant, whatever is wrong
    keys: dict[str, SigningKey] = {}
    for row in cast("list[object]", rows):
        if isinstance(row, dict):
            fields = cast("dict[str, Any]", row)
            key = _signing_key(fields)
            if key is not None:
                keys[str(fields.get("kid", ""))] = key
    return keys


def _signing_key(fields: dict[str, Any]) -> SigningKey | None:
    """One key of a set, or None for one that is for something else, or that we cannot use."""
    family = FAMILIES.get(str(fields.get("kty")), frozenset[str]())
    if fields.get("use", "sig") != "sig" or not family:
        return None
    algorithms = family & {str(fields["alg"])} if "alg" in fields else family
    try:
        return SigningKey(jwt.PyJWK(fields).key, algorithms) if algorithms else None
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None


def _named(keys: Mapping[str, SigningKey], kid: str) -> SigningKey | None:
    if not kid and len(keys) == 1:
        return next(iter(keys.values()))
    return keys.get(kid)
