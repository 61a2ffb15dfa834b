"""One calibration, from the empty folder to the comparison of the settings."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from synapse.calibration.checks import EXIT_SECONDS, ROWS
from synapse.calibration.model_server import Ledger, ModelServer
from synapse.calibration.sandbox import AGENT, Recipe, Workbench, places
from synapse.calibration.terminals import TerminalKind
from synapse.calibration.trial import Finding, Trial, Verdict, compared
from synapse.core.agent import READY
from synapse.core.errors import AgentFailed, CommandMissing
from synapse.core.types import Clock
from synapse.drivers.pty.process import locate
from synapse.terminal.profile import Profile

_START_SECONDS: Final = 60.0
_READY_SECONDS: Final = 60.0
_RECOVERY_SECONDS: Final = 10.0
LAST_ROW: Final = "exit"


def require_program(profile: Profile, search_path: str | None) -> None:
    """Raises CommandMissing, with what to type, unless the CLI is installed."""
    if locate(profile.command[0], search_path) is None:
        raise CommandMissing(f"'{profile.command[0]}' is not installed", hint=profile.install_hint)


@dataclass(frozen=True, slots=True)
class CalibrationPlan:
    """What is calibrated: the CLI by its recipe, the rows, and the terminal that it gets."""

    recipe: Recipe
    rows: Sequence[str]
    terminal: TerminalKind


def calibrate(plan: CalibrationPlan, folder: Path, clock: Clock, tell: Callable[[Finding], None]) -> list[Finding]:
    """Run the rows in `folder`, which is empty; `tell` gets each finding as soon as it is there.

    Raises:
        AgentFailed: it could not be started.
    """
    findings: list[Finding] = []
    with ModelServer(Ledger(clock)) as model:
        bench = Workbench(folder, os.environ, plan.terminal)
        bench.furnish(plan.recipe.filled(places(model.url, home=bench.home, project=bench.project)))
        trial = Trial(bench, model, clock)
        try:
            for finding in _findings(trial, plan.recipe.name, plan.rows):
                findings.append(finding)
                tell(finding)
        finally:
            _clear_up(trial)
    return findings


def _findings(trial: Trial, profile: str, rows: Sequence[str]) -> Iterator[Finding]:
    before = trial.bench.settings()
    ready = _start(trial, profile)
    yield ready
    if ready.verdict is Verdict.WRONG:
        return
    for row in rows:
        yield from _row(trial, row)
        if row != LAST_ROW and not _is_ready_again(trial):
            yield _start_again(trial, profile, row)
    if LAST_ROW not in rows:
        trial.bench.synapse("stop", AGENT, "--force")
    yield compared("settings", "compared", "unchanged", _changed(before, trial.bench.settings()) or "unchanged")


def _start(trial: Trial, profile: str) -> Finding:
    """Start the agent as a person would, and wait until it is ready."""
    began = trial.clock.monotonic()
    words = ("start", profile, "--name", AGENT, "--no-instructions", "--", *trial.bench.recipe.args)
    ran = trial.bench.synapse(*words, seconds=_START_SECONDS)
    if ran.code != 0:
        raise AgentFailed(f"{profile} could not be started: {ran.talk.strip()}")
    _wait_until_ready(trial, _READY_SECONDS)
    status = trial.bench.ask("/status")
    state = str(status.get("state", "gone"))
    seen = READY if state == READY else f"{state}: {status.get('why', 'its program has ended')}"
    event = f"after {trial.clock.monotonic() - began:.1f} s"
    return compared("ready", event, READY, seen, source=str(status.get("source", "")))


def _row(trial: Trial, row: str) -> Iterator[Finding]:
    try:
        yield from ROWS[row](trial)
    except AgentFailed as error:
        yield Finding(row=row, event="sent", expected="accepted", seen=str(error), verdict=Verdict.WRONG)


def _is_ready_again(trial: Trial) -> bool:
    """Take back what a row has left open, and see whether the next one finds the agent as it should be."""
    for turn in trial.unfinished():
        trial.bench.synapse("cancel", turn.task_id)
    return _wait_until_ready(trial, _RECOVERY_SECONDS)


def _start_again(trial: Trial, profile: str, row: str) -> Finding:
    """One row that went wrong shall not spoil the others."""
    why = trial.bench.ask("/status").get("why", "it is gone")
    trial.bench.synapse("stop", AGENT, "--force")
    _start(trial, profile)
    seen = f"started again: {why}"
    return Finding(row=row, event="afterwards", expected=READY, seen=seen, verdict=Verdict.WRONG)


def _wait_until_ready(trial: Trial, seconds: float) -> bool:
    """Whether it is ready within so long; one that is gone is not waited for."""
    trial.wait_until(lambda: _state(trial) == READY or trial.bench.entry() is None, seconds)
    return _state(trial) == READY


def _state(trial: Trial) -> str:
    return str(trial.bench.ask("/status").get("state", ""))


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    return ", ".join(sorted({name for name, _ in set(before.items()) ^ set(after.items())}))


def _clear_up(trial: Trial) -> None:
    """Whatever went wrong, nothing of this run lives on."""
    trial.unfinished()
    if trial.bench.entry() is not None:
        trial.bench.synapse("stop", AGENT, "--force")
    trial.wait_until(lambda: not trial.bench.processes(), EXIT_SECONDS / 3)
    for pid in trial.bench.processes():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
