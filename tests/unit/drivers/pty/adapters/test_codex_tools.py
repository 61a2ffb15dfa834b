"""Codex is given the tools of its launch by `-c`, with and without a server of its own."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from synapse.drivers.pty.adapters.adapter import LaunchContext, Prepared, ToolServer
from synapse.drivers.pty.adapters.codex import (
    CodexAppServerSignals,
    CodexSignals,
    configured_servers,
    server_config,
    with_config,
)
from tests.unit.drivers.pty.adapters.launches import TOOLS, launch_in

REMOTE = "--remote <ADDR>  `unix://PATH`"
SCRIPT = """#!/bin/sh
case "$1" in
--help) echo '{help}' ;;
app-server) printf '%s\\n' "$@" > started; for last; do :; done; : > "${{last#unix://}}"; exec sleep 600 ;;
esac
"""


@pytest.fixture
def made() -> Iterator[list[CodexAppServerSignals]]:
    signals: list[CodexAppServerSignals] = []
    yield signals
    for one in signals:
        one.stop()


def launched(folder: Path, *, help_text: str = REMOTE, tools: ToolServer | None = TOOLS) -> LaunchContext:
    path = folder / "codex"
    path.write_text(SCRIPT.format(help=help_text), encoding="utf-8")
    path.chmod(0o755)
    return launch_in(folder, command=str(path), tools=tools)


def server_in(arguments: tuple[str, ...]) -> dict[str, Any]:
    """Returns the configuration of our server in the arguments."""
    configs = [word for flag, word in pairwise(arguments) if flag == "-c"]
    server: dict[str, Any] = tomllib.loads("\n".join(configs))["mcp_servers"]["synapse"]
    return server


OURS = {
    "command": "/opt/bin/synapse",
    "args": ["mcp"],
    "env_vars": ["SYNAPSE_AGENT_ID", "SYNAPSE_MCP_WAIT"],
    "default_tools_approval_mode": "approve",
    "startup_timeout_sec": 30,
    "tool_timeout_sec": 600,
}


def test_a_terminal_and_its_server_are_given_the_tools(tmp_path: Path, made: list[CodexAppServerSignals]) -> None:
    signals = CodexAppServerSignals(launched(tmp_path))
    made.append(signals)

    prepared = signals.prepare(("-c", "a=1", "resume"))

    assert server_in(prepared.arguments) == OURS
    assert prepared.lacks_tools == ""
    started = tuple((tmp_path / "started").read_text(encoding="utf-8").splitlines())
    assert server_in(started) == OURS


def test_a_terminal_without_a_server_is_given_the_tools(tmp_path: Path) -> None:
    help_text = f"{REMOTE} --no-daemon"

    prepared = CodexAppServerSignals(launched(tmp_path, help_text=help_text)).prepare(("--add-dir", "/srv"))

    assert prepared.arguments[0] == "--no-daemon"
    assert prepared.arguments[-2:] == ("--add-dir", "/srv")
    assert server_in(prepared.arguments) == OURS
    assert prepared.arguments.count("-c") == 1


def test_a_launch_without_a_server_changes_nothing(tmp_path: Path) -> None:
    tools = ToolServer(allowed_commands=("synapse reply",))

    prepared = CodexSignals(launched(tmp_path, tools=tools)).prepare(("-m", "x"))

    assert prepared == Prepared(arguments=("-m", "x"))


def test_a_version_that_may_not_know_the_configuration_is_given_none(tmp_path: Path) -> None:
    prepared = CodexSignals(launched(tmp_path, help_text="--model")).prepare(())

    assert prepared.arguments == ()
    assert "this version of Codex" in prepared.lacks_tools


@pytest.mark.parametrize("place", [".codex/config.toml", "work/.codex/config.toml"])
def test_a_server_of_the_same_name_in_a_configuration_is_left_alone(tmp_path: Path, place: str) -> None:
    file = tmp_path / place
    file.parent.mkdir(parents=True)
    file.write_text('[mcp_servers.synapse]\ncommand = "theirs"\n', encoding="utf-8")
    (tmp_path / "work").mkdir(exist_ok=True)
    launch = launched(tmp_path / "work")

    prepared = CodexSignals(launch).prepare(())

    assert prepared.arguments == ()
    assert prepared.lacks_tools == f"{file} has an MCP server named synapse, which is left alone"


def test_other_servers_and_an_unreadable_configuration_do_not_cost_the_tools(tmp_path: Path) -> None:
    file = tmp_path / ".codex" / "config.toml"
    file.parent.mkdir()
    for text in ('[mcp_servers.other]\ncommand = "theirs"\n', "not = [toml"):
        file.write_text(text, encoding="utf-8")

        prepared = CodexSignals(launched(tmp_path)).prepare(())

        assert prepared.lacks_tools == ""
        assert server_in(prepared.arguments) == OURS


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("-c", 'mcp_servers.synapse.command="x"'), {"synapse"}),
        (("--config", "mcp_servers.synapse={}"), {"synapse"}),
        (('--config=mcp_servers={synapse={command="x"},b={}}',), {"synapse", "b"}),
        (("-c", 'mcp_servers={synapse={command="x"'), set[str]()),
        (("-c", "mcp_serversynapse=1", "-m", "mcp_servers.synapse=1"), set[str]()),
        (("-c", 'model="mcp_servers.synapse"'), set[str]()),
    ],
)
def test_servers_in_the_persons_arguments_are_found(arguments: tuple[str, ...], names: set[str]) -> None:
    assert configured_servers(arguments) == names


def test_a_server_of_the_same_name_in_the_arguments_is_left_alone(tmp_path: Path) -> None:
    arguments = ("-c", 'mcp_servers.synapse.command="x"')

    prepared = CodexSignals(launched(tmp_path)).prepare(arguments)

    assert prepared.arguments == arguments
    assert "the arguments have an MCP server named synapse" in prepared.lacks_tools


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), ("-c", "X")),
        (("hello",), ("-c", "X", "hello")),
        (("-m", "x", "-c", "a=1", "resume"), ("-m", "x", "-c", "a=1", "-c", "X", "resume")),
        (("--config=a=1", "--", "-c"), ("--config=a=1", "-c", "X", "--", "-c")),
    ],
)
def test_our_configuration_follows_the_persons_own(arguments: tuple[str, ...], expected: tuple[str, ...]) -> None:
    # A whole table of theirs (`-c mcp_servers={…}`) would replace ours.
    assert with_config(arguments, "X") == expected
    assert with_config(arguments, "") == arguments


@pytest.mark.parametrize("name", ["a b", 'qu"ote', "back\\slash", "line\nbreak", "🙂 ü", "del\x7f"])
def test_every_path_is_written_as_toml(name: str) -> None:
    config = server_config(ToolServer(command=(f"/{name}/synapse", "mcp"), wait_seconds=7.5))

    assert server_in(("-c", config)) == {
        **OURS,
        "command": f"/{name}/synapse",
        "env_vars": [],
        "tool_timeout_sec": 27.5,
    }
