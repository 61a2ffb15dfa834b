"""`synapse deny`: turn down what an agent asks for."""

from __future__ import annotations

from synapse.cli.answering import find_asking
from synapse.cli.verb_parser import VerbParser

EXAMPLES = """
synapse approvals                 what all agents wait for
synapse deny 54241e7e
synapse deny codex                whatever codex asks now
"""


def run(arguments: list[str]) -> int:
    """Deny it and return the exit code."""
    parser = VerbParser("deny", examples=EXAMPLES)
    parser.add_argument("target", metavar="TASK|AGENT")
    options = parser.parse_args(arguments)
    return find_asking(options.target).answer("denied", {"verdict": "deny"}, as_json=options.json)
