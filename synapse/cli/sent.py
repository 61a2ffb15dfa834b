"""What is said of a message once an agent's host has it. `synapse send` imports this file: nothing of weight here."""

from synapse.cli.options import Options
from synapse.cli.speech import give_json, say
from synapse.core.address import short_name
from synapse.core.agent import AgentEntry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def report_sent(entry: AgentEntry, task: "dict[str, Any]", options: Options, *, replied: bool = False) -> None:
    """Say that the message is with the agent's host."""
    if options.has("--json"):
        give_task(task)
        return
    done = "replied" if replied else "sent"
    say(f"[→ {short_name(entry)}] {done}  (task {str(task.get('id', ''))[:8]})")


def give_task(task: "dict[str, Any]") -> None:
    """The task for a machine."""
    from synapse.cli.task_view import receipt_of

    give_json({"task": task, "reply": None, "receipt": receipt_of(task)})
