"""`synapse broadcast`: one message to all agents that work in this folder, or to all there are."""

from __future__ import annotations

import os
from typing import Any

from synapse.cli.exit_codes import DONE, exit_code
from synapse.cli.options import Options
from synapse.cli.output import give_json, print_notice
from synapse.cli.parser import VerbParser
from synapse.cli.send import message_body
from synapse.cli.views import short_id
from synapse.client.fan_out import HostReply, ask_all
from synapse.client.hosts import ACCEPT_SECONDS, AGENT_VARIABLE, current_folder, open_registry, sender_fields
from synapse.core.address import short_name
from synapse.core.agent import AgentEntry
from synapse.core.errors import AgentNotFound, NotFound, describe
from synapse.core.json_text import object_in

EXAMPLES = """
synapse broadcast "pull before you go on"             agents that work in this folder
synapse broadcast --all --priority 4 "save your work"
"""


def run_broadcast(arguments: list[str]) -> int:
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
        # Agents inside a gateway may be strangers elsewhere: they are sent what is meant for them by name.
        if not entry.gateway
        and entry.agent_id not in (sender["sender_id"], os.environ.get(AGENT_VARIABLE))
        and (options.all or os.path.realpath(entry.working_dir) == here)
    ]
    if not entries:
        raise _nobody(registry.entries(), everywhere=options.all)
    path = f"/tasks/send-priority?priority={options.priority}"
    body = message_body(text, given, sender)
    asked = ask_all(entries, "POST", path, body, timeout=ACCEPT_SECONDS)
    for one in asked:
        _tell_of_doubt(one, str(body["message"]["message_id"]))
    if options.json:
        give_json([_as_fields(one) for one in asked])
    else:
        for one in asked:
            print_notice(_line(one))
    return next((exit_code(one.error.code) for one in asked if one.error is not None), DONE)


def _nobody(running: list[AgentEntry], *, everywhere: bool) -> NotFound:
    """There is nobody to tell; `running` are all agents, the sender among them."""
    if everywhere or not running:
        error = NotFound("no other agent is running", hint="start one with `synapse claude` or `synapse start codex`")
    else:
        error = NotFound("no other agent works in this folder", hint="--all reaches those in others  (synapse list)")
    error.code = AgentNotFound.code
    return error


def _tell_of_doubt(one: HostReply, message_id: str) -> None:
    """Add to the error whether the message may still arrive, and how it is sent again without coming twice."""
    if one.error is None:
        return
    told = "the message was not sent"
    if one.in_doubt:
        name = short_name(one.entry)
        told = f"the message may still be delivered; send it again with `synapse send {name} --message-id {message_id}`"
    one.error.hint = f"{told}; {one.error.hint}" if one.error.hint else told


def _line(one: HostReply) -> str:
    if one.error is not None:
        return f"Error: {one.error}\n{one.error.hint}"
    return f"[→ {short_name(one.entry)}] sent  (task {short_id(object_in(one.body, 'task'))})"


def _as_fields(one: HostReply) -> dict[str, Any]:
    if one.error is not None:
        return {"agent_id": one.entry.agent_id, "error": describe(one.error)}
    return {"agent_id": one.entry.agent_id, "task": object_in(one.body, "task")}
