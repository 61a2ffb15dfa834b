"""`synapse reply`: replies to the request that this agent is working on. As light as `synapse send`."""

from synapse.cli.options import HELP, parse
from synapse.cli.output import print_json, print_notice
from synapse.client.hosts import open_registry, post_reply, require_own_agent


def run_reply(arguments: "list[str]") -> int:
    """Replies and returns the exit code."""
    options = parse("reply", arguments, ("--to", "--file", "--timeout"), ("--failed", "--json"))
    if options.has(HELP):
        from synapse.cli.help import show

        return show("reply")
    own = require_own_agent(open_registry())
    parts = [{"type": "text", "text": options.message(options.words)}]
    replied = post_reply(own, parts, task_id=options.text("--to"), failed=options.has("--failed"))
    if options.has("--json"):
        print_json({"replied": replied})
    else:
        print_notice(f"[→ {replied['to']}] replied  (task {replied['task_id'][:8]})")
    return 0
