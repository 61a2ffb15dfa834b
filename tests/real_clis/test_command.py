"""The model of each CLI can run `synapse` from a virtual environment, behind a login profile that resets the PATH."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from synapse.calibration.acts import SCENES, CallTool, Say, Use
from synapse.calibration.ledger import Fact, Ledger
from synapse.calibration.model_server import ModelServer
from synapse.calibration.recipe import load_recipe, places, recipe_names
from synapse.calibration.workbench import AGENT, Workbench
from synapse.runtime.system_clock import SystemClock

PATIENCE = 60.0
TURN = "find:1"
SCENE = {**SCENES, "find": (CallTool(Use.SHELL, "synapse list"), Say(("I have ", "looked.")))}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("profile", recipe_names())
def test_a_model_calls_synapse_in_its_shell(profile: str) -> None:
    with (
        TemporaryDirectory(prefix="syn-", ignore_cleanup_errors=True) as folder,
        ModelServer(Ledger(SystemClock()), SCENE) as model,
    ):
        bench = Workbench(Path(folder), {**os.environ, "PATH": path_without_synapse()})
        bench.furnish(load_recipe(profile).filled(places(model.url, home=bench.home, project=bench.project)))
        (bench.home / ".profile").write_text("export PATH=/usr/local/bin:/usr/bin:/bin\n", encoding="utf-8")
        try:
            started = bench.synapse("start", profile, "--name", AGENT, "--no-instructions", "--", *bench.recipe.args)
            assert started.code == 0, started.talk
            eventually(lambda: bench.ask("/status").get("state") == "ready")
            bench.synapse("send", AGENT, f"calibrate:{TURN} please")
            eventually(lambda: bool(bench.ask("/status").get("question")) or has_run(model))
            bench.synapse("approve", AGENT)
            eventually(lambda: has_run(model))
        finally:
            bench.synapse("stop", AGENT, "--force")
        result = model.ledger.last(TURN, Fact.RESULT)

    assert result is not None
    assert f"{AGENT} ({profile})" in result.text


def path_without_synapse() -> str:
    folders = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if not (Path(folder) / "synapse").exists())


def has_run(model: ModelServer) -> bool:
    return model.ledger.last(TURN, Fact.RESULT) is not None


def eventually(condition: Callable[[], bool]) -> None:
    clock, pause = SystemClock(), threading.Event()
    deadline = clock.monotonic() + PATIENCE
    while not condition():
        assert clock.monotonic() < deadline, "it did not come to pass"
        pause.wait(0.2)
