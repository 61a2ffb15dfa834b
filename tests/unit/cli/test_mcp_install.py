"""`synapse mcp install gemini` and `uninstall gemini` tell what they did, and may be repeated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from synapse.cli.mcp_config import run_mcp_action, server_command
from synapse.core.errors import UnsupportedOperation


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("GEMINI_CLI_HOME", raising=False)
    return tmp_path


def test_each_step_is_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[str] = []
    for action in ("install", "install", "uninstall", "uninstall"):
        assert run_mcp_action([action, "gemini"]) == 0
        told.append(capsys.readouterr().out.replace(str(home), "~").split("\n")[0])

    folder = "~/.gemini/extensions/synapse"
    assert told == [
        f"installed {folder}",
        f"{folder} is installed already",
        f"removed {folder}",
        f"{folder} is not installed",
    ]


def test_the_extension_runs_the_server_of_this_installation(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_mcp_action(["install", "gemini", "--json"]) == 0

    folder = home / ".gemini" / "extensions" / "synapse"
    assert json.loads(capsys.readouterr().out) == {"cli": "gemini", "change": "installed", "folder": str(folder)}
    extension = json.loads((folder / "gemini-extension.json").read_text(encoding="utf-8"))
    server = extension["mcpServers"]["synapse"]
    assert (server["command"], *server["args"]) == server_command()


def test_a_folder_that_cannot_be_written_is_refused(home: Path) -> None:
    (home / ".gemini").write_text("a file", encoding="utf-8")

    with pytest.raises(UnsupportedOperation, match="cannot be changed"):
        run_mcp_action(["install", "gemini"])
