"""Keeping the agents of a team running, with real registry entries and records, and processes that the test ends."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from synapse.core.agent import AgentEntry
from synapse.core.errors import AgentExited
from synapse.host.background import HostLaunch
from synapse.host.ends import STEADY_SECONDS, EndReason, HostEnd, pause_after, write_end
from synapse.host.membership import Membership
from synapse.registry.files import FileRegistry, own_namespace, start_time
from synapse.teams.file import RestartRule
from synapse.teams.keeper import GIVE_UP_AFTER, TeamKeeper, starts_again
from synapse.teams.state import MemberRecord, TeamRecord, TeamStore
from tests.fakes.clock import FakeClock

TEAM = "shop"


class Hosts:
    """Processes in the place of hosts. `refuses` makes the next starts fail."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.registry = FileRegistry(home / "registry")
        self.launches: list[HostLaunch] = []
        self.refuses = False
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, launch: HostLaunch) -> AgentEntry:
        self.launches.append(launch)
        if self.refuses:
            raise AgentExited("the host exited at once")
        process = subprocess.Popen(["sleep", "1000"])
        self._processes[process.pid] = process
        entry = AgentEntry("synapse-dummy-8190", "dummy", name=launch.name, team=launch.membership.team)
        entry.pid, entry.pid_started = process.pid, start_time(process.pid) or 0
        entry.pid_namespace = own_namespace()
        self.registry.write(entry)
        return entry

    def end(self, entry: AgentEntry, how: HostEnd | None = None) -> None:
        """Ends a host with a record of how, or by kill -9."""
        if how is not None:
            write_end(self.home, entry, how)
            self.registry.remove(entry.agent_id)
        process = self._processes.pop(entry.pid)
        process.kill()
        process.wait()

    def running(self) -> AgentEntry:
        (entry,) = self.registry.entries()
        return entry

    def end_all(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()


class Kept:
    """A team of one agent, and its keeper."""

    def __init__(self, home: Path, rule: RestartRule = RestartRule.ON_FAILURE) -> None:
        self.clock = FakeClock()
        self.hosts = Hosts(home)
        self.store = TeamStore(home)
        launch = HostLaunch(verb=("dummy",), name="db", folder="/", membership=Membership(team=TEAM))
        entry = self.hosts.start(launch)
        self.store.write(
            TeamRecord(name=TEAM, file="/team.toml", members=(MemberRecord(launch=launch, restart=rule).run_by(entry),))
        )
        self.keeper = TeamKeeper(TEAM, home, self.store, self.hosts.registry, self.clock, self.hosts.start)
        self.keeper.look()

    @property
    def member(self) -> MemberRecord:
        team = self.store.read(TEAM)
        assert team is not None
        return team.members[0]

    @property
    def starts(self) -> int:
        """How often the keeper has started it."""
        return len(self.hosts.launches) - 1

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.keeper.look()

    def crash(self) -> None:
        """Kills the agent, and lets the keeper see it."""
        self.hosts.end(self.hosts.running())
        self.keeper.look()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path)
    yield made
    made.hosts.end_all()


STOPPED = HostEnd(reason=EndReason.STOPPED)
REPLACED = HostEnd(reason=EndReason.REPLACED, status=1)
DONE = HostEnd(reason=EndReason.ENDED, status=0)
BROKEN = HostEnd(reason=EndReason.ENDED, status=3)


@pytest.mark.parametrize(
    ("end", "on_failure", "always"),
    [(None, True, True), (BROKEN, True, True), (DONE, False, True), (STOPPED, False, False), (REPLACED, False, False)],
)
def test_the_rule_and_the_end_decide(end: HostEnd | None, *, on_failure: bool, always: bool) -> None:
    assert starts_again(RestartRule.ON_FAILURE, end) is on_failure
    assert starts_again(RestartRule.ALWAYS, end) is always
    assert starts_again(RestartRule.NEVER, end) is False


def test_a_killed_agent_is_started_again_after_a_pause_and_goes_on_with_its_conversation(kept: Kept) -> None:
    kept.crash()
    assert kept.starts == 0

    kept.pass_time(pause_after(1))

    assert kept.starts == 1
    assert kept.hosts.launches[-1] == kept.hosts.launches[0]
    assert kept.hosts.launches[-1].resume
    assert kept.member.process == (kept.hosts.running().pid, kept.hosts.running().pid_started)
    assert kept.member.restarts == 1
    assert kept.keeper.started == {"db"}


