"""Real CLIs connect to a gateway over MCP with a key from their environment, as docs/howto/mcp-gateway.md says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conformance.mcp_agents import mcp_config
from tests.conformance.real_gateway import RunningGateway, gateway, new_key
from tests.conformance.test_howto_mcp_gateway import blocks

PATIENCE = 60.0
QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1"}


@dataclass(frozen=True)
class Shell:
    """A user with an empty home, a working folder, and a key in the environment."""

    running: RunningGateway
    folder: Path
    key: str

    def types(self, line: str) -> str:
        """Runs a line of the document; returns what it prints."""
        home = {"HOME": str(self.folder), "PATH": os.environ["PATH"], "TERM": "xterm"}
        done = subprocess.run(
            ["bash", "-euc", self.here(line)],
            env={**home, **QUIET, "SYNAPSE_KEY": self.key, "ANTHROPIC_API_KEY": "none"},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def here(self, text: str) -> str:
        return text.replace("localhost:8000", f"localhost:{self.running.entry.port}")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with gateway(tmp_path / "g", mcp_config(tmp_path / "g")) as running:
        folder = tmp_path / "user"
        folder.mkdir()
        yield Shell(running, folder, new_key(tmp_path / "g", "laptop"))


def test_claude_code_connects(shell: Shell) -> None:
    (line,) = blocks("bash")
    shell.types(line)

    assert "✔ Connected" in shell.types("claude mcp list")
    assert shell.key not in (shell.folder / ".claude.json").read_text(encoding="utf-8")


def test_opencode_connects(shell: Shell) -> None:
    (entry,) = blocks("jsonc")
    (shell.folder / "opencode.json").write_text(shell.here(entry), encoding="utf-8")

    said = shell.types("opencode mcp list")
    assert "✓ synapse" in said
    assert "connected" in said


def test_a_wrong_key_does_not_connect(shell: Shell) -> None:
    (line,) = blocks("bash")
    shell.types(line)
    stranger = Shell(shell.running, shell.folder, "wrong")

    assert "✔ Connected" not in stranger.types("claude mcp list")
