"""`synapse queue`: what waits for the agents, in the order of delivery."""

from __future__ import annotations

from typing import Any

from synapse.cli.hosts import ask, find_agent, open_registry
from synapse.cli.render import table
from synapse.cli.speech import give, give_json, say
from synapse.cli.stored import is_of, stored_queue
from synapse.cli.survey import ask_all, warn_of_silent
from synapse.cli.task_view import attention_of, message_of, sender_of, short_id
from synapse.cli.verb_parser import VerbParser
from synapse.core.address import short_name
from synapse.core.agent import AgentEntry
from synapse.core.errors import AgentNotFound, AgentNotResponding, AmbiguousTarget
from synapse.core.json_text import object_in, objects_in
from synapse.registries.files import FileRegistry

EXAMPLES = """
synapse queue                 of all agents, also of those that do not run
synapse queue codex
synapse cancel 54241e7e       takes a message back
synapse cancel --queue codex  takes back all that waits for codex
"""
Waiting = tuple[AgentEntry, dict[str, Any]]
TITLES = ("AGENT", "TASK", "PRIORITY", "FROM", "MESSAGE")


def run(arguments: list[str]) -> int:
    """Show the queues and return the exit code."""
    parser = VerbParser("queue", examples=EXAMPLES)
    parser.add_argument("agent", nargs="?", metavar="AGENT")
    options = parser.parse_args(arguments)
    waiting = waiting_for(options.agent, open_registry())
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
            f"{message_of(task)} [{attention_of(task)}]" if attention_of(task) else message_of(task),
        )
        for entry, task in waiting
    ]
    give(table(TITLES, rows, elastic=4))
    return 0


def waiting_for(agent: str | None, registry: FileRegistry) -> list[Waiting]:
    """What waits for all agents, or for those that a word may mean, whether they run or not. Raises AgentNotFound."""
    stored = _stored(registry)
    if agent:
        stored = [(owner, task) for owner, task in stored if is_of(agent.removeprefix("@"), owner)]
    left = [(owner, task) for owner, task in stored if not owner.pid]
    asked = ask_all(_living(agent, registry, is_known=bool(left)), "GET", "/queue")
    warn_of_silent(asked)
    waiting = [(one.entry, task) for one in asked for task in objects_in(one.body, "tasks")]
    listed = {task.get("id") for _, task in waiting}
    return waiting + [(owner, task) for owner, task in stored if task.get("id") not in listed]


def waiting_for_one(agent: str, registry: FileRegistry) -> list[Waiting]:
    """What waits for the one agent that is meant, and for no other of its profile: this is for taking it back.

    Raises AgentNotFound, AgentNotResponding or AmbiguousTarget.
    """
    try:
        entry = find_agent(agent, registry)
    except (AgentNotFound, AgentNotResponding):
        left = _left_for(agent.removeprefix("@"), registry)
        if not left:
            raise
        return left
    queued = objects_in(ask(entry, "GET", "/queue"), "tasks")
    listed = {task.get("id") for task in queued}
    held = [task for owner, task in _stored(registry) if owner.pid and owner.agent_id == entry.agent_id]
    return [(entry, task) for task in (*queued, *(task for task in held if task.get("id") not in listed))]


def _left_for(agent: str, registry: FileRegistry) -> list[Waiting]:
    """What waits for an agent that does not run: one with that very name or id, else the one of that profile."""
    left = [(owner, task) for owner, task in _stored(registry) if not owner.pid and is_of(agent, owner)]
    exact = [(owner, task) for owner, task in left if agent in (owner.name, owner.inbox, owner.agent_id)]
    inboxes = sorted({owner.inbox for owner, _ in exact or left})
    if len(inboxes) > 1:
        raise AmbiguousTarget(agent, inboxes)
    return exact or left


def _stored(registry: FileRegistry) -> list[Waiting]:
    return stored_queue({entry.inbox: entry for entry in registry.entries() if entry.inbox})


def _living(agent: str | None, registry: FileRegistry, *, is_known: bool) -> list[AgentEntry]:
    """The running agents to ask: all, or the one that is meant, if it runs."""
    if not agent:
        return registry.entries()
    try:
        return [find_agent(agent, registry)]
    except (AgentNotFound, AgentNotResponding):
        if not is_known:
            raise
        return []
