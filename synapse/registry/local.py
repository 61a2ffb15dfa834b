"""The agents of this machine for code that runs in an event loop: a `FileRegistry`, read and written in a thread.

The entries are cached until the folder changes, and for FRESH_SECONDS at most: a host that was killed leaves its file.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from synapse.core.agent import AgentEntry
from synapse.core.errors import RegistryFailed
from synapse.core.registry import CachedRegistry
from synapse.registry.files import FileRegistry

FRESH_SECONDS: Final = 1.0
"""How long the cache takes a host for alive without checking again."""
_TICK_NS: Final = 20_000_000
"""File systems count time in ticks of up to 10 ms: two changes within one tick have the same modification time."""

T = TypeVar("T")


def open_local_registry(folder: str | Path, monotonic: Callable[[], float]) -> CachedRegistry:
    """Returns the registry in `folder`, which need not exist yet."""
    return LocalRegistry(FileRegistry(folder), monotonic)


class _Read(NamedTuple):
    """The result of one read, and what decides how long it is fresh."""

    agents: tuple[AgentEntry, ...]
    modified_at: int
    """Modification time of the folder, before the read."""
    is_certain: bool
    """False when the folder may have changed after the read without a new modification time."""
    at: float


_NEVER: Final = _Read((), 0, is_certain=False, at=float("-inf"))


class LocalRegistry:
    """Implements `core.registry.CachedRegistry`. One thread does all file access, in the order of the calls.

    Raises RegistryFailed for every OSError: a folder that cannot be read for a while must not end the process.
    """

    def __init__(self, files: FileRegistry, monotonic: Callable[[], float]) -> None:
        self._files = files
        self._monotonic = monotonic
        # Its own thread: an earlier write of an entry must not overtake its withdrawal.
        self._thread = ThreadPoolExecutor(1, "registry")
        self._last = _NEVER
        self._reading: asyncio.Future[_Read] | None = None

    @property
    def latest(self) -> tuple[AgentEntry, ...]:
        """The agents of the last read, for code that cannot wait."""
        return self._last.agents

    def is_fresh(self) -> bool:
        """Whether `agents` would return `latest` without reading the folder."""
        last = self._last
        return (
            last.is_certain
            and self._monotonic() - last.at <= FRESH_SECONDS
            and last.modified_at == _modified_at(self._files.folder)
        )

    async def agents(self) -> tuple[AgentEntry, ...]:
        """Returns the agents whose hosts are alive, by agent id. Raises RegistryFailed."""
        if self._reading is not None:
            # This read began before the call and may have missed later changes.
            with suppress(RegistryFailed):
                await asyncio.shield(self._reading)
        if self.is_fresh():
            return self._last.agents
        if self._reading is None:
            self._reading = self._run(self._read)
            self._reading.add_done_callback(self._was_read)
        # All concurrent callers share the read, so a cancelled caller must not cancel it.
        return (await asyncio.shield(self._reading)).agents

    async def find(self, agent_id: str) -> AgentEntry | None:
        """Returns the entry with exactly this id, whether its host is alive or not. Raises RegistryFailed."""
        return await self._run(partial(self._files.find, agent_id))

    async def publish(self, entry: AgentEntry) -> None:
        """Writes `entry`, so that others find the agent. Raises RegistryFailed."""
        await self._run(partial(self._files.write, entry))

    async def withdraw(self, agent_id: str) -> None:
        """Removes an entry, if there is one and it can be removed."""
        await self._run(partial(self._files.remove, agent_id))

    def recheck(self) -> None:
        """Makes the next `agents` check again whether each host is alive: one of them did not answer."""
        self._last = self._last._replace(at=float("-inf"))

    def _run(self, act: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, self._translated, act)

    def _translated(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except OSError as error:
            raise RegistryFailed(
                f"the registry {self._files.folder} cannot be used: {error.strerror or error}"
            ) from error

    def _read(self) -> _Read:
        """Reads all files and checks whether their hosts are alive. Runs in the registry's thread."""
        now, modified_at = time.time_ns(), _modified_at(self._files.folder)
        at = self._monotonic()
        agents = tuple(self._files.entries())
        self._files.notes.clear()
        return _Read(agents, modified_at, is_certain=now - modified_at > _TICK_NS, at=at)

    def _was_read(self, reading: asyncio.Future[_Read]) -> None:
        self._reading = None
        if not reading.cancelled() and reading.exception() is None:
            self._last = reading.result()


def _modified_at(folder: str) -> int:
    """Returns the folder's modification time. The kernel answers from memory, so this may run in the event loop."""
    try:
        # Runs for each request, and `Path.stat` takes half as long again.
        return os.stat(folder).st_mtime_ns  # noqa: PTH116 - see above
    except OSError:
        return 0
