"""`synapse up`, `down` and `ps`: the agents of a team file.

up                  takes the steps of the plan, and starts the keeper of the team in the background
up --foreground     is the keeper itself, for a service: when it is stopped, it stops what it has started
down                ends the keeper, then the agents, in reverse order
"""

from __future__ import annotations

import os
import select
import signal
from argparse import SUPPRESS, Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from synapse.cli.agents import state_of
from synapse.cli.exit_codes import DONE, FAILED
from synapse.cli.output import error_fields, print_json, print_notice, print_result
from synapse.cli.parser import VerbParser
from synapse.cli.person import launch_settings
from synapse.cli.start import command_line, launch_of
from synapse.cli.tables import table
from synapse.cli.team_files import is_team_file, trusted_source, write_example
from synapse.client.fan_out import HostReply, ask_all
from synapse.client.hosts import current_folder, open_registry
from synapse.client.lines import plain, short_path
from synapse.client.times import ago
from synapse.config.process import SystemClock, log_to
from synapse.config.settings import Settings, load_settings
from synapse.config.systemd import take_notifier
from synapse.core.agent import AgentEntry
from synapse.core.errors import (
    AgentUnresponsive,
    Conflict,
    NotFound,
    SynapseError,
    UnsupportedOperation,
)
from synapse.host.background import HostLaunch, start_host, stop_host
from synapse.host.ends import EndReason, read_end
from synapse.registry.files import FileRegistry
from synapse.teams.file import Team
from synapse.teams.keeper import GIVEN_UP, TeamKeeper
from synapse.teams.plan import Action, Running, Step
from synapse.teams.source import has_team, team_file
from synapse.teams.starter import (
    KEEPER_OPTION,
    Outcome,
    Result,
    TeamStarter,
    keeper_log,
    start_keeper,
    started_by_agent,
)
from synapse.teams.state import MemberRecord, TeamRecord, TeamStore

UP_EXAMPLES = """
synapse up                          the team of this project (.synapse/team.toml)
synapse up ~/src/shop/team.toml     another team file
synapse up coder                    only this agent, and those that it starts after
synapse up --dry-run                say what would be done
synapse up --example                write a commented .synapse/team.toml
"""
DOWN_EXAMPLES = """
synapse down                        the team of this project
synapse down shop                   a team by its name, also when its file is gone
"""
PS_EXAMPLES = """
synapse ps                          all teams that are up
synapse ps shop --json
"""
TITLES: Final = ("TEAM", "AGENT", "STATE", "SINCE", "RESTARTS", "FOLDER")
KEEPER_STOP_SECONDS: Final = 15.0
"""How long `down` waits for a keeper, and longer for each agent that a service has to stop."""
TICK_SECONDS: Final = 0.05


def run_up(arguments: list[str]) -> int:
    """Brings a team up and returns the exit code."""
    parser = VerbParser("up", examples=UP_EXAMPLES)
    parser.add_argument("words", nargs="*", metavar="FILE | AGENT", help="a team file, then the agents to bring up")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.add_argument("--fresh", action="store_true", help="begin new conversations (default: go on with the last)")
    parser.add_argument("--foreground", action="store_true", help="keep the team in this process, for a service")
    parser.add_argument("--example", action="store_true", help="write a commented team file")
    parser.add_argument(KEEPER_OPTION, default="", help=SUPPRESS)
    # Intermixed: an option may stand between the file and the agents.
    options = parser.parse_intermixed_args(arguments)
    if options.keeper:
        return _keep(options.keeper, launch_settings())
    file, names = _split(options.words)
    if options.example:
        if names:
            parser.refuse(names[0])
        return write_example(file, as_json=options.json)
    if options.foreground and options.dry_run:
        parser.error("--foreground and --dry-run exclude each other")
    source = trusted_source(team_file(file, current_folder()), asks=not options.json)
    team = source.team()
    # The environment of the caller is that of the agents: an agent gives them no rights that it does not have.
    settings = launch_settings()
    command = _Up(team, settings, options, names)
    return command.keep() if options.foreground else command.run()


def _split(words: Sequence[str]) -> tuple[str, list[str]]:
    """Returns the file and the agents that the words of the command name."""
    if words and is_team_file(words[0]):
        return words[0], list(words[1:])
    return "", list(words)


