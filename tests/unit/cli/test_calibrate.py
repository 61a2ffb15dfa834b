"""`synapse calibrate`: what it refuses, and how its table looks."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from synapse.calibration.checks import ROWS
from synapse.calibration.run import CalibrationPlan
from synapse.calibration.terminals import EVERY_KIND, PAIRWISE, TerminalKind
from synapse.calibration.trial import Finding, FindingVerdict, compared
from synapse.cli import calibrate as verb
from synapse.cli.exit_codes import DONE, FAILED, NOT_FOUND, REFUSED
from synapse.core.errors import AgentFailed
from tests.unit.cli.conftest import Cli

RIGHT = compared("long", "answered", "completed", "completed", source="signal", delay=timedelta(milliseconds=40))
WRONG = compared("deny", "tool", "has not run", "has run")
NOT_OFFERED = Finding(row="question", event="waiting", expected="-", seen="no tool", verdict=FindingVerdict.NOT_OFFERED)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `claude` on the PATH."""
    (tmp_path / "claude").write_text("#!/bin/sh\n", encoding="utf-8")
    (tmp_path / "claude").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


class FakeRun:
    """Replaces a calibration by one with these findings."""

    def __init__(self, *findings: Finding) -> None:
        self.findings = list(findings)
        self.plans: list[CalibrationPlan] = []
        self.folder = Path()

    def __call__(self, plan: CalibrationPlan, folder: Path, _clock: object, tell: object) -> list[Finding]:
        assert callable(tell)
        self.folder = folder
        self.plans.append(plan)
        assert folder.is_dir()
        for finding in self.findings:
            tell(finding)
        return self.findings


def test_a_missing_program_is_reported_with_how_to_install_it(synapse: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    ran = synapse("calibrate", "claude")

    assert ran.code == NOT_FOUND
    assert "'claude' is not installed\nnpm install" in ran.err


def test_a_profile_without_a_recipe_is_refused(synapse: Cli) -> None:
    ran = synapse("calibrate", "dummy")

    assert ran.code == REFUSED
    assert "there are recipes for: claude" in ran.err


def test_an_unknown_profile_or_row_is_refused_with_the_known_ones(synapse: Cli) -> None:
    assert "Did you mean 'claude'" in synapse("calibrate", "cloude").err
    assert (
        "unknown row 'lnog'; the rows are: one-line, multi-line, long"
        in synapse("calibrate", "claude", "--rows", "lnog").err
    )


@pytest.mark.usefixtures("program")
def test_one_wrong_conclusion_makes_the_run_fail(synapse: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "calibrate", run := FakeRun(RIGHT, WRONG, NOT_OFFERED))

    ran = synapse("calibrate", "claude")

    assert ran.code == FAILED
    assert "claude: 1 of 2 right, median delay 40 ms" in ran.out
    assert "wrong: claude: deny, tool: has run" in ran.out
    assert "WRONG  deny: tool" in ran.err
    assert not run.folder.exists()


@pytest.mark.usefixtures("program")
def test_json_has_every_finding(synapse: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "calibrate", run := FakeRun(RIGHT, NOT_OFFERED))

    ran = synapse("calibrate", "claude", "--json", "--keep", "--rows", "exit, long")

    assert ran.code == DONE
    assert [(plan.recipe.name, plan.rows) for plan in run.plans] == [("claude", ["long", "exit"])]
    assert run.plans[0].terminal == TerminalKind()
    assert ran.json["terminal"]["size"] == "120x40"
    assert ran.json["wrong"] == 0
    assert ran.json["median_delay_ms"] == 40
    assert ran.json["findings"][0] == {
        "row": "long",
        "event": "answered",
        "expected": "completed",
        "seen": "completed",
        "source": "signal",
        "delay_ms": 40,
        "verdict": "ok",
    }
    assert Path(ran.json["folder"]).is_dir()
    Path(ran.json["folder"]).rmdir()


@pytest.mark.usefixtures("program")
def test_every_cli_that_is_installed_is_run_in_every_kind_of_terminal(
    synapse: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verb, "calibrate", run := FakeRun(RIGHT))

    ran = synapse("calibrate", "--terminals")

    assert ran.code == DONE
    assert [(plan.recipe.name, plan.rows, plan.terminal) for plan in run.plans] == [
        ("claude", ["one-line"], kind) for kind in EVERY_KIND
    ]
    assert "Skipped: 'gemini' is not installed" in ran.err
    assert "12 of 12 runs right" in ran.out
    assert "claude  true colour  200x60  light  1 of 1  40 ms" in ran.out


@pytest.mark.usefixtures("program")
def test_half_of_the_terminals_and_all_rows_can_be_chosen(synapse: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "calibrate", run := FakeRun(RIGHT, WRONG))

    ran = synapse("calibrate", "claude", "--terminals", "--pairwise", "--rows", "all", "--json")

    assert ran.code == FAILED
    assert [plan.terminal for plan in run.plans] == list(PAIRWISE)
    assert run.plans[0].rows == list(ROWS)
    assert ran.json["wrong"] == len(PAIRWISE) == len(ran.json["runs"])
    assert ran.json["runs"][0]["terminal"]["colours"] == "16 colours"


def test_invalid_options_are_refused_with_a_hint(synapse: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    assert "name a CLI (claude, codex" in synapse("calibrate").err
    assert "--pairwise needs --terminals" in synapse("calibrate", "claude", "--pairwise").err
    assert "no CLI that can be calibrated is installed" in synapse("calibrate", "--terminals").err


@pytest.mark.usefixtures("program")
def test_a_start_that_fails_in_one_terminal_does_not_lose_the_others(
    synapse: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = iter(range(len(PAIRWISE)))

    def fail_once(*_anything: object) -> list[Finding]:
        if next(runs) == 0:
            raise AgentFailed("claude could not be started: no memory")
        return [RIGHT]

    monkeypatch.setattr(verb, "calibrate", fail_once)

    ran = synapse("calibrate", "claude", "--terminals", "--pairwise")

    assert ran.code == FAILED
    assert "5 of 6 runs right" in ran.out
    assert "ready, started: claude could not be started: no memory" in ran.out
