"""Runs one calibration: starts the CLI in an empty folder, runs the rows, and compares its settings files."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from synapse.calibration.checks import EXIT_SECONDS, READY_SECONDS, ROWS
from synapse.calibration.model_server import Ledger, ModelServer
from synapse.calibration.sandbox import AGENT, Recipe, Sandbox, placeholders
from synapse.calibration.terminals import TerminalKind
from synapse.calibration.trial import Finding, FindingVerdict, Trial, compared
from synapse.core.agent import READY
from synapse.core.errors import AgentFailed, CommandMissing, SynapseError
from synapse.core.types import Clock
from synapse.drivers.pty.process import locate
from synapse.terminal.profile import Profile

_RECOVERY_SECONDS: Final = 10.0
LAST_ROW: Final = "exit"


def require_program(profile: Profile, search_path: str | None) -> None:
    """Raises CommandMissing, with how to install it, unless the CLI is installed."""
    if locate(profile.command[0], search_path) is None:
        raise CommandMissing(f"'{profile.command[0]}' is not installed", hint=profile.install_hint)


@dataclass(frozen=True, slots=True)
class CalibrationPlan:
    """What to calibrate: the CLI by its recipe, the rows, and the terminal."""

    recipe: Recipe
    rows: Sequence[str]
    terminal: TerminalKind


def calibrate(plan: CalibrationPlan, folder: Path, clock: Clock, report: Callable[[Finding], None]) -> list[Finding]:
    """Runs the rows in the empty folder `folder`; calls `report` with each finding as it is made.

    Raises:
        AgentFailed: the CLI could not be started.
    """
    findings: list[Finding] = []
    with ModelServer(Ledger(clock)) as model:
        sandbox = Sandbox(folder, os.environ, plan.terminal)
        sandbox.install(plan.recipe.filled(placeholders(model.url, home=sandbox.home, project=sandbox.project)))
        trial = Trial(sandbox, model, clock)
        try:
            for finding in _findings(trial, plan.recipe.name, plan.rows):
                findings.append(finding)
                report(finding)
        finally:
            _clear_up(trial)
    return findings


def _findings(trial: Trial, profile: str, rows: Sequence[str]) -> Iterator[Finding]:
    before = trial.sandbox.settings()
    ready = _start(trial, profile)
    yield ready
    if ready.verdict is FindingVerdict.WRONG:
        return
    for row in rows:
        try:
            yield from ROWS[row](trial)
        except AgentFailed as error:
            yield Finding(row=row, event="sent", expected="accepted", seen=str(error), verdict=FindingVerdict.WRONG)
        if row != LAST_ROW and not _recover(trial):
            yield _restart(trial, profile, row)
    if LAST_ROW not in rows:
        trial.sandbox.synapse("stop", AGENT, "--force")
    changed = {name for name, _ in set(before.items()) ^ set(trial.sandbox.settings().items())}
    yield compared("settings", "compared", "unchanged", ", ".join(sorted(changed)) or "unchanged")


def _start(trial: Trial, profile: str) -> Finding:
    """Starts the agent and waits until it is ready. Raises AgentFailed."""
    began = trial.clock.monotonic()
    try:
        trial.sandbox.start(profile)
    except SynapseError as error:
        raise AgentFailed(f"{profile} could not be started: {error}\n{error.hint}".strip()) from error
    _wait_until_ready(trial, READY_SECONDS)
    status = trial.sandbox.ask("/status")
    state = str(status.get("state", "gone"))
    seen = READY if state == READY else f"{state}: {status.get('why', 'its program ended')}"
    event = f"after {trial.clock.monotonic() - began:.1f} s"
    return compared("ready", event, READY, seen, source=str(status.get("source", "")))


def _recover(trial: Trial) -> bool:
    """Cancels what a row has left open; returns whether the agent is ready for the next row."""
    for turn in trial.unfinished():
        trial.sandbox.synapse("cancel", turn.task_id)
    return _wait_until_ready(trial, _RECOVERY_SECONDS)


def _restart(trial: Trial, profile: str, row: str) -> Finding:
    """Restarts the agent, so that one row that went wrong does not spoil the others."""
    why = trial.sandbox.ask("/status").get("why", "it is gone")
    trial.sandbox.synapse("stop", AGENT, "--force")
    _start(trial, profile)
    seen = f"restarted: {why}"
    return Finding(row=row, event="afterwards", expected=READY, seen=seen, verdict=FindingVerdict.WRONG)


def _wait_until_ready(trial: Trial, seconds: float) -> bool:
    """Waits until the agent is ready; returns False if it is gone or the time is over."""
    trial.wait_until(lambda: _state(trial) == READY or trial.sandbox.entry() is None, seconds)
    return _state(trial) == READY


def _state(trial: Trial) -> str:
    return str(trial.sandbox.ask("/status").get("state", ""))


def _clear_up(trial: Trial) -> None:
    """Stops the agent and kills every process of this run."""
    trial.unfinished()
    if trial.sandbox.entry() is not None:
        trial.sandbox.synapse("stop", AGENT, "--force")
    trial.wait_until(lambda: not trial.sandbox.processes(), EXIT_SECONDS / 3)
    for pid in trial.sandbox.processes():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
