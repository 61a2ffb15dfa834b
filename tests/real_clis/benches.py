"""A real CLI on a workbench of its own, with a scripted model that plays what a test wants."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from synapse.calibration.model_server import Ledger, ModelServer
from synapse.calibration.sandbox import AGENT, Ran, Sandbox, load_recipe, placeholders
from synapse.calibration.scripted_model import SCENES, Scene
from synapse.config.process import SystemClock

PATIENCE = 60.0


@dataclass(frozen=True)
class Bench:
    """One CLI, its model, and `synapse` commands in its world."""

    profile: str
    workbench: Sandbox
    model: ModelServer

    @property
    def command(self) -> tuple[str, ...]:
        """How `synapse` is run."""
        return (sys.executable, "-P", "-m", "synapse.cli.main")

    def start(self, *arguments: str) -> None:
        """Start it in the background."""
        given = arguments or self.workbench.recipe.args
        started = self.synapse("start", self.profile, "--name", AGENT, "--no-instructions", "--", *given)
        assert started.code == 0, started.notices

    def synapse(self, *words: str) -> Ran:
        return self.workbench.synapse(*words)

    def is_ready(self) -> bool:
        return self.workbench.ask("/status").get("state") == "ready"

    def asks(self) -> bool:
        return bool(self.workbench.ask("/status").get("question"))


@contextmanager
def bench_for(profile: str, environ: Mapping[str, str], scenes: Mapping[str, Scene]) -> Generator[Bench]:
    """Furnish a workbench for the CLI; whatever it has started ends with it."""
    with (
        TemporaryDirectory(prefix="syn-", ignore_cleanup_errors=True) as folder,
        ModelServer(Ledger(SystemClock()), {**SCENES, **scenes}) as model,
    ):
        workbench = Sandbox(Path(folder), environ)
        workbench.install(
            load_recipe(profile).filled(placeholders(model.url, home=workbench.home, project=workbench.project))
        )
        try:
            yield Bench(profile, workbench, model)
        finally:
            workbench.synapse("stop", AGENT, "--force")


def eventually(condition: Callable[[], bool], seen: Callable[[], object] = lambda: "") -> None:
    """Wait until it holds. Raises AssertionError with what is `seen` when it never does."""
    clock, pause = SystemClock(), threading.Event()
    deadline = clock.monotonic() + PATIENCE
    while not condition():
        assert clock.monotonic() < deadline, f"it did not come to pass; there is {seen()}"
        pause.wait(0.2)
