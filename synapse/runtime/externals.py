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


def open_externals(home: Path, *, allow_private: bool = False) -> Externals:
    """The external agents whose files lie under the state folder `home`.

    `allow_private` lets those that somebody with a key has registered be at private and loopback addresses.
    """
    clock = SystemClock()
    credentials = credentials_under(home)
    client = _LateClient(clock, credentials, allow_private=allow_private)
    return Externals(book_under(home), client, clock, new_id, credentials)


def book_under(home: Path) -> FileExternalBook:
    """Who is known."""
    return FileExternalBook(home / FOLDER)


def credentials_under(home: Path) -> FileCredentials:
    """What external agents are shown."""
    return FileCredentials(home / FOLDER / CREDENTIALS)


class _LateClient:
    """Implements ExternalClient. The real one brings `http.client` and `ssl`; few hosts ever need it."""

    def __init__(self, clock: Clock, credentials: FileCredentials, *, allow_private: bool) -> None:
        self._clock = clock
        self._credentials = credentials
        self._allow_private = allow_private

    async def discover(self, url: str, credentials: Mapping[str, str], *, guarded: bool) -> Found:
        return await self._client.discover(url, credentials, guarded=guarded)

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
        from synapse.transports.external_dialing import GuardedDial  # noqa: PLC0415 - see above

        guarded = GuardedDial(allow_private=self._allow_private)
        return A2AClient(self._clock, credentials=self._credentials.find, guarded=guarded)
