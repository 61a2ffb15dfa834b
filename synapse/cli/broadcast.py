"""`synapse broadcast`: sends one message to all agents in this folder, or to all agents."""

from __future__ import annotations

import os
from typing import Any

from synapse.cli.exit_codes import DONE, exit_code
from synapse.cli.options import Options
from synapse.cli.output import print_json, print_notice
from synapse.cli.parser import VerbParser
from synapse.cli.send import message_body
from synapse.client.fan_out import HostReply, ask_all
from synapse.client.hosts import ACCEPT_SECONDS, AGENT_VARIABLE, current_folder, open_registry, sender_fields
from synapse.client.views import short_id
from synapse.core.address import short_name
from synapse.core.agent import AgentEntry
from synapse.core.errors import AgentNotFound, NotFound, describe
from synapse.core.json_text import object_in

EXAMPLES = """
synapse broadcast "pull before you go on"             agents in this folder
synapse broadcast --all --priority 4 "save your work"
"""


def run_broadcast(arguments: list[str]) -> int:
    """Sends to each agent and returns the exit code of the first failure, if any."""
    parser = VerbParser("broadcast", examples=EXAMPLES)
    parser.add_argument("message", nargs="*", metavar="MESSAGE", help="`-` reads standard input")
    parser.add_argument("--all", action="store_true", help="include agents in other folders of this machine")
    parser.add_argument("--priority", choices=list("12345"), default="3")
    parser.add_argument("--file", metavar="FILE", help="read the message from a file")
    parser.add_argument(
        "--from", dest="sender", default="", metavar="AGENT", help="the sender; found automatically inside an agent"
    )
    options = parser.parse_args(arguments)
    given = Options("broadcast", options.message, {"--file": options.file} if options.file else {})
    text = given.message(options.message)
    registry = open_registry()
    sender = sender_fields(registry, options.sender)
    here = os.path.realpath(current_folder())
    entries = [
        entry
        for entry in registry.entries()
        # In-process agents of a gateway may be external: they get only messages addressed to them by name.
        if not entry.gateway
        and entry.agent_id not in (sender["sender_id"], os.environ.get(AGENT_VARIABLE))
        and (options.all or os.path.realpath(entry.working_dir) == here)
    ]
    if not entries:
        raise _no_receiver(registry.entries(), everywhere=options.all)
    path = f"/tasks/send-priority?priority={options.priority}"
    body = message_body(text, given, sender)
    replies = ask_all(entries, "POST", path, body, timeout=ACCEPT_SECONDS)
    for reply in replies:
        _explain_delivery(reply, str(body["message"]["message_id"]))
    if options.json:
        print_json([_as_fields(reply) for reply in replies])
    else:
        for reply in replies:
            print_notice(_line(reply))
    return next((exit_code(reply.error.code) for reply in replies if reply.error is not None), DONE)


def _no_receiver(running: list[AgentEntry], *, everywhere: bool) -> NotFound:
    """Returns the error for a broadcast without receivers; `running` are all agents, including the sender."""
    if everywhere or not running:
        error = NotFound("no other agent is running", hint="start one with `synapse claude` or `synapse start codex`")
    else:
        error = NotFound(
            "no other agent is running in this folder", hint="--all includes other folders  (synapse list)"
        )
    error.code = AgentNotFound.code
    return error


def _explain_delivery(reply: HostReply, message_id: str) -> None:
    """Adds to the error's hint whether the message may still arrive, and how to resend it without a duplicate."""
    if reply.error is None:
        return
    outcome = "the message was not sent"
    if reply.in_doubt:
        name = short_name(reply.entry)
        outcome = (
            f"the message may still be delivered; send it again with `synapse send {name} --message-id {message_id}`"
        )
    reply.error.hint = f"{outcome}; {reply.error.hint}" if reply.error.hint else outcome


def _line(reply: HostReply) -> str:
    if reply.error is not None:
        return f"Error: {reply.error}\n{reply.error.hint}"
    return f"[→ {short_name(reply.entry)}] sent  (task {short_id(object_in(reply.body, 'task'))})"


def _as_fields(reply: HostReply) -> dict[str, Any]:
    if reply.error is not None:
        return {"agent_id": reply.entry.agent_id, "error": describe(reply.error)}
    return {"agent_id": reply.entry.agent_id, "task": object_in(reply.body, "task")}
