"""What a caller brings to prove who it is, and the authenticators that need nothing but memory to judge it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from functools import partial
from typing import Final, NamedTuple, Protocol
from urllib.parse import parse_qsl

from synapse.core.caller import Caller
from synapse.core.clock import Clock
from synapse.core.errors import InternalFailure, StoreFailed
from synapse.dialects.dialect import Headers
from synapse.service.api_keys import ApiKey, id_in
from synapse.service.tickets import TicketBook
from synapse.transports.credentials import NOBODY, Peer

log = logging.getLogger(__name__)

TICKET_FIELD: Final = "ticket"


class Credentials:
    """What came with one request. It has no `repr` of its own: secrets are in it."""

    __slots__ = ("api_key", "bearer", "handshake", "headers", "path", "peer", "query")

    def __init__(
        self, headers: Headers, *, path: str = "", query: bytes = b"", peer: Peer = NOBODY, handshake: bool = False
    ) -> None:
        self.headers = headers
        self.path = path
        self.query = query
        self.peer = peer
        self.handshake = handshake
        """Whether it is the handshake of a WebSocket, where browsers set no headers."""
        self.bearer = self.api_key = ""
        for name, value in headers:
            if name == b"authorization" and value[:7].lower() == b"bearer ":
                self.bearer = value[7:].strip().decode("latin-1")
            elif name == b"x-api-key":
                self.api_key = value.strip().decode("latin-1")

    @property
    def given(self) -> bool:
        """Whether anything was brought that could be right or wrong."""
        return bool(self.bearer or self.api_key or self.ticket()) or any(
            name == b"authorization" for name, _ in self.headers
        )

    def ticket(self) -> str:
        """The ticket of a handshake, or an empty string."""
        if not self.handshake or not self.query:
            return ""
        return dict(parse_qsl(self.query.decode("ascii", "replace"))).get(TICKET_FIELD, "")


class Refusal(NamedTuple):
    """The credentials are of this kind, and not valid."""

    why: str


Verdict = Caller | Refusal | None
"""None: nothing of this kind was brought."""


class Authenticator(Protocol):
    """Judges one kind of credentials."""

    @property
    def unguessable(self) -> bool:
        """Whether trying again and again is hopeless and cheap, so that nobody must be kept from it."""
        ...

    def authenticate(self, credentials: Credentials, /) -> Verdict | Awaitable[Verdict]:
        """Raises InternalFailure when it cannot judge."""
        ...


class KeySource(Protocol):
    """Where API keys are found."""

    def find(self, key_id: str) -> ApiKey | None:
        """Raises StoreFailed."""
        ...

    def mark_used(self, key_id: str) -> None: ...


class KeyAuthenticator:
    """API keys, as `Authorization: Bearer sk_…` or `X-API-Key: sk_…`."""

    unguessable = True

    def __init__(self, keys: KeySource, clock: Clock) -> None:
        self._keys = keys
        self._clock = clock

    def authenticate(self, credentials: Credentials) -> Verdict:
        text = credentials.api_key or credentials.bearer
        key_id = id_in(text)
        if not key_id:
            return Refusal("that is no API key of this gateway") if credentials.api_key else None
        try:
            key = self._keys.find(key_id)
        except StoreFailed as error:
            # Its words name a file of ours; the caller gets none of them.
            log.error("api_keys_unreadable", extra={"error": str(error)})  # noqa: TRY400 - the sentence says it all
            raise InternalFailure from error
        if key is None or not key.fits(text):
            return Refusal("the API key is not known here; it may have been revoked")
        if key.is_expired(self._clock.now()):
            return Refusal("the API key has expired")
        self._keys.mark_used(key_id)
        return key.caller(partial(self._holds, key_id))

    def _holds(self, key_id: str) -> bool:
        """Whether a key that was right still is. A file that cannot be read lets nobody stay, as it lets nobody in."""
        try:
            key = self._keys.find(key_id)
        except StoreFailed as error:
            log.error("api_keys_unreadable", extra={"error": str(error)})  # noqa: TRY400 - the sentence says it all
            return False
        return key is not None and not key.is_expired(self._clock.now())


class TicketAuthenticator:
    """Tickets of WebSocket handshakes: `?ticket=…`."""

    unguessable = True

    def __init__(self, tickets: TicketBook, clock: Clock) -> None:
        self._tickets = tickets
        self._clock = clock

    def authenticate(self, credentials: Credentials) -> Verdict:
        text = credentials.ticket()
        if not text:
            return None
        return self._tickets.redeem(text, self._clock) or Refusal("the ticket was used, or has expired")


class SameUserAuthenticator:
    """For a gateway without authentication, on loopback: processes of the same user are let in, with all rights.

    `uid` is None on systems that do not tell whose a connection is; there everybody on the machine is let in.
    """

    unguessable = True

    def __init__(self, uid: int | None) -> None:
        self._uid = uid
        self._everybody = Caller(is_owner=uid is not None)

    def authenticate(self, credentials: Credentials) -> Verdict:
        if self._uid is None or credentials.peer.uid == self._uid:
            return self._everybody
        return Refusal("this gateway serves its own user only")