@pytest.mark.parametrize("end", [STOPPED, DONE])
def test_an_agent_that_was_stopped_or_is_done_stays_ended(kept: Kept, end: HostEnd) -> None:
    kept.hosts.end(kept.hosts.running(), end)
    kept.keeper.look()
    kept.pass_time(1000)

    assert kept.starts == 0


def test_an_agent_that_a_person_stops_after_its_crash_stays_ended(kept: Kept) -> None:
    crashed = kept.hosts.running()
    kept.crash()
    write_end(kept.hosts.home, crashed, STOPPED)
    kept.pass_time(1000)

    assert kept.starts == 0


def test_a_record_of_an_earlier_host_does_not_excuse_a_crash(kept: Kept) -> None:
    earlier = AgentEntry("synapse-dummy-8190", "dummy", pid=1, pid_started=1)
    write_end(kept.hosts.home, earlier, STOPPED)

    kept.crash()
    kept.pass_time(pause_after(1))

    assert kept.starts == 1


def test_quick_ends_make_the_pauses_longer_until_the_keeper_gives_up(kept: Kept) -> None:
    for number in range(1, GIVE_UP_AFTER):
        kept.crash()
        kept.pass_time(pause_after(number) - 0.5)
        assert kept.starts == number - 1
        kept.pass_time(0.5)
        assert kept.starts == number

    kept.crash()
    kept.pass_time(1000)

    assert kept.starts == GIVE_UP_AFTER - 1
    assert kept.member.problem == "given up after 5 quick ends"


def test_an_agent_that_ran_steadily_begins_with_the_shortest_pause(kept: Kept) -> None:
    for _ in range(GIVE_UP_AFTER - 1):
        kept.crash()
        kept.pass_time(pause_after(GIVE_UP_AFTER))
    kept.pass_time(STEADY_SECONDS)

    kept.crash()
    kept.pass_time(pause_after(1))

    assert kept.starts == GIVE_UP_AFTER
    assert kept.member.problem == ""


def test_starts_that_fail_count_as_quick_ends(kept: Kept) -> None:
    kept.crash()
    kept.hosts.refuses = True
    for _ in range(20):
        kept.pass_time(pause_after(GIVE_UP_AFTER))

    assert kept.starts == GIVE_UP_AFTER - 1
    assert kept.member.problem == "given up after 5 quick ends: the host exited at once"


def test_an_agent_that_a_person_restarted_is_kept_and_its_ends_forgotten(kept: Kept) -> None:
    for _ in range(GIVE_UP_AFTER):
        kept.crash()
        kept.pass_time(pause_after(GIVE_UP_AFTER))
    given_up = kept.starts

    kept.hosts.start(kept.hosts.launches[0])
    kept.keeper.look()
    assert kept.member.problem == ""
    kept.crash()
    kept.pass_time(pause_after(1))

    # One start was the person's.
    assert kept.starts == given_up + 2


def test_a_host_that_is_still_ending_is_not_started_beside_itself(kept: Kept) -> None:
    kept.hosts.registry.remove(kept.hosts.running().agent_id)
    kept.pass_time(1000)
    kept.pass_time(1000)

    assert kept.starts == 0


def test_an_agent_of_that_name_in_another_team_is_none_of_ours(kept: Kept) -> None:
    kept.crash()
    other = replace(kept.hosts.launches[0], membership=Membership(team="other"))
    kept.hosts.start(other)

    kept.pass_time(pause_after(1))

    assert kept.starts == 2


def test_a_team_that_is_being_changed_is_left_alone(kept: Kept) -> None:
    kept.crash()
    with kept.store.try_lock(TEAM) as is_held:
        assert is_held
        kept.pass_time(1000)
        assert kept.starts == 0

    kept.pass_time(0)
    kept.pass_time(pause_after(1))

    assert kept.starts == 1


def test_a_keeper_ends_with_its_team(kept: Kept) -> None:
    assert kept.keeper.look()

    kept.store.remove(TEAM)

    assert not kept.keeper.look()


def test_a_team_that_restarts_nothing_needs_a_keeper_only_as_a_service(tmp_path: Path) -> None:
    kept = Kept(tmp_path, RestartRule.NEVER)
    try:
        assert not kept.keeper.look()
        assert kept.keeper.look(stays=True)
    finally:
        kept.hosts.end_all()


def test_a_second_keeper_does_not_run(kept: Kept) -> None:
    with kept.store.try_keep(TEAM) as is_held:
        assert is_held

        assert kept.keeper.run() is False
