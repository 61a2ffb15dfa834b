"""`synapse doctor`: looks at everything that agents need on this machine, and says what to do."""

from __future__ import annotations

from synapse.cli.checkup import PROBLEM, Finding, examine
from synapse.cli.exit_codes import DONE, FAILED
from synapse.cli.speech import give, give_json, say
from synapse.cli.verb_parser import VerbParser

EXAMPLES = """
synapse doctor
synapse doctor --json
"""
MARKS = {"ok": "✓", "note": "·", PROBLEM: "✗"}


def run(arguments: list[str]) -> int:
    """Examine this machine and return the exit code: 1 when something is wrong."""
    options = VerbParser("doctor", examples=EXAMPLES).parse_args(arguments)
    findings = examine()
    wrong = [finding for finding in findings if finding.level == PROBLEM]
    if options.json:
        give_json({"ok": not wrong, "findings": [_fields(finding) for finding in findings]})
        return FAILED if wrong else DONE
    for finding in findings:
        give(f"{MARKS[finding.level]} {finding.subject:<10} {finding.text}")
        if finding.advice:
            give(f"  {'':<10} → {finding.advice}")
    say("\nall is well" if not wrong else f"\n{len(wrong)} to put right")
    return FAILED if wrong else DONE


def _fields(finding: Finding) -> dict[str, str]:
    return {
        "level": finding.level,
        "subject": finding.subject,
        "text": finding.text,
        "advice": finding.advice,
    }
