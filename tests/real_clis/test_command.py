"""The model of each CLI can run `synapse` from a virtual environment, behind a login profile that resets the PATH."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from synapse.calibration.model_server import Fact
from synapse.calibration.sandbox import AGENT, recipe_names
from synapse.calibration.scripted_model import CallTool, SayText, Use
from tests.real_clis.benches import Bench, bench_for, eventually

TURN = "find:1"
SCENES = {"find": (CallTool(Use.SHELL, "synapse list"), SayText(("I have ", "looked.")))}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("profile", recipe_names())
def test_a_model_calls_synapse_in_its_shell(profile: str) -> None:
    with bench_for(profile, {**os.environ, "PATH": path_without_synapse()}, SCENES) as bench:
        (bench.workbench.home / ".profile").write_text("export PATH=/usr/local/bin:/usr/bin:/bin\n", encoding="utf-8")
        bench.start()
        eventually(bench.is_ready)
        bench.synapse("send", AGENT, f"calibrate:{TURN} please")
        # Where it asks for a permission, its dialog may still be half painted at the first try.
        eventually(lambda: has_run(bench) or bench.synapse("approve", AGENT).code == 0)
        eventually(lambda: has_run(bench))
        result = bench.model.ledger.last(TURN, Fact.RESULT)

    assert result is not None
    assert f"{AGENT} ({profile})" in result.text


def path_without_synapse() -> str:
    folders = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if not (Path(folder) / "synapse").exists())


def has_run(bench: Bench) -> bool:
    return bench.model.ledger.last(TURN, Fact.RESULT) is not None
