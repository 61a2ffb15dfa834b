"""The official SDKs of MCP, unmodified, start `synapse mcp` and use the tools of an agent's launch, in both eras.

`scripts/clients` runs this file; `test_mcp_http_clients` says what it names in the environment.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from synapse.mcp.tools import agent_instructions
from tests.conformance.mcp_agents import SCRIPT
from tests.conformance.test_mcp_http_clients import (
    FIRST_PYTHON,
    HERE,
    JS_FOLDER,
    NEW,
    OLD,
    SECOND_PYTHON,
    first,
    js,
    second,
)
from tests.conformance.test_other_clients import NODE, PATIENCE
from tests.integration.cli.session import COMMAND, Session, session

pytestmark = pytest.mark.integration


class Launch:
    """An agent, whose tools the clients use, beside a scripted one."""

    def __init__(self, here: Session) -> None:
        self.here = here
        self.ada = here.start("ada")
        script = here.home / "tools.toml"
        script.write_text(SCRIPT, encoding="utf-8")
        started = here.run("start", "scripted", str(script), "--name", "tck", "--json")
        assert started.code == 0, started

    def said(self, client: Sequence[str], folder: str | None = None) -> dict[str, Any]:
        """Runs a client and returns what it prints."""
        launch = {"SYNAPSE_AGENT_ID": self.ada["agent_id"], "SYNAPSE_SOCKET": self.ada["socket"]}
        done = subprocess.run(
            [*client, *COMMAND, "mcp"],
            cwd=folder,
            env=self.here.environ | launch,
            capture_output=True,
            encoding="utf-8",
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        seen: dict[str, Any] = json.loads(done.stdout)
        return seen

    def check(self, seen: dict[str, Any], protocol: str) -> None:
        """Checks the conversation of a client."""
        assert seen["protocol"] == protocol
        assert seen["instructions"] == agent_instructions(self.ada["agent_id"], "ada")
        assert seen["tools"] == ["agents", "send", "reply", "status", "ask_person", "cancel"]
        assert "ada (you): ready" in seen["agents"]["blocks"][0]
        assert "tck (scripted): ready" in seen["agents"]["blocks"][0]
        assert "sent to tck" in seen["sent"]["blocks"][0]
        assert seen["slow"]["blocks"][1] == "at last: slow one"
        assert seen["answered"]["blocks"][1] == "asked"
        assert seen["progress"][:1] == [1], "after four seconds"
        assert "arrive as a message" in seen["late"]["blocks"][0]
        assert f"working at tck, from {self.ada['agent_id']}" in seen["status"]["blocks"][0]
        assert "is canceled" in seen["canceled"]["blocks"][0]
        assert seen["nothing open"]["blocks"][0].startswith("No request waits for your reply")
        assert seen["wrong"] == {"error": True, "blocks": ["the argument 'text' must be a text, not a number"]}
        assert (seen["nobody"]["error"], "'nobody'" in seen["nobody"]["blocks"][0]) == (True, True)
        assert "there is no tool 'approve'" in seen["unknown"]


@pytest.fixture(scope="module")
def launch() -> Iterator[Launch]:
    # Not pytest's folder: the path of a Unix socket must be short.
    with tempfile.TemporaryDirectory(prefix="syn-") as folder, session(Path(folder) / "h") as here:
        yield Launch(here)


@first
def test_version_1_for_python_uses_the_tools(launch: Launch) -> None:
    launch.check(launch.said([FIRST_PYTHON, str(HERE / "mcp_stdio_client.py"), "legacy"]), OLD)


@second
@pytest.mark.parametrize(("mode", "protocol"), [("legacy", OLD), ("modern", NEW)])
def test_version_2_for_python_uses_the_tools(launch: Launch, mode: str, protocol: str) -> None:
    launch.check(launch.said([SECOND_PYTHON, str(HERE / "mcp_stdio_client.py"), mode]), protocol)


@js
@pytest.mark.parametrize(
    ("version", "mode", "protocol"), [("1", "legacy", OLD), ("2", "legacy", OLD), ("2", "modern", NEW)]
)
def test_typescript_uses_the_tools(launch: Launch, version: str, mode: str, protocol: str) -> None:
    launch.check(launch.said([NODE, str(HERE / "js" / "mcp_stdio.mjs"), version, mode], JS_FOLDER), protocol)
