"""`synapse send` with `--queue` or `--reply-to` to an agent on another machine. Loaded only for such a target."""

from synapse.cli.options import Options, print_replied, report_sent
from synapse.cli.output import print_notice
from synapse.client.hosts import own_agent, post_message, post_reply
from synapse.client.link import KEEP, OPEN, look_up_remote
from synapse.core.address import short_name
from synapse.core.errors import LinkDown, MachineAway, SynapseError, TaskNotFound
from synapse.core.json_text import object_in
from synapse.registry.files import FileRegistry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Send = Callable[[str, dict[str, Any], Options, FileRegistry], int]


def send_to_machine(target: str, body: "dict[str, Any]", options: Options, registry: FileRegistry, send: "Send") -> int:
    """Sends the message as `--reply-to` or `--queue` asks, else with `send` as to a local agent; returns the exit code.

    Raises what `find_remote` and `post_message` raise.
    """
    if options.has("--reply-to") and _reply_at_home(body, options, registry):
        return 0
    if options.has("--queue"):
        _send_kept(target, body, options, registry)
        return 0
    try:
        return send(target, body, options, registry)
    except SynapseError as error:
        if _would_be_kept(error):
            error.hint = f"`synapse send --queue` keeps a message until it is back; {error.hint}"
        raise


def _would_be_kept(error: SynapseError) -> bool:
    """Decides whether the link would keep a message that was refused with this error."""
    if isinstance(error, LinkDown):
        # With another hint the link does not run, or its key is refused.
        return error.hint == LinkDown.hint
    # A machine that was only asked for the agent, and said nothing, has the hint of one that is away.
    return isinstance(error, MachineAway) or error.hint == MachineAway.hint


def _reply_at_home(body: "dict[str, Any]", options: Options, registry: FileRegistry) -> bool:
    """Replies at this agent's own host to a request from another machine; returns whether it has such a request.

    The link carries the end of the task to the sender, also when its machine is away now.
    """
    own = own_agent(registry)
    if own is None:
        return False
    try:
        replied = post_reply(own, body["message"]["parts"], task_id=options.text("--reply-to"), failed=False)
    except TaskNotFound:
        return False
    print_replied(own, replied, options)
    return True


def _send_kept(target: str, body: "dict[str, Any]", options: Options, registry: FileRegistry) -> None:
    """Sends a message that the link keeps while the machine is away or the agent does not run."""
    entry, is_stopped = look_up_remote(target, registry, keeps=True)
    body["metadata"][KEEP] = True
    task = post_message(entry, body, registry, warn=print_notice, priority=options.text("--priority"))
    if is_stopped and not options.has("--json") and object_in(task, "metadata").get("outbox") != OPEN:
        name = short_name(entry)
        print_notice(f"[→ {name}] queued until it starts  (task {str(task['id'])[:8]}, synapse queue {name})")
        return
    report_sent(entry, task, options)
