"""`synapse attach`: opens an agent's terminal in this one."""

from __future__ import annotations

from functools import partial

from synapse.cli.exit_codes import NOT_RESPONDING
from synapse.cli.output import print_notice
from synapse.cli.parser import VerbParser
from synapse.cli.trust import settings_here
from synapse.client.hosts import find_agent, is_suspended, not_responding, open_registry
from synapse.client.seen import person_saw
from synapse.config.process import SystemClock
from synapse.config.settings import load_settings
from synapse.core.address import is_remote, short_name
from synapse.core.agent import AgentEntry
from synapse.core.errors import InvalidSettings, LinkDown, UnsupportedOperation
from synapse.registry.files import FileRegistry

EXAMPLES = """
synapse attach codex                 look and type; the detach key (ctrl-]) leaves the agent running
synapse attach codex --read-only     only look
synapse attach codex --take-over     take the keyboard from another terminal
"""
SCRIPTED = "scripted"
# Ctrl with any other key sends no code of its own.
CONTROL_KEYS = "abcdefghijklmnopqrstuvwxyz[\\]^_@"


def run_attach(arguments: list[str]) -> int:
    """Attaches until the person detaches or the agent ends; returns the exit code."""
    parser = VerbParser("attach", examples=EXAMPLES, json=False)
    parser.add_argument("agent", metavar="AGENT")
    role = parser.add_mutually_exclusive_group()
    role.add_argument("--read-only", action="store_true", help="only look; send no keys to the agent")
    role.add_argument("--take-over", action="store_true", help="take the keyboard at once (later: Ctrl-\\)")
    parser.add_argument("--detach-key", metavar="KEY", help="the key that detaches, as ctrl-] (setting detach_key)")
    options = parser.parse_args(arguments)
    flags = {"detach_key": options.detach_key}
    settings = settings_here(uses=() if options.detach_key else ("detach_key",), load=lambda: load_settings(flags))
    registry = open_registry()
    entry = find_agent(options.agent, registry)
    if entry.agent_type == SCRIPTED:
        raise UnsupportedOperation(
            f"{entry.agent_id} plays a script and has no terminal", hint=f"synapse logs {short_name(entry)}"
        )
    if not entry.socket:
        raise UnsupportedOperation(f"{entry.agent_id} has no Unix socket, so it cannot be attached to")
    if is_suspended(entry):
        raise not_responding(entry)
    from synapse.attach.client import AttachOptions, attach
    from synapse.attach.person import PersonTerminal

    attach_options = AttachOptions(
        types=not options.read_only,
        take=options.take_over,
        name=short_name(entry),
        detach_key=control_key(settings.detach_key),
    )
    clock = SystemClock()
    person_saw(registry, entry.agent_id, clock.now())
    try:
        find_again = partial(_proxy_again, entry, registry) if is_remote(entry) else None
        ended = attach(entry.socket, attach_options, PersonTerminal(), find_again=find_again)
    finally:
        # What the agent answered meanwhile was on the screen.
        person_saw(registry, entry.agent_id, clock.now())
    print_notice(f"[{short_name(entry)}] {ended.why}")
    if ended.lost:
        return NOT_RESPONDING
    return ended.status or 0


def _proxy_again(entry: AgentEntry, registry: FileRegistry) -> str:
    """Returns the proxy socket of an agent on another machine as it is now. Raises as `find_again` does."""
    from synapse.client.link import START_HINT, find_again

    try:
        return find_again(entry, registry).socket
    except LinkDown as error:
        if error.hint == START_HINT:  # shorter, for one row
            raise LinkDown("the link here has stopped: `synapse fleet start`") from error
        raise


def control_key(name: str) -> str:
    """Returns the character that is pressed with Ctrl: `]` for `ctrl-]`.

    Raises:
        InvalidSettings: `name` is not such a key.
    """
    key = name.strip().lower().removeprefix("ctrl-").removeprefix("c-").removeprefix("^")
    if len(key) == 1 and key in CONTROL_KEYS:
        return key
    raise InvalidSettings(f"detach_key must be a key with Ctrl, not '{name}'", hint="as ctrl-] or ctrl-q")
