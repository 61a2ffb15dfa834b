"""Builds the authentication of a gateway from its settings."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import jwt
import pytest

from synapse.auth.api_keys import Grant, KeyFile
from synapse.auth.gateway import GatewayAuth, auth_methods, build_gateway_auth, gateway_names, load_custom, new_tickets
from synapse.auth.settings import AccessSettings, read_access
from synapse.core.caller import AuthMethods, Caller
from synapse.core.errors import CredentialsRefused, ForeignOrigin, InvalidSettings, StoreCorrupt
from tests.fakes.clock import FakeClock
from tests.fakes.issuer import AUDIENCE, ISSUER, Issuer, claims_at
from tests.unit.auth.gateway_requests import a_scope, admitted

SECRET = "0123456789abcdef0123456789abcdef"
HOST = "127.0.0.1:8000"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def auth_of(access: AccessSettings, home: Path, clock: FakeClock) -> GatewayAuth:
    names = gateway_names(access, host="127.0.0.1", port=8000)
    return build_gateway_auth(access, home=home, names=names, clock=clock, tickets=new_tickets())


def token_settings(**source: str) -> AccessSettings:
    table = {"auth": {"jwt": {"issuer": ISSUER, "audience": AUDIENCE, **source}}}
    return read_access(table, Path("gateway.toml"), {"JWT_SECRET": SECRET})


async def test_keys_of_the_home_folder_are_accepted(tmp_path: Path, clock: FakeClock) -> None:
    auth = auth_of(AccessSettings(), tmp_path, clock)
    _, text = KeyFile(tmp_path, clock).create("ci", Grant())

    assert (await admitted(auth, a_scope(x_api_key=text))).name == "ci"
    with pytest.raises(CredentialsRefused):
        await admitted(auth, a_scope())


def test_a_damaged_file_of_keys_prevents_the_start(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / "keys.json").write_text("{", encoding="utf-8")
    (tmp_path / "keys.json").chmod(0o600)

    with pytest.raises(StoreCorrupt, match="is not a file of API keys"):
        auth_of(AccessSettings(), tmp_path, clock)


async def test_tokens_are_checked_with_a_secret_or_a_file(tmp_path: Path, clock: FakeClock) -> None:
    now = clock.now().timestamp()
    issuer = Issuer()
    (tmp_path / "issuer.json").write_text(json.dumps(issuer.key_set()), encoding="utf-8")
    by_secret = auth_of(token_settings(secret_env="JWT_SECRET"), tmp_path, clock)
    by_file = auth_of(token_settings(jwks_file=str(tmp_path / "issuer.json")), tmp_path, clock)
    by_address = auth_of(token_settings(jwks_url="http://127.0.0.1:1/keys"), tmp_path, clock)
    shared = f"Bearer {jwt.encode(claims_at(now), SECRET, algorithm='HS256')}"
    signed = f"Bearer {issuer.token(now)}"

    assert (await admitted(by_secret, a_scope(authorization=shared))).name == "anne"
    assert (await admitted(by_file, a_scope(authorization=signed))).name == "anne"
    for auth, wrong in ((by_secret, signed), (by_file, shared), (by_address, signed)):
        with pytest.raises(CredentialsRefused):
            await admitted(auth, a_scope(authorization=wrong))


def welcome(headers: dict[str, str], _query: dict[str, str], _path: str) -> dict[str, str] | None:
    return {"name": "guest"} if headers.get("x-badge") else None


async def test_a_custom_authenticator_is_imported(tmp_path: Path, clock: FakeClock) -> None:
    path = f"{welcome.__module__}:welcome"
    auth = auth_of(AccessSettings(custom=path), tmp_path, clock)

    assert (await admitted(auth, a_scope(x_badge="7"))).name == "guest"
    assert auth.methods.custom == "Credentials of this gateway's own kind"
    with pytest.raises(CredentialsRefused) as refused:
        await admitted(auth, a_scope())
    assert "Custom" in refused.value.challenge


@pytest.mark.parametrize("path", ["no.such.module:f", f"{__name__}:nothing", "json:__doc__"])
def test_an_unusable_authenticator_prevents_the_start(path: str) -> None:
    with pytest.raises(InvalidSettings, match="authenticator"):
        load_custom(path)


def test_a_gateway_without_authenticators_does_not_start(tmp_path: Path, clock: FakeClock) -> None:
    with pytest.raises(InvalidSettings, match="no caller could authenticate"):
        auth_of(AccessSettings(api_keys=False), tmp_path, clock)


async def test_without_authentication_this_user_has_the_local_scope(tmp_path: Path, clock: FakeClock) -> None:
    auth = auth_of(AccessSettings(no_auth=True, requests_per_minute=1, burst=1), tmp_path, clock)

    for _ in range(3):
        assert await admitted(auth, a_scope(host=HOST, uid=os.getuid())) == Caller(is_owner=True)
    assert auth.methods == AuthMethods()
    with pytest.raises(CredentialsRefused):
        await admitted(auth, a_scope(host=HOST, uid=os.getuid() + 1))


def test_the_host_names_are_those_of_this_machine_and_of_the_public_address() -> None:
    access = replace(AccessSettings(), origins=("https://app.example",))
    local = gateway_names(access, host="127.0.0.1", port=8000)
    proxied = gateway_names(access, host="127.0.0.1", port=8000, public_url="https://gw.example/x")
    public = gateway_names(access, host="0.0.0.0", port=8000, public_url="https://gw.example/x")

    local.check_host([(b"host", b"localhost:8000")])
    local.check_origin([(b"origin", b"https://app.example")])
    proxied.check_host([(b"host", b"gw.example")])
    proxied.check_host([(b"host", b"127.0.0.1:8000")])
    public.check_host([(b"host", b"10.0.0.5:8000")])
    public.check_origin([(b"host", b"10.0.0.5:8000"), (b"origin", b"https://gw.example")])
    with pytest.raises(ForeignOrigin):
        public.check_origin([(b"host", b"10.0.0.5:8000"), (b"origin", b"https://evil.example")])
    for names in (local, proxied):
        with pytest.raises(ForeignOrigin):
            names.check_host([(b"host", b"whatever")])


def test_the_accepted_methods_come_from_the_settings() -> None:
    access = replace(token_settings(secret_env="JWT_SECRET"), custom="a:b", custom_description="Our badge")

    methods = auth_methods(access)
    assert methods.api_keys
    assert methods.jwt_issuer == ISSUER
    assert "synapse:read" in methods.jwt_scopes
    assert methods.custom == "Our badge"
    assert auth_methods(AccessSettings()) == AuthMethods(api_keys=True)


def test_tickets_cannot_be_guessed(clock: FakeClock) -> None:
    tickets = new_tickets()

    texts = {tickets.issue(Caller(), clock).text for _ in range(10)}
    assert len(texts) == 10
    assert all(len(text) >= 43 for text in texts)
