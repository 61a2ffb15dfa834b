"""Sessions of browsers at a gateway: a person's one-time link becomes a cookie and a token, and both are needed.

    synapse dashboard ─► link: 256 random bits, one use, two minutes ─► POST /dashboard/session ─► cookie + token

    cookie    <id>.<secret>, HttpOnly, SameSite=Strict: no script reads it
    token     a second secret, kept by the page in the storage of its origin, sent as a header

Browsers share the cookies of one host among all its ports, so the server of any other port of this machine may get the
cookie; it never gets the token. A page that injects a request for the browser to make has neither (decision 0027).

    <home>/sessions.json          the sessions, with the SHA-256 of both secrets; see `auth.record_file`
    <home>/sessions-used/<id>     an empty file; its time is that of the session's last use

A session ends when it was not used for `idle`, at the latest LONGEST after its start, or when it is revoked.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from synapse.auth.api_keys import checked_actions
from synapse.auth.authenticators import Credentials, Refusal, TicketBook, Verdict
from synapse.auth.mirror import MirrorFile, Revocations, actions_here, is_in_fleet
from synapse.auth.record_file import (
    ID_LENGTH,
    RecordFile,
    Records,
    UseMarks,
    digest_of,
    has_digest,
    id_in_record,
    moment_in,
    text_in,
    texts_in,
)
from synapse.config.fleet import FleetRules
from synapse.core.address import on_machine
from synapse.core.caller import APPROVE, ATTACH, CANCEL, LOCAL_SCOPE, READ, SEND, SESSION_NAME, Caller, for_good
from synapse.core.errors import InternalFailure, NotFound, StoreFailed
from synapse.core.override import override
from synapse.core.types import Clock
from synapse.dialects.dialect import Headers
from synapse.dialects.paths import DASHBOARD_PATHS

log = logging.getLogger(__name__)

SESSIONS_FILE: Final = "sessions.json"
USED_FOLDER: Final = "sessions-used"
SESSION_ACTIONS: Final = (READ, SEND, CANCEL, APPROVE, ATTACH)
"""What a person may do in a browser: everything but making the gateway call new addresses."""
LONGEST: Final = timedelta(days=7)
LINK_LIFETIME: Final = timedelta(minutes=2)
MOST_LINKS: Final = 100
COOKIE: Final = "synapse_session"
MOST_COOKIES: Final = 100
"""How many cookies of a request are read."""
_MANY_HOURS: Final = LONGEST.total_seconds() / 3600
_NEW_LINK: Final = "`synapse dashboard` opens a new session"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A session as it is stored: without its secrets."""

    session_id: str
    digest: str = field(repr=False)
    token_digest: str = field(repr=False)
    created_at: datetime
    idle: timedelta
    """How long it lasts without being used."""
    actions: frozenset[str]
    machine: str = ""
    """The other machine that it is of; empty if that may read and approve here: its people then count as here."""
    sees_all: bool = True
    """Whether it sees the tasks of others."""

    def ends_at(self, last_used: datetime | None) -> datetime:
        """Returns when it ends if it is not used any more."""
        return min(self.created_at + LONGEST, max(self.created_at, last_used or self.created_at) + self.idle)

    def matches(self, cookie: str, token: str) -> bool:
        """Whether these are its two secrets, compared in constant time."""
        return has_digest(cookie, self.digest) & has_digest(token, self.token_digest)

    def caller(self, holds: Callable[[], bool] = for_good) -> Caller:
        """Returns the caller of its requests: this user, with the session's actions; see `Caller.holds`.

        A session of a machine that may not read all here is a caller of its own, who sees its own tasks.
        """
        return Caller(
            scope=LOCAL_SCOPE if self.sees_all else f"session:{self.session_id}",
            sees_all=self.sees_all,
            actions=self.actions,
            name=on_machine(SESSION_NAME, self.machine),
            session_id=self.session_id,
            holds=holds,
        )


class NewSession(NamedTuple):
    """A session with its two secrets, which are stored nowhere. It defines no `repr` of them."""

    session: Session
    cookie: str
    token: str

    @override
    def __repr__(self) -> str:
        return f"NewSession({self.session!r})"