class _Up:
    """One `synapse up` with its options."""

    def __init__(self, team: Team, settings: Settings, options: Namespace, names: Sequence[str]) -> None:
        self._team = team
        self._settings = settings
        self._options = options
        self._names = names
        self._clock = SystemClock()
        self._store = TeamStore(settings.home)
        self._registry = FileRegistry(settings.registry)
        self._started: set[str] = set()

    def run(self) -> int:
        """Brings the team up, and starts its keeper in the background."""
        if self._options.dry_run:
            steps = self._starter().steps(self._names, running_agents(self._registry))
            return _show_steps(self._team, steps, as_json=self._options.json)
        with self._store.lock(self._team.name, self._clock):
            outcomes = self._bring_up()
            keeper, record = self._store.keeper(self._team.name), self._store.read(self._team.name)
            if keeper is not None and keeper.launched_by and not keeper.foreground and not started_by_agent():
                _end_keeper(self._team.name, self._store, agents=0)
            if record is not None and record.needs_keeper and any(member.pid for member in record.members):
                start_keeper(self._team.name, self._store, self._settings.logs, self._clock)
        return self._summary(outcomes)

    def keep(self) -> int:
        """Brings the team up, and keeps it in this process until it is stopped."""
        notify = take_notifier()
        log_to(self._settings.logs, keeper_log(self._team.name))
        keeper = new_keeper(self._team.name, self._settings)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        code = DONE

        def begin() -> bool:
            nonlocal code
            with self._store.lock(self._team.name, self._clock):
                outcomes = self._bring_up()
            summary = self._summary(outcomes)
            if all(outcome.result is Result.FAILED for outcome in outcomes):
                code = summary
                return False
            notify(f"Team {self._team.name} is up")
            return True

        try:
            self._take_over()
            # It keeps the team from before the first start: another `synapse up` would start a keeper meanwhile.
            if not keeper.run(foreground=True, begin=begin):
                raise self._kept_already()
        except KeyboardInterrupt:
            self._stop_all(keeper.started | self._started)
        return code

    def _take_over(self) -> None:
        """Ends the keeper in the background; refuses to end one that is a service."""
        keeper = self._store.keeper(self._team.name)
        if keeper is None:
            return
        if keeper.foreground:
            raise self._kept_already()
        _end_keeper(self._team.name, self._store, agents=0)

    def _kept_already(self) -> Conflict:
        keeper = self._store.keeper(self._team.name)
        by = f" by the process {keeper.pid}" if keeper else ""
        return Conflict(f"the team '{self._team.name}' is kept already{by}", hint=f"synapse down {self._team.name}")

    def _stop_all(self, names: Iterable[str]) -> None:
        # A second signal must not leave agents behind; the service manager kills a process that takes too long.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        mine = {entry.name: entry for entry in self._registry.entries() if entry.team == self._team.name}
        order = [name for name in reversed(self._team.names) if name in set(names) and name in mine]
        for name in order:
            try:
                stop_host(mine[name], self._registry)
                print_notice(f"{name} stopped")
            except (SynapseError, OSError) as error:
                print_notice(f"Error: {error}")

    def _starter(self) -> TeamStarter:
        return TeamStarter(self._team, self._store, self._registry, self._settings.logs, fresh=self._options.fresh)

    def _bring_up(self) -> list[Outcome]:
        starter = self._starter()
        steps = starter.steps(self._names, running_agents(self._registry))
        outcomes: list[Outcome] = []
        for outcome in starter.take(steps, whole=not self._names):
            outcomes.append(outcome)
            if outcome.result in (Result.STARTED, Result.RESTARTED):
                self._started.add(outcome.name)
            if not self._options.json:
                _show_outcome(outcome)
        return outcomes

    def _summary(self, outcomes: Sequence[Outcome]) -> int:
        failed = sum(outcome.result is Result.FAILED for outcome in outcomes)
        if self._options.json:
            print_json(
                {
                    "team": self._team.name,
                    "file": str(self._team.file),
                    "agents": [_outcome_fields(outcome) for outcome in outcomes],
                }
            )
        elif failed:
            print_notice(f"{failed} of {len(outcomes)} agents of the team {self._team.name} failed  (synapse ps)")
        elif self._names:
            brought = ", ".join(outcome.name for outcome in outcomes)
            verb = "is" if len(outcomes) == 1 else "are"
            print_notice(f"Of the team {self._team.name}, {brought} {verb} up  (synapse ps)")
        else:
            print_notice(f"The team {self._team.name} is up  (synapse ps)")
        return FAILED if failed else DONE


