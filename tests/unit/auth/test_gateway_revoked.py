"""Callers that lose access: revoked and expired keys, expired tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta

import pytest

from synapse.auth.authenticators import Credentials
from synapse.auth.jwt import JwtAuthenticator, TokenRules, read_key_set
from synapse.core.caller import Caller
from synapse.core.errors import CredentialsRefused
from tests.fakes.clock import FakeClock
from tests.fakes.issuer import AUDIENCE, ISSUER, Issuer
from tests.unit.auth.gateway_requests import KeyShelf, a_scope, admitted, make_auth
from tests.unit.auth.test_jwt import FixedKeys


def revoke(shelf: KeyShelf, _clock: FakeClock) -> None:
    shelf.keys.clear()


def let_expire(_shelf: KeyShelf, clock: FakeClock) -> None:
    clock.advance(3600)


def break_file(shelf: KeyShelf, _clock: FakeClock) -> None:
    shelf.broken = True


@pytest.mark.parametrize("take_back", [revoke, let_expire, break_file])
async def test_a_caller_stays_valid_as_long_as_its_key(
    take_back: Callable[[KeyShelf, FakeClock], None],
) -> None:
    clock, shelf = FakeClock(), KeyShelf()
    text = shelf.add("ci", expires_at=clock.now() + timedelta(hours=1))
    auth = make_auth(clock=clock, shelf=shelf)
    caller = await admitted(auth, a_scope(x_api_key=text))
    assert caller.holds()
    auth.count(caller)

    take_back(shelf, clock)

    assert not caller.holds()
    with pytest.raises(CredentialsRefused, match="no longer") as refused:
        auth.count(caller)
    assert "invalid_token" in refused.value.challenge


def test_a_caller_stays_valid_until_its_token_expires_plus_the_leeway() -> None:
    clock, issuer = FakeClock(), Issuer("first")
    rules = TokenRules(issuer=ISSUER, audience=AUDIENCE, algorithms=frozenset({"ES256"}), actions={}, leeway=30)
    keys = FixedKeys(read_key_set(json.dumps(issuer.key_set()).encode()))
    token = issuer.token(now := clock.now().timestamp(), "first", exp=now + 60)
    bearer = Credentials([(b"authorization", b"Bearer " + token.encode())])
    caller = JwtAuthenticator(rules, keys, clock).authenticate(bearer)
    assert isinstance(caller, Caller)

    clock.advance(89)
    assert caller.holds()
    clock.advance(1)
    assert not caller.holds()


def test_a_caller_without_credentials_stays_valid() -> None:
    assert Caller().holds()