class SessionFile:
    """Creates, finds and revokes the sessions of one home folder."""

    def __init__(self, home: Path, clock: Clock, *, mint: Callable[[int], str] = secrets.token_hex) -> None:
        self._file = RecordFile(home / SESSIONS_FILE, SESSIONS)
        self._used = UseMarks(home / USED_FOLDER, clock)
        self._clock = clock
        self._mint = mint
        self._mirror = MirrorFile(home, SESSIONS_FILE, SESSIONS, clock) if is_in_fleet(home) else None
        self._revocations = Revocations(home) if self._mirror is not None else None
        self._rules = FleetRules(home)

    def find(self, session_id: str) -> Session | None:
        """Returns the session of this id if it has not ended, also one of another gateway of the fleet.

        Raises StoreCorrupt, StoreFailed.
        """
        session = self._file.current().get(session_id) or self._mirrored(session_id)
        if self._revocations is not None and self._revocations.has(session_id):
            return None
        return session if session is not None and self._lasts(session) else None

    def _mirrored(self, session_id: str) -> Session | None:
        found = self._mirror.fresh().get(session_id) if self._mirror is not None else None
        if found is None:
            return None
        allowed, session = self._rules.allowed(found.machine), found.record
        return replace(
            session,
            actions=actions_here(session.actions, allowed),
            # Those who may only read are no people of this machine; see `Caller.is_dashboard`.
            machine="" if allowed >= {READ, APPROVE} else found.machine,
            sees_all=READ in allowed,
        )

    def all(self) -> tuple[Session, ...]:
        """Returns the sessions that have not ended, oldest first. Raises StoreCorrupt, StoreFailed."""
        lasting = [session for session in self._file.current().values() if self._lasts(session)]
        return tuple(sorted(lasting, key=lambda session: (session.created_at, session.session_id)))

    def create(self, actions: frozenset[str], idle: timedelta) -> NewSession:
        """Creates a session, and forgets those that have ended. Raises StoreCorrupt, StoreFailed."""
        session_id = self._mint(ID_LENGTH // 2)
        cookie, token = f"{session_id}.{self._mint(32)}", self._mint(32)
        session = Session(
            session_id=session_id,
            digest=digest_of(cookie),
            token_digest=digest_of(token),
            created_at=self._clock.now().replace(microsecond=0),
            idle=idle,
            actions=actions,
        )
        with self._file.locked():
            lasting = self.all()
            ended = self._file.current().keys() - {one.session_id for one in lasting}
            self._file.write((*lasting, session))
        for one in ended:
            self._used.forget(one)
        return NewSession(session, cookie, token)

    def revoke(self, session_id: str) -> Session:
        """Ends one session. Raises NotFound, StoreCorrupt, StoreFailed."""
        with self._file.locked():
            known = self._file.current()
            session = known.get(session_id)
            if session is not None:
                self._file.write(one for one in known.values() if one is not session)
        session = session or self._mirrored(session_id)
        if session is None:
            raise NotFound(f"no session '{session_id}'", hint="`synapse dashboard sessions` lists them")
        self._revoke_everywhere((session_id,))
        self._used.forget(session_id)
        return session

    def forget(self, session_ids: AbstractSet[str]) -> None:
        """Removes sessions of this machine that were revoked on another. Raises StoreCorrupt, StoreFailed."""
        with self._file.locked():
            known = self._file.current()
            if session_ids & known.keys():
                self._file.write(one for one in known.values() if one.session_id not in session_ids)

    def _revoke_everywhere(self, session_ids: Iterable[str]) -> None:
        if self._revocations is not None:
            for session_id in session_ids:
                self._revocations.add(session_id, self._clock)

    def revoke_all(self) -> tuple[Session, ...]:
        """Ends all sessions, and returns those that had not ended. Raises StoreCorrupt, StoreFailed."""
        with self._file.locked():
            lasting, known = self.all(), tuple(self._file.current())
            if known:
                self._file.write(())
        self._revoke_everywhere(known)
        for session_id in known:
            self._used.forget(session_id)
        return lasting

    def mark_used(self, session_id: str) -> Future[None] | None:
        """Records the time of the session's last use; see `UseMarks.mark`."""
        return self._used.mark(session_id)

    def last_used(self, session_id: str) -> datetime | None:
        return self._used.last(session_id)

    def ends_at(self, session: Session) -> datetime:
        """Returns when the session ends if it is not used any more."""
        return session.ends_at(self._used.last(session.session_id))

    def _lasts(self, session: Session) -> bool:
        return self._clock.now() < self.ends_at(session)


def new_links() -> TicketBook:
    """Returns an empty book of one-time links. A link's caller has the actions of the session that it opens."""
    return TicketBook(lambda: secrets.token_urlsafe(32), what="links", most=MOST_LINKS, lifetime=LINK_LIFETIME)


def cookie_name(port: int) -> str:
    """Returns the name of the cookie of the gateway at `port`: all gateways of one host share its cookies."""
    return f"{COOKIE}_{port}"


def session_idle(hours: float) -> timedelta:
    """Returns how long a session lasts without being used, from the setting `session_hours`."""
    return min(timedelta(hours=hours), LONGEST) if 0 < hours < _MANY_HOURS else LONGEST


class SessionAuthenticator:
    """Checks sessions: the cookie, and the token in the header X-Synapse-Token or in the WebSocket's subprotocols."""

    unguessable = True

    def __init__(self, sessions: SessionFile, cookie: str) -> None:
        self._sessions = sessions
        self._cookie = cookie

    def is_shown(self, credentials: Credentials) -> bool:
        """Whether a request shows a session, valid or not."""
        return credentials.path.startswith(DASHBOARD_PATHS) and bool(
            credentials.session_token or cookies_in(credentials.headers, self._cookie)
        )

    def authenticate(self, credentials: Credentials) -> Verdict:
        if not self.is_shown(credentials):
            return None
        cookies, token = cookies_in(credentials.headers, self._cookie), credentials.session_token
        if not cookies or not token:
            lacks = "token" if cookies else "cookie"
            return Refusal(f"a session needs its cookie and its token; the {lacks} is missing", final_hint=_NEW_LINK)
        for cookie in cookies:
            session_id = cookie.partition(".")[0]
            session = self._find(session_id)
            if session is not None and session.matches(cookie, token):
                self._sessions.mark_used(session_id)
                return session.caller(partial(self._is_still_valid, session))
        return Refusal("the session is not known here; it has ended or was revoked", final_hint=_NEW_LINK)

    def _find(self, session_id: str) -> Session | None:
        try:
            return self._sessions.find(session_id)
        except StoreFailed as error:
            # The error names a file of this machine, which the caller must not see.
            log.error("sessions_unreadable", extra={"error": str(error)})  # noqa: TRY400 - no traceback needed
            raise InternalFailure from error

    def _is_still_valid(self, session: Session) -> bool:
        """Whether an admitted session still lasts, with the same rights; none does while the file cannot be read."""
        try:
            return self._find(session.session_id) == session
        except InternalFailure:
            return False


def cookies_in(headers: Headers, name: str) -> list[str]:
    """Returns the values of a session's cookie, under its name of HTTP or of HTTPS.

    There may be several: a server of another port of this machine can set one of the same name for a longer path, which
    the browser then sends first. It must not shut the person out.
    """
    names = (name.encode("ascii"), b"__Host-" + name.encode("ascii"))
    pairs = (
        pair.partition(b"=") for key, value in headers if key == b"cookie" for pair in value.split(b";", MOST_COOKIES)
    )
    return [value.strip().decode("latin-1") for key, _, value in pairs if key.strip() in names]


def set_cookie(name: str, value: str, *, is_secure: bool) -> str:
    """Returns the Set-Cookie header of a session; an empty value removes the cookie.

    Over HTTPS the name begins with `__Host-`: no other host can then set it, and it needs the path `/`.
    """
    age = int(LONGEST.total_seconds()) if value else 0
    where = f"__Host-{name}={value}; Path=/; Secure" if is_secure else f"{name}={value}; Path={DASHBOARD_PATHS[:-1]}"
    return f"{where}; HttpOnly; SameSite=Strict; Max-Age={age}"


def _encode(session: Session) -> dict[str, Any]:
    return {
        "id": session.session_id,
        "sha256": session.digest,
        "token_sha256": session.token_digest,
        "created": session.created_at.isoformat(),
        "idle_seconds": int(session.idle.total_seconds()),
        "actions": sorted(session.actions),
    }


def _decode(row: Mapping[str, Any]) -> Session:
    session = Session(
        session_id=id_in_record(row["id"]),
        digest=text_in(row["sha256"]),
        token_digest=text_in(row["token_sha256"]),
        created_at=moment_in(row["created"]),
        idle=min(timedelta(seconds=row["idle_seconds"]), LONGEST),
        # A session never has more rights than a new one could get, whatever the file says.
        actions=checked_actions(texts_in(row["actions"])) & frozenset(SESSION_ACTIONS),
    )
    # Raises OverflowError if it ends after the year 9999.
    session.ends_at(None)
    return session


SESSIONS: Final = Records(
    list_name="sessions",
    encode=_encode,
    decode=_decode,
    id_of=lambda session: session.session_id,
    what="sessions",
    hint="remove it; `synapse dashboard` opens a new session",
)
