"""`synapse reply`: replies to the request that this agent is working on. As light as `synapse send`."""

import os

from synapse.cli.options import HELP, parse
from synapse.cli.output import print_json, print_notice
from synapse.client.hosts import ask, open_registry, require_own_agent
from synapse.core.agent import AgentEntry

REPLY_SECONDS = 20.0
"""Our own host answers only after the sender's host has accepted the reply, which may take long."""
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def run_reply(arguments: "list[str]") -> int:
    """Replies and returns the exit code."""
    options = parse("reply", arguments, ("--to", "--file", "--timeout"), ("--failed", "--json"))
    if options.has(HELP):
        from synapse.cli.help import show

        return show("reply")
    own = require_own_agent(open_registry())
    text = options.message(options.words)
    replied = reply(own, text, task_id=options.text("--to"), failed=options.has("--failed"))
    if options.has("--json"):
        print_json({"replied": replied})
    else:
        print_notice(f"[→ {replied['to']}] replied  (task {replied['task_id'][:8]})")
    return 0


def reply(own: AgentEntry, text: str, *, task_id: str, failed: bool) -> "dict[str, Any]":
    """Asks the agent's own host to reply to a request: `task_id`, else the one it is working on, else the last.

    Raises:
        SynapseError: the host refuses or does not answer.
    """
    message = {"role": "agent", "parts": [{"type": "text", "text": text}], "message_id": os.urandom(16).hex()}
    body = {"message": message, "task_id": task_id, "failed": failed}
    answer = ask(own, "POST", "/reply", body, timeout=REPLY_SECONDS)
    return dict(answer["replied"])
