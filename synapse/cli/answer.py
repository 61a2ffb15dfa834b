"""`synapse answer`: answer what an agent wants to know."""

from __future__ import annotations

from synapse.cli.answering import find_asking
from synapse.cli.question_view import option_called
from synapse.cli.verb_parser import VerbParser

EXAMPLES = """
synapse approvals                            what all agents wait for
synapse answer 54241e7e 2                    an option, by its number
synapse answer 54241e7e "main, of course"    an option by its words, or words of your own
"""


def run(arguments: list[str]) -> int:
    """Answer it and return the exit code."""
    parser = VerbParser("answer", examples=EXAMPLES)
    parser.add_argument("target", metavar="TASK|AGENT")
    parser.add_argument("text", nargs="+", metavar="TEXT")
    options = parser.parse_args(arguments)
    asking = find_asking(options.target)
    text = " ".join(options.text)
    option = option_called(asking.question, text)
    return asking.answer("answered", {"option": option} if option else {"text": text}, as_json=options.json)
