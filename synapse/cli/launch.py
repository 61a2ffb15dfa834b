"""`synapse PROFILE`: run a program in this terminal, exactly as without Synapse, and make it an agent."""

from __future__ import annotations

from argparse import SUPPRESS

from synapse.cli.main import VERBS
from synapse.cli.person import launch_settings
from synapse.cli.trust import settings_here
from synapse.cli.verb_parser import VerbParser, split_at_dashes
from synapse.core.address import nearest
from synapse.core.errors import InvalidRequest, UnknownProfile
from synapse.runtime.settings import Settings, load_settings

EXAMPLES = """
synapse claude
synapse claude --name reviewer
synapse codex --port 8125
synapse claude -- --resume          what follows -- is for claude
"""
VALUED_OPTIONS = ("--name", "--port")
"""Those of `add_host_options` that a word follows."""


def run(arguments: list[str]) -> int:
    """Run the agent until its program ends; return that program's exit code."""
    ours, theirs = split_at_dashes(arguments)
    profile = ours[0]
    if profile.startswith("-"):
        raise InvalidRequest(f"unknown option {profile}", hint="synapse --help")
    # Before its options are read: a mistyped verb has those of the verb.
    require_profile(profile, load_settings())
    settings = settings_here(profile, load=launch_settings, asks=not {"--headless", "--json"} & set(ours))
    summary = f"run {profile} in this terminal, as an agent"
    parser = VerbParser(profile, summary=summary, examples=EXAMPLES, json=False, program=profile)
    add_host_options(parser)
    # How `synapse start` runs a host: without a terminal, and with errors that it can read.
    for hidden in ("--headless", "--json"):
        parser.add_argument(hidden, action="store_true", help=SUPPRESS)
    options = parser.parse_args(ours[1:])
    from synapse.runtime.pty_agent import run_agent

    return run_agent(
        profile,
        name=options.name,
        port=options.port,
        arguments=theirs,
        headless=options.headless,
        instructions=settings.instructions and not options.no_instructions,
        settings=settings,
    )


def add_host_options(parser: VerbParser) -> None:
    """The options of everything that starts an agent."""
    parser.add_argument("--name", default="", help="a name that `synapse send` accepts")
    parser.add_argument("--port", type=int, help="the TCP port; found by itself if not given")
    parser.add_argument("--no-instructions", action="store_true", help="do not tell the agent how to send and reply")


def require_profile(name: str, settings: Settings) -> None:
    """Raises UnknownProfile, with the word that was probably meant, unless there is a profile of that name."""
    from synapse.runtime.profiles import profile_names

    known = profile_names(settings.profile_sources)
    # Whether the project is trusted is said by whoever uses the profile.
    if name in known or (settings.project is not None and name in settings.project.profiles):
        return
    meant = nearest(name, [*known, *VERBS])
    if settings.project and settings.project.project.problem:
        raise UnknownProfile(f"there is no profile '{name}'", hint=settings.project.note())
    guess = f"Did you mean '{meant}'?  " if meant else f"profiles: {', '.join(known)}  "
    raise UnknownProfile(f"'{name}' is neither a verb nor a profile", hint=f"{guess}(synapse --help)")
