"""Deciding what to do with the agents of a team."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from synapse.core.agent import AgentEntry
from synapse.host.background import HostLaunch
from synapse.host.membership import Membership
from synapse.teams.file import Member, Team, parse_team
from synapse.teams.plan import Action, Running, Step, difference, launch_for, plan

FOLDER = Path("/src/shop")


def team_of(**tables: str) -> Team:
    text = "\n".join(f"[agents.{name}]\n{table}" for name, table in tables.items())
    return parse_team(text.encode(), FOLDER / "team.toml", FOLDER)


def running(launch: HostLaunch, *, team: str = "shop", port: int = 8100) -> Running:
    entry = AgentEntry(f"synapse-{launch.verb[0]}-{port}", launch.verb[0], name=launch.name, team=team)
    entry.working_dir = launch.folder or ""
    return Running(entry=entry, launch=replace(launch, port=launch.port or port))


def steps_of(team: Team, *found: Running, whole: bool = True, by_person: bool = True) -> list[Step]:
    wanted = [(one, launch_for(one)) for one in team.chosen([])]
    return plan(team, wanted, found, whole=whole, by_person=by_person)


def shown(steps: list[Step]) -> list[tuple[str, str, str]]:
    return [(step.name, step.action.value, step.why) for step in steps]


def member(**changes: Any) -> Member:
    return replace(
        Member(name="lead", profile="claude", folder="/src/shop", membership=Membership(team="shop")), **changes
    )


def test_what_does_not_run_is_started_in_order() -> None:
    team = team_of(web='profile = "dummy"\nafter = ["db"]', db='profile = "dummy"')

    assert shown(steps_of(team)) == [("db", "start", ""), ("web", "start", "")]


def test_what_runs_as_the_file_says_is_left_alone_whatever_its_port() -> None:
    team = team_of(db='profile = "dummy"')

    assert shown(steps_of(team, running(launch_for(team.members[0]), port=8123))) == [("db", "leave", "")]


def test_what_runs_otherwise_is_restarted_with_the_new_options() -> None:
    team = team_of(db='profile = "dummy"\nrole = "new"\narguments = ["-v"]')

    (step,) = steps_of(team, running(replace(launch_for(team.members[0]), membership=Membership(), arguments=())))

    assert (step.action, step.why) == (Action.RESTART, "arguments and role changed")
    assert step.launch == launch_for(team.members[0])


def test_agents_that_the_file_no_longer_names_are_stopped_first() -> None:
    team = team_of(db='profile = "dummy"')
    old = running(HostLaunch(verb=["dummy"], name="old"))
    others = running(HostLaunch(verb=["dummy"], name="theirs"), team="other")
    own = running(HostLaunch(verb=["dummy"], name="mine"), team="")

    assert shown(steps_of(team, old, others, own)) == [
        ("old", "stop", "it is no longer in the file"),
        ("db", "start", ""),
    ]
    assert shown(steps_of(team, old, whole=False)) == [("db", "start", "")]


@pytest.mark.parametrize(("owner", "of"), [("", "no team"), ("other", "the team 'other'")])
def test_an_agent_of_that_name_outside_of_the_team_is_not_touched(owner: str, of: str) -> None:
    team = team_of(db='profile = "dummy"')

    (step,) = steps_of(team, running(launch_for(team.members[0]), team=owner))

    assert step.action is Action.REFUSE
    assert step.why == f"synapse-dummy-8100 goes by that name already, and belongs to {of}"


def test_a_member_named_like_its_profile_bears_others_in_other_folders() -> None:
    team = team_of(dummy='profile = "dummy"')
    elsewhere = HostLaunch(verb=["dummy"], name="dummy", folder="/src/other")

    assert shown(steps_of(team, running(elsewhere, team=""))) == [("dummy", "start", "")]
    assert steps_of(team, running(launch_for(team.members[0]), team=""))[0].action is Action.REFUSE


def test_a_person_gets_a_member_that_an_agent_had_started_with_the_rights_of_a_person() -> None:
    team = team_of(db='profile = "dummy"')
    found = running(launch_for(team.members[0]))
    found.entry.launched_by = "synapse-claude-8100"

    assert shown(steps_of(team, found)) == [("db", "restart", "an agent had started it")]
    assert shown(steps_of(team, found, by_person=False)) == [("db", "leave", "")]


def test_a_member_in_a_persons_terminal_is_not_restarted() -> None:
    team = team_of(db='profile = "dummy"')
    entry = running(launch_for(team.members[0])).entry

    (step,) = steps_of(team, Running(entry=entry, why_not="it runs in a terminal"))

    assert (step.action, step.why) == (Action.REFUSE, "it runs in a terminal")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"profile": "codex"}, "profile changed"),
        ({"folder": "/src/web"}, "folder changed"),
        ({"arguments": ("-v",)}, "arguments changed"),
        ({"port": 8105}, "port changed"),
        ({"instructions": False}, "instructions changed"),
        ({"mcp": False}, "mcp changed"),
        ({"membership": Membership(team="shop", role="x")}, "role changed"),
        ({"membership": Membership(team="shop", accepts=("person",))}, "accepts changed"),
        ({"profile": "", "script": "/src/shop/e.toml"}, "profile and script changed"),
        ({"restart": "never", "after": ("x",)}, ""),
    ],
)
def test_each_option_of_a_host_is_compared(changes: dict[str, Any], why: str) -> None:
    assert difference(launch_for(member(**changes)), replace(launch_for(member()), port=8100)) == why


def test_the_path_of_a_script_may_be_relative_to_the_folder_of_its_host() -> None:
    wanted = HostLaunch(verb=["scripted", "/src/shop/e.toml"], folder="/src/shop")

    assert difference(wanted, replace(wanted, verb=["scripted", "e.toml"])) == ""
    assert difference(wanted, replace(wanted, verb=["scripted", "f.toml"])) == "script changed"
