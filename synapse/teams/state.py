"""The teams that are up, in files of the state folder.

    teams/NAME.json            the team: its file, and how each of its agents is started; written under the team's lock
    teams/locks/NAME.lock      held while `synapse up`, `synapse down` or the keeper changes the team
    teams/keepers/NAME.json    the process of the keeper
    teams/keepers/NAME.lock    held by the keeper as long as it lives: a team has at most one

A lock file is never deleted, so that two processes never lock two files of one name.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import select
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from synapse.config.private_files import make_private, write_private
from synapse.core.agent import AgentEntry
from synapse.core.errors import Conflict
from synapse.core.json_text import decode_object, objects_in
from synapse.core.types import Clock
from synapse.host.background import HostLaunch
from synapse.host.membership import Membership
from synapse.registry.files import is_running
from synapse.teams.file import RestartRule

FOLDER: Final = "teams"
LOCK_SECONDS: Final = 60.0
"""How long a command waits for another one that changes the team: longer than an agent takes to start."""
LOCK_TICK: Final = 0.05
_SUFFIX: Final = ".json"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord:
    """An agent of a team that is up: how to start it, its last process, and what the keeper did about it."""

    launch: HostLaunch
    restart: RestartRule = RestartRule.ON_FAILURE
    agent_id: str = ""
    pid: int = 0
    """The process of its host; 0 if it has not started."""
    pid_started: int = 0
    restarts: int = 0
    """How often the keeper has started it again."""
    problem: str = ""
    """Why it is not running: it could not start, or the keeper has given up."""

    @property
    def name(self) -> str:
        return self.launch.name

    @property
    def process(self) -> tuple[int, int]:
        return self.pid, self.pid_started

    def run_by(self, entry: AgentEntry) -> MemberRecord:
        """Returns the record with the process of a running host."""
        return replace(self, agent_id=entry.agent_id, pid=entry.pid, pid_started=entry.pid_started, problem="")


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamRecord:
    """A team that is up. `members` are in the order of their starts."""

    name: str
    file: str
    members: tuple[MemberRecord, ...] = ()

    def member(self, name: str) -> MemberRecord | None:
        return next((member for member in self.members if member.name == name), None)

    def with_member(self, changed: MemberRecord) -> TeamRecord:
        """Returns the team with the member of that name replaced."""
        members = tuple(changed if member.name == changed.name else member for member in self.members)
        return replace(self, members=members)

    @property
    def needs_keeper(self) -> bool:
        return any(member.restart is not RestartRule.NEVER for member in self.members)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperRecord:
    """The process of a keeper; `foreground`: it is a service, and stops its agents when it is stopped."""

    pid: int
    pid_started: int
    foreground: bool
    launched_by: str = ""
    """The agent that started it: what it starts has only the rights of an agent."""

    @property
    def is_running(self) -> bool:
        return is_running(self.pid, self.pid_started)


class TeamStore:
    """The files of the teams in the state folder `home`."""

    def __init__(self, home: Path) -> None:
        self._folder = home / FOLDER

    def read(self, team: str) -> TeamRecord | None:
        """Returns a team that is up; None also if its file is damaged."""
        return _team_in(self._folder / f"{team}{_SUFFIX}")

    def teams(self) -> list[TeamRecord]:
        """Returns the teams that are up, by name."""
        read = (_team_in(path) for path in sorted(self._folder.glob(f"*{_SUFFIX}")))
        return [team for team in read if team is not None]

    def write(self, team: TeamRecord) -> None:
        """Writes a team atomically. Raises OSError."""
        fields = {"team": team.name, "file": team.file, "members": [_fields_of(one) for one in team.members]}
        self._replace(self._folder / f"{team.name}{_SUFFIX}", fields)

    def remove(self, team: str) -> None:
        """Removes a team that is down."""
        (self._folder / f"{team}{_SUFFIX}").unlink(missing_ok=True)
        (self._folder / "keepers" / f"{team}{_SUFFIX}").unlink(missing_ok=True)

    def keeper(self, team: str) -> KeeperRecord | None:
        """Returns the running keeper of a team."""
        try:
            fields = decode_object((self._folder / "keepers" / f"{team}{_SUFFIX}").read_bytes())
            record = KeeperRecord(
                pid=_whole(fields, "pid"),
                pid_started=_whole(fields, "pid_started"),
                foreground=fields.get("foreground") is True,
                launched_by=str(fields.get("launched_by") or ""),
            )
        except (OSError, ValueError, KeyError):
            return None
        return record if record.is_running else None

    def write_keeper(self, team: str, keeper: KeeperRecord) -> None:
        """Writes the process of the keeper, which holds the keeper's lock. Raises OSError."""
        self._replace(self._folder / "keepers" / f"{team}{_SUFFIX}", asdict(keeper))

    @contextmanager
    def lock(self, team: str, clock: Clock) -> Generator[None]:
        """Holds the team's lock; waits for it.

        Raises:
            Conflict: another process holds it for too long.
        """
        deadline = clock.monotonic() + LOCK_SECONDS
        while True:
            with self.try_lock(team) as is_held:
                if is_held:
                    yield
                    return
            if clock.monotonic() > deadline:
                raise Conflict(
                    f"another command has been changing the team '{team}' for {LOCK_SECONDS:.0f} s",
                    hint="wait for the other `synapse up` or `synapse down`, or end it",
                )
            select.select([], [], [], LOCK_TICK)

    @contextmanager
    def try_lock(self, team: str) -> Generator[bool]:
        """Holds the team's lock if it is free; yields whether it is held."""
        with self._flock(self._folder / "locks" / f"{team}.lock") as is_held:
            yield is_held

    @contextmanager
    def try_keep(self, team: str) -> Generator[bool]:
        """Holds the keeper's lock if it is free; yields whether it is held."""
        with self._flock(self._folder / "keepers" / f"{team}.lock") as is_held:
            yield is_held

    @contextmanager
    def _flock(self, path: Path) -> Generator[bool]:
        make_private(path.parent)
        # Not inherited by hosts, which would hold it as long as they live.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise
                yield False
                return
            yield True
        finally:
            os.close(descriptor)

    def _replace(self, path: Path, fields: Mapping[str, Any]) -> None:
        make_private(path.parent)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        write_private(draft, json.dumps(fields) + "\n")
        draft.replace(path)


