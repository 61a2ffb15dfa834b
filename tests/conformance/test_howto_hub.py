"""The examples of docs/howto/hub.md, as they are written, against a real gateway."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.conformance.real_gateway import RunningGateway, gateway, new_key
from tests.conformance.real_hosts import PATIENCE, ROOT
from tests.integration.waiting import until

DOCUMENT = (ROOT / "docs" / "howto" / "hub.md").read_text(encoding="utf-8")
ANSWER = "The weather in San Francisco is currently sunny with a high of 72°F and a low of 58°F."
NODE = shutil.which("node") or ""

pytestmark = pytest.mark.integration


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)


@dataclass(frozen=True)
class Reader:
    """A reader who types the commands of the document."""

    gateway: RunningGateway
    key: str

    def types(self, command: list[str], text: str) -> str:
        """Runs a program copied from the document; returns its output."""
        written = text.replace("localhost:8000", f"localhost:{self.gateway.entry.port}")
        done = subprocess.run(
            command,
            input=written,
            env={**os.environ, "SYNAPSE_KEY": self.key},
            capture_output=True,
            encoding="utf-8",
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    home = tmp_path_factory.mktemp("hub")
    (config,) = blocks("toml")
    with gateway(home, config.replace("docs/examples", str(ROOT / "docs" / "examples"))) as running:
        yield Reader(running, new_key(home, "laptop"))


def test_the_document_has_both_ways_in_both_languages() -> None:
    assert [len(blocks(language)) for language in ("js", "python", "sh")] == [2, 2, 2]


@pytest.mark.skipif(shutil.which("curl") is None, reason="the lines need curl")
def test_the_curl_lines_work(reader: Reader) -> None:
    send, read = blocks("sh")
    assert '"taskId"' in reader.types(["bash", "-eu"], send)

    until(lambda: ANSWER in reader.types(["bash", "-eu"], read), "the answer")


@pytest.mark.parametrize("example", blocks("python"), ids=["sse", "websocket"])
def test_the_python_examples_work(reader: Reader, example: str) -> None:
    said = reader.types([sys.executable, "-"], example)

    assert ANSWER in said
    assert ("(task " in said) or ("task.completed" in said)


@pytest.mark.skipif(not NODE, reason="the examples need node")
@pytest.mark.parametrize("example", blocks("js"), ids=["sse", "websocket"])
def test_the_javascript_examples_work(reader: Reader, example: str) -> None:
    # Browsers have WebSocket, and so has Node from version 22 on; version 20 has it behind this option.
    said = reader.types([NODE, "--no-warnings", "--experimental-websocket", "--input-type=module"], example)

    assert ANSWER in said
    assert ("(task " in said) or ("task.created" in said)
