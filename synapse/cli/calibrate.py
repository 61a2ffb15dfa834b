"""`synapse calibrate`: runs a real CLI against a scripted model and compares what Synapse concludes with the truth."""

from __future__ import annotations

import os
import shutil
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from synapse.calibration.checks import ROWS
from synapse.calibration.run import CalibrationPlan, calibrate, require_program
from synapse.calibration.sandbox import load_recipe, recipe_names
from synapse.calibration.terminals import EVERY_KIND, PAIRWISE, TerminalKind, own_terminal
from synapse.calibration.trial import Finding, FindingVerdict, compared, median_delay, wrong
from synapse.cli.exit_codes import DONE, FAILED
from synapse.cli.launch import require_profile
from synapse.cli.output import print_json, print_notice, print_result
from synapse.cli.parser import VerbParser
from synapse.cli.tables import table
from synapse.cli.trust import settings_here
from synapse.client.lines import plain
from synapse.config.process import SystemClock
from synapse.config.settings import Settings, load_profile, load_settings
from synapse.core.errors import AgentFailed, CommandMissing

EXAMPLES = """
synapse calibrate claude                    all rows, in a terminal like yours; does not use your files and keys
synapse calibrate codex --rows long,deny    only these rows, between start and end
synapse calibrate gemini --keep --json      keep the folder, print JSON
synapse calibrate --terminals               every installed CLI, in twelve kinds of terminals
synapse calibrate gemini --terminals --rows all
"""
TITLES = ("ROW", "EVENT", "EXPECTED", "SEEN", "SOURCE", "DELAY", "OK")
RUN_TITLES = ("CLI", "COLOURS", "SIZE", "THEME", "RIGHT", "DELAY", "WRONG")
_SEEN_COLUMN = 3
_WRONG_COLUMN = 6
_ALL = "all"
_ROW_OF_TERMINALS = "one-line"


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one CLI in one terminal; `folder` is empty unless it was kept."""

    profile: str
    terminal: TerminalKind
    findings: list[Finding]
    folder: str

    @property
    def counted(self) -> int:
        return sum(finding.verdict is not FindingVerdict.NOT_OFFERED for finding in self.findings)

    @property
    def right(self) -> str:
        return f"{self.counted - len(wrong(self.findings))} of {self.counted}"

    def as_fields(self) -> dict[str, Any]:
        return {
            "profile": self.profile,
            "terminal": self.terminal.as_fields(),
            "wrong": len(wrong(self.findings)),
            "median_delay_ms": median_delay(self.findings),
            **({"folder": self.folder} if self.folder else {}),
            "findings": [finding.as_fields() for finding in self.findings],
        }


def run_calibrate(arguments: list[str]) -> int:
    """Runs the rows, prints the table, and returns the exit code: FAILED when any conclusion was wrong."""
    parser = VerbParser("calibrate", examples=EXAMPLES)
    parser.add_argument("profile", metavar="PROFILE", nargs="?", default="")
    parser.add_argument(
        "--rows", default="", metavar="ROW,…", help=f"run only these rows, of: {', '.join(ROWS)}; or all"
    )
    parser.add_argument(
        "--terminals",
        action="store_true",
        help="use terminals with 16, 256 and true colours, 80x24 and 200x60, light and dark; runs the row one-line "
        "unless --rows is given, and every installed CLI unless one is named",
    )
    parser.add_argument(
        "--pairwise", action="store_true", help="with --terminals: six of the twelve kinds, which cover every pair"
    )
    parser.add_argument("--keep", action="store_true", help="keep the working folder")
    options = parser.parse_args(arguments)
    if not options.profile and not options.terminals:
        parser.error(f"name a CLI ({', '.join(recipe_names())}), or use --terminals for all")
    if options.pairwise and not options.terminals:
        parser.error("--pairwise needs --terminals")
    rows = _rows(options.rows or (_ROW_OF_TERMINALS if options.terminals else _ALL), parser)
    if options.profile:
        require_profile(options.profile, load_settings())
    plans = list(_plans(options, rows, settings_here(options.profile, asks=not options.json)))
    runs = [_run_plan(plan, keep=options.keep) for plan in plans]
    if options.terminals:
        _show_all(runs, as_json=options.json)
    else:
        _show(runs[0], as_json=options.json)
    return FAILED if any(wrong(run.findings) for run in runs) else DONE


def _rows(chosen: str, parser: VerbParser) -> list[str]:
    """Returns the chosen rows in the order of ROWS."""
    names = [name.strip() for name in chosen.split(",") if name.strip()]
    if names == [_ALL]:
        return list(ROWS)
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        parser.error(f"unknown row '{unknown[0]}'; the rows are: {', '.join(ROWS)}")
    return [name for name in ROWS if name in names]


def _plans(options: Namespace, rows: list[str], settings: Settings) -> Iterator[CalibrationPlan]:
    """Yields a plan for each CLI in each terminal."""
    names = [options.profile] if options.profile else _installed(settings)
    kinds = PAIRWISE if options.pairwise else EVERY_KIND
    if not options.terminals:
        kinds = (own_terminal(os.environ, SystemClock()),)
    for name in names:
        require_profile(name, settings)
        profile = load_profile(name, settings.profile_sources)
        recipe = load_recipe(profile.name)
        require_program(profile, os.environ.get("PATH"))
        yield from (CalibrationPlan(recipe, rows, kind) for kind in kinds)


def _installed(settings: Settings) -> list[str]:
    """Returns the installed CLIs that have a recipe.

    Raises:
        CommandMissing: none of them is installed.
    """
    names: list[str] = []
    for name in recipe_names():
        try:
            require_program(load_profile(name, settings.profile_sources), os.environ.get("PATH"))
        except CommandMissing as missing:
            print_notice(f"Skipped: {missing}")
        else:
            names.append(name)
    if not names:
        raise CommandMissing("no CLI that can be calibrated is installed", hint="`synapse doctor` lists them")
    return names


def _run_plan(plan: CalibrationPlan, *, keep: bool) -> Run:
    # A short path: it holds sockets, whose paths are limited in length.
    folder = Path(tempfile.mkdtemp(prefix="synapse-"))
    print_notice(f"Calibrating {plan.recipe.name} in a terminal: {plan.terminal}")
    try:
        findings = calibrate(plan, folder, SystemClock(), _print_progress)
    except AgentFailed as error:
        # One failure must not lose the results of other terminals.
        findings = [compared("ready", "started", "ready", str(error))]
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    return Run(plan.recipe.name, plan.terminal, findings, str(folder) if keep else "")


def _print_progress(finding: Finding) -> None:
    print_notice(f"{finding.verdict.value:<6} {finding.row}: {finding.event}")


def _show(run: Run, *, as_json: bool) -> None:
    """Prints one run with every finding."""
    if as_json:
        print_json(run.as_fields())
        return
    print_result(table(TITLES, [_cells(finding) for finding in run.findings], elastic=_SEEN_COLUMN))
    delay = median_delay(run.findings)
    measured = "" if delay is None else f", median delay {delay} ms"
    print_result(f"\n{run.profile}: {run.right} right{measured}")
    _list_wrong(run, run.profile)


def _show_all(runs: list[Run], *, as_json: bool) -> None:
    """Prints a line for each run."""
    wrongs = sum(len(wrong(run.findings)) for run in runs)
    if as_json:
        print_json({"wrong": wrongs, "runs": [run.as_fields() for run in runs]})
        return
    print_result(table(RUN_TITLES, [_run_cells(run) for run in runs], elastic=_WRONG_COLUMN))
    right = sum(not wrong(run.findings) for run in runs)
    print_result(f"\n{right} of {len(runs)} runs right")
    for run in runs:
        _list_wrong(run, f"{run.profile} in {run.terminal}")


def _list_wrong(run: Run, where: str) -> None:
    for finding in wrong(run.findings):
        print_result(f"wrong: {where}: {finding.row}, {finding.event}: {plain(finding.seen)}")
    if run.folder:
        print_notice(f"Kept the folder {run.folder}.")


def _cells(finding: Finding) -> tuple[str, ...]:
    return (
        finding.row,
        finding.event,
        finding.expected,
        finding.seen,
        finding.source,
        _shown_delay(finding.milliseconds),
        finding.verdict.value,
    )


def _run_cells(run: Run) -> tuple[str, ...]:
    rows = dict.fromkeys(finding.row for finding in wrong(run.findings))
    return (
        run.profile,
        run.terminal.colours,
        str(run.terminal.size),
        run.terminal.theme.value,
        run.right,
        _shown_delay(median_delay(run.findings)),
        ", ".join(rows),
    )


def _shown_delay(milliseconds: int | None) -> str:
    return "" if milliseconds is None else f"{milliseconds} ms"
