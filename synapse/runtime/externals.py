"""External agents, for hosts and for the command line, which adds, lists and calls them by itself."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Final

from synapse.core.clock import Clock
from synapse.core.message import Message
from synapse.core.status import ExternalAgent, ExternalAnswer
from synapse.registries.externals import FileExternalBook
from synapse.runtime.ids import new_id
from synapse.runtime.system_clock import SystemClock
from synapse.service.externals import ExternalClient, Externals, Found

FOLDER: Final = "external"


def open_externals(home: Path) -> Externals:
    """The external agents whose files lie under the state folder `home`."""
    clock = SystemClock()
    return Externals(FileExternalBook(home / FOLDER), _LateClient(clock), clock, new_id)


class _LateClient:
    """Implements ExternalClient. The real one brings `http.client` and `ssl`; few hosts ever need it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def discover(self, url: str) -> Found:
        return await self._client.discover(url)

    async def send(self, agent: ExternalAgent, message: Message, seconds: float) -> ExternalAnswer:
        return await self._client.send(agent, message, seconds)

    @cached_property
    def _client(self) -> ExternalClient:
        from synapse.transports.a2a_client import A2AClient  # noqa: PLC0415 - see above

        return A2AClient(self._clock)
