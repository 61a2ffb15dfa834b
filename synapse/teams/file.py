"""Reads a team file strictly: the agents of a team, and how each is started.

    [team]
    name = "shop"                      # default: the name of the folder

    [agents.lead]                      # the key is the agent's name
    profile = "claude"                 # or: script = "lead.toml", for a scripted agent
    folder = "."                       # relative to the project; for a file elsewhere, to its folder
    role = "You plan and hand out work."
    arguments = ["--model", "opus"]
    worktree = true                    # or the name of a branch
    accepts = ["person", "team"]       # who may send messages to it; default: everybody
    after = ["db"]                     # starts after these
    start = true                       # false: only by its name
    restart = "on-failure"             # or "always", "never"
    port = 8105
    instructions = true
    mcp = true

Everything here is pure: the bytes that a person approved are the bytes that are parsed.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, cast

from synapse.core.address import nearest
from synapse.core.errors import InvalidRequest, InvalidSettings
from synapse.core.tables import Table, Wording, shortened
from synapse.host.identity import NAME_RULE, SCRIPTED, is_name
from synapse.host.membership import Membership, new_membership
from synapse.tasks.senders import check_accepts

FILE: Final = "team.toml"
MAX_AGENTS: Final = 100
LAST_PORT: Final = 65535
_HINT: Final = "docs/howto/teams.md explains every key"
EXAMPLE: Final = """\
# A team of agents. `synapse up` starts what is not running, and changes only what differs.
# Each table under [agents] is an agent; the table's name is the agent's name.

[team]
# name = "shop"                  # default: the name of the folder

[agents.lead]
profile = "claude"               # `synapse doctor` lists the profiles
role = "You plan the work, hand it out to the others, and review what they did."
# folder = "."                   # relative to the project; for a file elsewhere, to its folder
# arguments = ["--model", "opus"]  # the arguments of the CLI itself
# accepts = ["person", "team"]   # who may send messages to it; default: everybody

[agents.coder]
profile = "codex"
role = "You write the code that lead asks for, with tests."
# worktree = true                # work in a git worktree of its own; or the name of a branch
after = ["lead"]                 # start after lead accepts messages
restart = "on-failure"           # or "always", "never": whether to start it again when it ends
# start = false                  # start it only by its name: synapse up coder
# port = 8125                    # default: the next free one
# instructions = false           # do not give it the initial instructions
# mcp = false                    # do not give its model the tools to send and reply

# [agents.echo]
# script = "echo.toml"           # an agent that plays a script (docs/howto/scripted-agents.md)
"""


class RestartRule(StrEnum):
    """When an agent that has ended is started again. One that was stopped is never started again."""

    ON_FAILURE = "on-failure"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """An agent of a team, as its table says."""

    name: str
    profile: str = ""
    script: str = ""
    """The absolute path of its script; it has a profile or a script."""
    folder: str = ""
    """The absolute path of the folder that it works in, or whose repository its worktree is of."""
    membership: Membership
    arguments: tuple[str, ...] = ()
    worktree: bool = False
    branch: str = ""
    """The branch of its worktree; empty for the default one."""
    after: tuple[str, ...] = ()
    start: bool = True
    restart: RestartRule = RestartRule.ON_FAILURE
    port: int | None = None
    instructions: bool = True
    mcp: bool = True

    @property
    def agent_type(self) -> str:
        return self.profile or SCRIPTED

    @property
    def verb(self) -> tuple[str, ...]:
        """The first words of its host's command line."""
        return (self.profile,) if self.profile else (SCRIPTED, self.script)


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """The content of a team file. `members` are in the order of their starts."""

    name: str
    file: Path
    members: tuple[Member, ...]

    @property
    def names(self) -> list[str]:
        return [member.name for member in self.members]

    def chosen(self, names: Collection[str]) -> tuple[Member, ...]:
        """Returns the named members and those that they start after; all that start by themselves without names.

        Raises InvalidRequest for a name that is not in the file.
        """
        if not names:
            return tuple(member for member in self.members if member.start)
        by_name = {member.name: member for member in self.members}
        for name in names:
            if name not in by_name:
                meant = nearest(name, self.names)
                raise InvalidRequest(
                    f"there is no agent '{name}' in {self.file}",
                    hint=f"did you mean '{meant}'?" if meant else f"it has {', '.join(self.names)}",
                )
        wanted: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in wanted:
                wanted.add(name)
                waiting += by_name[name].after
        return tuple(member for member in self.members if member.name in wanted)


def parse_team(content: bytes, file: Path, folder: Path) -> Team:
    """Returns the team that a file's content describes; relative paths in it start at `folder`.

    Raises InvalidSettings, which names the file, the table, the key, and what is allowed.
    """
    try:
        tables = tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidSettings(f"{file} is not TOML: {error}") from error
    top = _table(tables, str(file))
    about = _table(top.value("team", {}), f"{file}: [team]")
    name = about.text("name", _name_from(folder))
    if not is_name(name):
        raise InvalidSettings(f"{file}: [team]: '{name}' cannot be a team's name", hint=f"name = …: {NAME_RULE}")
    about.done()
    agents = _table(top.value("agents", {}), f"{file}: [agents]")
    top.done()
    named = dict(_members(agents, team=name, folder=folder))
    if not named:
        raise InvalidSettings(f"{file} has no agents", hint="write a table for each, as [agents.lead]")
    if len(named) > MAX_AGENTS:
        raise InvalidSettings(f"{file} has {len(named)} agents", hint=f"a team may have {MAX_AGENTS}")
    return Team(name=name, file=file, members=tuple(_in_order(named, file)))


