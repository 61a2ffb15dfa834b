"""`synapse broadcast`: one message to all agents that work in this folder, or to all there are."""

from __future__ import annotations

import os
from typing import Any

from synapse.cli.exit_codes import DONE, exit_code
from synapse.cli.hosts import AGENT_VARIABLE, current_folder, open_registry, sender_fields
from synapse.cli.options import Options
from synapse.cli.send import message_body
from synapse.cli.speech import give_json, say
from synapse.cli.survey import Asked, ask_all
from synapse.cli.task_view import short_id
from synapse.cli.verb_parser import VerbParser
from synapse.core.address import short_name
from synapse.core.errors import AgentNotFound
from synapse.core.json_text import object_in

EXAMPLES = """
synapse broadcast "pull before you go on"             agents that work in this folder
synapse broadcast --all --priority 4 "save your work"
"""


def run(arguments: list[str]) -> int:
    """Send to each agent and return the exit code: of the first failure, if any."""
    parser = VerbParser("broadcast", examples=EXAMPLES)
    parser.add_argument("message", nargs="*", metavar="MESSAGE", help="`-` reads standard input")
    parser.add_argument("--all", action="store_true", help="also agents that work in other folders")
    parser.add_argument("--priority", choices=list("12345"), default="3")
    parser.add_argument("--file", metavar="FILE", help="take the message from a file")
    parser.add_argument("--from", dest="sender", default="", metavar="AGENT", help="who sends")
    options = parser.parse_args(arguments)
    given = Options("broadcast", options.message, {"--file": options.file} if options.file else {})
    text = given.message(options.message)
    registry = open_registry()
    sender = sender_fields(registry, options.sender)
    here = os.path.realpath(current_folder())
    entries = [
        entry
        for entry in registry.entries()
        if entry.agent_id not in (sender["sender_id"], os.environ.get(AGENT_VARIABLE))
        and (options.all or os.path.realpath(entry.working_dir) == here)
    ]
    if not entries:
        raise AgentNotFound("*", hint="nobody else works in this folder; --all reaches the others  (synapse list)")
    path = f"/tasks/send-priority?priority={options.priority}"
    asked = ask_all(entries, "POST", path, message_body(text, given, sender))
    if options.json:
        give_json([_as_fields(one) for one in asked])
    else:
        for one in asked:
            say(_line(one))
    return next((exit_code(one.error.code) for one in asked if one.error is not None), DONE)


def _line(one: Asked) -> str:
    if one.error is not None:
        return f"Error: {one.error}"
    return f"[→ {short_name(one.entry)}] sent  (task {short_id(object_in(one.body, 'task'))})"


def _as_fields(one: Asked) -> dict[str, Any]:
    if one.error is not None:
        error = {"code": one.error.code, "message": str(one.error), "hint": one.error.hint}
        return {"agent_id": one.entry.agent_id, "error": error}
    return {"agent_id": one.entry.agent_id, "task": object_in(one.body, "task")}
