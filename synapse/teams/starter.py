"""Brings a team up: takes the steps of its plan, and records what is running. One failure does not stop the others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final, assert_never

from synapse.client.lines import short_path
from synapse.config.private_files import make_private
from synapse.core.agent import AgentEntry
from synapse.core.errors import AgentUnresponsive, Conflict, InvalidSettings, SynapseError
from synapse.core.types import Clock
from synapse.host.background import LAUNCHED_BY, HostLaunch, host_environment, start_host, stop_host
from synapse.registry.files import FileRegistry
from synapse.teams.file import Member, Team
from synapse.teams.plan import Action, Running, Step, launch_for, plan
from synapse.teams.state import MemberRecord, TeamRecord, TeamStore
from synapse.worktrees.ensure import ensure_worktree, place_of
from synapse.worktrees.git import git, open_repository

KEEPER_SECONDS: Final = 20.0
TICK_SECONDS: Final = 0.05


class Result(StrEnum):
    """What became of an agent."""

    STARTED = "started"
    RESTARTED = "restarted"
    UNCHANGED = "unchanged"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What `synapse up` did with one agent, and why; `error` if it failed."""

    name: str
    result: Result
    why: str = ""
    entry: AgentEntry | None = None
    error: SynapseError | OSError | None = None
    notes: tuple[str, ...] = ()


class TeamStarter:
    """Brings one team up. The caller holds the team's lock."""

    def __init__(
        self, team: Team, store: TeamStore, registry: FileRegistry, logs: Path, *, fresh: bool = False
    ) -> None:
        self._team = team
        self._store = store
        self._registry = registry
        self._logs = logs
        self._fresh = fresh

    def steps(self, names: Sequence[str], running: Sequence[Running]) -> list[Step]:
        """Returns the plan for the named members, or for all.

        Raises InvalidRequest for a name that is not in the file, and Conflict if the team is up from another file.
        """
        before = self._store.read(self._team.name)
        mine = {one.entry.name for one in running if one.entry.team == self._team.name}
        if before is not None and before.file != str(self._team.file) and mine:
            raise Conflict(
                f"a team '{self._team.name}' is up already, from {before.file}",
                hint=f"give one of them another name under [team], or: synapse down {self._team.name}",
            )
        chosen = self._team.chosen(names)
        if not names:
            # Those that start only by their names are compared too, if they run.
            chosen = tuple(one for one in self._team.members if one in chosen or one.name in mine)
        wanted: list[tuple[Member, HostLaunch]] = []
        refused: list[Step] = []
        for member in chosen:
            try:
                wanted.append((member, launch_for(member, expected_folder(member))))
            except SynapseError as error:
                why = f"{error}  ({error.hint})" if error.hint else str(error)
                refused.append(Step(action=Action.REFUSE, name=member.name, member=member, why=why))
        return [*refused, *plan(self._team, wanted, running, whole=not names, by_person=not started_by_agent())]

    def take(self, steps: Sequence[Step], *, whole: bool) -> Iterator[Outcome]:
        """Takes the steps, and yields what became of each agent."""
        record = self._first_record(steps, whole=whole)
        self._store.write(record)
        failed: set[str] = set()
        for step in steps:
            missing = [name for name in (step.member.after if step.member else ()) if name in failed]
            if missing and step.action in (Action.START, Action.RESTART):
                why = f"it starts after {missing[0]}, which is not running"
                outcome = Outcome(name=step.name, result=Result.FAILED, error=Conflict(why))
            else:
                outcome = self._take(step)
            if outcome.result is Result.FAILED:
                failed.add(step.name)
            member = record.member(step.name)
            if member is not None:
                record = record.with_member(_after(member, outcome))
                self._store.write(record)
            yield outcome

    def _take(self, step: Step) -> Outcome:
        try:
            match step.action:
                case Action.LEAVE:
                    entry = step.running.entry if step.running else None
                    return Outcome(name=step.name, result=Result.UNCHANGED, entry=entry)
                case Action.REFUSE:
                    return Outcome(name=step.name, result=Result.FAILED, error=Conflict(step.why))
                case Action.STOP:
                    self._stop(step)
                    return Outcome(name=step.name, result=Result.STOPPED, why=step.why)
                case Action.START:
                    entry, notes = self._start(step)
                    return Outcome(name=step.name, result=Result.STARTED, entry=entry, notes=notes)
                case Action.RESTART:
                    self._stop(step)
                    entry, notes = self._start(step)
                    return Outcome(name=step.name, result=Result.RESTARTED, why=step.why, entry=entry, notes=notes)
                case _:
                    assert_never(step.action)
        except (SynapseError, OSError) as error:
            return Outcome(name=step.name, result=Result.FAILED, error=error)

    def _stop(self, step: Step) -> None:
        if step.running is not None:
            stop_host(step.running.entry, self._registry)

    def _start(self, step: Step) -> tuple[AgentEntry, tuple[str, ...]]:
        if step.launch is None or step.member is None:
            raise ValueError("a step that starts an agent has its launch")
        member, launch = step.member, step.launch
        notes: tuple[str, ...] = ()
        if not Path(member.folder).is_dir():
            raise InvalidSettings(f"{self._team.file}: agent '{member.name}': there is no folder {member.folder}")
        if member.worktree:
            made = ensure_worktree(Path(member.folder), member.name, member.branch, running=self._registry.entries())
            launch, notes = replace(launch, folder=str(made.folder)), made.notes
            if made.is_new:
                notes = (f"new worktree {short_path(str(made.path))} on the branch {made.branch}", *notes)
        return start_host(replace(launch, resume=not self._fresh), self._registry, self._logs), notes

    def _first_record(self, steps: Sequence[Step], *, whole: bool) -> TeamRecord:
        """Returns the record before the first step: a command that is killed leaves what `synapse down` needs."""
        before = self._store.read(self._team.name)
        known = {member.name: member for member in before.members} if before else {}
        launches = {step.name: step.launch for step in steps if step.launch is not None}
        members: list[MemberRecord] = []
        for member in self._team.members:
            old = known.pop(member.name, None)
            if member.name in launches:
                fresh = MemberRecord(launch=launches[member.name], restart=member.restart)
                kept = replace(old, launch=fresh.launch, restart=fresh.restart) if old else fresh
                members.append(kept)
            elif old is not None:
                members.append(old)
        gone = () if whole else tuple(known.values())
        return TeamRecord(name=self._team.name, file=str(self._team.file), members=(*members, *gone))


