"""`synapse start`, `stop` and `restart`: agents and the gateway in the background.

a person restarts an agent     it is stopped, and started with the environment of the person's shell
an agent restarts an agent     its host restarts itself, so that it keeps the rights that it was given
its host has ended             it is started as its last run was, by the record of that
"""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from synapse.cli.agents import as_fields
from synapse.cli.gateway import EXAMPLES as GATEWAY_EXAMPLES
from synapse.cli.gateway import START_ACTION, add_gateway_options
from synapse.cli.launch import VALUED_OPTIONS, add_host_options, chosen_membership, require_profile, worktree_for
from synapse.cli.output import print_json, print_notice
from synapse.cli.parser import VerbParser, split_at_dashes
from synapse.cli.person import launch_settings, objection, require_deciding_person
from synapse.cli.tasks import stored_queue
from synapse.cli.trust import settings_here
from synapse.client.fan_out import ask_all
from synapse.client.hosts import GATEWAY, current_folder, find_local_agent, open_gateways, open_registry
from synapse.config.process import SystemClock
from synapse.config.settings import load_settings
from synapse.core.address import matching, resolve, short_name
from synapse.core.agent import AgentEntry
from synapse.core.errors import NotFound, PortTaken, StoreFailed, UnsupportedOperation
from synapse.host.background import HostLaunch, require_own_process, restart_host, start_host, stop_host
from synapse.host.conversations import RESUME, LastRun, last_runs
from synapse.host.ends import read_end
from synapse.host.identity import SCRIPTED
from synapse.host.membership import membership_of
from synapse.registry.files import FileRegistry, gateways, is_alive
from synapse.teams.keeper import starts_again
from synapse.teams.state import TeamStore

START_EXAMPLES = """
synapse start codex
synapse start codex --name reviewer
synapse start codex --worktree      in a git worktree of its own  (synapse worktrees)
synapse start claude -- --continue  arguments after -- are for claude
synapse start scripted my.toml      an agent that plays a script
synapse start gateway --port 8000   one address for all agents (synapse gateway --help)
synapse attach codex                open its terminal
"""
STOP_EXAMPLES = """
synapse stop codex
synapse stop codex-8121 reviewer
synapse stop --all
synapse stop gateway
"""
RESTART_EXAMPLES = """
synapse restart codex
synapse restart reviewer --fresh     begin a new conversation
synapse restart reviewer --force
"""


def run_start(arguments: list[str]) -> int:
    """Starts an agent, waits until it accepts messages, and returns the exit code."""
    if arguments[:1] == [GATEWAY]:
        return _start_gateway(arguments[1:])
    ours, theirs = split_at_dashes(arguments)
    # The parser needs the profile before it parses anything.
    words = (word for before, word in zip(["", *ours], ours, strict=False) if before not in VALUED_OPTIONS)
    wanted = next((word for word in words if not word.startswith("-")), "PROFILE")
    parser = VerbParser("start", examples=START_EXAMPLES, program="" if wanted == SCRIPTED else wanted)
    parser.add_argument("profile", metavar="PROFILE", help="a profile, `scripted` or `gateway`")
    parser.add_argument("script", nargs="?", metavar="FILE", help="the script, after `scripted`")
    add_host_options(parser)
    options = parser.parse_args(ours)
    if options.profile == SCRIPTED and not options.script:
        parser.error("`scripted` needs a FILE")
    if options.profile != SCRIPTED:
        require_profile(options.profile, load_settings())
        if options.script:
            parser.refuse(options.script)
    # A script is not a profile, though a project may have a profile named `scripted`.
    profile = "" if options.profile == SCRIPTED else options.profile
    settings = settings_here(profile, load=launch_settings, asks=not options.json)
    folder = None
    if options.worktree is not None:
        options.script = options.script and str(Path(options.script).absolute())
        folder = worktree_for(options.profile, options, settings)
        settings = settings_here(profile, load=lambda: launch_settings(folder=folder), asks=not options.json)
        if profile:
            require_profile(profile, settings)
    launch = HostLaunch(
        verb=[options.profile, *([options.script] if options.script else [])],
        name=options.name,
        port=options.port,
        instructions=not options.no_instructions,
        mcp=not options.no_mcp,
        arguments=theirs,
        folder=folder,
        membership=chosen_membership(options),
        resume=options.resume,
    )
    entry = start_host(launch, open_registry(), settings.logs)
    if options.json:
        print_json(as_fields(ask_all([entry], "GET", "/status")[0]))
    else:
        name = short_name(entry)
        # A script has no terminal to attach to.
        next_step = f'synapse send {name} "…"' if options.profile == SCRIPTED else f"synapse attach {name}"
        print_notice(f"{name} runs in the background (pid {entry.pid}, port {entry.port})  ({next_step})")
    return 0