def _show_outcome(outcome: Outcome) -> None:
    if outcome.error is not None:
        fields = error_fields(outcome.error)
        hint = f"\n{fields['hint']}" if fields["hint"] else ""
        print_notice(f"{outcome.name} failed: {fields['message']}{hint}")
        return
    why = f", because {outcome.why}" if outcome.why else ""
    entry = outcome.entry
    where = f" (pid {entry.pid}, port {entry.port})" if entry else ""
    print_notice(f"{outcome.name} {outcome.result}{why}{where}")
    for note in outcome.notes:
        print_notice(f"  {note}")


def _outcome_fields(outcome: Outcome) -> dict[str, Any]:
    entry = outcome.entry
    return {
        "agent": outcome.name,
        "result": outcome.result.value,
        "why": outcome.why,
        "agent_id": entry.agent_id if entry else None,
        "pid": entry.pid if entry else None,
        "port": entry.port if entry else None,
        "error": error_fields(outcome.error) if outcome.error else None,
    }


def _show_steps(team: Team, steps: Sequence[Step], *, as_json: bool) -> int:
    if as_json:
        agents = [{"agent": step.name, "action": step.action.value, "why": step.why} for step in steps]
        print_json({"team": team.name, "file": str(team.file), "agents": agents})
    else:
        for step in steps:
            why = f", because {step.why}" if step.why else ""
            print_notice(f"{step.name}: {_WOULD[step.action]}{why}")
    return FAILED if any(step.action is Action.REFUSE for step in steps) else DONE


_WOULD: Final = {
    Action.START: "would start",
    Action.RESTART: "would restart",
    Action.LEAVE: "is unchanged",
    Action.STOP: "would stop",
    Action.REFUSE: "would fail",
}


def running_agents(registry: FileRegistry) -> list[Running]:
    """Returns the running agents, each with how it was launched."""
    return [_running(entry) for entry in registry.entries() if entry.name and not entry.gateway]


def _running(entry: AgentEntry) -> Running:
    try:
        return Running(entry=entry, launch=launch_of(entry, command_line(entry.pid)))
    except UnsupportedOperation as error:
        return Running(entry=entry, why_not=str(error))


def new_keeper(team: str, settings: Settings) -> TeamKeeper:
    """Returns the keeper of a team."""
    registry = FileRegistry(settings.registry)

    def start(launch: HostLaunch) -> AgentEntry:
        return start_host(launch, registry, settings.logs)

    return TeamKeeper(team, settings.home, TeamStore(settings.home), registry, SystemClock(), start)


def _keep(team: str, settings: Settings) -> int:
    """Runs the keeper in the background. A stop leaves its agents running."""
    log_to(settings.logs, keeper_log(team))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        new_keeper(team, settings).run()
    except KeyboardInterrupt:
        return DONE
    return DONE


def run_down(arguments: list[str]) -> int:
    """Takes a team down and returns the exit code."""
    parser = VerbParser("down", examples=DOWN_EXAMPLES)
    parser.add_argument("team", nargs="?", default="", metavar="FILE | TEAM", help="a team file, or a team's name")
    options = parser.parse_args(arguments)
    settings = load_settings()
    store, registry = TeamStore(settings.home), FileRegistry(settings.registry)
    record = _find_team(options.team, store)
    _end_keeper(record.name, store, agents=len(record.members))
    stopped: list[AgentEntry] = []
    errors: list[SynapseError | OSError] = []
    with store.lock(record.name, SystemClock()):
        # Read again: the keeper may have changed it.
        record = store.read(record.name) or record
        for entry in _in_reverse(record, registry):
            try:
                stop_host(entry, registry)
            except (SynapseError, OSError) as error:
                errors.append(error)
                continue
            stopped.append(entry)
            if not options.json:
                print_notice(f"{entry.name} stopped")
        if not errors:
            store.remove(record.name)
    if options.json:
        print_json(
            {
                "team": record.name,
                "file": record.file,
                "stopped": [entry.name for entry in stopped],
                "errors": [error_fields(error) for error in errors],
            }
        )
    else:
        for fields in map(error_fields, errors):
            print_notice(f"Error: {fields['message']}" + (f"\n{fields['hint']}" if fields["hint"] else ""))
        if not errors:
            print_notice(f"The team {record.name} is down.")
    return FAILED if errors else DONE


def _in_reverse(record: TeamRecord, registry: FileRegistry) -> list[AgentEntry]:
    """Returns the running agents of a team in the order in which to stop them."""
    order = {member.name: number for number, member in enumerate(record.members)}
    mine = [entry for entry in registry.entries() if entry.team == record.name]
    return sorted(mine, key=lambda entry: -order.get(entry.name, len(order)))


