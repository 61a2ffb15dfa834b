"""Links and sessions of the dashboard: who gets a link, what it opens, and how long it works."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest

from synapse.auth.sessions import LINK_LIFETIME, MOST_LINKS, SessionFile, new_links
from synapse.core.caller import Caller
from synapse.core.errors import (
    CredentialsRefused,
    InvalidRequest,
    MalformedJson,
    PersonRequired,
    RateLimited,
    StoreFailed,
    Unauthenticated,
)
from synapse.dialects.dialect import ServiceRoute, WireAnswer, WireRequest
from synapse.gateway.config import GatewayConfig, page_url
from synapse.gateway.sessions import SessionPages
from tests.fakes.clock import FakeClock

PERSON = Caller(via_socket=True, pid=7)
ALL = ["read", "send", "cancel", "approve", "attach"]
NO_SERVICE: Any = None
"""These routes ask nothing of the service."""


def refuse() -> NoReturn:
    raise CredentialsRefused("no such link", challenge="Bearer")


class SessionRoutes:
    """The routes of one gateway."""

    def __init__(self, home: Path) -> None:
        self.clock = FakeClock()
        self.sessions = SessionFile(home, self.clock)
        pages = SessionPages(
            self.sessions,
            self.clock,
            url="http://127.0.0.1:8000",
            cookie="synapse_session_8000",
            idle=timedelta(hours=12),
            max_body_bytes=4096,
            refuse_link=refuse,
        )
        self._routes = {
            f"{route.method} {route.path}": route for route in pages.dialect().routes if isinstance(route, ServiceRoute)
        }

    async def ask(self, what: str, body: object = None, caller: Caller = PERSON, origin: str = "") -> WireAnswer:
        method, _, path = what.partition(" ")
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        wire = WireRequest(method, path, headers=[(b"origin", origin.encode())], body=content)
        answer = await self._routes[what].serve(wire, NO_SERVICE, caller)
        assert isinstance(answer, WireAnswer)
        return answer

    async def code(self, body: object = None) -> str:
        link = json.loads((await self.ask("POST /dashboard/links", body)).body)
        assert link["url"].startswith("http://127.0.0.1:8000/#code=")
        code: str = link["url"].partition("#code=")[2]
        return code

    async def open(self, code: str, origin: str = "http://127.0.0.1:8000") -> WireAnswer:
        return await self.ask("POST /dashboard/session", {"code": code}, Caller(scope="anonymous"), origin)


@pytest.fixture
def routes(tmp_path: Path) -> SessionRoutes:
    return SessionRoutes(tmp_path)


async def test_a_link_opens_one_session(routes: SessionRoutes) -> None:
    code = await routes.code()

    answer = await routes.open(code)

    opened = json.loads(answer.body)
    (session,) = routes.sessions.all()
    cookie = dict(answer.headers)[b"set-cookie"].decode().partition(";")[0].partition("=")[2]
    assert session.matches(cookie, opened["token"])
    assert opened["session"] == {
        "id": session.session_id,
        "name": "dashboard",
        "actions": ALL,
        "created_at": "2026-01-15T10:30:00Z",
        "expires_at": "2026-01-15T22:30:00Z",
        "max_body_bytes": 4096,
    }
    assert dict(answer.headers)[b"cache-control"] == b"no-store"
    with pytest.raises(CredentialsRefused):
        await routes.open(code)
    assert len(routes.sessions.all()) == 1


async def test_a_link_works_for_two_minutes(routes: SessionRoutes) -> None:
    codes = [await routes.code() for _ in range(2)]

    routes.clock.advance(LINK_LIFETIME.total_seconds() - 1)
    await routes.open(codes[0])
    routes.clock.advance(1)
    with pytest.raises(CredentialsRefused):
        await routes.open(codes[1])


async def test_a_guess_opens_nothing_and_uses_nothing_up(routes: SessionRoutes) -> None:
    code = await routes.code()

    for guess in ("", code[:-1], code + "A", code.swapcase()):
        with pytest.raises(CredentialsRefused):
            await routes.open(guess)

    assert routes.sessions.all() == ()
    await routes.open(code)


def test_a_code_cannot_be_guessed() -> None:
    link = new_links().issue(Caller(), FakeClock())

    assert len(link.text) >= 43  # 256 bits in base64


@pytest.mark.parametrize(
    "caller",
    [
        Caller(via_socket=True, agent_id="synapse-claude-8100"),
        Caller(via_socket=True, doubt="it has exited"),
        Caller(via_socket=True, terminal_doubt="it has no terminal"),
        Caller(is_owner=True),
        Caller(scope="key:1", actions=frozenset({*ALL, "register"}), name="operator"),
        Caller(scope="local", actions=frozenset(ALL), session_id="1", name="dashboard"),
    ],
    ids=["agent", "doubtful", "no terminal", "owner over TCP", "key", "session"],
)
async def test_only_a_person_at_the_socket_gets_a_link(routes: SessionRoutes, caller: Caller) -> None:
    with pytest.raises(PersonRequired, match="only a person") as refused:
        await routes.ask("POST /dashboard/links", {}, caller)
    assert caller.objection in refused.value.hint


async def test_a_link_may_give_fewer_rights(routes: SessionRoutes) -> None:
    answer = await routes.open(await routes.code({"actions": ["read"]}))

    assert json.loads(answer.body)["session"]["actions"] == ["read"]
    assert routes.sessions.all()[0].actions == {"read"}


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"actions": ["register"]}, InvalidRequest),
        ({"actions": ["fly"]}, InvalidRequest),
        ({"actions": []}, InvalidRequest),
        ({"actions": "read"}, InvalidRequest),
        ({"rights": []}, InvalidRequest),
        (b"{", MalformedJson),
        (b"\xff", MalformedJson),
    ],
)
async def test_a_link_gives_no_other_rights(routes: SessionRoutes, body: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        await routes.ask("POST /dashboard/links", body)


@pytest.mark.parametrize("body", [{}, {"code": 1}, {"code": "x", "more": 1}, b"no"])
async def test_a_session_needs_a_code(routes: SessionRoutes, body: object) -> None:
    with pytest.raises(InvalidRequest):
        await routes.ask("POST /dashboard/session", body)


async def test_there_are_only_so_many_links_at_once(routes: SessionRoutes) -> None:
    for _ in range(MOST_LINKS):
        await routes.code()
    with pytest.raises(RateLimited, match="links"):
        await routes.code()


async def test_over_https_the_cookie_is_secure(routes: SessionRoutes) -> None:
    answer = await routes.open(await routes.code(), "https://agents.example.com")

    cookie = dict(answer.headers)[b"set-cookie"]
    assert cookie.startswith(b"__Host-synapse_session_8000=")
    assert b"; Secure;" in cookie


async def test_a_page_sees_its_session_and_ends_it(routes: SessionRoutes) -> None:
    await routes.open(await routes.code())
    (session,) = routes.sessions.all()

    shown = json.loads((await routes.ask("GET /dashboard/session", caller=session.caller())).body)
    ended = await routes.ask("DELETE /dashboard/session", caller=session.caller())

    assert shown["session"]["id"] == session.session_id
    assert b"Max-Age=0" in dict(ended.headers)[b"set-cookie"]
    assert routes.sessions.all() == ()
    with pytest.raises(Unauthenticated):
        await routes.ask("GET /dashboard/session", caller=session.caller())


@pytest.mark.parametrize("what", ["GET /dashboard/session", "DELETE /dashboard/session"])
async def test_other_callers_have_no_session(routes: SessionRoutes, what: str) -> None:
    with pytest.raises(Unauthenticated, match="no session"):
        await routes.ask(what, caller=Caller(scope="key:1", name="ci"))


async def test_a_failing_file_is_not_shown_to_callers(routes: SessionRoutes, tmp_path: Path) -> None:
    code = await routes.code()
    (tmp_path / "sessions.json").mkdir()

    with pytest.raises(StoreFailed) as failed:
        await routes.open(code)
    assert str(tmp_path) not in str(failed.value) + failed.value.hint


async def test_no_log_has_a_secret(routes: SessionRoutes, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG"):
        code = await routes.code()
        answer = await routes.open(code)

    logged = " ".join(str(vars(record)) for record in caplog.records)
    assert "session_opened" in logged
    assert code not in logged
    assert json.loads(answer.body)["token"] not in logged
    assert dict(answer.headers)[b"set-cookie"].decode().partition(";")[0].partition("=")[2] not in logged


@pytest.mark.parametrize(
    ("config", "url", "page"),
    [
        (GatewayConfig(), "http://localhost:8000", "http://127.0.0.1:8000"),
        (GatewayConfig(host="localhost"), "http://localhost:8000", "http://127.0.0.1:8000"),
        (GatewayConfig(host="::1"), "http://localhost:8000", "http://[::1]:8000"),
        (GatewayConfig(), "https://localhost:8000", "https://localhost:8000"),
        (GatewayConfig(host="0.0.0.0"), "https://0.0.0.0:8000", "https://localhost:8000"),
        (GatewayConfig(host="0.0.0.0", behind_proxy=True), "http://0.0.0.0:8000", "http://127.0.0.1:8000"),
        (GatewayConfig(host="10.0.0.5"), "https://10.0.0.5:8000", "https://10.0.0.5:8000"),
        (GatewayConfig(public_url="http://gw.example"), "http://gw.example", "http://gw.example"),
    ],
)
def test_a_link_without_tls_names_the_address_and_not_localhost(config: GatewayConfig, url: str, page: str) -> None:
    assert page_url(config, url, 8000) == page
