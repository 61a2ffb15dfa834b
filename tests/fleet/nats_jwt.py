"""Credentials as an operator of NATS gives them: an operator, an account with JetStream, and users, all as JWTs.

The tool for it, `nsc`, is a program of its own; a JWT of NATS is JSON that an nkey has signed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nkeys  # type: ignore[import-untyped]  # it has no types

_nkeys: Any = nkeys
UNLIMITED = {"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "conn": -1, "leaf": -1}


class Key:
    """A pair of keys."""

    def __init__(self, prefix: int) -> None:
        self.seed = bytes(_nkeys.encode_seed(os.urandom(32), prefix))
        self._pair = _nkeys.from_seed(bytearray(self.seed))
        self.public = str(self._pair.public_key, "ascii")

    def sign(self, claims: dict[str, Any]) -> str:
        """Returns a JWT with the claims."""
        claims = {"iat": 1, "iss": self.public, **claims}
        claims["jti"] = base64.b32encode(hashlib.sha256(json.dumps(claims).encode()).digest()).decode().rstrip("=")
        header = {"typ": "JWT", "alg": "ed25519-nkey"}
        text = f"{_packed(json.dumps(header).encode())}.{_packed(json.dumps(claims).encode())}"
        return f"{text}.{_packed(bytes(self._pair.sign(text.encode())))}"


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator with one account."""

    key: Key
    account: Key
    system: Key
    """The account that a server needs for itself."""

    @classmethod
    def new(cls) -> Operator:
        accounts = (Key(_nkeys.PREFIX_BYTE_ACCOUNT) for _ in range(2))
        return cls(Key(_nkeys.PREFIX_BYTE_OPERATOR), *accounts)

    def configuration(self) -> str:
        """Returns the lines for the configuration of a server that knows the operator and the account."""
        operator = self.key.sign({"sub": self.key.public, "name": "O", "nats": {"type": "operator", "version": 2}})
        system = self._account(self.system, UNLIMITED)
        account = self._account(self.account, {**UNLIMITED, "mem_storage": -1, "disk_storage": -1})
        return (
            f"operator: {operator}\nresolver: MEMORY\nsystem_account: {self.system.public}\n"
            f"resolver_preload: {{ {self.account.public}: {account}, {self.system.public}: {system} }}\n"
        )

    def _account(self, key: Key, limits: dict[str, int]) -> str:
        rights = {"limits": {**limits, "wildcards": True}, "type": "account", "version": 2}
        return self.key.sign({"sub": key.public, "name": "A", "nats": rights})

    def creds(self, folder: Path, name: str, permissions: dict[str, Any]) -> Path:
        """Writes a credentials file for a user with these permissions."""
        user = Key(_nkeys.PREFIX_BYTE_USER)
        rights = {
            "pub": {"allow": permissions["publish"]["allow"]},
            "sub": {"allow": permissions["subscribe"]["allow"]},
        }
        limits = {"subs": -1, "data": -1, "payload": -1}
        token = self.account.sign(
            {"sub": user.public, "name": name, "nats": {**rights, **limits, "type": "user", "version": 2}}
        )
        file = folder / f"{name}.creds"
        file.write_text(
            f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n",
            encoding="ascii",
        )
        return file


def _packed(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
