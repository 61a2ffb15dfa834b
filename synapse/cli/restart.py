"""`synapse restart`: end a background agent and start it again as it was: same name, port, folder and arguments.

a person restarts it    it is ended and started anew, with the environment of the person's shell
an agent restarts it    its host is told to begin again by itself, so that it keeps the rights that it was given
"""

from __future__ import annotations

from pathlib import Path

from synapse.cli.background import let_begin_again, require_own_process, start_host, stop_host
from synapse.cli.hosts import find_agent, open_registry
from synapse.cli.list_agents import as_fields
from synapse.cli.person import launch_settings, objection
from synapse.cli.speech import give_json, say
from synapse.cli.start import SCRIPTED
from synapse.cli.survey import ask_all
from synapse.cli.trust import settings_here
from synapse.cli.verb_parser import VerbParser, split_at_dashes
from synapse.core.address import short_name
from synapse.core.agent import AgentEntry
from synapse.core.errors import UnsupportedOperation
from synapse.runtime.host_launch import Launch

EXAMPLES = """
synapse restart codex
synapse restart reviewer --force
"""


def run(arguments: list[str]) -> int:
    """Restart an agent and return the exit code."""
    parser = VerbParser("restart", examples=EXAMPLES)
    parser.add_argument("agent", metavar="AGENT")
    parser.add_argument(
        "--force",
        action="store_true",
        help="kill it if it does not end by itself; then it has only the caller's rights",
    )
    options = parser.parse_args(arguments)
    registry = open_registry()
    entry = find_agent(options.agent, registry)
    require_own_process(entry)
    launch = as_it_was(entry, command_line(entry.pid))
    # Asked before it ends: an agent whose project is not trusted any more could not be started again.
    settings = settings_here(
        "" if entry.agent_type == SCRIPTED else entry.agent_type,
        load=lambda: launch_settings(folder=launch.folder),
        asks=not options.json,
    )
    if objection() and not options.force:
        again = let_begin_again(entry, registry, settings.logs)
    else:
        stop_host(entry, registry, force=options.force)
        again = start_host(launch, registry, settings.logs)
    if options.json:
        give_json(as_fields(ask_all([again], "GET", "/status")[0]))
    else:
        say(f"{short_name(again)} runs again (pid {again.pid}, port {again.port})")
    return 0


def command_line(pid: int) -> list[str]:
    """The arguments that a process was started with; nothing where the system does not tell."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
    return [word.decode("utf-8", "surrogateescape") for word in words[:-1]]


def as_it_was(entry: AgentEntry, words: list[str]) -> Launch:
    """How to start the agent again.

    Raises:
        UnsupportedOperation: it runs in a person's terminal, which we cannot give to a new one.
    """
    ours, theirs = split_at_dashes(words)
    if words and "--headless" not in ours:
        named = f" --name {entry.name}" if entry.name else ""
        raise UnsupportedOperation(
            f"{entry.agent_id} runs in a terminal; only a background agent can be restarted from here",
            hint=f"end it there, or: synapse stop {entry.agent_id} && synapse start {entry.agent_type}{named}",
        )
    verb = [entry.agent_type]
    if "scripted" in ours:
        verb = ours[ours.index("scripted") : ours.index("scripted") + 2]
    return Launch(
        verb=verb,
        name=entry.name,
        port=entry.port,
        instructions="--no-instructions" not in ours,
        arguments=theirs,
        folder=entry.working_dir or None,
    )
