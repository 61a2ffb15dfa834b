"""How callers can prove who they are at a gateway: the facts that cards and challenges are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

API_KEY_HEADER: Final = "X-API-Key"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthMethods:
    """The methods in force; all of them may be used side by side."""

    api_keys: bool = False
    jwt_issuer: str = ""
    """Who issues the tokens that are taken; empty when none are."""
    jwt_scopes: tuple[str, ...] = ()
    """The scopes that mean something here."""
    custom: str = ""
    """What an authenticator of the owner's own asks for, in words; empty when there is none."""

    @property
    def bearer(self) -> bool:
        """Whether `Authorization: Bearer …` is understood."""
        return self.api_keys or bool(self.jwt_issuer)

    def challenge(self, error: str = "") -> str:
        """What a refused caller is told to bring (RFC 9110 §11.6.1); `error` is a code of RFC 6750 §3.1."""
        offers: list[str] = []
        if self.bearer:
            offers.append(_REALM.format("Bearer") + (f', error="{error}"' if error else ""))
        if self.api_keys:
            offers.append(_REALM.format("ApiKey") + f', header="{API_KEY_HEADER}"')
        if self.custom:
            offers.append(_REALM.format("Custom"))
        return ", ".join(offers) or _REALM.format("Bearer")


_REALM: Final = '{} realm="synapse"'
