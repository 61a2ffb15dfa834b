"""What a caller brings to prove who it is, and the authenticators that need nothing but memory to judge it.

An authenticator of the owner's own: a function that is given the headers, the query and the path of a request.

    async def authenticate(headers: dict[str, str], query: dict[str, str], path: str) -> dict | None

It returns None for somebody it does not know, or who that is: `name` and `scope` (a text each; one is enough),
`actions` and `agents` (lists; all when left out), `all_tasks`. It may be `async` or not; one that is not runs in a
thread, so that it can look things up. What goes wrong in it is logged, and the caller gets no detail.

Tickets: what a web page shows at a WebSocket's handshake, where browsers let it set no header. Pure.

A ticket is got with real credentials, is worth one handshake, and is worth nothing after a short while: it stands in an
address, and addresses are logged.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import takewhile
from typing import Any, Final, NamedTuple, Protocol, cast
from urllib.parse import parse_qsl

from synapse.auth.api_keys import ApiKey, checked_actions, id_in
from synapse.core.caller import Caller
from synapse.core.errors import InternalFailure, InvalidRequest, RateLimited, StoreFailed
from synapse.core.requests import Ticket
from synapse.core.types import Clock
from synapse.dialects.dialect import Headers
from synapse.server.peer import NOBODY, Peer

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


PATIENCE_SECONDS: Final = 10.0
_FIELDS: Final = {"name", "scope", "actions", "agents", "all_tasks"}

Custom = Callable[[dict[str, str], dict[str, str], str], Any]


class CustomAuthenticator:
    """Asks the owner's function."""

    unguessable = False

    def __init__(self, function: Custom, *, patience: float = PATIENCE_SECONDS) -> None:
        self._function = function
        self._patience = patience
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object whose call is async
        )

    def authenticate(self, credentials: Credentials) -> Awaitable[Verdict]:
        return self._ask(credentials)

    async def _ask(self, credentials: Credentials) -> Verdict:
        query = dict(parse_qsl(credentials.query.decode("ascii", "replace"), keep_blank_values=True))
        try:
            async with asyncio.timeout(self._patience):
                said = await self._call(_as_texts(credentials.headers), query, credentials.path)
            return read_caller(said)
        except Exception as error:
            # Somebody else's code may raise anything; nobody is let in by that, and nobody is told.
            log.exception("custom_authenticator_failed")
            raise InternalFailure from error

    def _call(self, headers: dict[str, str], query: dict[str, str], path: str) -> Awaitable[Any]:
        if self._is_async:
            return cast("Awaitable[Any]", self._function(headers, query, path))
        return asyncio.to_thread(self._function, headers, query, path)


def read_caller(said: object) -> Caller | None:
    """Whom the function means. Raises InvalidRequest for what cannot be meant."""
    if said is None:
        return None
    if isinstance(said, Caller):
        # What only the socket of this machine proves is not for it to say.
        return replace(said, via_socket=False, agent_id="", pid=0)
    if not isinstance(said, Mapping):
        raise InvalidRequest(f"it returned {type(said).__name__}, not a dictionary or None")
    fields = cast("Mapping[str, object]", said)
    if unknown := sorted(map(str, fields.keys() - _FIELDS)):
        raise InvalidRequest(f"it returned fields that mean nothing: {', '.join(unknown)}")
    name, scope = (_text(fields, field) for field in ("name", "scope"))
    if not name and not scope:
        raise InvalidRequest("it returned neither a name nor a scope")
    agents = _texts(fields, "agents")
    actions = _texts(fields, "actions")
    return Caller(
        name=name or scope,
        scope=scope or f"custom:{name}",
        actions=None if actions is None else checked_actions(actions) if actions else frozenset(),
        agents=None if agents is None else frozenset(agents),
        sees_all=fields.get("all_tasks", False) is True,
    )


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise InvalidRequest(f"its '{name}' is no text")
    return value


def _texts(fields: Mapping[str, object], name: str) -> list[str] | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, list | tuple | set | frozenset):
        raise InvalidRequest(f"its '{name}' is no list")
    items = list(cast("list[object]", value))
    if not all(isinstance(item, str) for item in items):
        raise InvalidRequest(f"its '{name}' is no list of texts")
    return cast("list[str]", items)


def _as_texts(headers: Headers) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}


LIFETIME: Final = timedelta(seconds=30)
MOST_TICKETS: Final = 10_000


class TicketBook:
    """The tickets that are out; `mint` gives texts that nobody can guess."""

    def __init__(self, mint: Callable[[], str], *, most: int = MOST_TICKETS) -> None:
        self._mint = mint
        self._most = most
        self._callers: dict[str, tuple[Caller, float]] = {}
        """With the time until which each counts, by a clock that nobody sets."""

    def issue(self, caller: Caller, clock: Clock) -> Ticket:
        """Make a ticket for `caller`. Raises RateLimited when too many are out."""
        self._forget_expired(clock.boot_time().seconds)
        if len(self._callers) >= self._most:
            raise RateLimited("too many tickets are out", seconds=LIFETIME.total_seconds())
        ticket = Ticket(text=self._mint(), expires_at=clock.now() + LIFETIME)
        self._callers[ticket.text] = (caller, clock.boot_time().seconds + LIFETIME.total_seconds())
        return ticket

    def redeem(self, text: str, clock: Clock) -> Caller | None:
        """Whom the ticket was made for; it is used up by this."""
        caller, end = self._callers.pop(text, (None, 0.0))
        return caller if clock.boot_time().seconds < end else None

    def _forget_expired(self, now: float) -> None:
        # All live equally long, so they stand in the order in which they expire.
        expired = takewhile(lambda item: item[1][1] <= now, self._callers.items())
        for text in [text for text, _ in expired]:
            del self._callers[text]