def _start_gateway(arguments: list[str]) -> int:
    parser = VerbParser("start gateway", summary="start the gateway in the background", examples=GATEWAY_EXAMPLES)
    add_gateway_options(parser)
    options = parser.parse_args(arguments)
    require_deciding_person(START_ACTION)
    settings = settings_here(load=launch_settings, asks=not options.json)
    launch = HostLaunch(verb=[GATEWAY, *(word for word in arguments if word != "--json")])
    entry = start_host(launch, gateways(settings.home), settings.logs)
    if options.json:
        print_json(entry.shown())
    else:
        print_notice(f"Gateway listening on {entry.endpoint} (pid {entry.pid})  (synapse stop gateway)")
    return 0


def run_stop(arguments: list[str]) -> int:
    """Stops agents and returns the exit code."""
    parser = VerbParser("stop", examples=STOP_EXAMPLES)
    parser.add_argument("agents", nargs="*", metavar="AGENT")
    parser.add_argument("--all", action="store_true", help="stop all agents of this user")
    parser.add_argument("--force", action="store_true", help="kill agents that do not stop by themselves")
    options = parser.parse_args(arguments)
    if bool(options.agents) == options.all:
        parser.error("name the agents to stop, or use --all")
    registry = open_registry()
    if options.all:
        # Those that run in a gateway's process end with it.
        entries = [entry for entry in registry.entries() if not entry.gateway]
    else:
        entries = _find_each(options.agents, registry)
    for entry in entries:
        stop_host(entry, open_gateways() if entry.agent_type == GATEWAY else registry, force=options.force)
        if not options.json:
            print_notice(f"{short_name(entry)} stopped{_queued_note(entry)}")
    if options.all and not entries and not options.json:
        print_notice("No agent is running.")
    if options.json:
        print_json([entry.shown() for entry in entries])
    return 0


def _queued_note(entry: AgentEntry) -> str:
    """Returns how many messages are queued for its next start, as the end of a sentence."""
    try:
        left = sum(owner.inbox == entry.inbox for owner, _ in stored_queue({})) if entry.inbox else 0
    except StoreFailed:
        return ""
    if not left:
        return ""
    return f"; {left} message{'' if left == 1 else 's'} queued for its next start  (synapse queue)"


def _find_each(names: list[str], registry: FileRegistry) -> list[AgentEntry]:
    # Finds all before it stops the first: a wrong name stops nothing.
    known_gateways = open_gateways()
    if GATEWAY in names and not matching(GATEWAY, [*known_gateways.entries(), *registry.written()]):
        raise NotFound("no gateway is running", hint="`synapse start gateway` starts one")
    found = (
        _crashed_member(name, registry)
        or find_local_agent(name, known_gateways if matching(name, known_gateways.entries()) else registry, "stop")
        for name in names
    )
    entries = list({entry.agent_id: entry for entry in found}.values())
    for entry in entries:
        require_own_process(entry)
    return entries


def _crashed_member(name: str, registry: FileRegistry) -> AgentEntry | None:
    """Returns a member of a team that has crashed, and that its keeper is about to start again; None if there is none.

    Waits for a start that is under way.
    """
    store = TeamStore(load_settings().home)
    for team in store.teams():
        with store.lock(team.name, SystemClock()) if team.member(name) else nullcontext():
            member = (store.read(team.name) or team).member(name)
            if member is None or matching(name, registry.entries()):
                continue
            if starts_again(member.restart, read_end(load_settings().home, member.agent_id, *member.process)):
                pid, started = member.process
                return AgentEntry(
                    member.agent_id, member.launch.verb[0], name=name, inbox=name, pid=pid, pid_started=started
                )
    return None


