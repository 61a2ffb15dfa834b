"""The official SDKs of MCP, unmodified, use the tools of a real gateway over Streamable HTTP, in both eras.

Each needs an environment of its own: `scripts/clients` makes them, names them in the environment, and runs this file.

SYNAPSE_MCP_1_PYTHON   a Python that has version 1 of the official SDK
SYNAPSE_MCP_2_PYTHON   a Python that has version 2
SYNAPSE_MCP_JS         a folder in which versions 1 and 2 of the official TypeScript SDK are installed
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from synapse.mcp.tools import person_instructions
from tests.conformance.mcp_agents import mcp_config
from tests.conformance.real_gateway import gateway, new_key
from tests.conformance.test_other_clients import NODE, said

HERE = Path(__file__).parent
FIRST_PYTHON = os.environ.get("SYNAPSE_MCP_1_PYTHON", "")
SECOND_PYTHON = os.environ.get("SYNAPSE_MCP_2_PYTHON", "")
JS_FOLDER = os.environ.get("SYNAPSE_MCP_JS", "")
OLD, NEW = "2025-11-25", "2026-07-28"

pytestmark = pytest.mark.integration
first = pytest.mark.skipif(not FIRST_PYTHON, reason="scripts/clients runs this, with version 1 of the SDK")
second = pytest.mark.skipif(not SECOND_PYTHON, reason="scripts/clients runs this, with version 2 of the SDK")
js = pytest.mark.skipif(not JS_FOLDER, reason="scripts/clients runs this, with the SDKs for TypeScript")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Returns the address of the tools, and a key."""
    home = tmp_path_factory.mktemp("k")
    with gateway(home, mcp_config(home)) as running:
        yield f"{running.url}/mcp", new_key(home, "laptop")


def check(seen: dict[str, Any], protocol: str) -> None:
    """Checks the conversation of a client with the agent of `mcp_agents`."""
    assert (seen["protocol"], seen["instructions"]) == (protocol, person_instructions())
    assert seen["tools"] == ["agents", "send", "status", "cancel"]
    assert seen["agents"] == {"error": False, "blocks": ["tck (scripted): ready"]}
    assert "sent to tck" in seen["sent"]["blocks"][0]
    assert seen["answered"]["blocks"][1] == "asked"
    assert seen["slow"]["blocks"][1] == "at last: slow one"
    assert seen["progress"][:1] == [1], "after five seconds"
    assert "tck asks before it goes on" in seen["asks"]["blocks"][0]
    assert seen["asks"]["blocks"][1] == "Which one?"
    assert "no answer from tck yet" in seen["late"]["blocks"][0]
    assert "working at tck, from key.laptop" in seen["status"]["blocks"][0]
    assert "is canceled" in seen["canceled"]["blocks"][0]
    assert seen["wrong"] == {"error": True, "blocks": ["the argument 'text' must be a text, not a number"]}
    assert (seen["nobody"]["error"], "'nobody'" in seen["nobody"]["blocks"][0]) == (True, True)
    assert "there is no tool 'reply'" in seen["unknown"]
    assert "401" in seen["no key"] or "these credentials are not known here" in seen["no key"]


def python(program: str, place: Sequence[str], mode: str) -> dict[str, Any]:
    seen: dict[str, Any] = said([program, str(HERE / "mcp_http_client.py"), *place, mode])
    return seen


@first
def test_version_1_for_python_uses_the_tools(place: tuple[str, str]) -> None:
    check(python(FIRST_PYTHON, place, "legacy"), OLD)


@second
@pytest.mark.parametrize(("mode", "protocol"), [("legacy", OLD), ("modern", NEW)])
def test_version_2_for_python_uses_the_tools(place: tuple[str, str], mode: str, protocol: str) -> None:
    check(python(SECOND_PYTHON, place, mode), protocol)


@js
@pytest.mark.parametrize(
    ("version", "mode", "protocol"), [("1", "legacy", OLD), ("2", "legacy", OLD), ("2", "modern", NEW)]
)
def test_typescript_uses_the_tools(place: tuple[str, str], version: str, mode: str, protocol: str) -> None:
    check(said([NODE, str(HERE / "js" / "mcp_http.mjs"), version, *place, mode], JS_FOLDER), protocol)
