"""`synapse start`: an agent in the background, without a terminal."""

from __future__ import annotations

from synapse.cli.background import start_host
from synapse.cli.hosts import open_registry
from synapse.cli.launch import VALUED_OPTIONS, add_host_options, require_profile
from synapse.cli.list_agents import as_fields
from synapse.cli.person import launch_settings, require_deciding_person
from synapse.cli.speech import give_json, say
from synapse.cli.survey import ask_all
from synapse.cli.trust import settings_here
from synapse.cli.verb_parser import VerbParser, split_at_dashes
from synapse.core.address import short_name
from synapse.runtime.host_launch import Launch
from synapse.runtime.settings import load_settings

EXAMPLES = """
synapse start codex
synapse start codex --name reviewer
synapse start claude -- --resume    what follows -- is for claude
synapse start scripted my.toml      an agent whose behaviour is a file
synapse start gateway --port 8000   one address for all agents (synapse gateway --help)
synapse attach codex                look at it
"""
SCRIPTED = "scripted"


def run(arguments: list[str]) -> int:
    """Start an agent, wait until it accepts messages, and return the exit code."""
    if arguments[:1] == ["gateway"]:
        return _start_gateway(arguments[1:])
    ours, theirs = split_at_dashes(arguments)
    # The parser wants to know it before it has parsed anything.
    words = (word for before, word in zip(["", *ours], ours, strict=False) if before not in VALUED_OPTIONS)
    wanted = next((word for word in words if not word.startswith("-")), "PROFILE")
    parser = VerbParser("start", examples=EXAMPLES, program="" if wanted == SCRIPTED else wanted)
    parser.add_argument("profile", metavar="PROFILE", help="or `scripted`, or `gateway`")
    parser.add_argument("script", nargs="?", metavar="FILE", help="the script, after `scripted`")
    add_host_options(parser)
    options = parser.parse_args(ours)
    if options.profile == SCRIPTED and not options.script:
        parser.error("a FILE follows `scripted`")
    if options.profile != SCRIPTED:
        require_profile(options.profile, load_settings())
        if options.script:
            parser.refuse(options.script)
    # A script is no profile, though a project may have one of that name.
    profile = "" if options.profile == SCRIPTED else options.profile
    settings = settings_here(profile, load=launch_settings, asks=not options.json)
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


def _start_gateway(arguments: list[str]) -> int:
    from synapse.cli.gateway import EXAMPLES as GATEWAY_EXAMPLES
    from synapse.cli.gateway import OPENED, add_gateway_options
    from synapse.runtime.gateway_place import gateways

    parser = VerbParser("start gateway", summary="start the gateway in the background", examples=GATEWAY_EXAMPLES)
    add_gateway_options(parser)
    options = parser.parse_args(arguments)
    require_deciding_person(OPENED)
    settings = settings_here(load=launch_settings, asks=not options.json)
    launch = Launch(verb=["gateway", *(word for word in arguments if word != "--json")])
    entry = start_host(launch, gateways(settings.home), settings.logs)
    if options.json:
        give_json(entry.as_dict())
    else:
        say(f"the gateway serves {entry.endpoint} (pid {entry.pid})  (synapse stop gateway)")
    return 0
