"""The authentication of a gateway on real sockets: keys, tokens of a real issuer, TLS, and web pages."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from synapse.auth.api_keys import Grant
from synapse.auth.settings import AccessSettings, read_access
from tests.fakes.certificates import self_made
from tests.fakes.issuer import AUDIENCE, ISSUER, Issuer, unsigned_token
from tests.fakes.strangers import Said, Stranger, stranger_at_home
from tests.integration.server.served_gateway import ServedGateway, serve_gateway
from tests.integration.waiting import until

pytestmark = pytest.mark.integration

APP = "https://app.example"


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def issuer_at_home(issuer: Issuer) -> Iterator[Stranger]:
    with stranger_at_home() as stranger:
        stranger.routes["/keys"] = lambda _: Said(issuer.key_set())
        yield stranger


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, issuer_at_home: Stranger) -> Iterator[ServedGateway]:
    tokens = {"issuer": ISSUER, "audience": AUDIENCE, "jwks_url": f"{issuer_at_home.url}/keys"}
    table: dict[str, Any] = {
        "auth": {"jwt": tokens},
        "rate_limit": {"requests_per_minute": 600, "burst": 60, "failures_per_minute": 1000},
        "cors": {"origins": [APP]},
    }
    home = tmp_path_factory.mktemp("home")
    with serve_gateway(home, read_access(table, home / "gateway.toml", {})) as gateway:
        yield gateway


def test_without_credentials_there_is_a_challenge(gateway: ServedGateway) -> None:
    answer = gateway.ask()

    assert (answer.status, answer.code) == (401, "credentials_refused")
    assert answer.headers["www-authenticate"] == ('Bearer realm="synapse", ApiKey realm="synapse", header="X-API-Key"')


def test_a_key_is_accepted_until_it_is_revoked(gateway: ServedGateway) -> None:
    key, text = gateway.keys.create("ci", Grant())

    assert gateway.ask(Authorization=f"Bearer {text}").status == 200
    assert gateway.ask(X_API_Key=text).status == 200
    until(lambda: gateway.keys.last_used(key.key_id), "its use is written down")

    gateway.keys.revoke("ci")
    answer = gateway.ask(Authorization=f"Bearer {text}")
    assert (answer.status, answer.code) == (401, "credentials_refused")
    assert 'error="invalid_token"' in answer.headers["www-authenticate"]
    assert text not in answer.body.decode()


def test_each_request_of_a_connection_is_authenticated(gateway: ServedGateway) -> None:
    _, text = gateway.keys.create("keeper", Grant())
    connection = gateway.connection()
    try:
        for expected in (200, 401):
            connection.request("GET", "/tasks", headers={"X-API-Key": text})
            response = connection.getresponse()
            response.read()
            assert response.status == expected
            if expected == 200:
                gateway.keys.revoke("keeper")
    finally:
        connection.close()


def test_a_caller_above_its_rate_limit_learns_when_to_retry(gateway: ServedGateway) -> None:
    _, text = gateway.keys.create("hasty", Grant())

    statuses = [gateway.ask(X_API_Key=text).status for _ in range(61)]
    assert statuses == [200] * 60 + [429]
    assert gateway.ask(X_API_Key=text).headers["retry-after"] == "1"
    gateway.clock.advance(1)
    assert gateway.ask(X_API_Key=text).status == 200


def test_a_token_is_accepted_until_it_expires(gateway: ServedGateway, issuer: Issuer) -> None:
    token = issuer.token(gateway.clock.now().timestamp())

    assert gateway.ask(Authorization=f"Bearer {token}").status == 200
    gateway.clock.advance(91)
    answer = gateway.ask(Authorization=f"Bearer {token}")
    assert (answer.status, answer.json["error"]["message"]) == (401, "the token has expired")


def test_a_token_of_a_new_key_is_accepted_once_the_issuer_publishes_the_key(
    gateway: ServedGateway, issuer: Issuer, issuer_at_home: Stranger
) -> None:
    now = gateway.clock.now().timestamp()
    assert gateway.ask(Authorization=f"Bearer {issuer.token(now)}").status == 200
    issuer.add("next")
    gateway.clock.advance(10)
    asked = len(issuer_at_home.heard)

    assert gateway.ask(Authorization=f"Bearer {issuer.token(now, 'next')}").status == 200
    assert len(issuer_at_home.heard) == asked + 1
    stranger = Issuer("made-up")
    for _ in range(5):
        assert gateway.ask(Authorization=f"Bearer {stranger.token(now, 'made-up')}").status == 401
    assert len(issuer_at_home.heard) == asked + 1, "forged tokens do not cause many fetches"


def test_tokens_of_other_audiences_or_issuers_and_unsigned_ones_are_refused(
    gateway: ServedGateway, issuer: Issuer
) -> None:
    now = gateway.clock.now().timestamp()
    for token in (issuer.token(now, aud="other"), issuer.token(now, iss="https://evil.example"), unsigned_token(now)):
        assert gateway.ask(Authorization=f"Bearer {token}").status == 401


def test_a_listed_origin_is_accepted_and_another_is_not(gateway: ServedGateway) -> None:
    _, text = gateway.keys.create("page", Grant())

    preflight = gateway.ask("OPTIONS", Origin=APP, Access_Control_Request_Method="GET")
    assert (preflight.status, preflight.headers["access-control-allow-origin"]) == (204, APP)
    answer = gateway.ask(Origin=APP, X_API_Key=text)
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, APP)
    refused = gateway.ask(Origin="https://evil.example", X_API_Key=text)
    assert (refused.status, refused.code) == (403, "foreign_origin")
    assert "access-control-allow-origin" not in refused.headers


def test_a_websocket_is_refused_before_its_handshake(gateway: ServedGateway) -> None:
    for query in ("", "?ticket=made-up"):
        with pytest.raises(InvalidStatus) as refused:
            connect(f"ws://127.0.0.1:{gateway.port}/ws{query}", open_timeout=10)
        assert refused.value.response.status_code == 401
        assert refused.value.response.headers["www-authenticate"].startswith("Bearer")


def test_a_tls_server_answers_over_tls_and_not_over_plain_http(tmp_path: Path) -> None:
    certificate, key = self_made(tmp_path)
    with serve_gateway(tmp_path, replace(AccessSettings(), tls_cert=certificate, tls_key=key)) as gateway:
        _, text = gateway.keys.create("ci", Grant())

        assert gateway.ask(X_API_Key=text).status == 200
        assert gateway.ask().status == 401
        with pytest.raises((http.client.HTTPException, OSError)):
            replace(gateway, trusted=None).ask()
        gateway.trusted = ssl.create_default_context()
        with pytest.raises(ssl.SSLCertVerificationError):
            gateway.ask()


def test_without_authentication_this_user_is_admitted_and_a_foreign_host_name_is_not(tmp_path: Path) -> None:
    with serve_gateway(tmp_path, AccessSettings(no_auth=True)) as gateway:
        assert gateway.ask().status == 200
        refused = gateway.ask(Host="evil.example")
        assert (refused.status, json.loads(refused.body)["error"]["code"]) == (403, "foreign_origin")
