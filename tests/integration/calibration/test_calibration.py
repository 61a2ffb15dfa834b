"""A whole calibration, of a small CLI that has no signals of its own: Synapse judges it by its screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from synapse.calibration.run import CalibrationPlan, calibrate
from synapse.calibration.sandbox import Recipe
from synapse.calibration.terminals import TerminalKind
from synapse.calibration.trial import Finding, FindingVerdict, wrong
from synapse.config.process import SystemClock
from synapse.config.settings import TerminalSize
from synapse.terminal.theme import Theme

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
ROWS_OF_IT = ("one-line", "tall", "approve", "deny", "question", "interrupt", "long", "exit")
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
def test_findings_are_right_except_for_text_that_a_screen_changes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a secret of the person")
    reported: list[Finding] = []

    returned = calibrate(CalibrationPlan(RECIPE, ROWS_OF_IT, TerminalKind()), folder, SystemClock(), reported.append)

    assert returned == reported
    found = {(finding.row, finding.event): finding for finding in reported}
    assert [finding.row for finding in wrong(reported)] == ["long"], reported
    assert {finding.row for finding in reported} == {"ready", "queued", "settings", *ROWS_OF_IT}
    assert found["approve", "tool"].seen == "has run"
    assert found["deny", "tool"].seen == "has not run"
    assert found["question", "model is told"].seen == "Blue"
    assert found["one-line", "answered"].seen == "completed, 23 bytes"
    assert found["one-line", "answered"].source == "screen"
    assert [finding.seen for finding in reported if finding.row == "tall"] == [
        "submitted, text whole",
        "completed, 890 bytes",
        "submitted, text whole",
        "completed, 22 bytes",
    ]
    assert found["long", "answered"].verdict is FindingVerdict.WRONG
    assert found["interrupt", "failed"].seen == "canceled: interrupted"
    assert found["exit", "failed"].seen == "failed: agent_exited"
    assert found["exit", "processes"].seen == "none left"
    assert found["settings", "compared"].seen == "unchanged"
    assert all(finding.milliseconds is not None for finding in reported if finding.event in ("submitted", "answered"))
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

    plan = CalibrationPlan(recipe, ["one-line"], TerminalKind())

    (ready,) = calibrate(plan, folder, SystemClock(), lambda _: None)

    assert (ready.row, ready.verdict, ready.seen) == ("ready", FindingVerdict.WRONG, "gone: its program ended")
    # A CLI that is only slow has a minute for its start.
    assert float(ready.event.removeprefix("after ").removesuffix(" s")) < 60


ASKER = """
import os, shutil, sys, termios, tty
size = shutil.get_terminal_size()
before = termios.tcgetattr(0)
tty.setraw(0)
sys.stdout.write("\\x1b]11;?\\x07")
sys.stdout.flush()
answer = b""
while not answer.endswith(b"\\x07"):
    answer += os.read(0, 100)
termios.tcsetattr(0, termios.TCSANOW, before)
with open(os.path.join(os.environ["HOME"], "seen"), "w") as seen:
    print(os.environ["TERM"], os.environ.get("COLORTERM"), *size, answer[5:-1].decode(), file=seen)
sys.exit(input("ask> "))
"""


@pytest.mark.timeout(180)
def test_the_cli_gets_the_terminal_that_was_chosen(folder: Path) -> None:
    program = folder / "asker.py"
    program.write_text(ASKER, encoding="utf-8")
    profile = f'command = ["{{python}}", "{program}"]\n[prompt]\npattern = "^ask> ?(?P<text>.*)$$"\nat_cursor = true\n'
    recipe = Recipe(name="client", files={".config/synapse/profiles/client.toml": profile})
    light = TerminalKind(variables={"TERM": "xterm"}, size=TerminalSize(80, 24), theme=Theme.LIGHT)

    findings = calibrate(CalibrationPlan(recipe, [], light), folder, SystemClock(), lambda _: None)

    assert (findings[0].row, findings[0].seen) == ("ready", "ready")
    seen = (folder / "home" / "seen").read_text(encoding="utf-8").split()
    assert seen == ["xterm", "None", "80", "24", "rgb:ffff/ffff/ffff"]


def seen_by(folder: Path) -> list[Path]:
    """Returns the files that the agent and its host have written."""
    return [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".db"]
