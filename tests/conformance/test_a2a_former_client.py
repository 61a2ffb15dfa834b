"""The official SDK of A2A 0.3, unmodified, holds conversations with real hosts.

It needs an environment of its own: `scripts/clients` makes one and runs this file. SYNAPSE_A2A_0_3_PYTHON names it.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from synapse.core.agent import AgentEntry
from tests.conformance.real_hosts import dummy_host, scripted_host

PYTHON = os.environ.get("SYNAPSE_A2A_0_3_PYTHON", "")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not PYTHON, reason="scripts/clients runs this, with the SDK of 0.3"),
]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentEntry]:
    with scripted_host(tmp_path_factory.mktemp("f")) as entry:
        yield entry


@pytest.fixture(scope="module")
def dummy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentEntry]:
    with dummy_host(tmp_path_factory.mktemp("g")) as entry:
        yield entry


def converse(entry: AgentEntry, transport: str, mode: str, agent: str) -> dict[str, Any]:
    program = Path(__file__).with_name("client_0_3.py")
    said = subprocess.run(
        [PYTHON, str(program), entry.endpoint, transport, mode, agent],
        capture_output=True,
        encoding="utf-8",
        timeout=50,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    seen: dict[str, Any] = json.loads(said.stdout)
    return seen


@pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("mode", ["streaming", "plain"])
def test_a_conversation_with_a_script(script: AgentEntry, transport: str, mode: str) -> None:
    seen = converse(script, transport, mode, "script")

    assert seen["asked"] == ["input-required", "Go on."]
    assert seen["done"] == ["completed", "done: second"]
    assert seen["history"] == ["first", "Go on.", "second"]
    assert seen["direct"] == "Direct message response"
    streamed = ["task", "status-update", "status-update", "artifact-update", "artifact-update", "status-update"]
    assert seen["kinds"] == (streamed if mode == "streaming" else ["task"])
    codes = ("-32001", "-32004", "-32002") if transport == "JSONRPC" else ("404", "409", "409")
    for what, code in zip(("unknown", "finished", "not cancelable"), codes, strict=True):
        assert code in seen[what]


@pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("mode", ["streaming", "plain"])
def test_a_conversation_with_a_program_on_a_terminal(dummy: AgentEntry, transport: str, mode: str) -> None:
    seen = converse(dummy, transport, mode, "dummy")

    assert seen["state"] == "completed"
    assert "echo: hello there" in seen["text"]
