"""Following tasks: the state now or what came after a seq, then each event as it becomes durable.

    joined ─► reading the log ─► live ─► FeedLagged, when more updates wait for the reader than its buffer holds
                     ▲────────────┘ a version is missing: somebody else wrote the task

No gap and no repeat: a reader joins before it reads the log, and drops what it has already seen.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, contextmanager
from typing import Final, Protocol

from synapse.core.errors import FeedLagged, SynapseError, TaskNotFound
from synapse.core.events import StateChanged, Update
from synapse.core.store import TaskStore
from synapse.core.task import TaskId
from synapse.service.journal import Journal, Listener
from synapse.service.log_reader import LogReader

BUFFERED_UPDATES: Final = 1024


def _may_go_on() -> None:
    """For readers whom nobody stops."""


class Source(Protocol):
    """Where a feed hears of what has become durable, each task's updates in their order."""

    def listen(self, listener: Listener, /) -> Callable[[], None]: ...


class Feed:
    """Lets any number of readers follow what happens to tasks; each has its own place and its own bounded buffer.

    It hears of what this process's journal records, or of what its `source` brings instead.
    """

    def __init__(
        self, journal: Journal, store: TaskStore, *, source: Source | None = None, buffer: int = BUFFERED_UPDATES
    ) -> None:
        self._journal = journal
        self._store = store
        self._buffer = buffer
        self._readers: dict[TaskId | None, list[_Reader]] = {}
        if source is not None:
            source.listen(self._hear)
        else:
            journal.listen(self._hear, self.has_readers_of)

    def is_followed(self, task_id: TaskId) -> bool:
        """Whether somebody follows this very task now."""
        return task_id in self._readers

    def has_readers_of(self, task_id: TaskId) -> bool:
        """Whether somebody follows this task, alone or with all others."""
        return task_id in self._readers or None in self._readers

    def look_again(self) -> None:
        """Check whether each reader may go on; one that may not is told so when it wants the next update."""
        for readers in self._readers.values():
            for reader in readers:
                reader.look_again()

    async def follow(
        self, task_id: TaskId, after: int | None = None, *, check: Callable[[], None] = _may_go_on
    ) -> AsyncGenerator[Update, None]:
        """Yield the task as it is now, or each update after the seq `after`, then live; ends when the task does.

        Raises the SynapseError that `check` raises when `look_again` asks, and:
            TaskNotFound: there is no such task.
            FeedLagged: the reader was too slow; it can resume after the seq that the error names.
        """
        with self._joined(task_id, check) as reader:
            reader.seen = after or 0
            version = 0
            if after is None:
                now = await self._journal.snapshot(task_id)
                reader.seen, version = now.seq, now.task.version
                yield now
                if now.task.state.is_terminal:
                    return
            async with aclosing(self._log_and_live(task_id, reader, version)) as updates:
                async for update in updates:
                    if update.seq > reader.seen:
                        reader.seen = update.seq
                        yield update
                    if isinstance(update.event, StateChanged) and update.event.state.is_terminal:
                        return

    async def follow_all(self, after: int | None = None, *, inbox: str = "") -> AsyncGenerator[Update, None]:
        """Yield each update of every task, from now on or after the seq `after`; never ends by itself.

        Live updates are those of this feed's source: what this process records, or the whole store. With `inbox`, only
        tasks of that inbox are shown; a host that holds its lease then misses nothing.

        Raises FeedLagged.
        """
        with self._joined(None) as reader:
            reader.seen = after or 0
            async with aclosing(self._whole_log_and_live(reader, is_live=after is None)) as updates:
                async for update in updates:
                    if inbox in ("", update.task.inbox):
                        yield update

    async def _whole_log_and_live(self, reader: _Reader, *, is_live: bool) -> AsyncGenerator[Update, None]:
        """The updates of every task after those that the reader has seen, each once and in order."""
        while True:
            if not is_live:
                reader.start_over()
                async with aclosing(LogReader(self._journal, self._store).after(reader.seen)) as updates:
                    async for update in updates:
                        reader.seen = update.seq
                        yield update
                # As below: what the reader lost meanwhile is in the log.
                is_live = not reader.has_overflowed
                continue
            update = await reader.next()
            if update.seq > reader.seen:
                reader.seen = update.seq
                yield update

    async def _log_and_live(self, task_id: TaskId, reader: _Reader, version: int) -> AsyncGenerator[Update, None]:
        """The updates of a task after `version`, each version at least once and in order; 0 reads the whole log."""
        is_live = version > 0
        while True:
            if not is_live:
                reader.start_over()
                async with aclosing(self._journal.updates(task_id)) as updates:
                    async for update in updates:
                        version = update.task.version
                        yield update
                if version == 0:
                    raise TaskNotFound(task_id)
                # A reader that was slow with the log lost only what the log has: it reads on there.
                is_live = not reader.has_overflowed
                continue
            update = await reader.next()
            if update.task.version > version + 1:
                is_live = False
            elif update.task.version == version + 1:
                version += 1
                yield update

    @contextmanager
    def _joined(self, key: TaskId | None, check: Callable[[], None] = _may_go_on) -> Generator[_Reader]:
        """A reader that hears of one task, or of all (None), until the block ends."""
        reader = _Reader(self._buffer, check)
        readers = self._readers.setdefault(key, [])
        readers.append(reader)
        try:
            yield reader
        finally:
            readers.remove(reader)
            if not readers:
                del self._readers[key]

    def _hear(self, update: Update) -> None:
        if not self._readers:
            return
        for key in (update.task.id, None):
            for reader in self._readers.get(key, ()):
                reader.put(update)


class _Reader:
    """What one reader has not fetched yet. A full buffer is dropped as a whole: the log has it."""

    def __init__(self, limit: int, check: Callable[[], None]) -> None:
        self._check = check
        self._refusal: SynapseError | None = None
        self.seen = 0
        self.has_overflowed = False
        self._limit = limit
        self._updates: deque[Update] = deque()
        self._changed = asyncio.Event()

    def put(self, update: Update) -> None:
        if len(self._updates) >= self._limit:
            self.has_overflowed = True
            self._updates.clear()
        if not self.has_overflowed:
            self._updates.append(update)
        self._changed.set()

    def start_over(self) -> None:
        """Before the log is read: whatever was lost is there."""
        self.has_overflowed = False

    def look_again(self) -> None:
        try:
            self._check()
        except SynapseError as error:
            self._refusal = error
            self._changed.set()

    async def next(self) -> Update:
        """Raises FeedLagged, and what its check raises."""
        while True:
            if self._refusal is not None:
                raise self._refusal
            if self._updates:
                return self._updates.popleft()
            if self.has_overflowed:
                raise FeedLagged(self.seen)
            self._changed.clear()
            await self._changed.wait()
