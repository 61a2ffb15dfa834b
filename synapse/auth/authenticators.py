"""The credentials of a request, and the authenticators that check them: API keys, tickets, same user, custom.

Access tokens have a module of their own, `auth.jwt`.

A ticket opens one WebSocket, because browsers let a page set no headers at the handshake. A caller gets it with real
credentials. It expires soon and works once: it stands in a URL, and URLs are logged.

A custom authenticator is a function of the gateway's owner:

    async def authenticate(headers: dict[str, str], query: dict[str, str], path: str) -> dict | None

It returns None for an unknown caller, or a dictionary: `name` and `scope` (strings; one is enough), `actions` and
`agents` (lists; all if omitted), `all_tasks`. It may be a plain function, which runs in a thread and so may block. Its
errors are logged; the caller gets no details.
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
from synapse.server.peer import UNKNOWN_PEER, Peer

log = logging.getLogger(__name__)

TICKET_FIELD: Final = "ticket"
TICKET_LIFETIME: Final = timedelta(seconds=30)
TOKEN_HEADER: Final = b"x-synapse-token"
TOKEN_PROTOCOL: Final = "token."  # noqa: S105 - a prefix
"""At a WebSocket's handshake, where browsers set no headers, a page offers its token as a subprotocol with this prefix.
Unlike a query it is in no URL, and URLs are logged."""
MOST_TICKETS: Final = 10_000
CUSTOM_SECONDS: Final = 10.0
"""How long a custom authenticator may take."""
_CALLER_FIELDS: Final = {"name", "scope", "actions", "agents", "all_tasks"}

Custom = Callable[[dict[str, str], dict[str, str], str], Any]
"""A custom authenticator: takes headers, query and path; returns what `read_caller` takes, or an awaitable of it."""


class Credentials:
    """The credentials of one request. It defines no `repr`, because it holds secrets."""

    __slots__ = ("api_key", "bearer", "handshake", "headers", "path", "peer", "query", "session_token")

    def __init__(
        self,
        headers: Headers,
        *,
        path: str = "",
        query: bytes = b"",
        peer: Peer = UNKNOWN_PEER,
        handshake: bool = False,
    ) -> None:
        self.headers = headers
        self.path = path
        self.query = query
        self.peer = peer
        self.handshake = handshake
        """Whether this is the handshake of a WebSocket, where browsers set no headers."""
        self.bearer = self.api_key = self.session_token = ""
        for name, value in headers:
            if name == b"authorization" and value[:7].lower() == b"bearer ":
                self.bearer = value[7:].strip().decode("latin-1")
            elif name == b"x-api-key":
                self.api_key = value.strip().decode("latin-1")
            elif name == TOKEN_HEADER:
                self.session_token = value.strip().decode("latin-1")
            elif handshake and name == b"sec-websocket-protocol":
                offered = (one.strip() for one in value.decode("latin-1").split(","))
                token = next((one for one in offered if one.startswith(TOKEN_PROTOCOL)), "")
                self.session_token = self.session_token or token.removeprefix(TOKEN_PROTOCOL)

    @property
    def given(self) -> bool:
        """Whether the request has credentials of any kind."""
        return bool(self.bearer or self.api_key or self.ticket()) or any(
            name == b"authorization" for name, _ in self.headers
        )

    def ticket(self) -> str:
        """Returns the ticket of a handshake, or an empty string."""
        if not self.handshake or not self.query:
            return ""
        return dict(parse_qsl(self.query.decode("ascii", "replace"))).get(TICKET_FIELD, "")


class Refusal(NamedTuple):
    """The request has credentials of the authenticator's kind, and they are not valid."""

    why: str
    final_hint: str = ""
    """Says what to do instead. With one, the request is refused even if it would be admitted without credentials: a
    page whose session has ended must not go on with other rights."""


Verdict = Caller | Refusal | None
"""None: the request has no credentials of the authenticator's kind."""


class Authenticator(Protocol):
    """Checks one kind of credentials."""

    @property
    def unguessable(self) -> bool:
        """Whether guessing is hopeless and checking is cheap, so that attempts need no limit."""
        ...

    def authenticate(self, credentials: Credentials, /) -> Verdict | Awaitable[Verdict]:
        """Raises InternalFailure when the credentials cannot be checked."""
        ...


class KeySource(Protocol):
    """Finds API keys by id."""

    def find(self, key_id: str) -> ApiKey | None:
        """Raises StoreFailed."""
        ...

    def mark_used(self, key_id: str) -> object:
        """Records the use of a key, and does not wait for the disk."""
        ...


