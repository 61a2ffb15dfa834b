"""The agents of this machine and their states, kept current for other machines to see."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Final, Protocol

from synapse.core.agent import STARTING, AgentEntry
from synapse.core.driver import AgentStatus
from synapse.core.errors import RegistryFailed, SynapseError
from synapse.core.registry import CachedRegistry
from synapse.core.waiting import pause
from synapse.link.answers import open_fields

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 2.0
"""How often the registry is looked at for agents that have come or gone."""
RETRY_SECONDS: Final = 5.0


class FollowedHosts(Protocol):
    """The part of `core.registry.HostClient` that follows states."""

    def follow_status(self, agent: AgentEntry, /) -> AsyncGenerator[AgentStatus, None]: ...


class AgentStates:
    """Follows every agent of the registry while `run` runs; calls `on_change` when one comes, goes or changes."""

    def __init__(self, registry: CachedRegistry, hosts: FollowedHosts, on_change: Callable[[], None]) -> None:
        self._registry = registry
        self._hosts = hosts
        self._on_change = on_change
        self._entries: dict[str, AgentEntry] = {}
        self._statuses: dict[str, AgentStatus] = {}
        self._following: dict[str, asyncio.Task[None]] = {}

    def rows(self) -> tuple[dict[str, Any], ...]:
        """Returns the agents as other machines list them."""
        return tuple(self._row(entry) for entry in self._entries.values())

    async def run(self) -> None:
        """Follows the agents until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    try:
                        self._look({_key(entry): entry for entry in await self._registry.agents()}, group)
                    except RegistryFailed as error:
                        log.warning("registry_not_read", extra={"error": str(error)})
                    await pause(LOOK_SECONDS)
        finally:
            self._following.clear()

    def _look(self, entries: dict[str, AgentEntry], group: asyncio.TaskGroup) -> None:
        for key in self._following.keys() - entries.keys():
            self._following.pop(key).cancel()
            self._statuses.pop(key, None)
        for key in entries.keys() - self._following.keys():
            self._following[key] = group.create_task(self._follow(key, entries[key]))
        if entries.keys() != self._entries.keys():
            self._on_change()
        self._entries = entries

    async def _follow(self, key: str, entry: AgentEntry) -> None:
        while True:
            try:
                async with aclosing(self._hosts.follow_status(entry)) as statuses:
                    async for status in statuses:
                        self._statuses[key] = status
                        self._on_change()
            except SynapseError as error:
                log.debug("agent_not_followed", extra={"agent": entry.agent_id, "error": str(error)})
            await pause(RETRY_SECONDS)

    def _row(self, entry: AgentEntry) -> dict[str, Any]:
        status = self._statuses.get(_key(entry))
        since = "" if status is None else status.since.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        state, why = (status.state, status.why) if status is not None else (STARTING, "its state is not known yet")
        return {**open_fields(entry), "state": state, "why": why, "since": since}


def _key(entry: AgentEntry) -> str:
    """Names one run of an agent."""
    return f"{entry.agent_id} {entry.started_at} {entry.pid}"
