"""`synapse start`: an agent in the background, without a terminal."""

from __future__ import annotations

from synapse.cli.background import Launch, start_host
from synapse.cli.hosts import open_registry
from synapse.cli.launch import add_host_options, require_profile
from synapse.cli.list_agents import as_fields
from synapse.cli.speech import give_json, say
from synapse.cli.survey import ask_all
from synapse.cli.verb_parser import VerbParser, split_at_dashes
from synapse.core.address import short_name
from synapse.runtime.settings import load_settings

EXAMPLES = """
synapse start codex
synapse start codex --name reviewer
synapse start claude -- --resume    what follows -- is for claude
synapse start scripted my.toml      an agent whose behaviour is a file
synapse attach codex                look at it
"""
SCRIPTED = "scripted"


def run(arguments: list[str]) -> int:
    """Start an agent, wait until it accepts messages, and return the exit code."""
    ours, theirs = split_at_dashes(arguments)
    parser = VerbParser("start", examples=EXAMPLES)
    parser.add_argument("profile", metavar="PROFILE", help="or `scripted`")
    parser.add_argument("script", nargs="?", metavar="FILE", help="the script, after `scripted`")
    add_host_options(parser)
    options = parser.parse_args(ours)
    settings = load_settings()
    if (options.profile == SCRIPTED) != bool(options.script):
        parser.error("a FILE follows `scripted`, and only that")
    if options.profile != SCRIPTED:
        require_profile(options.profile, settings)
    launch = Launch(
        verb=[options.profile, *([options.script] if options.script else [])],
        name=options.name,
        port=options.port,
        instructions=not options.no_instructions,
        arguments=theirs,
    )
    entry = start_host(launch, open_registry(), settings.logs)
    if options.json:
        give_json(as_fields(ask_all([entry], "GET", "/status")[0]))
    else:
        name = short_name(entry)
        # A script has no terminal to look at.
        then = f'synapse send {name} "…"' if options.profile == SCRIPTED else f"synapse attach {name}"
        say(f"{name} runs in the background (pid {entry.pid}, port {entry.port})  ({then})")
    return 0
