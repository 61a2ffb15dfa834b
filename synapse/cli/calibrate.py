"""`synapse calibrate`: does Synapse understand this CLI? The real program, a scripted model, and a table."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from synapse.calibration.findings import Finding, Verdict, median_delay, wrong
from synapse.calibration.recipe import load_recipe
from synapse.calibration.rows import ROWS
from synapse.calibration.run import calibrate, require_program
from synapse.cli.exit_codes import DONE, FAILED
from synapse.cli.launch import require_profile
from synapse.cli.render import plain, table
from synapse.cli.speech import give, give_json, say
from synapse.cli.trust import settings_here
from synapse.cli.verb_parser import VerbParser
from synapse.runtime.profiles import load_profile
from synapse.runtime.settings import load_settings
from synapse.runtime.system_clock import SystemClock

EXAMPLES = """
synapse calibrate claude                    all rows; your own files and keys are not used
synapse calibrate codex --rows long,deny    only these, between start and end
synapse calibrate gemini --keep --json      the folder stays, the table is JSON
"""
TITLES = ("ROW", "EVENT", "EXPECTED", "SEEN", "SOURCE", "DELAY", "OK")
_SEEN_COLUMN = 3


def run(arguments: list[str]) -> int:
    """Run the rows, print the table, and return the exit code: FAILED when any conclusion was wrong."""
    parser = VerbParser("calibrate", examples=EXAMPLES)
    parser.add_argument("profile", metavar="PROFILE")
    parser.add_argument("--rows", default="", metavar="ROW,…", help=f"only these of: {', '.join(ROWS)}")
    parser.add_argument("--keep", action="store_true", help="keep the folder that it worked in")
    options = parser.parse_args(arguments)
    require_profile(options.profile, load_settings())
    settings = settings_here(options.profile, asks=not options.json)
    rows = _rows(options.rows, parser)
    profile = load_profile(options.profile, settings.profile_sources)
    recipe = load_recipe(profile.name)
    require_program(profile, os.environ.get("PATH"))
    # Short: sockets lie in it, and their paths may not be long.
    folder = Path(tempfile.mkdtemp(prefix="synapse-"))
    try:
        findings = calibrate(recipe, rows, folder, SystemClock(), _tell)
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    _show(findings, profile=profile.name, folder=str(folder) if options.keep else "", as_json=options.json)
    return FAILED if wrong(findings) else DONE


def _rows(chosen: str, parser: VerbParser) -> list[str]:
    """The rows to run, in their own order."""
    names = [name.strip() for name in chosen.split(",") if name.strip()] or list(ROWS)
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        parser.error(f"there is no row '{unknown[0]}'; there are: {', '.join(ROWS)}")
    return [name for name in ROWS if name in names]


def _tell(finding: Finding) -> None:
    say(f"{finding.verdict.value:<6} {finding.row}: {finding.event}")


def _show(findings: list[Finding], *, profile: str, folder: str, as_json: bool) -> None:
    wrongs = wrong(findings)
    if as_json:
        fields = [finding.as_fields() for finding in findings]
        kept = {"folder": folder} if folder else {}
        summary = {"profile": profile, "wrong": len(wrongs), "median_delay_ms": median_delay(findings), **kept}
        give_json({**summary, "findings": fields})
        return
    give(table(TITLES, [_cells(finding) for finding in findings], elastic=_SEEN_COLUMN))
    counted = [finding for finding in findings if finding.verdict is not Verdict.NOT_OFFERED]
    delay = median_delay(findings)
    measured = "" if delay is None else f", median delay {delay} ms"
    give(f"\n{profile}: {len(counted) - len(wrongs)} of {len(counted)} right{measured}")
    for finding in wrongs:
        give(f"wrong: {finding.row}, {finding.event}: {plain(finding.seen)}")
    if folder:
        say(f"its folder is {folder}")


def _cells(finding: Finding) -> tuple[str, ...]:
    delay = "" if finding.milliseconds is None else f"{finding.milliseconds} ms"
    return (
        finding.row,
        finding.event,
        finding.expected,
        finding.seen,
        finding.source,
        delay,
        finding.verdict.value,
    )
