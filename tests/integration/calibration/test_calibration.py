"""A whole calibration, of a small CLI that has no signals of its own: Synapse judges it by its screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from synapse.calibration.findings import Finding, Verdict, wrong
from synapse.calibration.recipe import Recipe
from synapse.calibration.run import calibrate
from synapse.runtime.system_clock import SystemClock

PROGRAM = Path(__file__).resolve().parents[2] / "agents" / "model_client.py"
PROFILE = f"""
title = "Model client"
command = ["{{python}}", "{PROGRAM}"]

[prompt]
pattern = '^ask> ?(?P<text>.*)$$'
at_cursor = true

[interrupt]
signal = "SIGINT"

[times]
quiet = 0.1
settle = 0.2

[[dialogs]]
name = "permission"
every = ['^Allow this\\?', '^number:']
kind = "permission"
begin = '^== asks'
title = '^(Allow this\\? .*)$$'
choose = "line"

[[dialogs]]
name = "question"
every = ['^== asks', '^number:']
never = ['^Allow this\\?']
kind = "choice"
begin = '^== asks'
title = '^(Which .*)$$'
choose = "line"

[answer]
echo = '^ask> '
"""
ROWS_OF_IT = ("one-line", "approve", "deny", "question", "interrupt", "long", "exit")
RECIPE = Recipe(
    name="client",
    env={"MODEL_URL": "${url}"},
    files={".config/synapse/profiles/client.toml": PROFILE, ".client/settings": "mine\n"},
    own_files=(".config/*", ".cache/*"),
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, because sockets lie in it."""
    with TemporaryDirectory(prefix="syn-") as path:
        yield Path(path)


@pytest.mark.timeout(180)
def test_what_is_seen_rightly_is_right_and_what_a_screen_changes_is_wrong(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a secret of the person")
    told: list[Finding] = []

    returned = calibrate(RECIPE, [*ROWS_OF_IT], folder, SystemClock(), told.append)

    assert returned == told
    found = {(finding.row, finding.event): finding for finding in told}
    assert [finding.row for finding in wrong(told)] == ["long"], told
    assert {finding.row for finding in told} == {"ready", "queued", "settings", *ROWS_OF_IT}
    assert found["approve", "tool"].seen == "has run"
    assert found["deny", "tool"].seen == "has not run"
    assert found["question", "model is told"].seen == "Blue"
    assert found["one-line", "answered"].seen == "completed, 23 bytes"
    assert found["one-line", "answered"].source == "screen"
    assert found["long", "answered"].verdict is Verdict.WRONG
    assert found["interrupt", "failed"].seen == "canceled: interrupted"
    assert found["exit", "failed"].seen == "failed: agent_exited"
    assert found["exit", "processes"].seen == "none left"
    assert found["settings", "compared"].seen == "unchanged"
    assert all(finding.milliseconds is not None for finding in told if finding.event in ("submitted", "answered"))
    assert "a secret" not in "".join(path.read_text(errors="replace", encoding="utf-8") for path in seen_by(folder))


LEAVER = """
import glob, os, sys, time
# Not before `synapse start` has seen it run: its last act is to name the file of what the host says.
while not glob.glob(os.path.join(os.environ["SYNAPSE_HOME"], "logs", "synapse-client-*.out")):
    time.sleep(0.02)
sys.exit(3)
"""


@pytest.mark.timeout(180)
def test_a_cli_that_ends_by_itself_is_not_waited_for(folder: Path) -> None:
    program = folder / "leaver.py"
    program.write_text(LEAVER, encoding="utf-8")
    profile = f'command = ["{{python}}", "{program}"]\n'
    recipe = Recipe(name="client", files={".config/synapse/profiles/client.toml": profile})

    (ready,) = calibrate(recipe, ["one-line"], folder, SystemClock(), lambda _: None)

    assert (ready.row, ready.verdict, ready.seen) == ("ready", Verdict.WRONG, "gone: its program has ended")
    # A CLI that is only slow has a minute for its start.
    assert float(ready.event.removeprefix("after ").removesuffix(" s")) < 60


def seen_by(folder: Path) -> list[Path]:
    """What the agent and its host have written."""
    return [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".db"]
