"""A registry with agents that the test names."""

from __future__ import annotations

from synapse.core.agent import AgentEntry


class ListedAgents:
    """Implements CachedRegistry; `latest` may be changed by the test."""

    def __init__(self, *entries: AgentEntry) -> None:
        self.latest = entries

    async def agents(self) -> tuple[AgentEntry, ...]:
        return self.latest

    async def find(self, agent_id: str) -> AgentEntry | None:
        return next((one for one in self.latest if one.agent_id == agent_id), None)

    async def publish(self, entry: AgentEntry) -> None:
        self.latest = (*self.latest, entry)

    async def withdraw(self, agent_id: str) -> None:
        self.latest = tuple(one for one in self.latest if one.agent_id != agent_id)

    def is_fresh(self) -> bool:
        return True

    def recheck(self) -> None:
        """Nothing is cached."""
