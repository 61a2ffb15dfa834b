"""Where a CLI is calibrated: nothing of the person's gets in, and nothing that was started gets lost."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from synapse.calibration.sandbox import Recipe, Workbench

PERSON = {"PATH": os.environ["PATH"], "HOME": "somewhere else", "ANTHROPIC_API_KEY": "secret", "SYNAPSE_AGENT_ID": "me"}
RECIPE = Recipe(
    name="x",
    env={"X_URL": "http://127.0.0.1:1"},
    files={".x/settings.json": "{}", ".x/log": "1"},
    own_files=(".x/*",),
    settings=(".x/settings.json",),
)


@pytest.fixture
def bench() -> Iterator[Workbench]:
    with TemporaryDirectory(prefix="syn-") as folder:
        bench = Workbench(Path(folder), PERSON)
        bench.furnish(RECIPE)
        yield bench


def test_the_agent_sees_nothing_of_the_persons_environment_but_where_programs_are(bench: Workbench) -> None:
    assert bench.env["PATH"] == PERSON["PATH"]
    assert bench.env["HOME"] == str(bench.home)
    assert bench.env["X_URL"] == "http://127.0.0.1:1"
    assert "ANTHROPIC_API_KEY" not in bench.env
    assert "SYNAPSE_AGENT_ID" not in bench.env


def test_only_changes_of_settings_show(bench: Workbench) -> None:
    before = bench.settings()
    (bench.home / ".x" / "log").write_text("2", encoding="utf-8")
    assert bench.settings() == before

    (bench.home / ".x" / "settings.json").write_text('{"hooks": []}', encoding="utf-8")
    (bench.home / ".profile").write_text("new", encoding="utf-8")

    assert bench.settings().keys() - before.keys() == {".profile"}
    assert bench.settings()[".x/settings.json"] != before[".x/settings.json"]


def test_a_process_that_left_its_parents_is_found_by_its_home(bench: Workbench) -> None:
    assert bench.processes() == {}

    with subprocess.Popen(["sleep", "60"], env=bench.env, start_new_session=True) as process:
        assert bench.processes() == {process.pid: "sleep 60"}
        process.kill()

    assert bench.processes() == {}


def test_a_command_that_does_not_end_is_told_as_that(bench: Workbench) -> None:
    ran = bench.synapse("send", "nobody", "hello", seconds=0.001)

    assert ran.code != 0
    assert "did not end" in ran.talk
    assert ran.fields == {}


def test_without_an_agent_there_is_nobody_to_ask(bench: Workbench) -> None:
    assert bench.entry() is None
    assert bench.address() is None
    assert bench.ask("/status") == {}
    assert bench.synapse("list", "--json").code == 0
