"""The routes by which a person's browser gets a session, and ends it. No log has their secrets.

    POST   /dashboard/links      a one-time link, for a person on the gateway's Unix socket: `synapse dashboard`
    POST   /dashboard/session    its code becomes a cookie and a token; see `auth.sessions`
    GET    /dashboard/session    what the session may do, and until when
    DELETE /dashboard/session    ends it

The code stands in the fragment of the link, which no browser sends to a server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NoReturn, TypeVar

import msgspec

from synapse.auth.api_keys import checked_actions
from synapse.auth.policy import hide_store_details
from synapse.auth.sessions import SESSION_ACTIONS, Session, SessionFile, new_links, set_cookie
from synapse.core.caller import SESSION_NAME, Caller
from synapse.core.errors import InvalidRequest, MalformedJson, PersonRequired, Unauthenticated
from synapse.core.service import Handler
from synapse.core.types import Clock
from synapse.dialects.dialect import NO_STORE, Dialect, ServiceRoute, WireAnswer, WireRequest
from synapse.dialects.paths import DASHBOARD, LINKS_PATH, SESSION_PATH
from synapse.dialects.proto_json import to_json
from synapse.dialects.synapse.encode import encode_error

log = logging.getLogger(__name__)

S = TypeVar("S")


class LinkShape(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /dashboard/links."""

    actions: tuple[str, ...] = SESSION_ACTIONS


class SessionShape(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /dashboard/session."""

    code: str


class SessionPages:
    """Makes links and sessions. `url` is the page's address; `refuse_link` raises for a code that is not valid.

    The page learns from its session how large a message may be (`max_body_bytes`).
    """

    def __init__(  # noqa: PLR0913 - what the gateway's settings say of the page
        self,
        sessions: SessionFile,
        clock: Clock,
        *,
        url: str,
        cookie: str,
        idle: timedelta,
        max_body_bytes: int,
        refuse_link: Callable[[], NoReturn],
    ) -> None:
        self._sessions = sessions
        self._clock = clock
        self._links = new_links()
        self._url = url
        self._cookie = cookie
        self._idle = idle
        self._max_body_bytes = max_body_bytes
        self._refuse_link = refuse_link

    def dialect(self) -> Dialect:
        """Returns the routes; the dialect has the name of all that the page asks."""
        routes = (
            ServiceRoute(method="POST", path=LINKS_PATH, serve=self._make_link),
            ServiceRoute(method="POST", path=SESSION_PATH, serve=self._open),
            ServiceRoute(method="GET", path=SESSION_PATH, serve=self._show),
            ServiceRoute(method="DELETE", path=SESSION_PATH, serve=self._end),
        )
        return Dialect(name=DASHBOARD, routes=routes, encode_error=encode_error)

    async def _make_link(self, wire: WireRequest, _service: Handler, caller: Caller) -> WireAnswer:
        if not caller.may_decide:
            raise PersonRequired(
                "only a person may open the dashboard",
                hint=f"{caller.objection}; run `synapse dashboard` in a shell of your own",
            )
        wanted = checked_actions(_body(wire, LinkShape).actions)
        if more := sorted(wanted - set(SESSION_ACTIONS)):
            raise InvalidRequest(
                f"a session cannot have the action {', '.join(more)}", hint="actions: " + ", ".join(SESSION_ACTIONS)
            )
        link = self._links.issue(Caller(actions=wanted), self._clock)
        log.info("link_made", extra={"actions": sorted(wanted), "pid": caller.pid})
        return _answer({"url": f"{self._url}/#code={link.text}", "expires_at": _instant(link.expires_at)})

    async def _open(self, wire: WireRequest, _service: Handler, _caller: Caller) -> WireAnswer:
        opened = self._links.redeem(_body(wire, SessionShape).code, self._clock)
        if opened is None or opened.actions is None:
            self._refuse_link()
        with hide_store_details():
            session, cookie, token = await asyncio.to_thread(self._sessions.create, opened.actions, self._idle)
        log.info("session_opened", extra={"session": session.session_id, "actions": sorted(session.actions)})
        return _answer({"token": token, "session": self._fields(session)}, self._set_cookie(wire, cookie))

    async def _show(self, _wire: WireRequest, _service: Handler, caller: Caller) -> WireAnswer:
        return _answer({"session": self._fields(self._session_of(caller))})

    async def _end(self, wire: WireRequest, _service: Handler, caller: Caller) -> WireAnswer:
        session = self._session_of(caller)
        with hide_store_details():
            await asyncio.to_thread(self._sessions.revoke, session.session_id)
        log.info("session_ended", extra={"session": session.session_id})
        return _answer({}, self._set_cookie(wire, ""))

    def _session_of(self, caller: Caller) -> Session:
        with hide_store_details():
            session = self._sessions.find(caller.session_id) if caller.session_id else None
        if session is None:
            raise Unauthenticated("this request has no session", hint="`synapse dashboard` opens one")
        return session

    def _fields(self, session: Session) -> dict[str, Any]:
        return {
            "id": session.session_id,
            "name": SESSION_NAME,
            "actions": [action for action in SESSION_ACTIONS if action in session.actions],
            "created_at": _instant(session.created_at),
            "expires_at": _instant(self._sessions.ends_at(session)),
            "max_body_bytes": self._max_body_bytes,
        }

    def _set_cookie(self, wire: WireRequest, value: str) -> tuple[bytes, bytes]:
        # Its own page sent the request, and says by which scheme it reaches us: a proxy in front may have TLS.
        is_secure = wire.header(b"origin").lower().startswith("https:")
        return b"set-cookie", set_cookie(self._cookie, value, is_secure=is_secure).encode("ascii")


def _body(wire: WireRequest, shape: type[S]) -> S:
    try:
        return msgspec.json.decode(wire.body or b"{}", type=shape)
    except msgspec.ValidationError as error:
        raise InvalidRequest(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedJson("the body is not JSON") from error


def _answer(fields: dict[str, Any], *headers: tuple[bytes, bytes]) -> WireAnswer:
    return WireAnswer(200, to_json(fields), (*NO_STORE, *headers))


def _instant(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