def _after(member: MemberRecord, outcome: Outcome) -> MemberRecord:
    """Returns a member's record after its step."""
    if outcome.result is Result.FAILED:
        return replace(member, problem=str(outcome.error))
    if outcome.entry is None:
        return member
    started = member.run_by(outcome.entry)
    if outcome.result is Result.UNCHANGED:
        return started
    return replace(started, restarts=0, launch=replace(member.launch, folder=outcome.entry.working_dir))


def expected_folder(member: Member) -> str:
    """Returns the folder that a member works in: its own, or the same one in its worktree, which need not exist yet.

    Raises what `open_repository` does.
    """
    if not member.worktree:
        return member.folder
    folder = Path(os.path.realpath(member.folder))
    repository = open_repository(folder)
    inner = git(folder, "rev-parse", "--show-prefix").rstrip("/")
    return str(place_of(repository, member.branch or member.name) / inner)


def started_by_agent() -> str:
    """Returns the agent that started this process, or empty; see `host.background.LAUNCHED_BY`."""
    return os.environ.get(LAUNCHED_BY, "")


def keeper_log(team: str) -> str:
    """Returns the name of the keeper's log, which no agent can have; `synapse logs` shows it."""
    return f"synapse-team-{team}"


def start_keeper(team: str, store: TeamStore, logs: Path, clock: Clock) -> None:
    """Starts the keeper of a team in the background, if it has none, and waits until it keeps.

    Raises AgentUnresponsive if it does not.
    """
    with store.try_keep(team) as is_free:
        if not is_free:
            return
    make_private(logs)
    output_file = logs / f"{keeper_log(team)}.out"
    with os.fdopen(os.open(output_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as output:
        keeper = subprocess.Popen(  # noqa: S603 - our own interpreter and our own module
            [sys.executable, "-P", "-m", "synapse.cli.main", "up", f"{KEEPER_OPTION}={team}"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=host_environment(),
        )
    deadline = clock.monotonic() + KEEPER_SECONDS
    while clock.monotonic() < deadline:
        # Another command may have started one at the same time.
        if store.keeper(team) is not None:
            return
        try:
            status = keeper.wait(TICK_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        if store.keeper(team) is not None:
            return
        raise AgentUnresponsive(
            f"the keeper of the team '{team}' ended at once (exit code {status})", hint=f"see {output_file}"
        )
    raise AgentUnresponsive(f"the keeper of the team '{team}' did not start", hint=f"see {output_file}")


KEEPER_OPTION: Final = "--keeper"
"""The hidden option of `synapse up` that runs the keeper of a team."""
