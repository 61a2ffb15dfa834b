"""`synapse tasks`: what was sent lately, finished or not, also to agents that do not run any more."""

from __future__ import annotations

from datetime import datetime

from synapse.cli.render import table
from synapse.cli.speech import give, give_json, say
from synapse.cli.stored import recent_tasks
from synapse.cli.task_view import sender_of
from synapse.cli.verb_parser import VerbParser, whole_number
from synapse.core.task import Task
from synapse.dialects.synapse.projection import STATE_NAMES, task_object
from synapse.runtime.system_clock import SystemClock
from synapse.service.gateway_directory import left_name
from synapse.service.origin import sender_in

EXAMPLES = """
synapse tasks                      of all agents, the latest change first
synapse tasks codex -n 5           the last five of one
synapse status 54241e7e            one of them, with its answer
synapse tasks --json | jq -r '.[].id'
"""
TITLES = ("TASK", "STATE", "CHANGED", "AGENT", "FROM", "MESSAGE")


def run(arguments: list[str]) -> int:
    """Show the last tasks and return the exit code."""
    parser = VerbParser("tasks", examples=EXAMPLES)
    parser.add_argument("agent", nargs="?", metavar="AGENT", default="")
    parser.add_argument("-n", "--limit", type=whole_number(1), default=20, help="how many at most (20)")
    options = parser.parse_args(arguments)
    tasks = recent_tasks(options.agent.removeprefix("@"), options.limit)
    if options.json:
        give_json([task_object(task) for task in tasks])
    elif tasks:
        now = SystemClock().now()
        give(table(TITLES, [_row(task, now) for task in tasks], elastic=5))
    else:
        say(f"no task of '{options.agent}' is known  (synapse list)" if options.agent else "nothing was sent yet")
    return 0


def _sender(task: Task) -> str:
    """Return the sender as people know it: a proven agent by its given name (its inbox), or without our prefix."""
    shown, sender = sender_of(task_object(task)), sender_in(task.metadata)
    if shown != sender.sender_id:
        return shown
    return sender.inbox if sender.inbox and "@" not in sender.inbox else shown.removeprefix("synapse-")


def _row(task: Task, now: datetime) -> tuple[str, ...]:
    changed = task.updated_at.astimezone()
    is_today = changed.date() == now.astimezone().date()
    return (
        task.short_id,
        STATE_NAMES[task.state].replace("_", " "),
        f"{changed:%H:%M:%S}" if is_today else f"{changed:%Y-%m-%d}",
        left_name(task).removeprefix("synapse-"),
        _sender(task),
        task.message.text.strip().partition("\n")[0][:200],
    )
