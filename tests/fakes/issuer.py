"""Somebody who issues tokens: with keys of its own, rightly or wrongly."""

from __future__ import annotations

import base64
import json
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from jwt.algorithms import ECAlgorithm

ISSUER = "https://issuer.example"
AUDIENCE = "synapse"


class Issuer:
    """Signs with elliptic curves, which are quickly made; each key has a name."""

    def __init__(self, *names: str) -> None:
        self._keys = {name: generate_private_key(SECP256R1()) for name in names or ("first",)}

    def add(self, name: str) -> None:
        self._keys[name] = generate_private_key(SECP256R1())

    def forget(self, name: str) -> None:
        del self._keys[name]

    def key_set(self) -> dict[str, Any]:
        """The public halves, as a JSON Web Key Set."""
        rows = {name: json.loads(ECAlgorithm.to_jwk(key.public_key())) for name, key in self._keys.items()}
        return {"keys": [{**row, "kid": name, "use": "sig", "alg": "ES256"} for name, row in rows.items()]}

    def token(self, now: float, kid: str = "first", /, **claims: object) -> str:
        """A token that is good for a minute; a claim that is None is left out."""
        return jwt.encode(claims_at(now, **claims), self._keys[kid], algorithm="ES256", headers={"kid": kid})


def claims_at(now: float, **claims: object) -> dict[str, object]:
    usual: dict[str, object] = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "anne",
        "iat": int(now),
        "exp": int(now) + 60,
        "scope": "synapse:read synapse:send openid",
    }
    return {name: value for name, value in (usual | claims).items() if value is not None}


def unsigned_token(now: float) -> str:
    """What somebody makes who has no key at all, and says so."""
    return f"{signed_part('none', now)}."


def signed_part(algorithm: str, now: float) -> str:
    """The header and the claims of a token, as they are signed."""
    parts = ({"alg": algorithm, "typ": "JWT", "kid": "first"}, claims_at(now))
    return ".".join(in_base64(json.dumps(part).encode()) for part in parts)


def in_base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
