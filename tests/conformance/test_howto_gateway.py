"""The commands and settings in the document about the gateway work as they are written."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from synapse.gateway.config import load_config
from tests.conformance.real_gateway import IN_PROCESS, gateway
from tests.conformance.real_hosts import ROOT, scripted_host

DOCUMENT = (ROOT / "docs" / "howto" / "run-the-gateway.md").read_text(encoding="utf-8")
TALK, REGISTRATION = re.findall(r"```sh\n(.*?)```", DOCUMENT, re.DOTALL)
(SETTINGS,) = re.findall(r"```toml\n(.*?)```", DOCUMENT, re.DOTALL)


@pytest.mark.integration
@pytest.mark.skipif(shutil.which("curl") is None, reason="the lines need curl")
def test_the_lines_work(tmp_path: Path) -> None:
    with scripted_host(tmp_path) as other, gateway(tmp_path, IN_PROCESS, "--no-auth") as running:

        def typed(block: str) -> str:
            line = block.replace("localhost:8000", f"localhost:{running.entry.port}")
            line = line.replace("https://other.example.com", other.endpoint)
            return subprocess.run(
                ["bash", "-euc", line], capture_output=True, encoding="utf-8", timeout=30, check=True
            ).stdout

        said, registered = typed(TALK), typed(REGISTRATION)

    assert '"error"' not in said + registered
    assert all(word in said for word in ('"agents"', '"succeeded"', "TASK_STATE_COMPLETED"))
    assert '"endpoint":"/agents/other/v1"' in registered


def test_the_settings_are_read(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(SETTINGS, encoding="utf-8")

    config = load_config(path)

    assert [agent.id for agent in config.agents] == ["reviewer", "codex", "tck"]
    assert config.public_url == "https://agents.example.com"
