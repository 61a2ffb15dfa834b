"""Two real CLIs of different vendors talk through Synapse, each in a terminal of its own, and no screen is harmed.

Claude's model calls its shell: `synapse send bob … --response`, which it may run unasked. Codex's model answers with
`synapse reply` outside of its sandbox, which a person allows by `synapse approve`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from synapse.calibration.model_server import Fact, Ledger, ModelServer
from synapse.calibration.sandbox import Ran, Sandbox, load_recipe, placeholders
from synapse.calibration.scripted_model import SCENES, CallTool, SayText, Use
from synapse.config.process import SystemClock
from synapse.config.settings import load_profile
from synapse.core.json_text import object_in, objects_in

PATIENCE = 60.0
REPLY = "Forty-two, said by hand."
ASK = "synapse send bob 'calibrate:reply:2 please' --response --timeout 50"
CONVERSATION = {
    **SCENES,
    "consult": (CallTool(Use.SHELL, ASK), SayText(("Bob has ", "answered."))),
    "reply": (CallTool(Use.SHELL, f"synapse reply '{REPLY}'"), SayText(("I have ", "replied."))),
}


@dataclass(frozen=True)
class AgentHarness:
    """One agent in a window of tmux."""

    name: str
    profile: str
    bench: Sandbox
    env: dict[str, str]
    tmux: tuple[str, ...]

    def start(self) -> None:
        own = (sys.executable, "-P", "-m", "synapse.cli.main")
        words = (*own, self.profile, "--name", self.name, "--no-instructions", "--", *self.bench.recipe.args)
        env = [f"{name}={value}" for name, value in self.env.items()]
        self._tmux(
            *("new-session", "-d", "-s", self.name, "-x", "120", "-y", "40", "-c", str(self.bench.project)),
            *("env", "-i", *env, *words),
        )

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p", "-t", self.name)

    def synapse(self, *words: str) -> Ran:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "synapse.cli.main", *words],
            env=self.env,
            cwd=self.bench.project,
            capture_output=True,
            encoding="utf-8",
            timeout=PATIENCE,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def status(self) -> dict[str, Any]:
        return self.synapse("status", self.name, "--json").fields

    def told(self) -> str:
        """What Synapse knows, for whoever looks at a failed test."""
        said = [self.synapse("status", self.name, "--explain"), self.synapse("logs", self.name)]
        return "\n".join(ran.output + ran.notices for ran in said)

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            [*self.tmux, *words], capture_output=True, encoding="utf-8", timeout=PATIENCE, check=True, env=self.env
        )
        return done.stdout


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(Ledger(SystemClock()), CONVERSATION) as model:
        yield model


@pytest.fixture
def harnesses(model: ModelServer) -> Iterator[dict[str, AgentHarness]]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    with TemporaryDirectory(prefix="syn-", ignore_cleanup_errors=True) as folder:
        made = {
            name: furnished(name, profile, Path(folder), model.url)
            for name, profile in (("ada", "claude"), ("bob", "codex"))
        }
        try:
            yield made
        finally:
            for harness in made.values():
                harness.synapse("stop", harness.name, "--force")
            subprocess.run([*made["ada"].tmux, "kill-server"], check=False, capture_output=True, timeout=PATIENCE)


def furnished(name: str, profile: str, folder: Path, url: str) -> AgentHarness:
    own = folder / name
    own.mkdir()
    bench = Sandbox(own, os.environ)
    bench.install(load_recipe(profile).filled(placeholders(url, home=bench.home, project=bench.project)))
    # Their homes differ; what they share is the registry, as on one person's machine.
    shared = {"SYNAPSE_HOME": str(folder / "state"), "SYNAPSE_UDS_DIR": str(folder / "s")}
    # A program that ends leaves its last words on the screen.
    (folder / "tmux.conf").write_text("set -g remain-on-exit on\n", encoding="utf-8")
    tmux = ("tmux", "-S", str(folder / "t"), "-f", str(folder / "tmux.conf"))
    return AgentHarness(name, profile, bench, bench.env | shared, tmux)


def eventually(condition: Callable[[], bool], harness: AgentHarness, what: str) -> None:
    clock, pause = SystemClock(), threading.Event()
    deadline = clock.monotonic() + PATIENCE
    while not condition():
        assert clock.monotonic() < deadline, f"{harness.name} {what}:\n{harness.told()}\n{harness.screen()}"
        pause.wait(0.1)


def wait_until_ready(harness: AgentHarness) -> None:
    eventually(lambda: harness.status().get("status") == "ready", harness, "is ready")


def wait_until_shown(harness: AgentHarness, said: str) -> None:
    eventually(lambda: said in harness.screen(), harness, "shows its answer")


def approve(harness: AgentHarness) -> None:
    eventually(lambda: harness.synapse("approve", harness.name).code == 0, harness, "asks for a permission")


@pytest.mark.timeout(300)
def test_two_clis_of_different_vendors_hold_a_conversation(
    model: ModelServer, harnesses: dict[str, AgentHarness]
) -> None:
    ada, bob = harnesses["ada"], harnesses["bob"]
    for harness in (ada, bob):
        harness.start()
    for harness in (ada, bob):
        wait_until_ready(harness)

    task_id = object_in(ada.synapse("send", "ada", "calibrate:consult:1 please", "--json").fields, "task")["id"]
    approve(bob)

    def task() -> dict[str, Any]:
        return object_in(ada.synapse("status", task_id, "--json").fields, "task")

    eventually(lambda: task().get("status") == "completed", ada, "has completed its task")
    result = model.ledger.last("consult:1", Fact.RESULT)
    assert result is not None
    assert REPLY in result.text
    parts = [part for artifact in objects_in(task(), "artifacts") for part in objects_in(artifact, "parts")]
    assert [part["text"] for part in parts] == ["Bob has answered."]
    for harness, said in ((ada, "Bob has answered."), (bob, "I have replied.")):
        wait_until_ready(harness)
        wait_until_shown(harness, said)
        assert_intact(harness.screen(), said, harness.profile)


def assert_intact(screen: str, said: str, profile: str) -> None:
    """The answer stands there once, the prompt is empty, and nothing is left of what was typed."""
    assert screen.count(said) == 1, screen
    assert prompt_text(screen, profile) == "", screen
    for scrap in ("200~", "201~", "\x1b", "Traceback"):
        assert scrap not in screen, screen


def prompt_text(screen: str, profile: str) -> str:
    """What is in the input, by the profile's own rule; a placeholder is nothing."""
    rule = load_profile(profile).prompt
    assert rule is not None
    found = [match["text"] for line in screen.splitlines() if (match := rule.pattern.search(line.rstrip()))]
    assert found, screen
    return "" if any(placeholder.search(found[-1]) for placeholder in rule.placeholders) else found[-1].strip()
