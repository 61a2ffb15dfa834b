"""Claude Code is given the tools of its launch by flags, beside what the person passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from synapse.drivers.pty.adapters.adapter import Prepared, ToolServer
from synapse.drivers.pty.adapters.claude import ClaudeSignals
from tests.unit.drivers.pty.adapters.launches import TOOLS, launch_in

LIMIT = "CLAUDE_CODE_MCP_AUTO_BACKGROUND_MS"


def prepare(
    folder: Path, *arguments: str, env: dict[str, str] | None = None, tools: ToolServer | None = TOOLS
) -> Prepared:
    return ClaudeSignals(launch_in(folder, env, tools=tools)).prepare(arguments)


def flag_in(prepared: Prepared, flag: str) -> str | None:
    return next((word.partition("=")[2] for word in prepared.arguments if word.startswith(f"{flag}=")), None)


def server_in(prepared: Prepared) -> dict[str, Any]:
    file = flag_in(prepared, "--mcp-config")
    assert file is not None
    config = json.loads(Path(file).read_text(encoding="utf-8"))
    assert list(config["mcpServers"]) == ["synapse"]
    server: dict[str, Any] = config["mcpServers"]["synapse"]
    return server


def test_the_server_is_in_a_private_file_of_the_launch(tmp_path: Path) -> None:
    prepared = prepare(tmp_path)

    assert server_in(prepared) == {
        "type": "stdio",
        "command": "/opt/bin/synapse",
        "args": ["mcp"],
        "env": {"SYNAPSE_AGENT_ID": "synapse-ada-8100", "SYNAPSE_MCP_WAIT": "580"},
        "timeout": 600_000,
        "alwaysLoad": True,
    }
    assert (tmp_path / "launch" / "mcp.json").stat().st_mode & 0o777 == 0o600
    assert prepared.lacks_tools == ""


def test_exactly_our_tools_and_commands_are_allowed(tmp_path: Path) -> None:
    prepared = prepare(tmp_path)

    assert flag_in(prepared, "--allowedTools") == "mcp__synapse,Bash(synapse reply:*),Bash(synapse send:*)"


def test_flags_that_take_many_words_do_not_take_what_follows(tmp_path: Path) -> None:
    prepared = prepare(tmp_path, "fix the bug")

    assert prepared.arguments[-1] == "fix the bug"
    assert all("=" in word for word in prepared.arguments if word.startswith(("--mcp-config", "--allowedTools")))


def test_a_launch_without_a_server_allows_the_commands_only(tmp_path: Path) -> None:
    prepared = prepare(tmp_path, tools=ToolServer(allowed_commands=("synapse reply",)))

    assert flag_in(prepared, "--mcp-config") is None
    assert flag_in(prepared, "--allowedTools") == "Bash(synapse reply:*)"
    assert LIMIT not in prepared.env


@pytest.mark.parametrize("given", ["missing.json", "{", '{"disableAllHooks": true}'])
def test_settings_that_switch_hooks_off_cost_no_tools(tmp_path: Path, given: str) -> None:
    prepared = prepare(tmp_path, "--settings", given)

    assert server_in(prepared)["command"] == "/opt/bin/synapse"
    assert flag_in(prepared, "--allowedTools") == flag_in(prepare(tmp_path), "--allowedTools")
    assert prepared.arguments[-2:] == ("--settings", given)


def test_the_persons_own_rules_stay_as_they_are(tmp_path: Path) -> None:
    theirs = {"permissions": {"ask": ["Bash(git push:*)"], "deny": ["WebFetch"]}}

    prepared = prepare(tmp_path, "--settings", json.dumps(theirs))

    settings = json.loads((tmp_path / "launch" / "settings.json").read_text(encoding="utf-8"))
    assert settings["permissions"] == theirs["permissions"]
    assert "Bash(synapse send:*)" in (flag_in(prepared, "--allowedTools") or "")


OWN = '{"mcpServers": {"synapse": {"command": "theirs"}}}'


@pytest.mark.parametrize(
    "arguments",
    [
        ("--mcp-config", OWN),
        (f"--mcp-config={OWN}", "hello"),
        ("--mcp-config", '{"mcpServers": {"other": {}}}', "own.json", "--model", "m"),
    ],
)
def test_a_server_of_the_same_name_in_the_persons_arguments_is_left_alone(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "own.json").write_text(OWN, encoding="utf-8")

    prepared = prepare(tmp_path, *arguments)

    assert "--mcp-config has a server named synapse" in prepared.lacks_tools
    assert flag_in(prepared, "--allowedTools") == "Bash(synapse reply:*),Bash(synapse send:*)"
    assert "launch/mcp.json" not in " ".join(prepared.arguments)
    assert prepared.arguments[-len(arguments) :] == arguments


@pytest.mark.parametrize(
    "arguments",
    [
        ("--mcp-config", '{"mcpServers": {"other": {}}}', "missing.json"),
        ("--model", "m", OWN),
        ("--", "--mcp-config", OWN),
    ],
)
def test_other_servers_and_words_do_not_cost_the_tools(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    prepared = prepare(tmp_path, *arguments)

    assert prepared.lacks_tools == ""
    assert server_in(prepared)
    assert prepared.arguments[-len(arguments) :] == arguments


@pytest.mark.parametrize(
    ("given", "wait"),
    [("0", "580"), ("900000", "580"), ("120000", "100"), ("10000", "5"), ("soon", "100"), ("", "100")],
)
def test_a_call_waits_shorter_than_the_persons_own_limit(tmp_path: Path, given: str, wait: str) -> None:
    prepared = prepare(tmp_path, env={LIMIT: given})

    assert prepared.env == {"SYNAPSE_MCP_WAIT": wait}
    assert server_in(prepared)["env"]["SYNAPSE_MCP_WAIT"] == wait


def test_without_a_limit_of_the_person_a_call_stays_in_the_foreground(tmp_path: Path) -> None:
    assert prepare(tmp_path).env == {LIMIT: "600000", "SYNAPSE_MCP_WAIT": "580"}


@pytest.mark.parametrize("place", [".claude/settings.json", ".claude/settings.local.json", "--settings"])
def test_a_limit_in_the_persons_settings_counts_before_the_environment(tmp_path: Path, place: str) -> None:
    settings = json.dumps({"env": {LIMIT: "60000"}})
    arguments = (place, settings) if place.startswith("--") else ()
    if not arguments:
        (tmp_path / ".claude").mkdir()
        (tmp_path / place).write_text(settings, encoding="utf-8")

    prepared = prepare(tmp_path, *arguments, env={LIMIT: "0"})

    assert prepared.env == {"SYNAPSE_MCP_WAIT": "40"}
