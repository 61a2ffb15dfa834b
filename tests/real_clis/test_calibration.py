"""Every row of `synapse calibrate` is right for each of the five CLIs, and they are understood in any terminal."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from synapse.calibration.sandbox import recipe_names

PATIENCE = 300
TERMINALS_PATIENCE = 1800
COMMAND = (sys.executable, "-P", "-m", "synapse.cli.main", "calibrate")
FRAME = ("ready", "settings")
"""Part of every run, whatever its rows."""


@pytest.mark.timeout(2 * PATIENCE)
@pytest.mark.parametrize("profile", recipe_names())
def test_synapse_understands(profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = calibrated(profile, capsys)
    wrong = wrong_rows(report)
    if wrong:
        # A machine that stalls for seconds can spoil a row; what is wrong twice is wrong.
        again = sorted(set(wrong) - set(FRAME))
        report = calibrated(profile, capsys, *(["--rows", ",".join(again)] if again else []))
        wrong = wrong_rows(report)

    assert wrong == []


@pytest.mark.timeout(2 * TERMINALS_PATIENCE)
@pytest.mark.parametrize("profile", recipe_names())
def test_synapse_understands_it_in_every_terminal(
    profile: str, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    chosen = ("--rows", "all") if request.config.getoption("--all-terminals", default=False) else ("--pairwise",)
    report = calibrated(profile, capsys, "--terminals", *chosen)
    if report["wrong"]:
        report = calibrated(profile, capsys, "--terminals", *chosen)

    assert [run["terminal"] for run in report["runs"] if run["wrong"]] == []


def calibrated(profile: str, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    """Run it, and show what came out, right or wrong."""
    patience = TERMINALS_PATIENCE if "--terminals" in options else PATIENCE
    ran = subprocess.run(
        [*COMMAND, profile, "--json", *options], capture_output=True, encoding="utf-8", timeout=patience, check=False
    )
    assert ran.stdout, ran.stderr
    report: dict[str, Any] = json.loads(ran.stdout)
    with capsys.disabled():
        for run in report.get("runs", [report]):
            sys.stdout.write(shown(profile, run))
    return report


def wrong_rows(report: dict[str, Any]) -> list[str]:
    assert "error" not in report, report
    # What waited behind the dialog is told beside the row that opened it.
    rows = [finding["row"] for finding in report["findings"] if finding["verdict"] == "WRONG"]
    return ["approve" if row == "queued" else row for row in rows]


def shown(profile: str, report: dict[str, Any]) -> str:
    findings = report.get("findings", [])
    lines = [
        f"  {finding['verdict']:<11} {finding['row']:<10} {finding['event']:<14} {finding['seen'][:60]:<60} "
        f"{finding['source']:<10} {finding['delay_ms'] if finding['delay_ms'] is not None else ''}"
        for finding in findings
    ]
    terminal = report.get("terminal", {})
    where = ", ".join(str(terminal.get(trait)) for trait in ("colours", "size", "theme"))
    head = f"\n{profile} in {where}: {report.get('wrong')} wrong, median delay {report.get('median_delay_ms')} ms"
    return "\n".join([head, *lines]) + "\n"
