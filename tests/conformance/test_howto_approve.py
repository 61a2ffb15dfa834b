"""The commands in the document about questions work as they are written."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.real_hosts import COMMAND, ROOT, environ, scripted_host

DOCUMENT = (ROOT / "docs" / "howto" / "approve.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", DOCUMENT, re.DOTALL)
SHOWN = re.findall(r"```text\n(.*?)```", DOCUMENT, re.DOTALL)

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("h")
    typed = home / "bin" / "synapse"
    typed.parent.mkdir()
    typed.write_text(f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n', encoding="utf-8")
    typed.chmod(0o755)
    with scripted_host(home, ROOT / "docs" / "examples" / "questions.toml", "asker"):
        yield home


def test_the_lines_work_one_after_the_other_and_show_what_is_shown(home: Path) -> None:
    said = [_type(block, home) for block in BLOCKS]

    without_ids = [re.sub(r"\b[0-9a-f]{8}\b|for \d+s", "…", text) for text in (said[1], SHOWN[0])]
    assert without_ids[0] == without_ids[1]
    assert said[0] == "Run the command?\n  rm -r build\n  make\n  1. Yes\n  2. Yes, and do not ask again\n  3. No\n"
    assert '"title": "Which branch?"' in said[3]


def test_the_first_line_says_that_the_agent_plays_a_script(home: Path) -> None:
    assert re.fullmatch(
        r"asker plays questions\.toml on port \d+  \(Ctrl-C stops it; synapse send asker \"…\"\)\n",
        (home / "asker.err").read_text(encoding="utf-8"),
    )


def _type(block: str, home: Path) -> str:
    env = environ(home) | {"PATH": f"{home / 'bin'}:{Path(sys.executable).parent}:/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-euc", block], env=env, cwd=home, capture_output=True, encoding="utf-8", timeout=60, check=False
    )
    assert done.returncode == 0, done
    return done.stdout
