"""Following tasks: the state now or what came after a seq, then each event as it becomes durable.

    joined ─► reading the log ─► live ─► FeedLagged, when more updates wait for the reader than its buffer holds
                     ▲────────────┘ a version is missing: somebody else wrote the task

No gap and no repeat: a reader joins before it reads the log, and drops what it has already seen.

The log of all tasks as updates: each event with the task after it.

What any process records, as it becomes durable: the end of the shared log, read once for all who follow.

    nobody follows ─► the first comes: where does the log end? ─► the store wakes it ─► read ─► … ─► the last leaves

A gateway hears of everything in this way, also of what it records itself: one order for all, that of the seqs.

The states of one agent as a stream: the log of its tasks does not have them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Final, Protocol

from synapse.core.agent import EXITED
from synapse.core.driver import AgentStatus, Driver
from synapse.core.errors import FeedLagged, SynapseError, TaskNotFound
from synapse.core.events import Recorded, StateChanged, TaskOpened, Update
from synapse.core.store import TaskStore
from synapse.core.task import Task, TaskId
from synapse.tasks.journal import Journal, Listener, rebuild

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

    def recheck(self) -> None:
        """Check whether each reader may go on; one that may not is told so when it wants the next update."""
        for readers in self._readers.values():
            for reader in readers:
                reader.recheck()

    async def follow(
        self, task_id: TaskId, after: int | None = None, *, check: Callable[[], None] = _may_go_on
    ) -> AsyncGenerator[Update, None]:
        """Yield the task as it is now, or each update after the seq `after`, then live; ends when the task does.

        Raises the SynapseError that `check` raises when `recheck` asks, and:
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

    def recheck(self) -> None:
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


_PAGE: Final = 500
_TASKS_IN_MEMORY: Final = 512


def _all(_recorded: Recorded) -> bool:
    return True


class LogReader:
    """Reads on in the log. It remembers the tasks that it has seen last, so that most events cost no look back."""

    def __init__(self, journal: Journal, store: TaskStore) -> None:
        self._journal = journal
        self._store = store
        self._tasks: OrderedDict[TaskId, Task] = OrderedDict()
        self.seq = 0
        """The last event that was read, wanted or not."""

    async def after(self, seq: int, wanted: Callable[[Recorded], bool] = _all) -> AsyncGenerator[Update, None]:
        """The updates after `seq` that are in the log and wanted; ends where the log ends."""
        self.seq = seq
        while page := await self._store.read_after(self.seq, limit=_PAGE):
            for recorded in page:
                before = self._tasks.pop(recorded.event.task_id, None)
                # What is passed over is forgotten: a task that misses an event is of no use for the next.
                task = await self._task_after(recorded, before) if wanted(recorded) else None
                self.seq = recorded.seq
                if task is not None:
                    self._remember(task)
                    yield Update(recorded.seq, recorded.event, task)
            if len(page) < _PAGE:
                return

    def _remember(self, task: Task) -> None:
        if task.state.is_terminal:
            return  # what little may follow is read again
        self._tasks[task.id] = task
        if len(self._tasks) > _TASKS_IN_MEMORY:
            self._tasks.popitem(last=False)

    async def _task_after(self, recorded: Recorded, before: Task | None) -> Task | None:
        """The task after this event; None when the log was pruned meanwhile."""
        if before is not None or isinstance(recorded.event, TaskOpened):
            return rebuild(before, (recorded.event,))
        async with aclosing(self._journal.updates(recorded.event.task_id)) as updates:
            async for update in updates:
                if update.seq == recorded.seq:
                    return update.task
        return None


log = logging.getLogger(__name__)

GATHER_SECONDS: Final = 0.005
"""The least time between two looks at the log. What comes alone is read at once; of what comes fast, each look reads
more, and readers of streams are no worse off: many agents at work would wake a gateway thousands of times a second."""
WAIT_SECONDS: Final = 60.0
RECOVERY_SECONDS: Final = 1.0


class LogFollower:
    """Tells listeners of every update in the store, while anybody wants it."""

    def __init__(self, store: TaskStore, journal: Journal, *, gather_seconds: float = GATHER_SECONDS) -> None:
        self._store = store
        self._journal = journal
        self._gather_seconds = gather_seconds
        self._listeners: list[Listener] = []
        self._event_listeners: list[Callable[[Recorded], None]] = []
        self._wanted: Callable[[TaskId], bool] = lambda _task_id: True
        self._followers = 0
        self._starting = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with each update, in the order of the seqs; return how to stop that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def hear_events(self, listener: Callable[[Recorded], None]) -> None:
        """Call `listener` with each event alone, wanted or not: that costs next to nothing."""
        self._event_listeners.append(listener)

    def only(self, wanted: Callable[[TaskId], bool]) -> None:
        """Tell only of the tasks for which `wanted` is true; the others cost next to nothing."""
        self._wanted = wanted

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Read until the block ends. Whatever becomes durable once the block has begun is told, if it is wanted then.

        Raises StoreFailed.
        """
        self._followers += 1
        try:
            async with self._starting:
                if self._reading is None:
                    self._reading = asyncio.create_task(self._read(await self._store.last_seq()))
            yield
        finally:
            self._followers -= 1
            if not self._followers and self._reading is not None:
                reading, self._reading = self._reading, None
                reading.cancel()
                await asyncio.wait({reading})

    async def _read(self, seq: int) -> None:
        loop = asyncio.get_running_loop()
        reader = LogReader(self._journal, self._store)
        reader.seq = seq
        while True:
            begun, pause = loop.time(), self._gather_seconds
            try:
                async with aclosing(reader.after(reader.seq, self._heard)) as updates:
                    async for update in updates:
                        self._tell(update)
                # All up to `seq` has been read, or is not there any more: it was pruned.
                reader.seq = max(reader.seq, seq)
                seq = await self._store.wait_after(reader.seq, WAIT_SECONDS)
            except SynapseError as error:
                # Those who follow miss nothing: it goes on where it was.
                log.warning("log_not_read", extra={"error": error.code})
                pause = RECOVERY_SECONDS
            await _wait_until(begun + pause)

    def _heard(self, recorded: Recorded) -> bool:
        for listener in self._event_listeners:
            listener(recorded)
        return self._wanted(recorded.event.task_id)

    def _tell(self, update: Update) -> None:
        for listener in tuple(self._listeners):
            listener(update)


async def _wait_until(moment: float) -> None:
    """Wait until the clock of the loop shows `moment`; not at all when it is past."""
    loop = asyncio.get_running_loop()
    seconds = moment - loop.time()
    if seconds > 0:
        await asyncio.wait((loop.create_future(),), timeout=seconds)


MOST_WAITING: Final = 64
"""A reader that is further behind misses the oldest changes."""


async def follow_status(driver: Driver) -> AsyncGenerator[AgentStatus, None]:
    """Yield what the agent does now, then each change of its state; end when it has exited."""
    changes: deque[AgentStatus] = deque(maxlen=MOST_WAITING)
    something = asyncio.Event()

    def listen(status: AgentStatus) -> None:
        changes.append(status)
        something.set()

    stop_listening = driver.watch(listen)
    try:
        changes.append(driver.view().status)
        last = ""
        while last != EXITED:
            if not changes:
                something.clear()
                await something.wait()
            status = changes.popleft()
            if status.state != last:
                last = status.state
                yield status
    finally:
        stop_listening()
