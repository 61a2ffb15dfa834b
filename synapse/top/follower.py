"""Follows all agents of this machine: the registry's folder, and the stream of statuses of each host. In a fleet also
the agents of other machines, which this machine's link knows.

It needs no gateway. It keeps one row per agent and reports which rows have changed; a host that comes, goes or is
restarted is a change like any other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from synapse.client.overview import AWAY, Need, Row, in_order, row_of
from synapse.core.agent import AgentEntry
from synapse.core.errors import InternalFailure, RegistryFailed, SynapseError
from synapse.core.message import Json
from synapse.core.waiting import pause
from synapse.registry.files import FileRegistry

log = logging.getLogger(__name__)

WatchStatus = Callable[[AgentEntry], AsyncGenerator[Json, None]]
"""Yields the JSON of a host's `GET /status`, and each change of it; see `core.registry.HostClient.watch_status`."""
SeenUntil = Callable[[str], datetime | None]
"""Returns until when the person has seen the answers of an agent, by its id."""

LOOK_SECONDS: Final = 0.5
"""How often to look whether the registry's folder has changed, and whether answers were seen elsewhere."""
ALIVE_SECONDS: Final = 5.0
"""How often to read the whole registry although its folder has not changed: a killed host leaves its file."""
RETRY_SECONDS: Final = 0.5


class RowFollower:
    """Keeps the rows. `on_change` is called after each change, once for all changes of one turn of the event loop."""

    def __init__(
        self,
        registry: FileRegistry,
        watch_status: WatchStatus,
        seen_until: SeenUntil,
        on_change: Callable[[], None],
        on_new_needs: Callable[[list[Need]], None],
        remote: Callable[[], list[AgentEntry]] = list,
    ) -> None:
        """`on_new_needs` gets the needs that appeared since the rows were first complete, each need once.

        `remote` returns the agents of other machines; a thread calls it, because the link may be slow.
        """
        self._registry = registry
        self._watch_status = watch_status
        self._seen_until = seen_until
        self._on_change = on_change
        self._on_new_needs = on_new_needs
        self._remote = remote
        self._remote_entries: list[AgentEntry] = []
        self._local_entries: list[AgentEntry] = []
        self._agents: dict[str, _Followed] = {}
        self._new_needs: list[Need] = []
        self._is_reporting = False

    @property
    def rows(self) -> list[Row]:
        """The rows of all agents in the order in which people see them."""
        return in_order([agent.row for agent in self._agents.values()])

    def entry(self, agent_id: str) -> AgentEntry | None:
        """Returns the registry entry of an agent that is in the list."""
        agent = self._agents.get(agent_id)
        return agent.entry if agent else None

    async def run(self) -> None:
        """Follows until it is cancelled. Raises RegistryFailed, in a group, when the folder cannot be read."""
        modified_at, looks = -1, 0
        every = int(ALIVE_SECONDS / LOOK_SECONDS)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look_at_machines(group))
            while True:
                latest = _modified_at(self._registry.folder)
                if latest != modified_at or looks % every == 0:
                    modified_at = latest
                    self._local_entries = await self._entries()
                    self._take([*self._local_entries, *self._remote_entries], group, is_first=looks == 0)
                self._look_at_seen_marks()
                looks += 1
                await pause(LOOK_SECONDS)

    async def _look_at_machines(self, group: asyncio.TaskGroup) -> None:
        """Looks for agents of other machines now and then."""
        is_first = True
        while True:
            found = await asyncio.to_thread(self._remote)
            if found or self._remote_entries:
                self._remote_entries = found
                self._take([*self._local_entries, *found], group, is_first=is_first)
            is_first = False
            await pause(ALIVE_SECONDS)

    def look_again(self) -> None:
        """Reads the seen marks now: this process has just written one."""
        self._look_at_seen_marks()

    async def _entries(self) -> list[AgentEntry]:
        try:
            return await asyncio.to_thread(self._registry.entries)
        except OSError as error:
            why = error.strerror or error
            raise RegistryFailed(f"the registry {self._registry.folder} cannot be used: {why}") from error

    def _take(self, entries: Iterable[AgentEntry], group: asyncio.TaskGroup, *, is_first: bool) -> None:
        """Begins to follow new agents and those that were restarted, and leaves those that are gone."""
        present = {entry.agent_id: entry for entry in entries}
        known: dict[str, set[str]] = {}
        for agent_id, agent in list(self._agents.items()):
            entry = present.get(agent_id)
            if entry is None or _launch_of(entry) != _launch_of(agent.entry):
                agent.following.cancel()
                known[agent_id] = agent.known_needs
                del self._agents[agent_id]
                self._changed()
        for agent_id, entry in present.items():
            if agent_id not in self._agents:
                agent = _Followed(entry, row_of(entry, None, None), group.create_task(self._follow(agent_id)))
                # What an agent needed already when the list was opened is not news.
                agent.is_news = not is_first
                agent.known_needs = known.get(agent_id, set())
                self._agents[agent_id] = agent
                self._changed()

    async def _follow(self, agent_id: str) -> None:
        """Keeps one row current; tries again for as long as the registry has the agent."""
        while True:
            agent = self._agents[agent_id]
            try:
                async with aclosing(self._watch_status(agent.entry)) as statuses:
                    async for status in statuses:
                        self._set(agent, dict(status), None)
            except SynapseError as error:
                self._set(agent, None, error)
            except Exception:
                # A status that nobody expected must not end the overview of all the others.
                log.exception("status_not_followed", extra={"agent": agent_id})
                self._set(agent, None, InternalFailure())
            await pause(RETRY_SECONDS)

    def _set(self, agent: _Followed, status: dict[str, Any] | None, error: SynapseError | None) -> None:
        agent.status, agent.error = status, error
        agent.seen = self._seen_until(agent.entry.agent_id)
        row = row_of(agent.entry, status, agent.seen, error)
        if row == agent.row:
            return
        agent.row = row
        self._changed()
        if row["state"] != AWAY:  # a host that is away for a while takes nothing back
            if agent.is_news:
                self._new_needs += [need for need in row["needs"] if need["id"] not in agent.known_needs]
            agent.is_news = True
            agent.known_needs = {need["id"] for need in row["needs"]}

    def _look_at_seen_marks(self) -> None:
        for agent in self._agents.values():
            can_be_seen = any("seen" in need["can"] for need in agent.row["needs"])
            if can_be_seen and self._seen_until(agent.entry.agent_id) != agent.seen:
                self._set(agent, agent.status, agent.error)

    def _changed(self) -> None:
        if not self._is_reporting:
            self._is_reporting = True
            asyncio.get_running_loop().call_soon(self._report)

    def _report(self) -> None:
        self._is_reporting = False
        self._on_change()
        if self._new_needs:
            new, self._new_needs = self._new_needs, []
            self._on_new_needs(new)


class _Followed:
    """An agent, its row, and what the row was made of."""

    __slots__ = ("entry", "error", "following", "is_news", "known_needs", "row", "seen", "status")

    def __init__(self, entry: AgentEntry, row: Row, following: asyncio.Task[None]) -> None:
        self.entry = entry
        self.row = row
        self.following = following
        self.status: dict[str, Any] | None = None
        self.error: SynapseError | None = None
        self.seen: datetime | None = None
        self.is_news = True
        self.known_needs: set[str] = set()


def _launch_of(entry: AgentEntry) -> tuple[int, int, str]:
    return entry.pid, entry.pid_started, entry.socket


def _modified_at(folder: str) -> int:
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return 0
