"""`synapse PROFILE` and `synapse scripted`: run an agent in this process, in the foreground."""

from __future__ import annotations

import os
from argparse import SUPPRESS, Namespace
from pathlib import Path

from synapse.cli.main import VERBS
from synapse.cli.output import print_notice
from synapse.cli.parser import VerbParser, split_at_dashes
from synapse.cli.person import launch_settings
from synapse.cli.trust import settings_here
from synapse.client.hosts import current_folder, open_registry
from synapse.client.lines import short_path
from synapse.config.settings import Settings, load_settings
from synapse.core.address import nearest, short_name
from synapse.core.agent import AgentEntry
from synapse.core.errors import InvalidRequest, UnknownProfile
from synapse.host.conversations import RESUME
from synapse.host.membership import ACCEPT_FROM, ROLE, TEAM, Membership, new_membership

PROFILE_EXAMPLES = """
synapse claude
synapse claude --name reviewer
synapse codex --port 8125
synapse codex --worktree            in a git worktree of its own  (synapse worktrees)
synapse claude --resume             go on with the conversation of its last run
synapse claude -- --continue        arguments after -- are for claude
"""
VALUED_OPTIONS = ("--name", "--port", "--worktree", ROLE, TEAM, ACCEPT_FROM)
"""The options of `add_host_options` that take a value."""
MAX_WORKTREES = 100
"""How many worktrees the agents of one profile without names may have in a repository."""
SCRIPTED_EXAMPLES = """
synapse scripted docs/examples/hello.toml
synapse scripted docs/examples/hello.toml --name hello --port 8180
"""


def run_profile(arguments: list[str]) -> int:
    """Runs the agent until its program ends; returns the program's exit code."""
    ours, theirs = split_at_dashes(arguments)
    profile = ours[0]
    if profile.startswith("-"):
        raise InvalidRequest(f"unknown option {profile}", hint="synapse --help")
    # Before parsing the options: those of a mistyped verb would be unknown.
    require_profile(profile, load_settings())
    asks = not {"--headless", "--json"} & set(ours)
    settings = settings_here(profile, load=launch_settings, asks=asks)
    summary = f"run {profile} in this terminal, as an agent"
    parser = VerbParser(profile, summary=summary, examples=PROFILE_EXAMPLES, json=False, program=profile)
    add_host_options(parser)
    # `synapse start` adds these: no terminal, and errors as JSON.
    for hidden in ("--headless", "--json"):
        parser.add_argument(hidden, action="store_true", help=SUPPRESS)
    options = parser.parse_args(ours[1:])
    if options.worktree is not None:
        folder = worktree_for(profile, options, settings)
        os.chdir(folder)
        # Programs take it for the path by which they were started.
        os.environ["PWD"] = folder
        settings = settings_here(profile, load=launch_settings, asks=asks)
        require_profile(profile, settings)
    from synapse.host.pty import run_agent

    return run_agent(
        profile,
        name=options.name,
        port=options.port,
        arguments=theirs,
        headless=options.headless,
        instructions=settings.instructions and not options.no_instructions,
        mcp=settings.mcp and not options.no_mcp,
        settings=settings,
        membership=chosen_membership(options),
        resume=options.resume,
    )


def add_host_options(parser: VerbParser) -> None:
    """Adds the options of every verb that starts an agent."""
    parser.add_argument("--name", default="", help="the agent's name, for `synapse send NAME`")
    parser.add_argument("--port", type=int, help="the TCP port (default: the next free one)")
    parser.add_argument("--no-instructions", action="store_true", help="do not give the agent the initial instructions")
    parser.add_argument("--no-mcp", action="store_true", help="do not give its model the tools to send and reply (MCP)")
    parser.add_argument(
        "--worktree",
        nargs="?",
        const="",
        metavar="BRANCH",
        help="work in a git worktree of its own, on BRANCH (default: synapse/NAME), beside this repository",
    )
    parser.add_argument(
        RESUME, action="store_true", help="go on with the conversation of this agent's last run, if it is known"
    )
    add_membership_options(parser)


