"""`synapse send` and `synapse reply` import almost nothing: agents run them hundreds of times."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cli.session import COMMAND, Session
from tests.unit.cli.fake_host import FakeHost

pytestmark = pytest.mark.integration
ALLOWED = {"_json", "_socket"}


def modules_of(command: list[str], environ: dict[str, str]) -> set[str]:
    """Returns the modules that a Python process has imported, as it prints them."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command[1:]],
        env=environ,
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        timeout=20,
        check=True,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines[1:]}


@pytest.mark.parametrize(
    "arguments",
    [
        ["send", "codex", "hello"],
        ["send", "codex", "hello", "--priority", "4", "--json"],
        ["send", "codex", "--file", "message.txt"],
        ["reply", "done"],
    ],
)
def test_a_plain_command_imports_only_our_own_light_modules(tmp_path: Path, arguments: list[str]) -> None:
    home = Session(tmp_path)
    (tmp_path / "message.txt").write_text("hello", encoding="utf-8")
    with FakeHost(tmp_path).serving() as host:
        host.open({"message": {"role": "user", "parts": []}})
        inside = {"SYNAPSE_AGENT_ID": host.entry.agent_id, "SYNAPSE_SOCKET": host.entry.socket}
        words = [str(tmp_path / "message.txt") if word == "message.txt" else word for word in arguments]

        loaded = modules_of([*COMMAND, *words], home.environ | inside)

    bare = modules_of([sys.executable, "-c", "pass"], home.environ)
    foreign = {name for name in loaded - bare if name.partition(".")[0] != "synapse"}
    assert foreign <= ALLOWED
    assert "synapse.cli.send" in loaded or "synapse.cli.reply" in loaded
    assert "synapse.core.errors" not in loaded


@pytest.mark.parametrize("is_launched", [True, False])
def test_the_tool_server_starts_with_light_modules_only(tmp_path: Path, is_launched: bool) -> None:
    home = Session(tmp_path)
    inside = {"SYNAPSE_AGENT_ID": "synapse-codex-8120", "SYNAPSE_SOCKET": "/nowhere"} if is_launched else {}

    loaded = modules_of([*COMMAND, "mcp"], home.environ | inside)

    bare = modules_of([sys.executable, "-c", "pass"], home.environ)
    foreign = {name for name in loaded - bare if name.partition(".")[0] != "synapse"}
    assert foreign <= ALLOWED | {"_thread", "select", "time"}
    assert "synapse.mcp.stdio" in loaded
    assert not loaded & {"synapse.core.errors", "synapse.client.watch", "synapse.cli.mcp_config"}


def test_help_and_list_import_no_heavy_modules(tmp_path: Path) -> None:
    environ = Session(tmp_path).environ
    heavy = {"asyncio", "dataclasses", "msgspec", "pathlib", "sqlite3", "subprocess", "typing", "uvicorn"}

    assert not modules_of([*COMMAND, "--help"], environ) & (heavy | {"argparse", "re"})
    assert not modules_of([*COMMAND, "list"], environ) & heavy


def test_a_person_who_presses_tab_waits_for_no_heavy_modules(tmp_path: Path) -> None:
    environ = Session(tmp_path).environ
    heavy = {"argparse", "asyncio", "dataclasses", "msgspec", "pathlib", "re", "subprocess", "typing", "uvicorn"}

    assert not modules_of([*COMMAND, "completion", "agents"], environ) & (heavy | {"sqlite3"})
    assert not modules_of([*COMMAND, "completion", "--words", "agents", "tasks"], environ) & heavy


@pytest.mark.parametrize("arguments", [["help"], ["list", "--json"], ["send", "nobody", "hi", "--json"]])
def test_a_result_that_cannot_be_written_is_one_line_and_no_traceback(tmp_path: Path, arguments: list[str]) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [*COMMAND, *arguments],
            env=Session(tmp_path).environ,
            stdout=full,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            timeout=20,
            check=False,
        )

    assert done.returncode in (1, 3)
    assert done.stderr.startswith("Error: ")
    assert "Traceback" not in done.stderr


def test_only_the_overview_itself_loads_textual(tmp_path: Path) -> None:
    environ = Session(tmp_path).environ
    drawing = {"textual", "rich", "synapse.top.app"}

    assert not modules_of([*COMMAND, "top", "--once"], environ) & drawing
    assert not modules_of([*COMMAND, "list"], environ) & {*drawing, "synapse.top"}
    assert drawing <= modules_of([sys.executable, "-c", "import synapse.top.app"], environ)