def _team_in(path: Path) -> TeamRecord | None:
    try:
        fields = decode_object(path.read_bytes())
        name = str(fields["team"])
        if path.name != f"{name}{_SUFFIX}":
            return None
        members = tuple(_member_in(one, name) for one in objects_in(fields, "members"))
        return TeamRecord(name=name, file=str(fields["file"]), members=members)
    except (OSError, ValueError, KeyError):
        return None


def _fields_of(member: MemberRecord) -> dict[str, Any]:
    launch = member.launch
    return {
        "name": launch.name,
        "verb": list(launch.verb),
        "port": launch.port,
        "instructions": launch.instructions,
        "mcp": launch.mcp,
        "arguments": list(launch.arguments),
        "folder": launch.folder,
        "role": launch.membership.role,
        "accepts": list(launch.membership.accepts),
        "restart": member.restart.value,
        "agent_id": member.agent_id,
        "pid": member.pid,
        "pid_started": member.pid_started,
        "restarts": member.restarts,
        "problem": member.problem,
    }


def _member_in(fields: Mapping[str, Any], team: str) -> MemberRecord:
    """Raises KeyError or ValueError for fields that this version did not write."""
    port = fields["port"]
    launch = HostLaunch(
        verb=tuple(str(word) for word in fields["verb"]),
        name=str(fields["name"]),
        port=None if port is None else int(port),
        instructions=fields["instructions"] is True,
        mcp=fields["mcp"] is True,
        arguments=tuple(str(word) for word in fields["arguments"]),
        folder=str(fields["folder"]),
        membership=Membership(
            role=str(fields["role"]), team=team, accepts=tuple(str(one) for one in fields["accepts"])
        ),
    )
    return MemberRecord(
        launch=launch,
        restart=RestartRule(str(fields["restart"])),
        agent_id=str(fields["agent_id"]),
        pid=_whole(fields, "pid"),
        pid_started=_whole(fields, "pid_started"),
        restarts=_whole(fields, "restarts"),
        problem=str(fields["problem"]),
    )


def _whole(fields: Mapping[str, Any], key: str) -> int:
    return int(str(fields[key]))
