"""Which requests a browser's session admits: only those of the gateway's own page, over HTTP and WebSockets alike."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from synapse.auth.authenticators import SameUserAuthenticator
from synapse.auth.gateway import ANONYMOUS, GatewayAuth
from synapse.auth.sessions import LONGEST, SESSION_ACTIONS, NewSession, SessionAuthenticator, SessionFile
from synapse.core.caller import AuthMethods, Caller
from synapse.core.errors import CredentialsRefused, Forbidden, ForeignOrigin, InternalFailure, RateLimited
from synapse.server.asgi import Scope
from synapse.server.middleware import WebNames
from tests.fakes.clock import FakeClock
from tests.unit.auth.gateway_requests import KeyShelf, a_scope, admitted, limits, make_auth

HOST = "127.0.0.1:8000"
PAGE = f"http://{HOST}"
COOKIE = "synapse_session_8000"
ME = os.getuid()


class Browser:
    """A browser with a session, and the gateway that it talks to; `more` are headers that it sends instead."""

    def __init__(self, home: Path, *, no_auth: bool = False) -> None:
        self.clock = FakeClock()
        self.sessions = SessionFile(home, self.clock)
        self.new: NewSession = self.sessions.create(frozenset(SESSION_ACTIONS), timedelta(hours=12))
        self.shelf = KeyShelf()
        known = [SameUserAuthenticator(ME)] if no_auth else []
        self.auth: GatewayAuth = make_auth(
            *known,
            clock=self.clock,
            shelf=None if no_auth else self.shelf,
            methods=AuthMethods() if no_auth else None,
            names=WebNames(["localhost:8000", HOST], origins=["https://app.example"]),
            limits=limits(failures=3),
            sessions=SessionAuthenticator(self.sessions, COOKIE),
        )

    def get(self, path: str = "/dashboard/overview", **more: str) -> Scope:
        return self._scope(path, "http", "GET", **{"x_synapse_token": self.new.token, **more})

    def post(self, path: str = "/dashboard/agents/a/messages", **more: str) -> Scope:
        return self._scope(path, "http", "POST", **{"x_synapse_token": self.new.token, "origin": PAGE, **more})

    def websocket(self, path: str = "/dashboard/terminals", **more: str) -> Scope:
        offered = f"synapse.terminals, token.{self.new.token}"
        return self._scope(path, "websocket", "GET", **{"sec_websocket_protocol": offered, "origin": PAGE, **more})

    def _scope(self, path: str, kind: str, method: str, **headers: str) -> Scope:
        fetched = {"host": HOST, "cookie": f"{COOKIE}={self.new.cookie}", "sec_fetch_site": "same-origin"}
        scope = a_scope(kind, path, b"", ME, **{**fetched, **headers})
        return {**scope, "method": method} if kind == "http" else scope


Ask = Callable[..., Scope]
WAYS = ("get", "post", "websocket")


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    return Browser(tmp_path)


@pytest.fixture(params=WAYS)
def ask(request: pytest.FixtureRequest, browser: Browser) -> Ask:
    way: Ask = getattr(browser, request.param)
    return way


async def test_the_page_is_admitted_with_the_actions_of_its_session(browser: Browser, ask: Ask) -> None:
    caller = await admitted(browser.auth, ask())

    assert caller == browser.new.session.caller()
    assert caller.holds()


@pytest.mark.parametrize("more", [{"origin": "", "sec_fetch_site": ""}, {"origin": PAGE}, {"sec_fetch_site": "none"}])
async def test_a_page_that_only_reads_may_omit_what_old_browsers_omit(browser: Browser, more: dict[str, str]) -> None:
    assert (await admitted(browser.auth, browser.get(**more))).session_id


async def test_a_session_needs_its_cookie(browser: Browser, ask: Ask) -> None:
    for cookie in ("", "other=1", f"synapse_session={browser.new.cookie}"):
        with pytest.raises(CredentialsRefused, match="cookie is missing"):
            await admitted(browser.auth, ask(cookie=cookie))
    with pytest.raises(CredentialsRefused, match="not known"):
        await admitted(browser.auth, ask(cookie=f"{COOKIE}=guess"))


@pytest.mark.parametrize("token", ["", "0" * 64])
async def test_a_session_needs_its_token(browser: Browser, ask: Ask, token: str) -> None:
    protocol = {"sec_websocket_protocol": f"synapse.terminals, token.{token}"}
    wrong = protocol if ask == browser.websocket else {"x_synapse_token": token}

    with pytest.raises(CredentialsRefused, match="not known" if token else "token is missing"):
        await admitted(browser.auth, ask(**wrong))


async def test_the_token_counts_as_a_subprotocol_only_at_a_handshake(browser: Browser) -> None:
    scope = {**browser.websocket(), "type": "http", "method": "GET"}

    with pytest.raises(CredentialsRefused, match="token is missing"):
        await admitted(browser.auth, scope)


@pytest.mark.parametrize(
    "more",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://127.0.0.1"},
        # An origin of the settings may use the gateway with credentials of its own, but with no session.
        {"origin": "https://app.example"},
        # Another program may listen at `localhost` on the other version of IP.
        {"origin": "http://localhost:8000"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "Same-Origin, cross-site"},
        {"host": "evil.example"},
        {"host": "evil.example:8000", "origin": "http://evil.example:8000"},
        {"host": ""},
    ],
    ids=str,
)
async def test_no_other_page_uses_a_session(browser: Browser, ask: Ask, more: dict[str, str]) -> None:
    with pytest.raises(ForeignOrigin):
        await admitted(browser.auth, ask(**more))


@pytest.mark.parametrize("way", ["post", "websocket"])
async def test_a_request_that_changes_something_names_its_page(browser: Browser, way: str) -> None:
    ask: Ask = getattr(browser, way)

    with pytest.raises(ForeignOrigin, match="Origin"):
        await admitted(browser.auth, ask(origin=""))
    twice = ask()
    twice["headers"] = [*twice["headers"], (b"origin", PAGE.encode())]
    with pytest.raises(ForeignOrigin, match="Origin"):
        await admitted(browser.auth, twice)


async def test_a_session_counts_nowhere_else(browser: Browser) -> None:
    for path in ("/tasks", "/agents", "/mcp", "/dashboards/x", "/", "/dashboard"):
        with pytest.raises(CredentialsRefused, match="needs credentials"):
            await admitted(browser.auth, browser.get(path))


async def test_a_revoked_session_is_refused_and_its_callers_hold_no_more(browser: Browser, ask: Ask) -> None:
    caller = await admitted(browser.auth, ask())

    browser.sessions.revoke(browser.new.session.session_id)

    assert not caller.holds()
    with pytest.raises(CredentialsRefused, match="revoked") as refused:
        await admitted(browser.auth, ask())
    assert "synapse dashboard" in refused.value.hint


async def test_a_session_ends_while_its_page_is_open(browser: Browser) -> None:
    caller = await admitted(browser.auth, browser.get())
    browser.clock.advance(LONGEST.total_seconds())

    assert not caller.holds()
    with pytest.raises(CredentialsRefused, match="ended"):
        await admitted(browser.auth, browser.get())


async def test_a_page_with_an_ended_session_exhausts_no_limit(browser: Browser) -> None:
    text = browser.shelf.add("ci")
    browser.sessions.revoke_all()

    for _ in range(10):
        with pytest.raises(CredentialsRefused):
            await admitted(browser.auth, browser.get())
    assert (await admitted(browser.auth, a_scope(host=HOST, x_api_key=text))).name == "ci"


async def test_an_unreadable_file_admits_nobody_and_tells_no_path(browser: Browser, tmp_path: Path) -> None:
    caller = await admitted(browser.auth, browser.get())
    (tmp_path / "sessions.json").chmod(0o666)
    os.utime(tmp_path / "sessions.json", (1, 1))

    assert not caller.holds()
    with pytest.raises(InternalFailure) as failed:
        await admitted(browser.auth, browser.get())
    assert "sessions.json" not in str(failed.value) + failed.value.hint


async def test_a_cookie_that_another_port_has_set_shuts_nobody_out(browser: Browser) -> None:
    both = f"{COOKIE}=junk.junk; {COOKIE}={browser.new.cookie}"

    assert (await admitted(browser.auth, browser.get(cookie=both))).session_id


async def test_callers_with_a_key_need_no_page(browser: Browser) -> None:
    text = browser.shelf.add("ci")
    scope = {**a_scope(path="/dashboard/overview", host="gateway.internal", x_api_key=text), "method": "POST"}

    assert (await admitted(browser.auth, scope)).name == "ci"


async def test_each_session_has_a_limit_of_its_own(browser: Browser) -> None:
    other = browser.sessions.create(frozenset({"read"}), LONGEST).session.caller()

    assert other.limited_as != browser.new.session.caller().limited_as


class TestOpening:
    """The request that opens a session, whose code is checked by the route."""

    async def test_it_needs_no_credentials_and_ignores_an_old_session(self, browser: Browser) -> None:
        browser.sessions.revoke_all()

        assert await admitted(browser.auth, browser.post("/dashboard/session")) == ANONYMOUS
        assert await admitted(browser.auth, browser.post("/dashboard/session", cookie="")) == ANONYMOUS

    @pytest.mark.parametrize(
        "more",
        [
            {"origin": ""},
            {"origin": "http://evil.example"},
            {"origin": "https://app.example"},
            {"host": "evil.example:8000", "origin": "http://evil.example:8000"},
            {"sec_fetch_site": "cross-site"},
        ],
        ids=str,
    )
    async def test_only_the_own_page_may_send_it(self, browser: Browser, more: dict[str, str]) -> None:
        with pytest.raises(ForeignOrigin):
            await admitted(browser.auth, browser.post("/dashboard/session", **more))

    @pytest.mark.parametrize(("uid", "is_own"), [(None, True), (0, True), (ME, True), (ME + 1, False)])
    async def test_another_user_of_this_machine_cannot_use_a_link(
        self, browser: Browser, uid: int | None, is_own: bool
    ) -> None:
        scope = browser.post("/dashboard/session")
        scope["state"] = a_scope(uid=uid)["state"]

        if is_own:
            assert await admitted(browser.auth, scope) == ANONYMOUS
        else:
            with pytest.raises(Forbidden, match="own user"):
                await admitted(browser.auth, scope)

    async def test_ending_a_session_is_for_the_own_page_only(self, browser: Browser) -> None:
        ending = {**browser.post("/dashboard/session"), "method": "DELETE"}
        assert (await admitted(browser.auth, ending)).session_id

        with pytest.raises(ForeignOrigin):
            await admitted(browser.auth, {**browser.post("/dashboard/session", origin=""), "method": "DELETE"})

    def test_wrong_links_are_counted_together(self, browser: Browser) -> None:
        for _ in range(3):
            with pytest.raises(CredentialsRefused, match="used before"):
                browser.auth.refuse_link()
        with pytest.raises(RateLimited):
            browser.auth.refuse_link()


class TestWithoutAuthentication:
    """A gateway that admits every process of its user still tells people from them by their sessions."""

    @pytest.fixture
    def browser(self, tmp_path: Path) -> Browser:
        return Browser(tmp_path, no_auth=True)

    async def test_a_session_has_its_actions(self, browser: Browser, ask: Ask) -> None:
        caller = await admitted(browser.auth, ask())

        assert caller.is_granted("approve")
        assert caller.is_granted("attach")

    async def test_a_process_of_the_user_is_granted_nothing_that_belongs_to_people(self, browser: Browser) -> None:
        caller = await admitted(browser.auth, a_scope(path="/dashboard/overview", uid=ME, host=HOST))

        assert caller == Caller(is_owner=True)
        assert not caller.is_granted("approve")
        assert not caller.is_granted("attach")

    async def test_a_page_whose_session_has_ended_does_not_go_on_as_the_owner(self, browser: Browser, ask: Ask) -> None:
        browser.sessions.revoke_all()

        with pytest.raises(CredentialsRefused, match="revoked"):
            await admitted(browser.auth, ask())
