"""`synapse approve`: allow what an agent asks for."""

from __future__ import annotations

from synapse.cli.answering import find_asking
from synapse.cli.verb_parser import VerbParser

EXAMPLES = """
synapse approvals                 what all agents wait for
synapse approve 54241e7e          allow it, this once
synapse approve 54241e7e 2        choose an option by its number, or by its words
synapse approve codex             whatever codex asks now, also at its start
"""


def run(arguments: list[str]) -> int:
    """Allow it and return the exit code."""
    parser = VerbParser("approve", examples=EXAMPLES)
    parser.add_argument("target", metavar="TASK|AGENT")
    parser.add_argument("option", nargs="?", metavar="OPTION", help="one of the options, instead of a plain yes")
    options = parser.parse_args(arguments)
    answer = {"verdict": "allow"} if options.option is None else {"option": options.option}
    return find_asking(options.target).answer("approved", answer, as_json=options.json)
