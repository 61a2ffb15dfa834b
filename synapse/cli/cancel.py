"""`synapse cancel`: stop a task, or take back a message that still waits."""

from __future__ import annotations

from synapse.cli.hosts import ask, open_registry
from synapse.cli.speech import give_json, say
from synapse.cli.stored import take_back
from synapse.cli.survey import find_task
from synapse.cli.task_view import short_id, status_of
from synapse.cli.verb_parser import VerbParser
from synapse.core.address import short_name
from synapse.core.json_text import object_in

EXAMPLES = """
synapse queue                 shows what waits
synapse cancel 54241e7e       the short id is enough
"""


def run(arguments: list[str]) -> int:
    """Cancel a task and return the exit code."""
    parser = VerbParser("cancel", examples=EXAMPLES)
    parser.add_argument("task", metavar="TASK")
    options = parser.parse_args(arguments)
    entry, found = find_task(options.task, open_registry())
    if entry.pid:
        task = object_in(ask(entry, "POST", f"/tasks/{found['id']}/cancel", {}), "task")
    else:
        task = take_back(str(found["id"]))
    if options.json:
        give_json({"task": task})
    else:
        say(f"[{short_name(entry)}] task {short_id(task)} is {status_of(task)}")
    return 0