def worktree_for(profile: str, options: Namespace, settings: Settings) -> str:
    """Returns the folder for an agent that is started with `--worktree`, and says where it is; makes the worktree.

    Without a name and a branch, the second agent of a profile gets the second worktree. Raises as `ensure_worktree`.
    """
    from synapse.host.identity import check_name
    from synapse.worktrees.ensure import WorktreeInUse, ensure_worktree

    # The host checks it again; without this, a wrong name would leave a worktree behind.
    if options.name not in ("", profile):
        check_name(options.name, settings)
    here, running = Path(current_folder()), open_registry().entries()
    number = 1
    while True:
        name = options.name or (profile if number == 1 else f"{profile}-{number}")
        try:
            made = ensure_worktree(here, name, options.worktree, running=running)
            break
        except WorktreeInUse:
            if options.name or options.worktree or number == MAX_WORKTREES:
                raise
            number += 1
    how = "New worktree" if made.is_new else "Worktree"
    branch = f"on the branch {made.branch}" if made.branch else "on no branch"
    print_notice(f"{how} {short_path(str(made.path))} {branch}  (synapse worktrees)")
    for note in made.notes:
        print_notice(f"Note: {note}")
    return str(made.folder)


def add_membership_options(parser: VerbParser) -> None:
    """Adds the options that say what an agent is for, and who may send messages to it."""
    parser.add_argument(
        ROLE, default="", metavar="TEXT", help="what the agent is for; it is told so, and others see it"
    )
    parser.add_argument(
        ACCEPT_FROM,
        action="append",
        default=[],
        metavar="SENDER",
        help="accept messages from this sender only: an agent's name, `person` or `key.NAME`; repeatable",
    )
    # `synapse up` adds this.
    parser.add_argument(TEAM, default="", help=SUPPRESS)


def chosen_membership(options: Namespace) -> Membership:
    """Returns what the options of `add_membership_options` say."""
    return new_membership(options.role, options.team, options.accept_from)


def require_profile(name: str, settings: Settings) -> None:
    """Raises UnknownProfile, with the nearest name, unless there is a profile `name`."""
    from synapse.config.settings import profile_names

    known = profile_names(settings.profile_sources)
    # `settings_here` reports whether the project is trusted.
    if name in known or (settings.project is not None and name in settings.project.profiles):
        return
    meant = nearest(name, [*known, *VERBS])
    if settings.project and settings.project.project.problem:
        raise UnknownProfile(f"there is no profile '{name}'", hint=settings.project.note())
    guess = f"Did you mean '{meant}'?  " if meant else f"profiles: {', '.join(known)}  "
    raise UnknownProfile(f"'{name}' is neither a verb nor a profile", hint=f"{guess}(synapse --help)")


def run_scripted(arguments: list[str]) -> int:
    """Plays the script until it exits or is stopped; returns its exit code."""
    parser = VerbParser("scripted", examples=SCRIPTED_EXAMPLES, json=False)
    parser.add_argument("script", metavar="FILE", help="the script (docs/howto/scripted-agents.md)")
    parser.add_argument("--name", default="", help="the agent's name, for `synapse send NAME`")
    parser.add_argument("--port", type=int, help="the TCP port (default: the next free one)")
    add_membership_options(parser)
    # `synapse start` adds these; a script has no terminal, and needs neither instructions nor tools nor a conversation.
    for hidden in ("--headless", "--no-instructions", "--no-mcp", RESUME, "--json"):
        parser.add_argument(hidden, action="store_true", help=SUPPRESS)
    options = parser.parse_args(arguments)
    from synapse.host.scripted import run_script

    def introduce(me: AgentEntry) -> None:
        # `synapse start` prints this itself.
        if not options.headless:
            name = short_name(me)
            print_notice(f'{name} plays {script.name} on port {me.port}  (Ctrl-C stops it; synapse send {name} "…")')

    script = Path(options.script)
    settings = settings_here(load=launch_settings, asks=not options.headless)
    return run_script(
        script,
        name=options.name,
        port=options.port,
        settings=settings,
        membership=chosen_membership(options),
        introduce=introduce,
    )
