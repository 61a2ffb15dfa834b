"""`synapse queue`: what waits for the agents, in the order of delivery."""

from __future__ import annotations

from synapse.cli.hosts import find_agent, open_registry
from synapse.cli.render import table
from synapse.cli.speech import give, give_json, say
from synapse.cli.stored import stored_queue
from synapse.cli.survey import ask_all
from synapse.cli.task_view import message_of, sender_of, short_id
from synapse.cli.verb_parser import VerbParser
from synapse.core.address import short_name
from synapse.core.json_text import object_in, objects_in

EXAMPLES = """
synapse queue                 of all agents, also of those that do not run
synapse queue codex
synapse cancel 54241e7e       takes a message back
"""
TITLES = ("AGENT", "TASK", "PRIORITY", "FROM", "MESSAGE")


def run(arguments: list[str]) -> int:
    """Show the queues and return the exit code."""
    parser = VerbParser("queue", examples=EXAMPLES)
    parser.add_argument("agent", nargs="?", metavar="AGENT")
    options = parser.parse_args(arguments)
    registry = open_registry()
    entries = [find_agent(options.agent, registry)] if options.agent else registry.entries()
    asked = ask_all(entries, "GET", "/queue")
    for one in asked:
        if one.error is not None:
            say(f"Warning: {one.error}")
    waiting = [(one.entry, task) for one in asked for task in objects_in(one.body, "tasks")]
    if not options.agent:
        waiting += stored_queue({entry.inbox for entry in entries})
    if options.json:
        give_json([{"agent_id": entry.agent_id, "task": task} for entry, task in waiting])
        return 0
    if not waiting:
        say("nothing waits")
        return 0
    rows = [
        (
            short_name(entry),
            short_id(task),
            str(object_in(task, "metadata").get("priority", "")),
            sender_of(task),
            message_of(task),
        )
        for entry, task in waiting
    ]
    give(table(TITLES, rows, elastic=4))
    return 0
