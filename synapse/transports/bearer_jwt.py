"""OAuth 2.0 access tokens that are JWTs (RFC 9068): signed by an issuer that is trusted, for us, and not expired."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import jwt

from synapse.core.caller import Caller
from synapse.core.clock import Clock
from synapse.transports.authentication import Credentials, Refusal, Verdict
from synapse.transports.signing_keys import SigningKey, SigningKeys

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
