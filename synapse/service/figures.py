"""Takes the figures of a gateway: from its directory, the store and the log. Nothing is counted while nobody asks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from synapse.core.access_errors import Forbidden
from synapse.core.caller import Caller
from synapse.core.figures import Figures
from synapse.core.push import PushStore
from synapse.core.store import TaskQuery
from synapse.core.task import TaskState
from synapse.service.delivery_times import DeliveryTimes
from synapse.service.gateway_directory import GatewayAgent, GatewayDirectory
from synapse.service.store_tail import TailedStore

_WAITING: Final = frozenset({TaskState.SUBMITTED})
_WORKING: Final = frozenset({TaskState.WORKING})


class FigureTaker:
    """Counts."""

    def __init__(self, directory: GatewayDirectory, store: TailedStore, pushes: PushStore) -> None:
        self._directory = directory
        self._store = store
        self._pushes = pushes
        self._times = DeliveryTimes(store)
        self._taking = asyncio.Lock()

    async def take(self, caller: Caller) -> Figures:
        """The figures now.

        Raises:
            Forbidden: the caller is one for some agents only, and these figures are about all.
            StoreFailed: they cannot be read.
        """
        if caller.agents is not None:
            raise Forbidden(
                "these credentials are for some agents only, and the figures are about all",
                hint="`synapse keys create NAME --actions read` makes a key for all agents",
            )
        async with self._taking:
            agents = self._directory.agents()
            states = await asyncio.gather(*(agent.state() for agent in agents))
            names = {agent.entry.agent_id: agent.name for agent in agents}
            delivered = await self._times.since_last_time()
            return Figures(
                agents=Counter(states),
                waiting=await self._tasks(agents, _WAITING),
                working=await self._tasks(agents, _WORKING),
                notifications=await self._pushes.counts(),
                delivered=tuple(replace(one, agent=names.get(one.agent, one.agent)) for one in delivered),
            )

    async def _tasks(self, agents: Sequence[GatewayAgent], states: frozenset[TaskState]) -> dict[str, int]:
        queries = (TaskQuery(inbox=agent.entry.inbox, states=states, limit=1) for agent in agents)
        pages = await asyncio.gather(*(self._store.list(query) for query in queries))
        return {agent.name: page.total for agent, page in zip(agents, pages, strict=True)}
