"""The agents of other machines for the overview, from this machine's link. Without a fleet there are none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Any

from synapse.client.link import find_remote, fleet_agents, is_in_fleet, not_asked
from synapse.core.agent import AgentEntry
from synapse.core.errors import SynapseError
from synapse.core.message import Json
from synapse.registry.files import FileRegistry

if TYPE_CHECKING:
    from synapse.top.follower import WatchStatus


def missing(away: list[dict[str, Any]], error: SynapseError | None, now: datetime) -> list[str]:
    """Returns why agents of other machines are not shown: machines that are away, or a link that does not answer."""
    if error is not None:
        hint = f"  ({error.hint})" if error.hint else ""
        return [f"The agents of other machines are not shown: {error}{hint}"]
    return not_asked(away, now)


class RemoteEntries:
    """Lists the agents of other machines, and follows them through their proxy sockets."""

    def __init__(self, home: str, registry: FileRegistry) -> None:
        self._home = home
        self._registry = registry
        self._known: dict[str, AgentEntry] = {}
        self._away: list[dict[str, Any]] = []
        self._error: SynapseError | None = None

    def missing(self, now: datetime) -> list[str]:
        """Returns why agents of other machines are not in the list, as `entries` has found it last."""
        return missing(self._away, self._error, now)

    def entries(self) -> list[AgentEntry]:
        """Returns the agents of all present machines; none while the link does not answer. It blocks.

        An agent is the same object while it runs: its proxy socket, once opened, is kept in it.
        """
        if not is_in_fleet(self._home):
            return []
        try:
            found, machines = fleet_agents(self._home)
        except SynapseError as error:
            self._away, self._error = [], error
            return []
        self._away, self._error = [one for one in machines if one.get("present") is False], None
        known, self._known = self._known, {}
        for entry, _ in found:
            before = known.get(entry.agent_id)
            is_same = before is not None and before.started_at == entry.started_at
            self._known[entry.agent_id] = before if before is not None and is_same else entry
        return list(self._known.values())

    def watching(self, watch_status: WatchStatus) -> WatchStatus:
        """Returns `watch_status` for agents of this machine and of others."""

        async def watch(entry: AgentEntry) -> AsyncGenerator[Json, None]:
            if self._known.get(entry.agent_id) is entry:
                # Again for each try: the link may have closed the socket, or been restarted.
                proxy = await asyncio.to_thread(find_remote, entry.name, self._registry)
                entry.socket = proxy.socket
            async with aclosing(watch_status(entry)) as statuses:
                async for status in statuses:
                    yield status

        return watch