def run_restart(arguments: list[str]) -> int:
    """Restarts an agent and returns the exit code."""
    parser = VerbParser("restart", examples=RESTART_EXAMPLES)
    parser.add_argument("agent", metavar="AGENT")
    parser.add_argument(
        "--force",
        action="store_true",
        help="kill it if it does not stop by itself; it then has only the caller's rights",
    )
    parser.add_argument(
        "--fresh", action="store_true", help="begin a new conversation (default: go on with the one it has)"
    )
    options = parser.parse_args(arguments)
    registry = open_registry()
    ended = find_ended(options.agent, registry)
    entry = ended.entry if ended else find_local_agent(options.agent, registry, "restart")
    require_own_process(entry)
    command = list(ended.command) if ended else command_line(entry.pid)
    launch = replace(launch_of(entry, command, has_ended=ended is not None), resume=not options.fresh)
    # Checked before it stops: an agent whose project is no longer trusted could not be started again.
    settings = settings_here(
        "" if entry.agent_type == SCRIPTED else entry.agent_type,
        load=lambda: launch_settings(folder=launch.folder),
        asks=not options.json,
    )
    if (why := objection()) and not options.force:
        if ended:
            raise UnsupportedOperation(
                f"{short_name(entry)} has ended, and an agent may not start it with other rights",
                hint=f"{why}; a person can run `synapse restart {short_name(entry)}` in their own shell",
            )
        again = restart_host(entry, registry, settings.logs, resume=not options.fresh)
    else:
        if not ended:
            stop_host(entry, registry, force=options.force)
        try:
            again = start_host(launch, registry, settings.logs)
        except PortTaken as error:
            if "--port" in split_at_dashes(command)[0]:
                raise PortTaken(
                    f"{short_name(entry)} is stopped, and cannot start again: {error}",
                    hint=f"to start it on another port: {start_command(launch)}",
                ) from None
            # Nobody asked for that port, and another program has taken it meanwhile.
            again = start_host(replace(launch, port=None), registry, settings.logs)
    if options.json:
        print_json(as_fields(ask_all([again], "GET", "/status")[0]))
    else:
        print_notice(f"{short_name(again)} restarted (pid {again.pid}, port {again.port})")
    return 0


def find_ended(target: str, registry: FileRegistry) -> LastRun | None:
    """Returns the last run of the agent that `target` names if its host has ended; None if an agent of that name runs.

    A profile's name means its agent in this folder, if it had one here: others may have ended elsewhere long ago.

    Raises AmbiguousTarget when several agents match.
    """
    running = [entry for entry in registry.written() if is_alive(entry)]
    if matching(target, running):
        return None
    used = {entry.inbox for entry in running}
    runs = {run.entry.agent_id + run.entry.inbox: run for run in last_runs(load_settings().home)}
    found = matching(target, [run.entry for run in runs.values() if run.entry.inbox not in used])
    here = [entry for entry in found if entry.working_dir == current_folder()]
    found = here or found
    return runs[(entry := resolve(target, found)).agent_id + entry.inbox] if found else None


def start_command(launch: HostLaunch) -> str:
    """Returns what a person can type to start the agent on a free port, in its own folder."""
    words = ["synapse", "start", *launch.verb]
    words += ["--name", launch.name] if launch.name else []
    words += [] if launch.instructions else ["--no-instructions"]
    words += [] if launch.mcp else ["--no-mcp"]
    words += launch.membership.options()
    words += [RESUME] if launch.resume else []
    words += ["--", *launch.arguments] if launch.arguments else []
    command = shlex.join(words)
    if not launch.folder or launch.folder == current_folder():
        return command
    return f"cd {shlex.quote(launch.folder)} && {command}"


def command_line(pid: int) -> list[str]:
    """Returns the command line of a process; empty if the system does not reveal it."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
    return [word.decode("utf-8", "surrogateescape") for word in words[:-1]]


def launch_of(entry: AgentEntry, words: list[str], *, has_ended: bool = False) -> HostLaunch:
    """Returns how to start the agent again; `words` is its command line.

    Raises:
        UnsupportedOperation: it runs, or ran, in a person's terminal, which cannot be given to a new process.
    """
    ours, theirs = split_at_dashes(words)
    if words and "--headless" not in ours:
        named = f" --name {entry.name}" if entry.name else ""
        if has_ended:
            raise UnsupportedOperation(
                f"{entry.agent_id} ran in a terminal; only background agents can be restarted",
                hint=f"start it again there: synapse {entry.agent_type}{named} {RESUME}",
            )
        raise UnsupportedOperation(
            f"{entry.agent_id} runs in a terminal; only background agents can be restarted",
            hint=f"restart it there, or: synapse stop {entry.agent_id} && synapse start {entry.agent_type}{named}",
        )
    verb = [entry.agent_type]
    if SCRIPTED in ours:
        verb = ours[ours.index(SCRIPTED) : ours.index(SCRIPTED) + 2]
    return HostLaunch(
        verb=verb,
        name=entry.name,
        port=entry.port,
        instructions="--no-instructions" not in ours,
        mcp="--no-mcp" not in ours,
        arguments=theirs,
        folder=entry.working_dir or None,
        membership=membership_of(entry),
    )