class KeyAuthenticator:
    """Checks API keys: `Authorization: Bearer sk_…` or `X-API-Key: sk_…`."""

    unguessable = True

    def __init__(self, keys: KeySource, clock: Clock) -> None:
        self._keys = keys
        self._clock = clock

    def authenticate(self, credentials: Credentials) -> Verdict:
        text = credentials.api_key or credentials.bearer
        key_id = id_in(text)
        if not key_id:
            return Refusal("this is not an API key of this gateway") if credentials.api_key else None
        try:
            key = self._keys.find(key_id)
        except StoreFailed as error:
            # The error names a file of this machine, which the caller must not see.
            log.error("api_keys_unreadable", extra={"error": str(error)})  # noqa: TRY400 - no traceback needed
            raise InternalFailure from error
        if key is None or not key.matches(text):
            return Refusal("the API key is not known here; it may have been revoked")
        if key.is_expired(self._clock.now()):
            return Refusal("the API key has expired")
        self._keys.mark_used(key_id)
        return key.caller(partial(self._is_still_valid, key))

    def _is_still_valid(self, key: ApiKey) -> bool:
        """Whether an admitted key is still valid, with the same rights; no key is while the file cannot be read."""
        try:
            found = self._keys.find(key.key_id)
        except StoreFailed as error:
            log.error("api_keys_unreadable", extra={"error": str(error)})  # noqa: TRY400 - no traceback needed
            return False
        return found == key and not key.is_expired(self._clock.now())


class TicketBook:
    """The tickets that are valid now. `mint` returns texts that cannot be guessed; `what` names them. Pure."""

    def __init__(
        self,
        mint: Callable[[], str],
        *,
        what: str = "tickets",
        most: int = MOST_TICKETS,
        lifetime: timedelta = TICKET_LIFETIME,
    ) -> None:
        self._mint = mint
        self._what = what
        self._most = most
        self._lifetime = lifetime
        self._callers: dict[str, tuple[Caller, float]] = {}
        """Each with the time when it expires, by the boot clock: setting the system time does not move it."""

    def issue(self, caller: Caller, clock: Clock) -> Ticket:
        """Makes a ticket for `caller`. Raises RateLimited when too many are valid."""
        now = clock.boot_time().seconds
        # All live equally long, so they stand in the order in which they expire.
        expired = takewhile(lambda item: item[1][1] <= now, self._callers.items())
        for text in [text for text, _ in expired]:
            del self._callers[text]
        if len(self._callers) >= self._most:
            raise RateLimited(f"too many {self._what} are open", seconds=self._lifetime.total_seconds())
        ticket = Ticket(text=self._mint(), expires_at=clock.now() + self._lifetime)
        self._callers[ticket.text] = (caller, now + self._lifetime.total_seconds())
        return ticket

    def redeem(self, text: str, clock: Clock) -> Caller | None:
        """Returns the caller of a valid ticket, and uses the ticket up."""
        caller, end = self._callers.pop(text, (None, 0.0))
        return caller if clock.boot_time().seconds < end else None


class TicketAuthenticator:
    """Checks the tickets of WebSocket handshakes: `?ticket=…`."""

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
    """Admits processes of the user `uid`, with all rights: for a gateway on loopback without authentication.

    `uid` is None on systems that do not tell which user owns a connection; there every user of the machine is admitted.
    """

    unguessable = True

    def __init__(self, uid: int | None) -> None:
        self._uid = uid
        self._caller = Caller(is_owner=uid is not None)

    def authenticate(self, credentials: Credentials) -> Verdict:
        if self._uid is None or credentials.peer.uid == self._uid:
            return self._caller
        return Refusal("this gateway serves its own user only")


class CustomAuthenticator:
    """Calls the custom authenticator of the gateway's owner."""

    unguessable = False

    def __init__(self, function: Custom, *, seconds: float = CUSTOM_SECONDS) -> None:
        self._function = function
        self._seconds = seconds
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object whose call is async
        )

    async def authenticate(self, credentials: Credentials) -> Verdict:
        query = dict(parse_qsl(credentials.query.decode("ascii", "replace"), keep_blank_values=True))
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in credentials.headers}
        try:
            async with asyncio.timeout(self._seconds):
                if self._is_async:
                    returned = await self._function(headers, query, credentials.path)
                else:
                    returned = await asyncio.to_thread(self._function, headers, query, credentials.path)
            return read_caller(returned)
        except Exception as error:
            # The owner's code may raise anything; the caller is not admitted, and gets no details.
            log.exception("custom_authenticator_failed")
            raise InternalFailure from error


def read_caller(returned: object) -> Caller | None:
    """Converts what a custom authenticator returned. Raises InvalidRequest when it is not valid."""
    if returned is None:
        return None
    if isinstance(returned, Caller):
        # Only a Unix socket proves these fields.
        return replace(returned, via_socket=False, agent_id="", pid=0)
    if not isinstance(returned, Mapping):
        raise InvalidRequest(f"it returned {type(returned).__name__}, not a dictionary or None")
    fields = cast("Mapping[str, object]", returned)
    if unknown := sorted(map(str, fields.keys() - _CALLER_FIELDS)):
        raise InvalidRequest(f"it returned unknown fields: {', '.join(unknown)}")
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
        raise InvalidRequest(f"its '{name}' is not a string")
    return value


def _texts(fields: Mapping[str, object], name: str) -> list[str] | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, list | tuple | set | frozenset):
        raise InvalidRequest(f"its '{name}' is not a list")
    items = list(cast("list[object]", value))
    if not all(isinstance(item, str) for item in items):
        raise InvalidRequest(f"its '{name}' is not a list of strings")
    return cast("list[str]", items)
