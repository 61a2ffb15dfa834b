"""The keys with which machines, invitations and the server's witness prove themselves: nkeys of NATS for users."""

from __future__ import annotations

import base64
import os
from typing import Any

import nkeys  # type: ignore[import-untyped]  # it has no types

_nkeys: Any = nkeys


def new_seed() -> str:
    """Returns the seed of a new key."""
    return seed_of(os.urandom(32))


def seed_of(secret: bytes) -> str:
    """Returns the seed that is made of 32 secret bytes."""
    return str(_nkeys.encode_seed(secret, _nkeys.PREFIX_BYTE_USER), "ascii")


def public_key(seed: str) -> str:
    """Returns the public key of a seed. Raises ValueError."""
    try:
        return str(_nkeys.from_seed(bytearray(seed.encode())).public_key, "ascii")
    except (_nkeys.NkeysError, ValueError, TypeError, IndexError) as error:
        raise ValueError("it is no seed of an nkey") from error


def is_public_key(text: str) -> bool:
    """Decides whether `text` has the form of a user's public key."""
    try:
        raw = base64.b32decode(text)
    except ValueError:
        return False
    return text.startswith("U") and len(raw) == 35 and _nkeys.crc16(raw[:-2]) == int.from_bytes(raw[-2:], "little")
