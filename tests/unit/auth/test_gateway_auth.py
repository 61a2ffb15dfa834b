"""GatewayAuth: keys, tickets, processes of this user, public paths, rate limits, and foreign web pages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from datetime import datetime, timedelta
from itertools import count

import pytest

from synapse.auth.authenticators import (
    Credentials,
    Refusal,
    SameUserAuthenticator,
    TicketAuthenticator,
    TicketBook,
    Verdict,
)
from synapse.auth.gateway import ANONYMOUS
from synapse.core.caller import AuthMethods, Caller
from synapse.core.errors import CredentialsRefused, ForeignOrigin, InternalFailure, RateLimited
from synapse.server.app import HttpApp
from synapse.server.middleware import WebNames
from tests.fakes.clock import FakeClock
from tests.unit.auth.gateway_requests import KeyShelf, a_scope, admitted, limits, make_auth
from tests.unit.server.exchange import Exchange, FixedService
from tests.unit.server.test_app import DIALECT


class Password:
    """Accepts one password, asynchronously; counts its calls."""

    unguessable = False

    def __init__(self, agents: frozenset[str] | None = None) -> None:
        self.asked = 0
        self._agents = agents

    def authenticate(self, credentials: Credentials) -> Awaitable[Verdict]:
        self.asked += 1
        return self._look_up(credentials)

    async def _look_up(self, credentials: Credentials) -> Verdict:
        await asyncio.to_thread(int)
        if not credentials.bearer:
            return None
        return (
            Caller(scope="custom:anne", name="anne", agents=self._agents)
            if credentials.bearer == "please"
            else Refusal("that is not the word")
        )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def shelf() -> KeyShelf:
    return KeyShelf()


@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
def test_a_key_is_accepted_as_a_bearer_token_and_in_its_own_header(
    clock: FakeClock, shelf: KeyShelf, header: str
) -> None:
    text = shelf.add("ci", actions=frozenset({"read"}))
    scope = a_scope(x_api_key=text) if header == "x-api-key" else a_scope(authorization=f"Bearer {text}")

    caller = make_auth(clock=clock, shelf=shelf).admit(scope)

    key_id = "000000000000"
    assert caller == Caller(scope=f"key:{key_id}", name="ci", actions=frozenset({"read"}), key_id=key_id)
    assert shelf.used == ["000000000000"]


async def test_credentials_may_name_agents_of_this_machine_with_the_machine(clock: FakeClock, shelf: KeyShelf) -> None:
    agents = frozenset({"ada@gate", "bob@box2", "eve"})
    text = shelf.add("narrow", agents=agents)
    auth = make_auth(Password(agents), clock=clock, shelf=shelf, machine="gate")

    for credentials in (text, "please"):
        caller = await admitted(auth, a_scope(authorization=f"Bearer {credentials}"))

        assert caller.agents == frozenset({"ada", "bob@box2", "eve"})
        assert caller.holds()


def test_a_decision_that_needs_no_waiting_is_returned_directly(clock: FakeClock, shelf: KeyShelf) -> None:
    auth = make_auth(Password(), clock=clock, shelf=shelf)

    assert isinstance(auth.admit(a_scope(authorization=f"bearer {shelf.add('ci')}")), Caller)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("Bearer sk_000000000000_wrong", "not known here"),
        ("Bearer sk_00000000ffff_wrong", "not known here"),
        ("Bearer nonsense", "not known here"),
        ("Basic dXNlcjpwYXNz", "not known here"),
    ],
)
async def test_wrong_credentials_are_refused_with_a_challenge(
    clock: FakeClock, shelf: KeyShelf, value: str, why: str
) -> None:
    shelf.add("ci")

    with pytest.raises(CredentialsRefused, match=why) as refused:
        await admitted(make_auth(clock=clock, shelf=shelf), a_scope(authorization=value))

    assert refused.value.challenge == (
        'Bearer realm="synapse", error="invalid_token", ApiKey realm="synapse", header="X-API-Key"'
    )


async def test_no_credentials_are_refused_without_the_word_invalid(clock: FakeClock, shelf: KeyShelf) -> None:
    with pytest.raises(CredentialsRefused, match="needs credentials") as refused:
        await admitted(make_auth(clock=clock, shelf=shelf), a_scope())

    assert refused.value.challenge == 'Bearer realm="synapse", ApiKey realm="synapse", header="X-API-Key"'
    assert "synapse keys create" in refused.value.hint


async def test_an_x_api_key_header_without_a_key_is_refused(clock: FakeClock, shelf: KeyShelf) -> None:
    with pytest.raises(CredentialsRefused, match="not an API key"):
        await admitted(make_auth(clock=clock, shelf=shelf), a_scope(x_api_key="hello"))


async def test_a_key_is_accepted_until_it_expires(clock: FakeClock, shelf: KeyShelf) -> None:
    text = shelf.add("ci", expires_at=clock.now() + timedelta(hours=1))
    auth = make_auth(clock=clock, shelf=shelf)
    scope = a_scope(x_api_key=text)

    assert (await admitted(auth, scope)).name == "ci"
    clock.advance(3600)
    with pytest.raises(CredentialsRefused, match="expired"):
        await admitted(auth, scope)


async def test_a_broken_key_file_is_an_internal_error_without_details(
    clock: FakeClock, shelf: KeyShelf, caplog: pytest.LogCaptureFixture
) -> None:
    text = shelf.add("ci")
    shelf.broken = True

    with pytest.raises(InternalFailure) as failed:
        await admitted(make_auth(clock=clock, shelf=shelf), a_scope(x_api_key=text))

    assert "secret path" not in str(failed.value)
    assert [record.message for record in caplog.records] == ["api_keys_unreadable"]
    assert text not in caplog.text


async def test_authenticators_are_tried_in_order(clock: FakeClock, shelf: KeyShelf) -> None:
    auth = make_auth(Password(), clock=clock, shelf=shelf)

    assert (await admitted(auth, a_scope(authorization="Bearer please"))).name == "anne"
    assert (await admitted(auth, a_scope(authorization=f"Bearer {shelf.add('ci')}"))).name == "ci"
    with pytest.raises(CredentialsRefused, match="not the word"):
        await admitted(auth, a_scope(authorization="Bearer now"))


async def test_slow_authenticators_are_tried_in_order(clock: FakeClock) -> None:
    first, second = Password(), Password()
    auth = make_auth(first, second, clock=clock)

    with pytest.raises(CredentialsRefused):
        await admitted(auth, a_scope(authorization="Bearer now"))
    assert (first.asked, second.asked) == (1, 1)


async def test_a_caller_above_its_rate_limit_learns_when_to_retry(clock: FakeClock, shelf: KeyShelf) -> None:
    scope = a_scope(x_api_key=shelf.add("ci"))
    other = a_scope(x_api_key=shelf.add("other"))
    auth = make_auth(clock=clock, shelf=shelf, limits=limits(requests=2))
    for _ in range(2):
        await admitted(auth, scope)

    with pytest.raises(RateLimited) as limited:
        await admitted(auth, scope)

    assert limited.value.retry_after == 30
    assert (await admitted(auth, other)).name == "other"
    clock.advance(30)
    assert (await admitted(auth, scope)).name == "ci"


async def test_an_address_with_too_many_wrong_credentials_is_limited(clock: FakeClock, shelf: KeyShelf) -> None:
    password = Password()
    auth = make_auth(password, clock=clock, shelf=shelf, limits=limits(failures=3))
    for _ in range(3):
        with pytest.raises(CredentialsRefused):
            await admitted(auth, a_scope(authorization="Bearer guess"))

    with pytest.raises(RateLimited, match="wrong credentials"):
        await admitted(auth, a_scope(authorization="Bearer please"))

    assert password.asked == 3, "the password is not even checked"
    assert (await admitted(auth, a_scope(x_api_key=shelf.add("ci")))).name == "ci", "keys cannot be guessed"
    clock.advance(20)
    assert (await admitted(auth, a_scope(authorization="Bearer please"))).name == "anne"


async def test_missing_credentials_do_not_count_as_wrong_ones(clock: FakeClock, shelf: KeyShelf) -> None:
    auth = make_auth(clock=clock, shelf=shelf, limits=limits(failures=1))

    for _ in range(5):
        with pytest.raises(CredentialsRefused):
            await admitted(auth, a_scope())


async def test_behind_a_proxy_the_address_is_the_one_that_the_proxy_saw(clock: FakeClock, shelf: KeyShelf) -> None:
    auth = make_auth(clock=clock, shelf=shelf, limits=limits(failures=1, behind_proxy=True))

    async def guess(forwarded: str) -> None:
        await admitted(auth, a_scope(authorization="Bearer guess", x_forwarded_for=forwarded))

    with pytest.raises(CredentialsRefused):
        await guess("10.0.0.1, 198.51.100.1")
    with pytest.raises(RateLimited):
        await guess("10.9.9.9, 198.51.100.1")
    with pytest.raises(CredentialsRefused):
        await guess("198.51.100.2")


async def test_without_a_proxy_the_forwarded_address_is_ignored(clock: FakeClock, shelf: KeyShelf) -> None:
    auth = make_auth(clock=clock, shelf=shelf, limits=limits(failures=1))
    with pytest.raises(CredentialsRefused):
        await admitted(auth, a_scope(authorization="Bearer guess", x_forwarded_for="198.51.100.1"))

    with pytest.raises(RateLimited):
        await admitted(auth, a_scope(authorization="Bearer guess", x_forwarded_for="198.51.100.2"))


async def test_one_network_of_ipv6_is_one_address(clock: FakeClock, shelf: KeyShelf) -> None:
    auth = make_auth(clock=clock, shelf=shelf, limits=limits(failures=1))
    scope = a_scope(authorization="Bearer guess")

    scope["client"] = ("2001:db8::1", 1)
    with pytest.raises(CredentialsRefused):
        await admitted(auth, scope)
    scope["client"] = ("2001:db8::ffff", 1)
    with pytest.raises(RateLimited):
        await admitted(auth, scope)
    scope["client"] = None
    with pytest.raises(CredentialsRefused):
        await admitted(auth, scope)


async def test_a_public_path_needs_no_credentials_but_uses_valid_ones(clock: FakeClock, shelf: KeyShelf) -> None:
    auth = make_auth(clock=clock, shelf=shelf, is_public=lambda path: path == "/agents/list.json")
    public = "/agents/list.json"

    assert await admitted(auth, a_scope(path=public)) is ANONYMOUS
    assert (await admitted(auth, a_scope(path=public, x_api_key=shelf.add("ci")))).name == "ci"
    with pytest.raises(CredentialsRefused):
        await admitted(auth, a_scope(path=public, x_api_key="wrong"))
    with pytest.raises(CredentialsRefused):
        await admitted(auth, a_scope(path="/agents"))
    with pytest.raises(ForeignOrigin):
        await admitted(auth, a_scope(path=public, host="evil.example"))


def test_an_anonymous_caller_may_read_and_sees_no_task() -> None:
    assert ANONYMOUS.actions == frozenset({"read"})
    assert not ANONYMOUS.sees("local")


async def test_a_caller_with_a_key_may_use_any_host_name(clock: FakeClock, shelf: KeyShelf) -> None:
    auth = make_auth(clock=clock, shelf=shelf)

    assert (await admitted(auth, a_scope(host="10.0.0.5:8000", x_api_key=shelf.add("ci")))).name == "ci"
    with pytest.raises(CredentialsRefused):
        await admitted(auth, a_scope(host="10.0.0.5:8000"))


async def test_a_foreign_page_is_refused_even_with_a_key(clock: FakeClock, shelf: KeyShelf) -> None:
    text = shelf.add("ci")
    auth = make_auth(clock=clock, shelf=shelf, names=WebNames(["gateway.example"], origins=["https://app.example"]))

    assert (await admitted(auth, a_scope(x_api_key=text, origin="https://gateway.example"))).name == "ci"
    assert (await admitted(auth, a_scope(x_api_key=text, origin="https://app.example"))).name == "ci"
    for kind in ("http", "websocket"):
        with pytest.raises(ForeignOrigin):
            await admitted(auth, a_scope(kind, x_api_key=text, origin="https://evil.example"))


async def test_without_authentication_only_this_user_is_admitted(clock: FakeClock) -> None:
    auth = make_auth(SameUserAuthenticator(1000), clock=clock, methods=AuthMethods())

    assert await admitted(auth, a_scope(uid=1000)) == Caller(is_owner=True)
    for uid in (1001, 0, None):
        with pytest.raises(CredentialsRefused, match="own user"):
            await admitted(auth, a_scope(uid=uid))
    with pytest.raises(ForeignOrigin):
        await admitted(auth, a_scope(uid=1000, host="evil.example"))


async def test_where_the_owner_of_a_connection_is_unknown_every_user_is_admitted(clock: FakeClock) -> None:
    auth = make_auth(SameUserAuthenticator(None), clock=clock, methods=AuthMethods())

    assert await admitted(auth, a_scope()) == Caller()


async def test_a_ticket_admits_one_handshake(clock: FakeClock, shelf: KeyShelf) -> None:
    numbers = count()
    tickets = TicketBook(lambda: f"t{next(numbers)}")
    auth = make_auth(TicketAuthenticator(tickets, clock), clock=clock, shelf=shelf)
    anne = Caller(scope="key:1", name="anne")
    query = f"x=1&ticket={tickets.issue(anne, clock).text}".encode()

    with pytest.raises(CredentialsRefused):
        await admitted(auth, a_scope(query=query))
    assert await admitted(auth, a_scope("websocket", query=query)) == anne
    with pytest.raises(CredentialsRefused, match="ticket was used"):
        await admitted(auth, a_scope("websocket", query=query))
    with pytest.raises(CredentialsRefused, match="needs credentials"):
        await admitted(auth, a_scope("websocket"))


def test_the_rules_of_http_hold_for_grpc_metadata(clock: FakeClock, shelf: KeyShelf) -> None:
    auth = make_auth(clock=clock, shelf=shelf, limits=limits(failures=1))
    path = "/lf.a2a.v1.A2AService/GetTask"
    metadata = [(b"authorization", f"Bearer {shelf.add('ci')}".encode())]

    caller = auth.admit_headers(metadata, path=path, peer="192.0.2.7")
    assert isinstance(caller, Caller)
    assert caller.name == "ci"
    with pytest.raises(CredentialsRefused):
        auth.admit_headers([(b"x-api-key", b"wrong")], path=path, peer="192.0.2.7")
    with pytest.raises(RateLimited):
        auth.admit_headers([(b"x-api-key", b"wrong")], path=path, peer="192.0.2.7")


async def test_credentials_are_neither_logged_nor_shown(
    clock: FakeClock, shelf: KeyShelf, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = "sk_000000000000_" + "5ecret"

    with pytest.raises(CredentialsRefused) as refused:
        await admitted(make_auth(clock=clock, shelf=shelf), a_scope(authorization=f"Bearer {wrong}"))

    logged = [vars(record) for record in caplog.records if record.message == "credentials_refused"]
    assert logged[0]["address"] == "192.0.2.7"
    assert "5ecret" not in f"{logged} {refused.value!r} {refused.value.hint}"
    assert "5ecret" not in repr(Credentials(a_scope(x_api_key=wrong)["headers"]))


async def test_the_answer_over_http_has_the_challenge_and_the_time_to_wait(clock: FakeClock, shelf: KeyShelf) -> None:
    auth = make_auth(Password(), clock=clock, shelf=shelf, limits=limits(requests=1))
    app = HttpApp(FixedService(None), [DIALECT], admit=auth.admit)

    async def ask(*, authorization: str) -> Exchange:
        exchange = Exchange("GET", "/.well-known/agent.json", authorization=authorization)
        return await exchange.run(app)

    refused = await ask(authorization="Bearer wrong")
    assert (refused.status, refused.code) == (401, "credentials_refused")
    assert refused.headers[b"www-authenticate"].startswith(b'Bearer realm="synapse", error="invalid_token"')
    assert (await ask(authorization="Bearer please")).status == 200
    limited = await ask(authorization="Bearer please")
    assert (limited.status, limited.code) == (429, "rate_limited")
    assert limited.headers[b"retry-after"] == b"60"
    assert datetime.fromisoformat("2026-01-15T10:30:00Z") == clock.now()
