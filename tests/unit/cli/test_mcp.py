"""`synapse mcp`: who it serves as, how long it waits, and the entries for apps."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from synapse.cli.mcp import DEFAULT_WAIT, ReadyReport, longest_wait, run_mcp
from synapse.client.hosts import open_registry
from synapse.mcp.server import Session
from synapse.mcp.stdio import StdioServer
from tests.integration.waiting import until
from tests.unit.cli.conftest import Cli, HostFactory, become

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
BEGIN = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "clientInfo": {"name": "codex", "version": "1"}},
}


def serve(monkeypatch: pytest.MonkeyPatch, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """Runs the verb with these messages as its whole input, and returns the replies."""
    source, writing = os.pipe()
    reading, sink = os.pipe()
    os.write(writing, b"".join(json.dumps(message).encode() + b"\n" for message in messages))
    os.close(writing)

    def with_pipes(*arguments: Any) -> StdioServer:
        return StdioServer(*arguments, source=source, sink=sink)

    monkeypatch.setattr("synapse.cli.mcp.StdioServer", with_pipes)
    assert run_mcp([]) == 0
    os.close(sink)
    os.close(source)
    with os.fdopen(reading, "rb") as replies:
        return [json.loads(line) for line in replies]


def test_an_agent_has_all_tools_and_its_host_is_told_once(start: HostFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    claude = start("claude", 8100, name="ada")
    become(claude, monkeypatch)

    begun, listed, _ = serve(monkeypatch, BEGIN, LIST, {**LIST, "id": 2})

    assert "synapse-claude-8100, named ada" in begun["result"]["instructions"]
    assert [tool["name"] for tool in listed["result"]["tools"]][2] == "reply"
    told = until(lambda: [body for _, path, body in claude.requests if path == "/mcp/ready"], "the host to be told")
    assert told[0] == {"client": "codex 1", "protocol": "2025-06-18"}


def test_a_host_is_told_again_only_if_it_did_not_hear(start: HostFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    claude = start("claude", 8100)
    become(claude, monkeypatch)
    ready = ReadyReport(open_registry())
    claude.refusals["/mcp/ready"] = (503, {"error": {"code": "store_failed", "message": "not now"}})

    ready(Session("2026-07-28"))
    claude.refusals.clear()
    for _ in range(3):
        ready(Session("2026-07-28"))

    assert len([path for _, path, _ in claude.requests if path == "/mcp/ready"]) == 2


@pytest.mark.usefixtures("home")
def test_a_person_has_four_tools_and_no_host_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    (listed,) = serve(monkeypatch, LIST)

    assert [tool["name"] for tool in listed["result"]["tools"]] == ["agents", "send", "status", "cancel"]


@pytest.mark.usefixtures("home")
def test_a_person_who_types_it_is_told_what_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def is_terminal(_end: int) -> bool:
        return True

    monkeypatch.setattr("synapse.cli.mcp.os.isatty", is_terminal)

    serve(monkeypatch, LIST)

    assert "synapse mcp --help" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("10", 10.0),
        ("0.5", 0.5),
        ("", DEFAULT_WAIT),
        ("long", DEFAULT_WAIT),
        ("-1", DEFAULT_WAIT),
        ("nan", DEFAULT_WAIT),
    ],
)
def test_the_longest_wait_is_a_variable(monkeypatch: pytest.MonkeyPatch, value: str, seconds: float) -> None:
    monkeypatch.setenv("SYNAPSE_MCP_WAIT", value)

    assert longest_wait() == seconds


@pytest.mark.parametrize(
    ("app", "servers"), [("claude-desktop", "mcpServers"), ("cursor", "mcpServers"), ("vscode", "servers")]
)
def test_the_entry_of_an_app_starts_this_installation(
    synapse: Cli, monkeypatch: pytest.MonkeyPatch, app: str, servers: str
) -> None:
    ran = synapse("mcp", "config", app)

    entry = json.loads(ran.out)[servers]["synapse"]
    assert ran.code == 0
    assert Path(entry["command"]).is_absolute()
    assert os.access(entry["command"], os.X_OK)
    assert entry["args"][-1] == "mcp"
    assert entry["env"]["SYNAPSE_HOME"] == os.environ["SYNAPSE_HOME"]
    assert entry.get("type") == ("stdio" if app == "vscode" else None)
    monkeypatch.delenv("SYNAPSE_HOME")
    fields = synapse("mcp", "config", app, "--json").json
    assert fields["app"] == app
    assert fields["file"] in ran.err
    assert "env" not in fields["entry"][servers]["synapse"]


def test_without_a_script_the_entry_runs_the_module(
    synapse: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))

    entry = json.loads(synapse("mcp", "config", "cursor").out)["mcpServers"]["synapse"]

    assert entry["command"] == str(tmp_path / "python3")
    assert entry["args"] == ["-P", "-m", "synapse.cli.main", "mcp"]


@pytest.mark.parametrize("words", [["config"], ["config", "emacs"], ["serve"], ["--json"]])
def test_unknown_words_are_refused(synapse: Cli, words: list[str]) -> None:
    assert synapse("mcp", *words).code == 2


@pytest.mark.parametrize("action", ["install", "uninstall"])
def test_a_cli_that_gets_the_tools_at_launch_needs_no_installation(synapse: Cli, action: str) -> None:
    ran = synapse("mcp", action, "claude")

    assert ran.code == 2
    assert "must be gemini, not 'claude'" in ran.err
    assert "get the tools at each launch" in ran.err


def test_the_help_shows_that_an_action_may_be_missing(synapse: Cli) -> None:
    assert "synapse mcp [-h] [ACTION ...]" in synapse("mcp", "--help").out
    assert synapse("mcp", "config", "--help").out.startswith("usage: synapse mcp config [-h]")
