"""gateway.toml is read strictly, and its mistakes are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from synapse.core.errors import InvalidSettings
from synapse.core.extension import Extension
from synapse.gateway.config import AgentConfig, GatewayConfig, load_config, require_file

WHOLE = """
host = "127.0.0.1"
port = 9000
grpc_port = 9001
public_url = "https://agents.example.com/"
default_agent = "reviewer"
public_discovery = true
behind_proxy = true

[auth]
api_keys = true

[[agents]]
id = "reviewer"
profile = "claude"
arguments = ["--resume"]
working_dir = "work"
advertise_grpc = false
advertise_0_3 = false

[[agents]]
id = "tck"
driver = "scripted"
script = "tck.toml"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "gateway.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, WHOLE))

    assert (config.port, config.grpc_port, config.default_agent) == (9000, 9001, "reviewer")
    assert config.public_url == "https://agents.example.com"
    assert config.auth == {"api_keys": True}
    reviewer, tck = config.agents
    assert (reviewer.profile, reviewer.arguments, reviewer.start) == ("claude", ("--resume",), True)
    assert reviewer.working_dir == str(tmp_path / "work")
    assert (reviewer.advertise_grpc, reviewer.advertise_0_3, reviewer.advertise_supervisor) == (False, False, True)
    assert (tck.driver, tck.script) == ("scripted", str(tmp_path / "tck.toml"))
    assert config.agent("tck") is tck
    assert config.agent("nobody") == AgentConfig(id="nobody")


def test_capabilities_of_an_agent_are_switched_off(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, "[[agents]]\nid = 'a'\nstreaming = false\npush_notifications = false"))
    assert config.agent("a").lacks == ("streaming", "pushNotifications")
    assert config.agent("b").lacks == ()


def test_the_extensions_of_an_agent_are_read(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, "[[agents]]\nid = 'a'\nextensions = [{ uri = 'urn:a', required = true }]"))
    assert config.agent("a").extensions == (Extension(uri="urn:a", required=True),)
    assert config.agent("b").extensions == ()


def test_variables_that_hold_secrets_are_known(tmp_path: Path) -> None:
    assert load_config(tmp_path / "none.toml").secret_variables == frozenset()
    config = load_config(write(tmp_path, "[auth.jwt]\nsecret_env = 'JWT_SECRET'"))
    assert config.secret_variables == {"JWT_SECRET"}


def test_without_a_file_the_defaults_count_and_flags_count_most(tmp_path: Path) -> None:
    assert load_config(tmp_path / "none.toml") == GatewayConfig()
    config = load_config(write(tmp_path, "port = 9000"), {"port": 9100, "host": None, "no_auth": True})
    assert (config.port, config.host, config.no_auth) == (9100, "127.0.0.1", True)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("prot = 1", "did you mean 'port'"),
        ("port = '1'", "'port' must be a whole number"),
        ("port = true", "'port' must be a whole number"),
        ("port = 70000", "not a port"),
        ("mcp_wait = 0", "'mcp_wait' must be at least 1 second"),
        ("no_auth = true", "unknown setting 'no_auth' only the command line takes it: --no-auth"),
        ("[agent]\nid = 'a'", "did you mean 'agents'"),
        ("[[agent]]\nid = 'a'", "did you mean 'agents'"),
        ("something_else = 1", "known here: agents, allow_private_webhooks, auth, "),
        ("public_url = 'example.com'", "is not an address"),
        ("public_discovery = 1", "true or false"),
        ("auth = 1", "must be a table"),
        ("= 1", "is not TOML"),
        ("agents = 1", "under [[agents]]"),
        ("[[agents]]\nprofile = 'x'", "has no id"),
        ("[[agents]]\nid = 'key.a'", "'key.a' cannot be an agent's id"),
        ("[[agents]]\nid = '../a'", "'../a' cannot be an agent's id"),
        ("[[agents]]\nid = 'a'\n[[agents]]\nid = 'a'", "two agents have the id 'a'"),
        ("[[agents]]\nid = 'a'\nprofil = 'x'", "did you mean 'profile'"),
        ("[[agents]]\nid = 'a'\ndriver = 'magic'\nscript = 'x'", "no driver 'magic'"),
        ("[[agents]]\nid = 'a'\ndriver = 'scripted'", "go together"),
        ("[[agents]]\nid = 'a'\narguments = 'x'", "a list of texts"),
        ("[[agents]]\nid = 'a'\nprofile = 'x'\ndriver = 'scripted'\nscript = 'x'", "choose one of them"),
        ("[[agents]]\nid = 'a'\nstreaming = 'no'", "agent 'a': 'streaming' must be true or false, not 'no'"),
        ("[[agents]]\nid = 'a'\nextensions = 1", "agent 'a': 'extensions' must be a list of tables, not 1"),
        ("[[agents]]\nid = 'a'\nextensions = [{ uri = 'x' }]", "agent 'a': extension 1: 'uri' must be a URI"),
        ("[[agents]]\nid = 'a'\nextension = []", "did you mean 'extensions'"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(InvalidSettings) as error:
        load_config(write(tmp_path, text))
    assert what in f"{error.value} {error.value.hint}"


def test_a_file_named_on_the_command_line_must_exist(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings):
        require_file(tmp_path / "none.toml")
    require_file(write(tmp_path, ""))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="cannot be read"):
        load_config(tmp_path)
