"""A sandbox lets nothing of the person's in, and finds every process that it started."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from synapse.calibration.sandbox import Recipe, Sandbox

PERSON = {"PATH": os.environ["PATH"], "HOME": "somewhere else", "ANTHROPIC_API_KEY": "secret", "SYNAPSE_AGENT_ID": "me"}
RECIPE = Recipe(
    name="x",
    env={"X_URL": "http://127.0.0.1:1"},
    files={".x/settings.json": "{}", ".x/log": "1"},
    own_files=(".x/*",),
    settings=(".x/settings.json",),
)


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with TemporaryDirectory(prefix="syn-") as folder:
        sandbox = Sandbox(Path(folder), PERSON)
        sandbox.install(RECIPE)
        yield sandbox


def test_the_agent_sees_nothing_of_the_persons_environment_but_where_programs_are(sandbox: Sandbox) -> None:
    assert sandbox.env["PATH"] == PERSON["PATH"]
    assert sandbox.env["HOME"] == str(sandbox.home)
    assert sandbox.env["X_URL"] == "http://127.0.0.1:1"
    assert "ANTHROPIC_API_KEY" not in sandbox.env
    assert "SYNAPSE_AGENT_ID" not in sandbox.env


def test_only_changes_of_settings_show(sandbox: Sandbox) -> None:
    before = sandbox.settings()
    (sandbox.home / ".x" / "log").write_text("2", encoding="utf-8")
    assert sandbox.settings() == before

    (sandbox.home / ".x" / "settings.json").write_text('{"hooks": []}', encoding="utf-8")
    (sandbox.home / ".profile").write_text("new", encoding="utf-8")

    assert sandbox.settings().keys() - before.keys() == {".profile"}
    assert sandbox.settings()[".x/settings.json"] != before[".x/settings.json"]


def test_a_process_that_left_its_parents_is_found_by_its_home(sandbox: Sandbox) -> None:
    assert sandbox.processes() == {}

    with subprocess.Popen(["sleep", "60"], env=sandbox.env, start_new_session=True) as process:
        assert sandbox.processes() == {process.pid: "sleep 60"}
        process.kill()

    assert sandbox.processes() == {}


def test_a_command_that_does_not_end_is_reported_as_such(sandbox: Sandbox) -> None:
    ran = sandbox.synapse("send", "nobody", "hello", seconds=0.001)

    assert ran.code != 0
    assert "did not end" in ran.notices
    assert ran.fields == {}


def test_without_an_agent_a_question_gets_an_empty_answer(sandbox: Sandbox) -> None:
    assert sandbox.entry() is None
    assert sandbox.address() is None
    assert sandbox.ask("/status") == {}
    assert sandbox.synapse("list", "--json").code == 0
