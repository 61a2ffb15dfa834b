"""The lines and settings of docs/howto/mcp-gateway.md work as they are written."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from synapse.gateway.config import GatewayConfig, load_config
from synapse.mcp.tools import GATEWAY_TOOLS
from tests.conformance.real_gateway import RunningGateway, gateway, new_key
from tests.conformance.real_hosts import PATIENCE, ROOT
from tests.conformance.test_howto_hub import ANSWER

DOCUMENT = (ROOT / "docs" / "howto" / "mcp-gateway.md").read_text(encoding="utf-8")
WEATHER = ROOT / "docs" / "examples" / "weather.toml"
CONFIG = f'[[agents]]\nid = "weather-agent"\ndriver = "scripted"\nscript = "{WEATHER}"\n'


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningGateway, str]]:
    home = tmp_path_factory.mktemp("k")
    with gateway(home, CONFIG) as one:
        (command,) = re.findall(r"synapse keys create laptop (.*)\)", DOCUMENT)
        yield one, new_key(home, "laptop", *command.split())


@pytest.mark.integration
@pytest.mark.skipif(shutil.which("curl") is None, reason="the lines need curl")
def test_the_lines_work(running: tuple[RunningGateway, str]) -> None:
    one, key = running

    def typed(block: str) -> Any:
        done = subprocess.run(
            ["bash", "-euc", block.replace("localhost:8000", f"localhost:{one.entry.port}")],
            env={**os.environ, "SYNAPSE_KEY": key},
            capture_output=True,
            encoding="utf-8",
            timeout=PATIENCE,
            check=True,
        )
        return json.loads(done.stdout)["result"]

    listed, sent, agents = map(typed, blocks("sh"))

    assert [tool["name"] for tool in listed["tools"]] == [tool.name for tool in GATEWAY_TOOLS]
    assert sent["content"][1]["text"] == ANSWER
    assert agents["content"][0]["text"] == "weather-agent (scripted): ready"


@pytest.mark.integration
def test_the_address_and_the_header_of_the_entry_are_enough(running: tuple[RunningGateway, str]) -> None:
    one, key = running
    (entry,) = blocks("json")
    server = json.loads(entry)["mcpServers"]["synapse-gateway"]
    headers = {name: value.replace("${SYNAPSE_KEY}", key) for name, value in server["headers"].items()}
    path = server["url"].removeprefix("http://localhost:8000")

    assert one.ask("POST", path, {"jsonrpc": "2.0", "id": 1, "method": "ping"}, **headers).status == 200


def test_the_table_names_every_tool() -> None:
    assert re.findall(r"^\| `(\w+)` \|", DOCUMENT, re.MULTILINE) == [tool.name for tool in GATEWAY_TOOLS]


def test_the_setting_is_read_and_is_the_default(tmp_path: Path) -> None:
    (settings,) = blocks("toml")
    path = tmp_path / "gateway.toml"
    path.write_text(settings, encoding="utf-8")

    assert load_config(path).mcp_wait == 50 == GatewayConfig().mcp_wait
