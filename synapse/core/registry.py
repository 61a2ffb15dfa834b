"""Who is here: the registry, as the service sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from synapse.core.agent import AgentEntry


class Registry(Protocol):
    """The agents of this user and machine."""

    def entries(self) -> Sequence[AgentEntry]:
        """The agents whose hosts live; entries of dead hosts are removed on the way."""
        ...

    def write(self, entry: AgentEntry) -> None: ...

    def remove(self, agent_id: str) -> None: ...
