"""`synapse stop`: end an agent, and its program with it."""

from __future__ import annotations

from synapse.cli.background import require_own_process, stop_host
from synapse.cli.hosts import GATEWAY, find_agent, open_gateways, open_registry
from synapse.cli.speech import give_json, say
from synapse.cli.stored import stored_queue
from synapse.cli.verb_parser import VerbParser
from synapse.core.address import matching, short_name
from synapse.core.agent import AgentEntry
from synapse.core.errors import NotFound, StoreFailed
from synapse.registries.files import FileRegistry

EXAMPLES = """
synapse stop codex
synapse stop codex-8121 reviewer
synapse stop --all
synapse stop gateway
"""


def run(arguments: list[str]) -> int:
    """End agents and return the exit code."""
    parser = VerbParser("stop", examples=EXAMPLES)
    parser.add_argument("agents", nargs="*", metavar="AGENT")
    parser.add_argument("--all", action="store_true", help="all agents of this user")
    parser.add_argument("--force", action="store_true", help="kill what does not end by itself")
    options = parser.parse_args(arguments)
    if bool(options.agents) == options.all:
        parser.error("name the agents to stop, or say --all")
    registry = open_registry()
    entries = _all(registry) if options.all else _found(options.agents, registry)
    for entry in entries:
        stop_host(entry, open_gateways() if entry.agent_type == GATEWAY else registry, force=options.force)
        if not options.json:
            say(f"{short_name(entry)} has ended{_left_for(entry)}")
    if options.all and not entries and not options.json:
        say("no agent is running")
    if options.json:
        give_json([entry.as_dict() for entry in entries])
    return 0


def _left_for(entry: AgentEntry) -> str:
    """What waits for its next start, as the end of a sentence."""
    try:
        left = sum(owner.inbox == entry.inbox for owner, _ in stored_queue({})) if entry.inbox else 0
    except StoreFailed:
        return ""
    if not left:
        return ""
    return (
        f"; {left} message{'' if left == 1 else 's'} wait{'s' if left == 1 else ''} for its next start  (synapse queue)"
    )


def _found(names: list[str], registry: FileRegistry) -> list[AgentEntry]:
    # All are found before the first is ended: a wrong name ends nobody.
    gateways = open_gateways()
    if GATEWAY in names and not matching(GATEWAY, [*gateways.entries(), *registry.written()]):
        raise NotFound("no gateway is running", hint="`synapse start gateway` starts one")
    found = (find_agent(name, gateways if matching(name, gateways.entries()) else registry) for name in names)
    entries = list({entry.agent_id: entry for entry in found}.values())
    for entry in entries:
        require_own_process(entry)
    return entries


def _all(registry: FileRegistry) -> list[AgentEntry]:
    """All but those that end with their gateway, which is no agent."""
    return [entry for entry in registry.entries() if not entry.gateway]
