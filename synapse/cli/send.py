"""`synapse send`: sends a message to an agent.

Agents call it hundreds of times, so it imports almost nothing. `cli.wait` (`--response`, `--wait`, `--receipt`),
`cli.send_later` (`--queue`) and `cli.send_remote` (agents on other machines) are loaded only when they are needed.
"""

import os

from synapse.cli.options import HELP, Options, parse, print_replied, report_sent
from synapse.cli.output import print_notice
from synapse.client.hosts import (
    ACCEPT_SECONDS,
    find_agent,
    open_registry,
    post_message,
    post_reply,
    require_own_agent,
    sender_fields,
)
from synapse.core.address import PERSON, is_marked, split_machine
from synapse.registry.files import FileRegistry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from synapse.core.errors import SynapseError

VALUED = (
    "--wait",
    "--priority",
    "--reply-to",
    "--from",
    "--timeout",
    "--file",
    "--ttl",
    "--target",
    "--task",
    "--message-id",
)
SWITCHES = ("--response", "--no-response", "--json", "--receipt", "--queue", "--exit-on-wait")
WAIT_LEVELS = ("submitted", "answered")


def run_send(arguments: "list[str]") -> int:
    """Sends a message and returns the exit code."""
    options = parse("send", arguments, VALUED, SWITCHES)
    if options.has(HELP):
        from synapse.cli.help import show

        return show("send")
    target, words = options.text("--target"), options.words
    if not options.has("--target"):
        if not words:
            options.refuse("the target is missing")
        target, *words = words
    _check_options(options)
    registry = open_registry()
    if split_machine(target)[1]:
        from synapse.client.link import without_own_machine

        target = without_own_machine(target, registry)
    name, machine = split_machine(target.removeprefix("@"))
    if name == PERSON or is_marked(name):
        return _reply_to_sender(target.removeprefix("@"), options, words, registry)
    body = message_body(options.message(words), options, sender_fields(registry, options.text("--from")))
    if machine:
        from synapse.cli.send_remote import send_to_machine

        return send_to_machine(target, body, options, registry, _send)
    return _send(target, body, options, registry)


def _send(target: str, body: "dict[str, Any]", options: Options, registry: FileRegistry) -> int:
    past = registry.written() if options.has("--queue") else []
    try:
        entry = find_agent(target, registry)
    except _not_running():
        if not options.has("--queue"):
            raise
        from synapse.cli.send_later import send_later

        return send_later(target, past, body, options)
    if _waits(options):
        from synapse.cli.wait import send_and_wait

        return send_and_wait(entry, body, options, registry)
    task = post_message(
        entry,
        body,
        registry,
        warn=print_notice,
        priority=options.text("--priority"),
        timeout=options.seconds("--timeout") or ACCEPT_SECONDS,
    )
    report_sent(entry, task, options, replied="in_reply_to" in body["metadata"])
    return 0


def _not_running() -> "tuple[type[SynapseError], ...]":
    """Returns the errors for an agent that is not running. Called only after an error, as in `cli.main`."""
    from synapse.core.errors import AgentNotFound, AgentNotResponding

    return AgentNotFound, AgentNotResponding


def message_body(text: str, options: Options, sender: "dict[str, str]") -> "dict[str, Any]":
    """Returns the request body that the contract defines; its message id makes a retry safe."""
    metadata: dict[str, Any] = {"sender": sender}
    if options.has("--reply-to"):
        metadata["in_reply_to"] = options.text("--reply-to")
    if options.has("--ttl"):
        metadata["ttl"] = options.seconds("--ttl")
    message_id = options.text("--message-id") or os.urandom(16).hex()
    message = {"role": "user", "parts": [{"type": "text", "text": text}], "message_id": message_id}
    if options.has("--task"):
        message["task_id"] = options.text("--task")
    return {"message": message, "metadata": metadata}


def _check_options(options: Options) -> None:
    """Raises InvalidRequest for options that contradict each other, before anything is sent."""
    priority = options.text("--priority")
    if options.has("--priority") and priority not in ("1", "2", "3", "4", "5"):
        from synapse.core.errors import PriorityOutOfRange

        raise PriorityOutOfRange(priority)
    if options.has("--wait") and options.text("--wait") not in WAIT_LEVELS:
        options.refuse(f"--wait must be submitted or answered, not '{options.text('--wait')}'")
    if options.has("--no-response") and options.has("--response"):
        options.refuse("--response and --no-response cannot be combined")
    if options.has("--exit-on-wait") and not _waits(options):
        options.refuse("--exit-on-wait needs --response, --wait or --receipt")
    if options.has("--queue") and _waits(options):
        options.refuse("--queue cannot be combined with --response, --wait or --receipt")
    if options.has("--reply-to") and (options.has("--response") or not options.text("--reply-to")):
        options.refuse("--reply-to needs a task id and cannot be combined with --response")
    if options.has("--task") and (options.has("--queue") or options.has("--reply-to") or not options.text("--task")):
        options.refuse(
            "--task needs the id of a task that asks for input, and cannot be combined with --queue or --reply-to"
        )
    options.seconds("--timeout")
    options.seconds("--ttl")


def _waits(options: Options) -> bool:
    return options.has("--response") or options.has("--wait") or options.has("--receipt")


def _reply_to_sender(name: str, options: Options, words: "list[str]", registry: FileRegistry) -> int:
    """Replies, as an agent, to a sender without a host here: the reply goes to the task on the agent's own host."""
    if not options.has("--reply-to"):
        from synapse.core.errors import AgentNotFound

        who = "a person" if split_machine(name)[0] == PERSON else "this sender"
        raise AgentNotFound(name, hint=f"{who} is not an agent here; answer their request with `synapse reply`")
    own = require_own_agent(registry)
    parts = [{"type": "text", "text": options.message(words)}]
    print_replied(own, post_reply(own, parts, task_id=options.text("--reply-to"), failed=False), options)
    return 0
