"""The files of the teams that are up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from synapse.core.errors import Conflict
from synapse.core.override import override
from synapse.host.background import HostLaunch
from synapse.host.membership import Membership
from synapse.registry.files import own_start_time
from synapse.teams.file import RestartRule
from synapse.teams.state import LOCK_SECONDS, KeeperRecord, MemberRecord, TeamRecord, TeamStore
from tests.fakes.clock import FakeClock

TEAM = TeamRecord(
    name="shop",
    file="/src/shop/team.toml",
    members=(
        MemberRecord(
            launch=HostLaunch(
                verb=("claude",),
                name="lead",
                port=8105,
                instructions=False,
                mcp=False,
                arguments=("--model", "opus"),
                folder="/src/shop",
                membership=Membership(role="You plan.", team="shop", accepts=("person", "db")),
            ),
            restart=RestartRule.ALWAYS,
            agent_id="synapse-claude-8105",
            pid=12,
            pid_started=34,
            restarts=2,
            problem="given up",
        ),
        MemberRecord(
            launch=HostLaunch(verb=("scripted", "/e.toml"), name="e", folder="/", membership=Membership(team="shop"))
        ),
    ),
)


@pytest.fixture
def store(tmp_path: Path) -> TeamStore:
    return TeamStore(tmp_path)


def test_a_team_is_read_as_it_was_written(store: TeamStore) -> None:
    store.write(TEAM)

    assert store.read("shop") == TEAM
    assert store.teams() == [TEAM]
    assert store.read("other") is None


def test_a_teams_files_are_private(store: TeamStore, tmp_path: Path) -> None:
    store.write(TEAM)

    assert (tmp_path / "teams").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "teams" / "shop.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"team": "shop"}', b'{"team": "x", "file": "", "members": []}'])
def test_a_damaged_file_is_no_team(store: TeamStore, tmp_path: Path, damage: bytes) -> None:
    store.write(TEAM)
    (tmp_path / "teams" / "shop.json").write_bytes(damage)

    assert store.read("shop") is None
    assert store.teams() == []


def test_a_keeper_is_known_while_it_runs(store: TeamStore) -> None:
    me = KeeperRecord(pid=os.getpid(), pid_started=own_start_time(), foreground=True)
    store.write_keeper("shop", me)
    assert store.keeper("shop") == me

    store.write_keeper("shop", KeeperRecord(pid=os.getpid(), pid_started=1, foreground=True))
    assert store.keeper("shop") is None

    store.remove("shop")
    assert store.keeper("shop") is None


def test_a_team_is_changed_by_one_command_at_a_time(store: TeamStore) -> None:
    with store.lock("shop", FakeClock()):
        with store.try_lock("shop") as is_held:
            assert not is_held
        with store.try_lock("other") as is_held:
            assert is_held
    with store.try_lock("shop") as is_held:
        assert is_held


def test_waiting_for_another_command_has_an_end(store: TeamStore) -> None:
    clock = FakeClock()

    class Impatient(FakeClock):
        @override
        def monotonic(self) -> float:
            self.advance(LOCK_SECONDS / 2)
            return super().monotonic()

    with (
        store.lock("shop", clock),
        pytest.raises(Conflict, match="changing the team 'shop'"),
        store.lock("shop", Impatient()),
    ):
        pass
