"""Copilot is given the tools of its launch by flags, beside what the person passes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from synapse.drivers.pty.adapters.adapter import Prepared, ToolServer
from synapse.drivers.pty.adapters.copilot import CopilotSignals
from tests.unit.drivers.pty.adapters.launches import TOOLS, launch_in

HELP = "--session-id <id> --additional-mcp-config <json> --allow-tool [<tools>...]"
THEIRS = '{"mcpServers": {"synapse": {"type": "local", "command": "other"}}}'


def signals_in(folder: Path, tools: ToolServer | None = TOOLS, known: str = HELP) -> CopilotSignals:
    program = folder / "cli"
    program.write_text(f"#!/bin/sh\necho '{known}'\n", encoding="utf-8")
    program.chmod(0o755)
    return CopilotSignals(launch_in(folder, command=str(program), tools=tools))


def prepare(folder: Path, *arguments: str, known: str = HELP) -> Prepared:
    return signals_in(folder, known=known).prepare(arguments)


def test_the_server_is_in_a_private_file_and_exactly_it_is_allowed(tmp_path: Path) -> None:
    prepared = prepare(tmp_path, "--model", "x")

    file = tmp_path / "launch" / "mcp.json"
    assert prepared.arguments[:3] == ("--allow-tool=synapse", "--additional-mcp-config", f"@{file}")
    assert prepared.arguments[-2:] == ("--model", "x")
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(file.read_text(encoding="utf-8")) == {
        "mcpServers": {
            "synapse": {
                "type": "local",
                "command": "/opt/bin/synapse",
                "args": ["mcp"],
                "env": dict(TOOLS.env),
                "tools": ["*"],
                "timeout": 600_000,
            }
        }
    }
    assert prepared.lacks_tools == ""


def test_our_shell_commands_get_no_rule_because_it_would_allow_all_of_synapse(tmp_path: Path) -> None:
    assert TOOLS.allowed_commands

    assert not any("shell(" in argument for argument in prepare(tmp_path).arguments)


def test_a_launch_without_a_server_gets_none(tmp_path: Path) -> None:
    signals = signals_in(tmp_path, tools=None)

    assert signals.prepare(("--resume",)).arguments == ("--resume",)
    signals.stop()
    assert not (tmp_path / "launch").exists()


def test_the_file_is_gone_when_copilot_has_ended(tmp_path: Path) -> None:
    signals = signals_in(tmp_path)
    signals.prepare(())
    assert (tmp_path / "launch").exists()

    signals.stop()

    assert not (tmp_path / "launch").exists()


@pytest.mark.parametrize("place", [".copilot/mcp-config.json", ".mcp.json", ".github/mcp.json", "named.json"])
def test_a_server_of_our_name_that_the_person_has_is_left_as_it_is(tmp_path: Path, place: str) -> None:
    file = tmp_path / place
    file.parent.mkdir(exist_ok=True)
    file.write_text(THEIRS, encoding="utf-8")

    assert_none_given(prepare(tmp_path, "--resume", "--additional-mcp-config", "@named.json"))


@pytest.mark.parametrize("given", [f"--additional-mcp-config={THEIRS}", "--additional-mcp-config=@~/own.json"])
def test_a_server_of_our_name_in_the_persons_flags_is_left_as_it_is(tmp_path: Path, given: str) -> None:
    (tmp_path / "own.json").write_text(THEIRS, encoding="utf-8")

    assert_none_given(prepare(tmp_path, "--resume", given))


@pytest.mark.parametrize(
    "refusal",
    [
        ("--deny-tool=synapse",),
        ("--deny-tool", "write", "synapse"),
        ("--disable-mcp-server", "synapse"),
        ("--available-tools=bash",),
        ("--available-tools", "bash", "view"),
    ],
)
def test_what_the_person_switches_off_is_not_given(tmp_path: Path, refusal: tuple[str, ...]) -> None:
    assert_none_given(prepare(tmp_path, "--resume", *refusal))


@pytest.mark.parametrize(
    "harmless",
    [
        ("--deny-tool=synapse(send)",),
        ("--deny-tool=shell(git push)",),
        ("--disable-mcp-server", "theirs"),
        ("--available-tools=bash,synapse-reply",),
        ("--additional-mcp-config", '{"mcpServers": {"theirs": {}}}'),
        ("--additional-mcp-config", "no json"),
    ],
)
def test_other_choices_of_the_person_stay_beside_ours(tmp_path: Path, harmless: tuple[str, ...]) -> None:
    prepared = prepare(tmp_path, *harmless)

    assert prepared.arguments[0] == "--allow-tool=synapse"
    assert prepared.arguments[-len(harmless) :] == harmless


def test_an_old_version_gets_no_flag_that_it_does_not_know(tmp_path: Path) -> None:
    assert_none_given(prepare(tmp_path, "--resume", known="--session-id <id>"))


def assert_none_given(prepared: Prepared) -> None:
    assert prepared.arguments[0] == "--resume"
    assert prepared.lacks_tools
