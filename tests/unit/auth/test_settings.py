"""The access settings of a gateway are read strictly."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import synapse as package
from synapse.auth.settings import AccessSettings, read_access
from synapse.core.caller import ACTIONS
from synapse.core.errors import InvalidSettings

ROOT = Path(package.__file__).parents[1]
WHERE = Path("etc/gateway.toml")
SECRET = "0123456789abcdef0123456789abcdef"
ENVIRON = {"JWT_SECRET": SECRET, "SHORT": "short"}
EVERYTHING = """
behind_proxy = true
[auth]
api_keys = false
custom = "our.auth:check"
custom_description = "Our badge"
[auth.jwt]
issuer = "https://i"
audience = "synapse"
jwks_url = "https://i/keys"
algorithms = ["RS256", "EdDSA"]
leeway = 5
agents_claim = "agents"
[auth.jwt.scopes]
reader = "read"
writer = ["read", "send"]
[rate_limit]
requests_per_minute = 10
burst = 2
failures_per_minute = 3
[cors]
origins = ["https://app.example/", "http://localhost:5173"]
[tls]
cert = "cert.pem"
key = "/secret/key.pem"
"""


def read(text: str) -> AccessSettings:
    return read_access(tomllib.loads(text), WHERE, ENVIRON)


def jwt(*lines: str) -> str:
    return "\n".join(["[auth.jwt]", 'issuer = "https://i"', 'audience = "synapse"', *lines])


def test_without_settings_keys_are_required() -> None:
    assert read('port = 8000\nhost = "127.0.0.1"') == AccessSettings()
    assert AccessSettings().api_keys
    assert not AccessSettings().no_auth


def test_all_settings_are_read() -> None:
    access = read(EVERYTHING)

    assert (access.api_keys, access.custom, access.custom_description) == (False, "our.auth:check", "Our badge")
    assert (access.requests_per_minute, access.burst, access.failures_per_minute) == (10, 2, 3)
    assert access.origins == ("https://app.example", "http://localhost:5173")
    assert (access.tls_cert, access.tls_key) == (Path("etc/cert.pem"), Path("/secret/key.pem"))
    assert access.behind_proxy
    assert access.jwt is not None
    rules = access.jwt.rules
    assert (rules.issuer, rules.audience, rules.leeway, rules.agents_claim) == ("https://i", "synapse", 5, "agents")
    assert rules.algorithms == {"RS256", "EdDSA"}
    assert rules.actions == {"reader": {"read"}, "writer": {"read", "send"}}
    assert access.jwt.jwks_url == "https://i/keys"


def test_each_action_has_a_default_scope() -> None:
    access = read(jwt('jwks_file = "keys.json"'))

    assert access.jwt is not None
    assert access.jwt.jwks_file == Path("etc/keys.json")
    assert access.jwt.rules.algorithms == {"RS256", "ES256"}
    assert access.jwt.rules.actions == {f"synapse:{action}": {action} for action in ACTIONS}


def test_a_secret_comes_from_the_environment_and_is_never_shown() -> None:
    access = read(jwt('secret_env = "JWT_SECRET"'))

    assert access.jwt is not None
    assert access.jwt.secret == SECRET.encode()
    assert access.jwt.rules.algorithms == {"HS256"}
    assert SECRET not in repr(access)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[auth]\napi_key = true", "api_key"),
        ("[auth]\napi_keys = 1", "api_keys"),
        ('[auth]\ncustom = "our.auth"', "package.module:callable"),
        ("[rate_limit]\nburst = -1", "negative"),
        ("[rate_limit]\nrate = 1", "rate"),
        ('[cors]\norigins = ["*"]', "not an origin"),
        ('[cors]\norigins = ["https://a.example/path"]', "not an origin"),
        ('[cors]\norigins = ["a.example"]', "not an origin"),
        ('[tls]\ncert = "a.pem"', "key"),
        ('behind_proxy = "yes"', "behind_proxy"),
        ("auth = 5", "auth"),
        (jwt(), "needs exactly one of"),
        (jwt('jwks_url = "https://i/keys"', 'secret_env = "JWT_SECRET"'), "needs exactly one of"),
        (jwt('jwks_url = "http://i/keys"'), "https://"),
        (jwt('jwks_url = "https:///keys"'), "https://"),
        (jwt('jwks_url = "https://i/keys"', 'algorithms = ["none"]'), "none cannot"),
        (jwt('jwks_url = "https://i/keys"', 'algorithms = ["HS256"]'), "HS256 cannot"),
        (jwt('secret_env = "JWT_SECRET"', 'algorithms = ["RS256"]'), "RS256 cannot"),
        (jwt('secret_env = "JWT_SECRET"', 'algorithms = ["HS512"]'), "64 bytes"),
        (jwt('secret_env = "SHORT"'), "32 bytes"),
        (jwt('secret_env = "UNSET"'), "UNSET"),
        (jwt('jwks_file = "k"', "leeway = -1"), "negative"),
        (jwt('jwks_file = "k"', 'scopes = {a = "fly"}'), "fly"),
        (jwt('jwks_file = "k"', "secret = 5"), "secret"),
        ('[auth.jwt]\nissuer = ""\naudience = "a"\njwks_file = "k"', "must not be empty"),
        ('[auth.jwt]\nissuer = "https://i"\njwks_file = "k"', "audience"),
    ],
)
def test_an_invalid_or_unsafe_setting_is_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(InvalidSettings, match=why) as refused:
        read(text)

    assert str(refused.value).startswith("etc/gateway.toml: ")
    assert refused.value.hint
    assert SECRET not in f"{refused.value} {refused.value.hint}"


def test_the_examples_of_the_documentation_are_valid() -> None:
    page = (ROOT / "docs" / "howto" / "secure-the-gateway.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    tokens = read(blocks[0] + blocks[1])
    others = read("\n".join(blocks[2:]))

    assert tokens.jwt is not None
    assert tokens.jwt.rules.actions["agents.user"] == {"read", "send", "cancel"}
    assert others == AccessSettings(
        custom="our_company.badges:check",
        custom_description="The badge of our company in X-Badge",
        origins=("https://app.example.com",),
    ), "the numbers of the page are the defaults"


def test_a_key_set_on_this_machine_needs_no_tls() -> None:
    access = read(jwt('jwks_url = "http://127.0.0.1:9000/keys"'))

    assert access.jwt is not None
    assert access.jwt.jwks_url == "http://127.0.0.1:9000/keys"


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        ("[auth]\napi_key = true", "[auth]: unknown setting 'api_key'", "did you mean 'api_keys'?"),
        (jwt('jwk_file = "k"'), "[auth.jwt]: unknown setting 'jwk_file'", "did you mean 'jwks_file'?"),
        ("[auth.jwt]\nisuer = 'a'", "[auth.jwt]: unknown setting 'isuer'", "did you mean 'issuer'?"),
        ("[rate_limit]\nbrust = 1", "[rate_limit]: unknown setting 'brust'", "did you mean 'burst'?"),
        ("[cors]\norigin = []", "[cors]: unknown setting 'origin'", "did you mean 'origins'?"),
        ("[tls]\ncertificate = 'a'", "[tls]: unknown setting 'certificate'", "known here: cert, key"),
    ],
)
def test_an_unknown_setting_is_named_with_the_nearest_known_one(text: str, what: str, hint: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        read(text)
    assert (str(refused.value), refused.value.hint) == (f"{WHERE}: {what}", hint)
