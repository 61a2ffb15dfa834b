"""The commands in the document about standard A2A work as they are written."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.conformance.real_hosts import ROOT, scripted_host

DOCUMENT = ROOT / "docs" / "howto" / "standard-a2a.md"
BLOCKS = re.findall(r"```sh\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)

pytestmark = [pytest.mark.integration, pytest.mark.skipif(shutil.which("curl") is None, reason="the lines need curl")]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with scripted_host(tmp_path_factory.mktemp("h")) as entry:
        yield entry.port


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split()[2].rpartition("8180")[2])
def test_the_line_works(block: str, port: int) -> None:
    typed = block.replace("8180", str(port))
    said = subprocess.run(["bash", "-euc", typed], capture_output=True, encoding="utf-8", timeout=30, check=True).stdout

    assert '"error"' not in said
    assert re.search(r"COMPLETED|completed|supportedInterfaces", said)


def test_the_document_has_lines_for_each_binding() -> None:
    text = "\n".join(BLOCKS)

    assert all(word in text for word in ("SendMessage", "message:send", "message:stream", "message/send", "/v1/"))