def _find_team(wanted: str, store: TeamStore) -> TeamRecord:
    """Returns the team that is up by its name or its file; the project's one for an empty text. Raises NotFound."""
    teams = store.teams()
    by_name = next((team for team in teams if team.name == wanted), None)
    if by_name is not None:
        return by_name
    file = str(team_file(wanted, current_folder()))
    found = next((team for team in teams if team.file == file), None)
    if found is not None:
        return found
    up = ", ".join(team.name for team in teams)
    raise NotFound(
        f"no team '{wanted}' is up" if wanted and not is_team_file(wanted) else f"no team is up from {file}",
        hint=f"up: {up}  (synapse ps)" if up else "`synapse up` brings one up",
    )


def _end_keeper(team: str, store: TeamStore, *, agents: int) -> None:
    """Ends the keeper of a team, if it has one, and waits until it has gone.

    Raises AgentUnresponsive if it does not end; one that is a service first stops its `agents`.
    """
    keeper = store.keeper(team)
    if keeper is None:
        return
    os.kill(keeper.pid, signal.SIGTERM)
    clock = SystemClock()
    deadline = clock.monotonic() + KEEPER_STOP_SECONDS * (1 + agents * keeper.foreground)
    while keeper.is_running:
        if clock.monotonic() > deadline:
            raise AgentUnresponsive(
                f"the keeper of the team '{team}' (pid {keeper.pid}) does not end", hint=f"kill -9 {keeper.pid}"
            )
        select.select([], [], [], TICK_SECONDS)


def run_ps(arguments: list[str]) -> int:
    """Shows the agents of the teams that are up and returns the exit code."""
    parser = VerbParser("ps", examples=PS_EXAMPLES)
    parser.add_argument("team", nargs="?", default="", metavar="FILE | TEAM", help="only this team")
    options = parser.parse_args(arguments)
    settings = load_settings()
    store = TeamStore(settings.home)
    teams = [_find_team(options.team, store)] if options.team else store.teams()
    entries = {(entry.team, entry.name): entry for entry in open_registry().entries() if entry.team}
    replies = {reply.entry.agent_id: reply for reply in ask_all(list(entries.values()), "GET", "/status")}
    rows = [
        _ps_fields(team, member, replies.get(entry.agent_id) if entry else None, settings.home)
        for team in teams
        for member in team.members
        for entry in [entries.get((team.name, member.name))]
    ]
    unkept = [team for team in teams if team.needs_keeper and store.keeper(team.name) is None]
    if options.json:
        names = {team.name for team in unkept}
        print_json([{**row, "kept": row["team"] not in names} for row in rows])
        return DONE
    if not rows:
        print_notice(f"No team is up.  (synapse up{'' if has_team(current_folder()) else ' --example'})")
        return DONE
    now = SystemClock().now()
    shown = [
        (
            row["team"],
            row["agent"],
            row["state"],
            ago(row["since"], now),
            str(row["restarts"]),
            short_path(row["folder"]),
        )
        for row in rows
    ]
    print_result(table(TITLES, shown, elastic=5))
    for row in rows:
        if row["why"]:
            print_notice(f"! {row['agent']}: {plain(row['why'])}")
    for team in unkept:
        print_notice(
            f"! {team.name} has no keeper: what crashes is not started again  (synapse up {short_path(team.file)})"
        )
    return DONE


def _ps_fields(team: TeamRecord, member: MemberRecord, reply: HostReply | None, home: Path) -> dict[str, Any]:
    if reply is not None:
        state, since, why = state_of(reply), reply.entry.started_at, ""
    else:
        state, since, why = _ended(member, home)
    return {
        "team": team.name,
        "agent": member.name,
        "agent_id": reply.entry.agent_id if reply else member.agent_id or None,
        "pid": reply.entry.pid if reply else None,
        "state": state,
        "since": since or None,
        "restarts": member.restarts,
        "restart": member.restart.value,
        "folder": (reply.entry.working_dir if reply else "") or member.launch.folder or "",
        "file": team.file,
        "why": why,
    }


def _ended(member: MemberRecord, home: Path) -> tuple[str, str, str]:
    """Returns the state of a member that is not running, since when, and why."""
    if not member.pid:
        return "not started", "", member.problem
    end = read_end(home, member.agent_id, *member.process)
    if end is None:
        state = "crashed"
    elif end.reason is EndReason.ENDED:
        state = f"exited {end.status}" if end.status else "exited"
    else:
        state = end.reason.value
    given_up = f": {GIVEN_UP}" if member.problem.startswith(GIVEN_UP) else ""
    return f"{state}{given_up}", end.at if end else "", member.problem
