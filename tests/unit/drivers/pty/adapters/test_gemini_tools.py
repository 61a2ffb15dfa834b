"""Gemini is given a policy of its launch that allows our commands and tools and replaces no other policy."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from synapse.config.gemini_extension import install_extension
from synapse.drivers.pty.adapters.adapter import LaunchContext, Prepared, ToolServer
from synapse.drivers.pty.adapters.gemini import GeminiSignals
from tests.unit.drivers.pty.adapters.launches import TOOLS, launch_in

SHELL_RULE = {
    "toolName": "run_shell_command",
    "commandRegex": r'(?:synapse\ reply|synapse\ send)(?=[\s"\\])(?!.*--file)',
    "modes": ["default", "autoEdit", "yolo"],
    "decision": "allow",
    "priority": 0,
}
TOOLS_RULE = {"mcpName": "synapse", "toolName": "*", "decision": "allow", "priority": 0}


def launch_of(
    folder: Path, tools: ToolServer | None = TOOLS, known: str = "--policy", env: dict[str, str] | None = None
) -> LaunchContext:
    program = folder / "cli"
    program.write_text(f"#!/bin/sh\necho '{known}'\n", encoding="utf-8")
    program.chmod(0o755)
    return launch_in(folder, env, command=str(program), tools=tools)


def prepare(
    folder: Path,
    *arguments: str,
    tools: ToolServer | None = TOOLS,
    known: str = "--policy",
    env: dict[str, str] | None = None,
) -> Prepared:
    return GeminiSignals(launch_of(folder, tools, known, env)).prepare(("--resume", *arguments))


def rules_in(folder: Path) -> list[dict[str, Any]]:
    policy = tomllib.loads((folder / "launch" / "policy.toml").read_text(encoding="utf-8"))
    rules: list[dict[str, Any]] = policy["rule"]
    return rules


def install(folder: Path) -> None:
    install_extension({"HOME": str(folder)}, ("/opt/bin/synapse", "mcp"))


def test_our_commands_are_allowed_beside_the_policies_that_are_read_anyway(tmp_path: Path) -> None:
    prepared = prepare(tmp_path)

    file = tmp_path / "launch" / "policy.toml"
    own = str(tmp_path / ".gemini" / "policies")
    assert prepared.arguments == ("--resume", "--policy", own, "--policy", str(file))
    assert rules_in(tmp_path) == [SHELL_RULE]
    assert file.stat().st_mode & 0o777 == 0o600
    assert "synapse mcp install gemini" in prepared.lacks_tools


def test_policies_that_the_person_names_stay_and_come_first(tmp_path: Path) -> None:
    prepared = prepare(tmp_path, "--policy", "theirs.toml", "--", "a prompt")

    file = str(tmp_path / "launch" / "policy.toml")
    assert prepared.arguments == ("--resume", "--policy", "theirs.toml", "--policy", file, "--", "a prompt")


def test_the_extension_gives_the_tools_and_the_policy_allows_exactly_its_server(tmp_path: Path) -> None:
    install(tmp_path)

    prepared = prepare(tmp_path)

    assert rules_in(tmp_path) == [SHELL_RULE, TOOLS_RULE]
    assert prepared.lacks_tools == ""


def test_gemini_may_have_its_folder_elsewhere(tmp_path: Path) -> None:
    install(tmp_path / "g")

    prepared = prepare(tmp_path, env={"GEMINI_CLI_HOME": str(tmp_path / "g")})

    assert prepared.lacks_tools == ""
    assert str(tmp_path / "g" / ".gemini" / "policies") in prepared.arguments


def test_without_commands_only_the_tools_are_allowed(tmp_path: Path) -> None:
    install(tmp_path)

    prepare(tmp_path, tools=ToolServer(command=TOOLS.command))

    assert rules_in(tmp_path) == [TOOLS_RULE]


def test_without_a_server_only_the_commands_are_allowed(tmp_path: Path) -> None:
    install(tmp_path)

    prepared = prepare(tmp_path, tools=ToolServer(allowed_commands=TOOLS.allowed_commands))

    assert rules_in(tmp_path) == [SHELL_RULE]
    assert prepared.lacks_tools == ""


def test_a_launch_without_tools_has_no_policy(tmp_path: Path) -> None:
    signals = GeminiSignals(launch_of(tmp_path, tools=None))

    assert signals.prepare(("--resume",)).arguments == ("--resume",)
    signals.stop()
    assert not (tmp_path / "launch").exists()


def test_the_policy_is_gone_when_gemini_has_ended(tmp_path: Path) -> None:
    signals = GeminiSignals(launch_of(tmp_path))
    signals.prepare(())
    assert (tmp_path / "launch").exists()

    signals.stop()

    assert not (tmp_path / "launch").exists()


@pytest.mark.parametrize("place", [".gemini/settings.json", "project/.gemini/settings.json", "system.json"])
def test_settings_that_name_policies_are_not_replaced(tmp_path: Path, place: str) -> None:
    install(tmp_path)
    write(tmp_path / place, '{"policyPaths": ["strict.toml"], /* mine */}')

    prepared = in_project(tmp_path)

    assert prepared.arguments == ("--resume",)
    assert "policyPaths" in prepared.lacks_tools


@pytest.mark.parametrize("place", [".gemini/settings.json", "project/.gemini/settings.json"])
def test_a_server_of_our_name_that_the_person_has_is_not_allowed(tmp_path: Path, place: str) -> None:
    install(tmp_path)
    write(tmp_path / place, '{"mcpServers": {"synapse": {"command": "other"}}}')

    prepared = in_project(tmp_path)

    assert rules_in(tmp_path) == [SHELL_RULE]
    assert "MCP server named `synapse`" in prepared.lacks_tools


def in_project(folder: Path) -> Prepared:
    project = folder / "project"
    project.mkdir(exist_ok=True)
    launch = launch_of(folder, env={"GEMINI_CLI_SYSTEM_SETTINGS_PATH": str(folder / "system.json")})
    return GeminiSignals(replace(launch, working_dir=project)).prepare(("--resume",))


@pytest.mark.parametrize("choice", [("-e", "other"), ("--extensions=none",), ("--allowed-mcp-server-names", "theirs")])
def test_a_launch_that_leaves_the_extension_out_has_no_tools(tmp_path: Path, choice: tuple[str, ...]) -> None:
    install(tmp_path)

    prepared = prepare(tmp_path, *choice)

    assert rules_in(tmp_path) == [SHELL_RULE]
    assert "does not name it" in prepared.lacks_tools


def test_an_old_version_gets_no_flag_that_it_does_not_know(tmp_path: Path) -> None:
    prepared = prepare(tmp_path, known="")

    assert prepared.arguments == ("--resume",)
    assert "--policy" in prepared.lacks_tools


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