def _members(agents: Table, *, team: str, folder: Path) -> Iterator[tuple[str, Member]]:
    names = list(agents)
    for name in names:
        table = _table(agents.value(name), f"{agents.where.removesuffix('[agents]')}[agents.{name}]")
        if not is_name(name):
            raise InvalidSettings(f"{table.where}: '{name}' cannot be an agent's name", hint=NAME_RULE)
        yield name, _member(table, name, names, team=team, folder=folder)


def _member(table: Table, name: str, names: Sequence[str], *, team: str, folder: Path) -> Member:
    profile, script = _program(table)
    worktree = table.value("worktree", default=False)
    if not isinstance(worktree, bool | str) or worktree == "":
        table.refuse("worktree", "must be true, false, or the name of a branch", worktree)
    restart = table.text("restart", RestartRule.ON_FAILURE)
    if restart not in list(RestartRule):
        table.refuse("restart", f"must be one of {', '.join(RestartRule)}", restart)
    try:
        check_accepts(table.texts("accepts"), names)
        membership = new_membership(table.text("role"), team, table.texts("accepts"))
    except InvalidRequest as error:
        raise InvalidSettings(f"{table.where}: {error}", hint=error.hint) from error
    member = Member(
        name=name,
        profile=profile,
        script=_absolute(script, folder) if script else "",
        folder=_absolute(table.text("folder", "."), folder),
        membership=membership,
        arguments=table.texts("arguments"),
        worktree=bool(worktree),
        branch=worktree if isinstance(worktree, str) else "",
        after=_after(table, name, names),
        start=table.flag("start", default=True),
        restart=RestartRule(restart),
        port=_port(table),
        instructions=table.flag("instructions", default=True),
        mcp=table.flag("mcp", default=True),
    )
    table.done()
    return member


def _program(table: Table) -> tuple[str, str]:
    """Returns the profile or the script of an agent; the other one is empty."""
    profile, script = table.text("profile"), table.text("script")
    if bool(profile) == bool(script):
        raise InvalidSettings(
            f"{table.where} has {'a profile and a script' if profile else 'no profile'}",
            hint='write profile = "claude", or script = FILE for a scripted agent',
        )
    if script:
        for key in ("arguments", "instructions", "mcp", "worktree"):
            table.forbid(key, "a scripted agent runs no program")
    return profile, script


def _port(table: Table) -> int | None:
    port = table.value("port")
    if port is None or (isinstance(port, int) and not isinstance(port, bool) and 0 < port <= LAST_PORT):
        return port
    return table.refuse("port", f"must be a port from 1 to {LAST_PORT}", port)


def _after(table: Table, name: str, names: Sequence[str]) -> tuple[str, ...]:
    after = table.texts("after")
    for other in after:
        if other == name or other not in names:
            meant = nearest(other, [one for one in names if one != name])
            what = "itself" if other == name else f"'{other}', which is not in this file"
            raise InvalidSettings(
                f"{table.where}: `after` names {what}",
                hint=f"did you mean '{meant}'?" if meant else "name other agents of this file",
            )
    return after


def _in_order(named: Mapping[str, Member], file: Path) -> Iterator[Member]:
    """Yields each member after those that it starts after, otherwise in the order of the file.

    Raises InvalidSettings for members that wait for each other.
    """
    left = dict(named)
    while left:
        ready = [member for member in left.values() if not any(other in left for other in member.after)]
        if not ready:
            raise InvalidSettings(
                f"{file}: agents start after each other: {' → '.join(_cycle(left))}", hint="remove one `after`"
            )
        yield ready[0]
        del left[ready[0].name]


def _cycle(waiting: Mapping[str, Member]) -> list[str]:
    """Returns the names of members that wait for each other, the first one again at the end."""
    path = [next(iter(waiting))]
    while True:
        path.append(next(name for name in waiting[path[-1]].after if name in waiting))
        if path[-1] in path[:-1]:
            return path[path.index(path[-1]) :]


def _name_from(folder: Path) -> str:
    """Returns the folder's name with each character that a name cannot have replaced."""
    allowed = (letter if is_name(f"a{letter}a") else "-" for letter in folder.name)
    return "".join(allowed).lstrip("-.")[:40] or "team"


def _absolute(path: str, folder: Path) -> str:
    return os.path.normpath(folder / Path(path).expanduser())


def _table(value: object, where: str) -> Table:
    if not isinstance(value, Mapping):
        raise InvalidSettings(f"{where} must be a table, not {shortened(value)}", hint=_HINT)
    return Table(cast("Mapping[str, Any]", value), where, _WORDING)


def _suggest(unknown: Sequence[str], known: Collection[str]) -> str:
    meant = nearest(unknown[0], sorted(known))
    return f"did you mean `{meant}`?" if meant else f"known here: {', '.join(sorted(known))}"


_WORDING: Final = Wording(
    error=InvalidSettings,
    key="`{}`",
    text="must be a text",
    found=lambda value: f", not {shortened(value)}",
    suggest=_suggest,
    hint=_HINT,
)
