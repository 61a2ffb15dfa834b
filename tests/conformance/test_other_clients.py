"""Clients of other vendors and versions, unmodified, hold conversations through a real gateway with a script and
with a program on a terminal.

Each needs an environment of its own: `scripts/clients` makes them, names them in the environment, and runs this file.

SYNAPSE_A2A_0_3_PYTHON   a Python that has the official SDK of A2A 0.3
SYNAPSE_A2A_JS           a folder in which both official JavaScript SDKs are installed
SYNAPSE_ADK_PYTHON       a Python that has google-adk
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.real_gateway import gateway
from tests.conformance.real_hosts import CONFORMANCE, dummy_host, scripted_host

HERE = Path(__file__).parent
FORMER_PYTHON = os.environ.get("SYNAPSE_A2A_0_3_PYTHON", "")
JS_FOLDER = os.environ.get("SYNAPSE_A2A_JS", "")
ADK_PYTHON = os.environ.get("SYNAPSE_ADK_PYTHON", "")
NODE = shutil.which("node") or "node"
PATIENCE = 60.0

pytestmark = pytest.mark.integration
former = pytest.mark.skipif(not FORMER_PYTHON, reason="scripts/clients runs this, with the SDK of 0.3")
js = pytest.mark.skipif(not JS_FOLDER, reason="scripts/clients runs this, with the SDKs for JavaScript")
adk = pytest.mark.skipif(not ADK_PYTHON, reason="scripts/clients runs this, with google-adk")

STREAMED = ["task", "status-update", "status-update", "artifact-update", "artifact-update", "status-update"]
# ADK refuses an agent whose card has an address without a scheme, as A2A 1.0.1 wants it for gRPC.
CONFIG = f"""
default_agent = "conf"

[[agents]]
id = "tck"
driver = "scripted"
script = "{CONFORMANCE}"
advertise_grpc = false

[[agents]]
id = "ada"
advertise_grpc = false
"""


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Returns the address below which the agents are: `conf` and `ada` behind the gateway, `tck` in it."""
    home = tmp_path_factory.mktemp("k")
    with scripted_host(home), dummy_host(home), gateway(home, CONFIG, "--no-auth") as running:
        yield f"{running.url}/agents"


def said(command: Sequence[str], folder: str | None = None) -> Any:
    """Returns what a client prints."""
    done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def check_script(seen: dict[str, Any], *, streaming: bool) -> None:
    """Checks the conversation with the agent of docs/examples/conformance.toml."""
    assert seen["asked"] == ["input-required", "Go on."]
    assert seen["done"] == ["completed", "done: second"]
    assert seen["history"] == ["first", "Go on.", "second"]
    assert seen["direct"] == "Direct message response"
    assert seen["kinds"] == (STREAMED if streaming else ["task"])
    assert all(seen[refusal] for refusal in ("unknown", "finished", "not cancelable"))


@js
@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("mode", ["streaming", "plain"])
@pytest.mark.parametrize("agent", ["conf", "tck"])
def test_javascript_talks_with_a_script(agents: str, version: str, transport: str, mode: str, agent: str) -> None:
    program = str(HERE / "js" / "conversation.mjs")
    seen = said([NODE, program, version, f"{agents}/{agent}", transport, mode, "script"], JS_FOLDER)

    check_script(seen, streaming=mode == "streaming")
    if version == "1.0" or transport == "JSONRPC":
        assert seen["unknown"].startswith("TaskNotFoundError")
        assert seen["not cancelable"].startswith("TaskNotCancelableError")


@js
@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON"])
def test_javascript_talks_with_a_program_on_a_terminal(agents: str, version: str, transport: str) -> None:
    program = str(HERE / "js" / "conversation.mjs")
    seen = said([NODE, program, version, f"{agents}/ada", transport, "streaming", "dummy"], JS_FOLDER)

    assert seen["state"] == "completed"
    assert "echo: hello there" in seen["text"]


@former
@pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON", "GRPC"])
@pytest.mark.parametrize("mode", ["streaming", "plain"])
def test_the_sdk_of_0_3_talks_with_a_script(agents: str, transport: str, mode: str) -> None:
    program = str(HERE / "client_0_3.py")
    seen = said([FORMER_PYTHON, program, f"{agents}/conf", transport, mode, "script"])

    check_script(seen, streaming=mode == "streaming")


@former
@pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON"])
def test_the_sdk_of_0_3_talks_with_a_program_on_a_terminal(agents: str, transport: str) -> None:
    program = str(HERE / "client_0_3.py")
    seen = said([FORMER_PYTHON, program, f"{agents}/ada", transport, "streaming", "dummy"])

    assert seen["state"] == "completed"
    assert "echo: hello there" in seen["text"]


@adk
@pytest.mark.parametrize("agent", ["tck", "ada"])
def test_a_framework_uses_an_agent_as_its_own(agents: str, agent: str) -> None:
    answers = said([ADK_PYTHON, str(HERE / "client_adk.py"), f"{agents}/{agent}", "hello there", "and again"])

    for answer, text in zip(answers, ("hello there", "and again"), strict=True):
        assert text in answer
