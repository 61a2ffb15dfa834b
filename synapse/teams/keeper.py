"""Keeps the agents of a team running: starts those that crashed again, as the rule of each says.

    how its host ended                       on-failure   always   never
    stopped by a person or a command         no           no       no
    another process took over its inbox      no           no       no
    its program ended with status 0          no           yes      no
    its program ended otherwise              yes          yes      no
    without a record: it was killed          yes          yes      no

Each quick end makes the pause before the next start longer; after GIVE_UP_AFTER of them in a row the keeper leaves the
agent to a person. The keeper reads the team's record, never its file: it starts what a person has approved.
"""

from __future__ import annotations

import logging
import os
import select
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from synapse.core.agent import AgentEntry
from synapse.core.errors import SynapseError
from synapse.core.types import Clock
from synapse.host.background import LAUNCHED_BY, HostLaunch
from synapse.host.ends import STEADY_SECONDS, EndReason, HostEnd, pause_after, read_end
from synapse.registry.files import FileRegistry, is_running, own_start_time
from synapse.teams.file import RestartRule
from synapse.teams.state import KeeperRecord, MemberRecord, TeamStore

log = logging.getLogger(__name__)

GIVE_UP_AFTER: Final = 5
"""The number of quick ends in a row after which an agent is not started again."""
GIVEN_UP: Final = "given up"
"""The beginning of the problem of an agent that the keeper no longer starts."""
WATCH_SECONDS: Final = 1.0
StartHost = Callable[[HostLaunch], AgentEntry]


def starts_again(rule: RestartRule, end: HostEnd | None) -> bool:
    """Returns whether an agent that ended so is started again; None: its host left no record."""
    if rule is RestartRule.NEVER:
        return False
    if end is None:
        return True
    if end.reason is not EndReason.ENDED:
        return False
    return rule is RestartRule.ALWAYS or end.status != 0


@dataclass(slots=True)
class _Watch:
    """What a keeper knows of one agent."""

    process: tuple[int, int] = (0, 0)
    since: float = 0.0
    """When the keeper first saw the process."""
    quick_ends: int = 0
    has_ended: bool = False
    """The end of the process was judged."""
    due: float | None = None
    """When to start it again."""


class TeamKeeper:
    """Keeps one team. `look` is called again and again, by `run`, until the team is down."""

    def __init__(self, team: str, home: Path, store: TeamStore, registry: FileRegistry, clock: Clock, start: StartHost):
        self._team = team
        self._home = home
        self._store = store
        self._registry = registry
        self._clock = clock
        self._start = start
        self._watches: dict[str, _Watch] = {}
        self.started: set[str] = set()
        """The names of the agents that this keeper has started."""

    def run(self, *, foreground: bool = False, begin: Callable[[], bool] = lambda: True) -> bool:
        """Keeps the team until it is down, or needs no keeper; returns False at once if it has a keeper already.

        Calls `begin` first, as the team's only keeper; if that returns False, there is nothing to keep.
        """
        with self._store.try_keep(self._team) as is_held:
            if not is_held:
                return False
            me = KeeperRecord(
                pid=os.getpid(),
                pid_started=own_start_time(),
                foreground=foreground,
                launched_by=os.environ.get(LAUNCHED_BY, ""),
            )
            self._store.write_keeper(self._team, me)
            log.info("keeper_started", extra={"team": self._team})
            is_kept = begin()
            while is_kept and self.look(stays=foreground):
                select.select([], [], [], WATCH_SECONDS)
            log.info("keeper_stopped", extra={"team": self._team})
        return True

    def look(self, *, stays: bool = False) -> bool:
        """Looks at each agent once; returns whether there is more to keep. With `stays`, as long as the team is up."""
        with self._store.try_lock(self._team) as is_held:
            if not is_held:
                return True  # `synapse up` or `synapse down` is at work
            team = self._store.read(self._team)
            if team is None or not (team.needs_keeper or stays):
                return False
            entries = [one for one in self._registry.entries() if one.team == self._team]
            for member in team.members:
                entry = next((one for one in entries if one.name == member.name), None)
                changed = self._look_at(member, entry)
                if changed != member:
                    team = team.with_member(changed)
                    self._store.write(team)
        return True

    def _look_at(self, member: MemberRecord, entry: AgentEntry | None) -> MemberRecord:
        """Returns the member's record as it is after a look, and perhaps a start."""
        now = self._clock.monotonic()
        if entry is not None and member.process != (entry.pid, entry.pid_started):
            # A person has restarted it.
            member = member.run_by(entry)
        watch = self._watches.setdefault(member.name, _Watch())
        if watch.process != member.process:
            self._watches[member.name] = watch = _Watch(process=member.process, since=now)
        if not member.pid or entry is not None or is_running(*member.process):
            return member
        if not watch.has_ended:
            member = self._judge(member, watch, now)
        if watch.due is not None and now >= watch.due:
            # A person may have stopped it since it ended.
            if starts_again(member.restart, read_end(self._home, member.agent_id, *member.process)):
                return self._start_again(member, watch)
            watch.due = None
        return member

    def _judge(self, member: MemberRecord, watch: _Watch, now: float) -> MemberRecord:
        watch.has_ended = True
        end = read_end(self._home, member.agent_id, *member.process)
        again = starts_again(member.restart, end)
        facts = {
            "agent": member.name,
            "reason": end.reason if end else "crashed",
            "status": end.status if end else None,
        }
        log.warning("agent_ended", extra={**facts, "lived": round(now - watch.since, 1), "starts_again": again})
        return self._delay(member, watch, quick=now - watch.since < STEADY_SECONDS) if again else member

    def _delay(self, member: MemberRecord, watch: _Watch, *, quick: bool, problem: str = "") -> MemberRecord:
        """Decides when the next start is due, or gives up."""
        watch.quick_ends = watch.quick_ends + 1 if quick else 0
        if watch.quick_ends >= GIVE_UP_AFTER:
            watch.due = None
            log.error("agent_given_up", extra={"agent": member.name, "quick_ends": watch.quick_ends})
            why = f": {problem}" if problem else ""
            return replace(member, problem=f"{GIVEN_UP} after {watch.quick_ends} quick ends{why}")
        watch.due = self._clock.monotonic() + pause_after(watch.quick_ends)
        return member

    def _start_again(self, member: MemberRecord, watch: _Watch) -> MemberRecord:
        member = replace(member, restarts=member.restarts + 1)
        try:
            entry = self._start(replace(member.launch, resume=True))
        except (SynapseError, OSError) as error:
            log.warning("agent_not_started", extra={"agent": member.name, "error": str(error)})
            return self._delay(member, watch, quick=True, problem=str(error))
        log.info("agent_started", extra={"agent": member.name, "pid": entry.pid, "restarts": member.restarts})
        self.started.add(member.name)
        member = member.run_by(entry)
        self._watches[member.name] = _Watch(
            process=member.process, since=self._clock.monotonic(), quick_ends=watch.quick_ends
        )
        return member
