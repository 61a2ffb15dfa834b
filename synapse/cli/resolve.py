"""`synapse resolve`: a person decides about a message of which it is not certain that the agent took it."""

from __future__ import annotations

from synapse.cli.hosts import ask, open_registry
from synapse.cli.speech import give_json, say
from synapse.cli.survey import find_task
from synapse.cli.task_view import short_id, status_of
from synapse.cli.verb_parser import VerbParser
from synapse.core.address import short_name
from synapse.core.errors import Conflict
from synapse.core.json_text import object_in

EXAMPLES = """
synapse attach codex                      look whether the message is there
synapse resolve 54241e7e --delivered      it was taken
synapse resolve 54241e7e --retry          it was not; type it again
synapse resolve 54241e7e --fail           give it up
"""


def run(arguments: list[str]) -> int:
    """Tell the host what was decided and return the exit code."""
    parser = VerbParser("resolve", examples=EXAMPLES)
    parser.add_argument("task", metavar="TASK")
    verdict = parser.add_mutually_exclusive_group(required=True)
    for word, meaning in (("delivered", "the agent took it"), ("retry", "type it again"), ("fail", "give it up")):
        verdict.add_argument(f"--{word}", dest="verdict", action="store_const", const=word, help=meaning)
    options = parser.parse_args(arguments)
    entry, found = find_task(options.task, open_registry())
    if not entry.pid:
        raise Conflict(
            f"{entry.agent_id} does not run, so nothing can be decided about task {short_id(found)} now",
            hint="start the agent first; it asks again",
        )
    task = object_in(ask(entry, "POST", f"/tasks/{found['id']}/resolve", {"verdict": options.verdict}), "task")
    if options.json:
        give_json({"task": task})
    else:
        say(f"[{short_name(entry)}] task {short_id(task)} is {status_of(task)}")
    return 0
