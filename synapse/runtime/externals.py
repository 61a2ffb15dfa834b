"""External agents, for hosts and for the command line, which adds, lists and calls them by itself."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

from synapse.core.clock import Clock
from synapse.core.message import Message
from synapse.core.status import ExternalAgent, ExternalAnswer
from synapse.registries.external_credentials import FileCredentials
from synapse.registries.externals import FileExternalBook
from synapse.runtime.ids import new_id
from synapse.runtime.system_clock import SystemClock
from synapse.service.externals import ExternalClient, Externals, Found

FOLDER: Final = "external"
CREDENTIALS: Final = "credentials"


def open_externals(home: Path) -> Externals:
    """The external agents whose files lie under the state folder `home`."""
    clock = SystemClock()
    credentials = credentials_under(home)
    return Externals(FileExternalBook(home / FOLDER), _LateClient(clock, credentials), clock, new_id, credentials)


def credentials_under(home: Path) -> FileCredentials:
    """What external agents are shown."""
    return FileCredentials(home / FOLDER / CREDENTIALS)


class _LateClient:
    """Implements ExternalClient. The real one brings `http.client` and `ssl`; few hosts ever need it."""

    def __init__(self, clock: Clock, credentials: FileCredentials) -> None:
        self._clock = clock
        self._credentials = credentials

    async def discover(self, url: str, credentials: Mapping[str, str]) -> Found:
        return await self._client.discover(url, credentials)

    async def send(self, agent: ExternalAgent, message: Message, seconds: float, *, task_id: str) -> ExternalAnswer:
        return await self._client.send(agent, message, seconds, task_id=task_id)

    def stream(
        self, agent: ExternalAgent, message: Message, seconds: float, *, task_id: str
    ) -> AsyncGenerator[ExternalAnswer, None]:
        return self._client.stream(agent, message, seconds, task_id=task_id)

    async def cancel(self, agent: ExternalAgent, task_id: str, seconds: float) -> ExternalAnswer:
        return await self._client.cancel(agent, task_id, seconds)

    @cached_property
    def _client(self) -> ExternalClient:
        from synapse.transports.a2a_client import A2AClient  # noqa: PLC0415 - see above

        return A2AClient(self._clock, credentials=self._credentials.find)
