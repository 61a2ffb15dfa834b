"""`synapse guide`: prints a short primer for AI agents, with the text of the initial instructions."""

from __future__ import annotations

from synapse.cli.output import print_result
from synapse.cli.parser import VerbParser
from synapse.tasks.instructions import guide

EXAMPLES = """
synapse guide
"""


def run_guide(arguments: list[str]) -> int:
    """Prints the primer and returns the exit code."""
    VerbParser("guide", examples=EXAMPLES, json=False).parse_args(arguments)
    print_result(guide())
    return 0
