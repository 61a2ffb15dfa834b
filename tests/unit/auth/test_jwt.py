"""Which tokens are accepted, and what they allow."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from synapse.auth.authenticators import Credentials, Refusal, Verdict
from synapse.auth.jwt import SYMMETRIC, IssuerSecret, JwtAuthenticator, SigningKey, TokenRules, read_key_set
from synapse.core.caller import Caller
from tests.fakes.clock import FakeClock
from tests.fakes.issuer import AUDIENCE, ISSUER, Issuer, claims_at, in_base64, signed_part, unsigned_token

SECRET = b"0123456789abcdef0123456789abcdef"
ACTIONS = {"synapse:read": frozenset({"read"}), "synapse:send": frozenset({"send", "cancel"})}


class FixedKeys:
    """A fixed set of keys."""

    def __init__(self, keys: Mapping[str, SigningKey]) -> None:
        self._keys = keys

    def find(self, kid: str) -> SigningKey | None:
        return self._keys.get(kid)


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer("first", "second")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def rules(*algorithms: str, agents_claim: str = "") -> TokenRules:
    return TokenRules(
        issuer=ISSUER,
        audience=AUDIENCE,
        algorithms=frozenset(algorithms or ("ES256",)),
        actions=ACTIONS,
        agents_claim=agents_claim,
    )


def judge(clock: FakeClock, issuer: Issuer, token: str, agents_claim: str = "") -> Verdict:
    keys = FixedKeys(read_key_set(json.dumps(issuer.key_set()).encode()))
    verdict = JwtAuthenticator(rules(agents_claim=agents_claim), keys, clock).authenticate(bearing(token))
    assert verdict is None or isinstance(verdict, Caller | Refusal)
    return verdict


def bearing(token: str) -> Credentials:
    return Credentials([(b"authorization", b"Bearer " + token.encode())])


def why(verdict: object) -> str:
    assert isinstance(verdict, Refusal)
    return verdict.why


def test_a_valid_token_gives_its_subject_the_actions_of_its_scopes(clock: FakeClock, issuer: Issuer) -> None:
    caller = judge(clock, issuer, issuer.token(clock.now().timestamp(), "second"))

    assert caller == Caller(
        scope="sub:https://issuer.example|anne",
        name="anne",
        actions=frozenset({"read", "send", "cancel"}),
    )


@pytest.mark.parametrize(
    ("claims", "actions"),
    [
        ({"scope": None, "scp": ["synapse:read"]}, "read"),
        ({"scope": None, "scp": "synapse:read"}, "read"),
        ({"scope": None}, ""),
        ({"scope": "openid"}, ""),
        ({"scope": 5}, ""),
        ({"scope": ["synapse:read", 7]}, "read"),
    ],
)
def test_scopes_are_read_as_issuers_write_them(
    clock: FakeClock, issuer: Issuer, claims: dict[str, object], actions: str
) -> None:
    caller = judge(clock, issuer, issuer.token(clock.now().timestamp(), **claims))

    assert isinstance(caller, Caller)
    assert caller.actions == frozenset(actions.split())


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": 0}, "expired"),
        ({"exp": "tomorrow"}, "expired"),
        ({"exp": True}, "expired"),
        ({"exp": None}, "lacks a claim"),
        ({"aud": "somebody"}, "for another audience"),
        ({"aud": ["a", "b"]}, "for another audience"),
        ({"aud": None}, "lacks a claim"),
        ({"iss": "https://evil.example"}, "from another issuer"),
        ({"iss": None}, "lacks a claim"),
        ({"sub": None}, "lacks a claim"),
        ({"sub": ""}, "names no subject"),
        ({"nbf": 1e12}, "not valid yet"),
        ({"nbf": "now"}, "not valid"),
        ({"iat": 1e12}, "issued in the future"),
    ],
)
def test_a_token_with_a_wrong_claim_is_refused_with_the_reason(
    clock: FakeClock, issuer: Issuer, claims: dict[str, object], reason: str
) -> None:
    assert reason in why(judge(clock, issuer, issuer.token(clock.now().timestamp(), **claims)))


def test_a_token_is_valid_until_it_expires_plus_the_leeway(clock: FakeClock, issuer: Issuer) -> None:
    token = issuer.token(clock.now().timestamp())

    clock.advance(89)
    assert isinstance(judge(clock, issuer, token), Caller)
    clock.advance(1)
    assert why(judge(clock, issuer, token)) == "the token has expired"


def test_an_audience_may_be_one_of_several(clock: FakeClock, issuer: Issuer) -> None:
    token = issuer.token(clock.now().timestamp(), aud=["other", AUDIENCE])

    assert isinstance(judge(clock, issuer, token), Caller)


@pytest.mark.parametrize(
    ("claim", "agents"),
    [(None, None), (["claude"], ["claude"]), ("claude codex", ["claude", "codex"]), (5, list[str]())],
)
def test_a_token_may_name_its_agents(clock: FakeClock, issuer: Issuer, claim: object, agents: list[str] | None) -> None:
    token = issuer.token(clock.now().timestamp(), my_agents=claim)

    caller = judge(clock, issuer, token, agents_claim="my_agents")
    assert isinstance(caller, Caller)
    assert caller.agents == (None if agents is None else frozenset(agents))
    unlimited = judge(clock, issuer, token)
    assert isinstance(unlimited, Caller)
    assert unlimited.agents is None


def test_an_unsigned_token_is_refused(clock: FakeClock, issuer: Issuer) -> None:
    assert "not accepted here" in why(judge(clock, issuer, unsigned_token(clock.now().timestamp())))


def test_a_public_key_is_never_taken_for_a_shared_secret(clock: FakeClock) -> None:
    """The token chooses HS256 and is signed with the public key as if that were a secret."""
    private = generate_private_key(65537, 2048)
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signed = signed_part("HS256", clock.now().timestamp())
    signature = hmac.digest(public, signed.encode(), "sha256")
    token = f"{signed}.{in_base64(signature)}"
    keys = FixedKeys({"first": SigningKey(private.public_key(), frozenset({"RS256"}))})

    for algorithms in (("RS256",), ("RS256", "HS256")):
        verdict = JwtAuthenticator(rules(*algorithms), keys, clock).authenticate(bearing(token))
        assert isinstance(verdict, Refusal)


def test_a_token_does_not_choose_how_its_key_is_used(clock: FakeClock) -> None:
    token = jwt.encode(claims_at(clock.now().timestamp()), SECRET, algorithm="HS256", headers={"kid": "first"})
    keys = FixedKeys({"first": SigningKey(SECRET, frozenset({"HS512"}))})

    verdict = JwtAuthenticator(rules("HS256", "HS512"), keys, clock).authenticate(bearing(token))
    assert "not known here" in why(verdict)


def test_a_signature_of_another_key_is_refused(clock: FakeClock, issuer: Issuer) -> None:
    forged = Issuer("first").token(clock.now().timestamp())

    assert why(judge(clock, issuer, forged)) == "the token's signature is wrong"


def test_a_changed_token_is_refused(clock: FakeClock, issuer: Issuer) -> None:
    header, _, signature = issuer.token(clock.now().timestamp()).split(".")
    claims = in_base64(json.dumps(claims_at(clock.now().timestamp(), sub="root")).encode())

    assert "signature" in why(judge(clock, issuer, f"{header}.{claims}.{signature}"))


def test_a_key_that_is_not_in_the_set_is_not_known(clock: FakeClock, issuer: Issuer) -> None:
    token = Issuer("third").token(clock.now().timestamp(), "third")

    assert "not known here" in why(judge(clock, issuer, token))


def test_a_key_that_does_not_fit_the_algorithm_is_refused(clock: FakeClock, issuer: Issuer) -> None:
    token = issuer.token(clock.now().timestamp())
    keys = FixedKeys({"first": SigningKey(object(), frozenset({"ES256"}))})

    assert isinstance(JwtAuthenticator(rules(), keys, clock).authenticate(bearing(token)), Refusal)


@pytest.mark.parametrize("token", ["a.b.c", "..", "e30.e30.", "é.é.é", "eyJhbGciOiJFUzI1NiIsImNyaXQiOlsieCJdfQ.e30.x"])
def test_text_that_only_looks_like_a_token_is_refused(clock: FakeClock, issuer: Issuer, token: str) -> None:
    assert isinstance(judge(clock, issuer, token), Refusal)


def test_credentials_of_another_kind_are_left_to_other_authenticators(clock: FakeClock, issuer: Issuer) -> None:
    assert judge(clock, issuer, "sk_000000000000_x") is None
    assert judge(clock, issuer, "") is None
    assert why(judge(clock, issuer, "a" * 20_000 + ".b.c")) == "the token is too long"


def test_a_shared_secret_signs_too(clock: FakeClock) -> None:
    token = jwt.encode(claims_at(clock.now().timestamp()), SECRET, algorithm="HS256")
    authenticator = JwtAuthenticator(rules("HS256"), IssuerSecret(SECRET), clock)

    assert isinstance(authenticator.authenticate(bearing(token)), Caller)
    other = jwt.encode(claims_at(clock.now().timestamp()), SECRET[::-1], algorithm="HS256")
    assert isinstance(authenticator.authenticate(bearing(other)), Refusal)
    assert SECRET.decode() not in repr(IssuerSecret(SECRET).find("")) + repr(SigningKey(SECRET, SYMMETRIC))
