"""How long a message takes into Claude Code itself: `synapse send`, beside tmux that pastes the same text and Enter.

The clock stops when the scripted model is asked, so the CLI's own time is on both sides. It needs the real CLI.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from functools import partial
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.processes import wait_until
from benchmarks.rounds import interleave
from benchmarks.rows import QUICK, Effort, Figure, Row, at_most, within
from synapse.calibration.model_server import Fact, Ledger, ModelServer
from synapse.calibration.sandbox import AGENT, Sandbox, load_recipe, placeholders
from synapse.config.process import SystemClock
from synapse.terminal.signals.claude import HOOKS

TITLE = "A prompt for Claude Code"
PROGRAM = "claude"
_SETTINGS = "--settings"

_ROUNDS, _FEW_ROUNDS = 30, 5
_REST_SECONDS = 0.3
"""Twice as long as a CLI must have been quiet before Synapse calls it ready."""
_START_SECONDS = 90.0
_ASKED_SECONDS = 30.0
_SENT = "`synapse send` → the prompt is at the model"
_TEXT = "please look at the parser again, and say what you find"
_PROMPT = "\u276f"
_CLOCK = SystemClock()
_numbers = count(1)


def run(effort: Effort) -> list[Row]:
    missing = [program for program in (PROGRAM, "tmux") if shutil.which(program) is None]
    if missing:
        return [
            Row(what=_SENT, measured=f"skipped: {' and '.join(missing)} not found; scripts/real-clis installs CLIs")
        ]
    rounds = _FEW_ROUNDS if effort is QUICK else _ROUNDS
    with (
        ModelServer(Ledger(_CLOCK)) as model,
        _bench(model) as ours,
        _bench(model) as theirs,
        _agent(ours),
        _pane(theirs) as pane,
    ):
        at_rest = partial(_at_rest, ours, pane)
        contenders = {
            "synapse": partial(at_rest, partial(_send, ours, model)),
            "tmux": partial(at_rest, partial(_paste, pane, model)),
        }
        interleave(1, contenders)  # the first prompt of a session takes longer
        found = interleave(rounds, contenders)
        reported = [_report(*_hook(ours)) for _ in range(rounds)]
    pasted = Figure("tmux pastes it, then Enter:", found["tmux"], "ms", 1000)
    tool_hooks = sum("Tool" in name for name in HOOKS)
    return [
        at_most(1.3, Figure(_SENT, found["synapse"], "ms", 1000), pasted),
        within(10, Figure("one report of a hook to the host", reported, "ms", 1000)),
        Row(
            what="hooks of ours that run at a tool call",
            measured=str(tool_hooks),
            target="none",
            reached=not tool_hooks,
        ),
    ]


@contextlib.contextmanager
def _bench(model: ModelServer) -> Generator[Sandbox]:
    # Sockets lie in it, so its path is short.
    folder = Path(tempfile.mkdtemp(prefix="sb-"))
    try:
        bench = Sandbox(folder, os.environ)
        bench.install(load_recipe(PROGRAM).filled(placeholders(model.url, home=bench.home, project=bench.project)))
        yield bench
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _agent(bench: Sandbox) -> Generator[None]:
    words = ("start", PROGRAM, "--name", AGENT, "--no-instructions", "--", *bench.recipe.args)
    ran = bench.synapse(*words, seconds=_START_SECONDS)
    try:
        if ran.code:
            raise RuntimeError(f"it could not be started: {ran.notices}")
        wait_until(partial(_is_ready, bench), "Claude Code is ready", _START_SECONDS)
        yield
    finally:
        bench.synapse("stop", AGENT, "--force")


def _is_ready(bench: Sandbox) -> bool:
    status = bench.ask("/status")
    return status.get("state") == "ready" and not status.get("gate") and not status.get("current_task")


def _at_rest(bench: Sandbox, pane: _Pane, measure: Callable[[], float]) -> float:
    """Measure once both CLIs have nothing left to do: the one that was asked last still answers, on the same cores."""
    wait_until(partial(_is_ready, bench), "Claude Code is ready again", _ASKED_SECONDS)
    wait_until(pane.is_ready, "Claude Code shows its prompt again", _ASKED_SECONDS)
    time.sleep(_REST_SECONDS)
    return measure()


def _send(bench: Sandbox, model: ModelServer) -> float:
    name, text = _message()
    begun = _CLOCK.now()
    command = [str(Path(sys.executable).with_name("synapse")), "send", AGENT, text]
    unseen = subprocess.DEVNULL
    subprocess.run(command, cwd=bench.project, env=bench.env, stdout=unseen, stderr=unseen, check=True)
    return _until_asked(model, name) - begun.timestamp()


def _hook(bench: Sandbox) -> tuple[str, dict[str, str]]:
    """Where the hooks of this launch report, and with which headers: as its settings tell the CLI."""
    words = next(command.split() for command in bench.processes().values() if _SETTINGS in command.split())
    settings = json.loads(Path(words[words.index(_SETTINGS) + 1]).read_bytes())
    hook = settings["hooks"]["Stop"][-1]["hooks"][0]
    return hook["url"], hook["headers"]


def _report(url: str, headers: dict[str, str]) -> float:
    """Seconds that a hook takes whose news concern no turn."""
    place = urlsplit(url)
    body = json.dumps({"hook_event_name": "PostToolUse", "tool_name": "Bash"})
    begun = time.perf_counter()
    with contextlib.closing(HTTPConnection(place.netloc, timeout=_ASKED_SECONDS)) as connection:
        connection.request("POST", place.path, body, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        answer.read()
        taken = time.perf_counter() - begun
    if answer.status >= 300:
        raise RuntimeError(f"the report was answered with {answer.status}")
    return taken


class _Pane:
    """Claude Code in a terminal of tmux's."""

    def __init__(self, bench: Sandbox, server: str) -> None:
        self._bench = bench
        self._server = server

    def tmux(self, *words: str) -> str:
        command = ["tmux", "-L", self._server, "-f", os.devnull, *words]
        done = subprocess.run(
            command, cwd=self._bench.project, env=self._bench.env, stdout=subprocess.PIPE, encoding="utf-8", check=True
        )
        return done.stdout

    def is_ready(self) -> bool:
        """Its prompt is there, and nothing stands in it."""
        lines = [line.strip() for line in self.tmux("capture-pane", "-p").splitlines()]
        return "esc to interrupt" not in " ".join(lines) and any(line.strip("│ \xa0") == _PROMPT for line in lines)


@contextlib.contextmanager
def _pane(bench: Sandbox) -> Generator[_Pane]:
    pane = _Pane(bench, f"synapse-bench-{os.getpid()}")
    pane.tmux("new-session", "-d", "-x", "120", "-y", "40", PROGRAM, *bench.recipe.args)
    try:
        wait_until(pane.is_ready, "Claude Code shows its prompt in tmux", _START_SECONDS)
        yield pane
    finally:
        pane.tmux("kill-server")


def _paste(pane: _Pane, model: ModelServer) -> float:
    name, text = _message()
    begun = _CLOCK.now()
    pane.tmux("set-buffer", "--", text, ";", "paste-buffer", "-p", "-d", ";", "send-keys", "Enter")
    return _until_asked(model, name) - begun.timestamp()


def _message() -> tuple[str, str]:
    """A message that makes the model answer: its name there, and its text."""
    name = f"one-line:{next(_numbers)}"
    return name, f"calibrate:{name} {_TEXT}"


def _until_asked(model: ModelServer, name: str) -> float:
    asked = model.ledger.wait_for(name, Fact.ASKED, seconds=_ASKED_SECONDS)
    if asked is None:
        raise TimeoutError(f"the model was not asked for {name}")
    return asked.at.timestamp()
