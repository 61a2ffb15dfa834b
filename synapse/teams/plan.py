"""Decides what `synapse up` does with each agent of a team. Pure: a file and the running agents become a list of steps.

in the file   running                         step
yes           no                              start
yes           as the file says                leave
yes           with other options              restart, because of the first option that differs
yes           but not of this team            refuse: it is a person's own agent
no            of this team                    stop
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from synapse.core.agent import AgentEntry
from synapse.host.background import HostLaunch
from synapse.teams.file import Member, Team


class Action(StrEnum):
    """What to do with an agent."""

    START = "start"
    RESTART = "restart"
    LEAVE = "leave"
    STOP = "stop"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A running agent: its entry, and how it was launched. `why_not` says why that is unknown, as in a terminal."""

    entry: AgentEntry
    launch: HostLaunch | None = None
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What to do with one agent, and why."""

    action: Action
    name: str
    member: Member | None = None
    launch: HostLaunch | None = None
    """How to start it."""
    running: Running | None = None
    why: str = ""


def launch_for(member: Member, folder: str = "") -> HostLaunch:
    """Returns how a member's host is started; in `folder`, if it has a worktree there."""
    return HostLaunch(
        verb=member.verb,
        name=member.name,
        port=member.port,
        instructions=member.instructions,
        mcp=member.mcp,
        arguments=member.arguments,
        folder=folder or member.folder,
        membership=member.membership,
    )


def plan(
    team: Team, wanted: Sequence[tuple[Member, HostLaunch]], running: Sequence[Running], *, whole: bool, by_person: bool
) -> list[Step]:
    """Returns the steps, in the order in which to take them.

    `wanted` are the members to bring up, with their launches. With `whole`, agents of the team that the file no longer
    names are stopped, before others start. `by_person`: a person asks for it, not an agent.
    """
    steps = [_step(member, launch, team, running, by_person=by_person) for member, launch in wanted]
    if whole:
        gone = [one for one in running if one.entry.team == team.name and one.entry.name not in team.names]
        why = "it is no longer in the file"
        steps = [*(Step(action=Action.STOP, name=one.entry.name, running=one, why=why) for one in gone), *steps]
    return steps


def _step(member: Member, launch: HostLaunch, team: Team, running: Sequence[Running], *, by_person: bool) -> Step:
    mine = next((one for one in running if (one.entry.name, one.entry.team) == (member.name, team.name)), None)
    if mine is not None:
        why = mine.why_not or (difference(launch, mine.launch) if mine.launch else "")
        if by_person and mine.entry.launched_by:
            why = why or "an agent had started it"
        action = Action.REFUSE if mine.why_not else Action.RESTART if why else Action.LEAVE
        return Step(action=action, name=member.name, member=member, launch=launch, running=mine, why=why)
    # An agent that is named like its profile shares the name with others of that profile.
    shared = member.name == member.agent_type
    other = next(
        (
            one
            for one in running
            if one.entry.name == member.name and (not shared or one.entry.working_dir == launch.folder)
        ),
        None,
    )
    if other is None:
        return Step(action=Action.START, name=member.name, member=member, launch=launch)
    of = f"the team '{other.entry.team}'" if other.entry.team else "no team"
    return Step(
        action=Action.REFUSE,
        name=member.name,
        member=member,
        running=other,
        why=f"{other.entry.agent_id} goes by that name already, and belongs to {of}",
    )


def difference(wanted: HostLaunch, found: HostLaunch) -> str:
    """Returns in what a running host differs from the file, by the keys of the file; empty if it does not."""
    changed = [key for key, new, old in _values(wanted, found) if new != old]
    return f"{' and '.join(changed)} changed" if changed else ""


def _values(wanted: HostLaunch, found: HostLaunch) -> Iterator[tuple[str, object, object]]:
    """Yields each key of the file that a running host can be compared in, with the wanted and the found value."""
    yield "profile", wanted.verb[0], found.verb[0]
    yield "script", _paths(wanted.verb[1:], wanted.folder), _paths(found.verb[1:], found.folder)
    yield "folder", os.path.realpath(wanted.folder or "."), os.path.realpath(found.folder or ".")
    yield "arguments", list(wanted.arguments), list(found.arguments)
    yield "role", wanted.membership.role, found.membership.role
    yield "accepts", wanted.membership.accepts, found.membership.accepts
    # Without a port in the file each port is right.
    yield "port", wanted.port, found.port if wanted.port else None
    yield "instructions", wanted.instructions, found.instructions
    yield "mcp", wanted.mcp, found.mcp


def _paths(paths: Sequence[str], folder: str | None) -> list[str]:
    return [os.path.realpath(Path(folder or ".") / path) for path in paths]
