"""Every row of `synapse calibrate` is right for each of the five CLIs."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from synapse.calibration.recipe import recipe_names

PATIENCE = 300
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


def calibrated(profile: str, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    """Run it, and show what came out, right or wrong."""
    ran = subprocess.run(
        [*COMMAND, profile, "--json", *options], capture_output=True, encoding="utf-8", timeout=PATIENCE, check=False
    )
    assert ran.stdout, ran.stderr
    report: dict[str, Any] = json.loads(ran.stdout)
    with capsys.disabled():
        sys.stdout.write(shown(profile, report))
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
    head = f"\n{profile}: {report.get('wrong')} wrong, median delay {report.get('median_delay_ms')} ms"
    return "\n".join([head, *lines]) + "\n"
