"""`synapse guide`: a short primer for AI readers, in the words of the initial instructions."""

from __future__ import annotations

from synapse.cli.speech import give
from synapse.cli.verb_parser import VerbParser
from synapse.service.instructions import guide

EXAMPLES = """
synapse guide
"""


def run(arguments: list[str]) -> int:
    """Print the primer and return the exit code."""
    VerbParser("guide", examples=EXAMPLES, json=False).parse_args(arguments)
    give(guide())
    return 0
