"""The agents of this machine for code that runs in an event loop: `FileRegistry`, read and written in a thread.

What was read is kept until the folder changes, and for FRESH_SECONDS at most: a host that was killed removes nothing.
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
from synapse.registry.files import FileRegistry

FRESH_SECONDS: Final = 1.0
"""How long a host that has not withdrawn its entry is believed to live."""
_TICK_NS: Final = 20_000_000
"""File systems count time in ticks of up to 10 ms: two changes within one tick leave the same time behind."""

T = TypeVar("T")


def open_registry(folder: Path, monotonic: Callable[[], float]) -> LocalRegistry:
    """Return the registry in `folder`, which need not be there yet."""
    return LocalRegistry(FileRegistry(folder), monotonic)


class _Read(NamedTuple):
    """The agents that were found, and how long that holds."""

    agents: tuple[AgentEntry, ...]
    changed: int
    """When the folder was last changed before it was read."""
    is_certain: bool
    """False when it could have changed again, unseen, after it was read."""
    at: float


_NEVER: Final = _Read((), 0, is_certain=False, at=float("-inf"))


class LocalRegistry:
    """Implements `core.registry.Registry`. One thread does what touches files, in the order in which it is asked to."""

    def __init__(self, files: FileRegistry, monotonic: Callable[[], float]) -> None:
        self.files = files
        """The same registry for code that runs in a thread."""
        self._monotonic = monotonic
        # Of its own: whoever withdraws an entry must not be overtaken by an earlier write of it.
        self._thread = ThreadPoolExecutor(1, "registry")
        self._last = _NEVER
        self._reading: asyncio.Future[_Read] | None = None

    @property
    def latest(self) -> tuple[AgentEntry, ...]:
        """The agents as they were last read, for code that cannot wait."""
        return self._last.agents

    def is_fresh(self) -> bool:
        """Whether `latest` is what `agents` would return, so that nobody has to wait for it."""
        last = self._last
        return (
            last.is_certain
            and self._monotonic() - last.at <= FRESH_SECONDS
            and last.changed == _changed(self.files.folder)
        )

    async def agents(self) -> tuple[AgentEntry, ...]:
        """Return the agents whose hosts live, by agent id. Raises OSError."""
        if self._reading is not None:
            # It began before this call, and may have missed what has changed since.
            with suppress(OSError):
                await asyncio.shield(self._reading)
        if self.is_fresh():
            return self._last.agents
        if self._reading is None:
            self._reading = self._do(self._read)
            self._reading.add_done_callback(self._was_read)
        # All who ask meanwhile share it, so nobody cancels it for the others.
        return (await asyncio.shield(self._reading)).agents

    async def find(self, agent_id: str) -> AgentEntry | None:
        """Return the entry with exactly this id, whether its host lives or not."""
        return await self._do(partial(self.files.find, agent_id))

    async def publish(self, entry: AgentEntry) -> None:
        """Show `entry` to others. Raises OSError."""
        await self._do(partial(self.files.write, entry))

    async def withdraw(self, agent_id: str) -> None:
        """Remove an entry; a missing one is no error."""
        await self._do(partial(self.files.remove, agent_id))

    def recheck(self) -> None:
        """Look again, the next time, whether each host lives: one of them did not answer."""
        self._last = self._last._replace(at=float("-inf"))

    def _do(self, act: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, act)

    def _read(self) -> _Read:
        """Read all files and look whether their hosts live. The registry's thread."""
        now, changed = time.time_ns(), _changed(self.files.folder)
        at = self._monotonic()
        agents = tuple(self.files.entries())
        self.files.notes.clear()
        return _Read(agents, changed, is_certain=now - changed > _TICK_NS, at=at)

    def _was_read(self, reading: asyncio.Future[_Read]) -> None:
        self._reading = None
        if not reading.cancelled() and reading.exception() is None:
            self._last = reading.result()


def _changed(folder: str) -> int:
    """When the folder was last changed. One call of the kernel, answered from memory: the loop does it itself."""
    try:
        # Each request comes by here, and `Path.stat` takes half as long again.
        return os.stat(folder).st_mtime_ns  # noqa: PTH116 - see above
    except OSError:
        return 0
