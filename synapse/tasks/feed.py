"""Streams of updates: follow one task, all tasks, the log of the whole store, or the status of the agent.

`Feed` streams tasks to readers: the current state, or the updates after a seq, then each event as it becomes durable.

    joined ─► reading the log ─► live ─► FeedLagged, when more updates wait for the reader than its buffer holds
                     ▲────────────┘ a version is missing: another process wrote the task

A reader misses nothing and gets nothing twice: it joins before it reads the log, and skips updates that it has seen.

`LogFollower` brings a feed the updates of all processes: it reads the end of the shared log once for all readers.

    no reader ─► the first joins: find the end of the log ─► the store wakes it ─► read ─► … ─► the last leaves

A gateway gets all updates this way, also of the events that it records itself, so all are in the order of the seqs.
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
from synapse.core.waiting import pause
from synapse.tasks.journal import Journal, Listener, rebuild

log = logging.getLogger(__name__)

BUFFERED_UPDATES: Final = 1024
GATHER_SECONDS: Final = 0.005
"""The minimum time between two reads of the log. A single event is read at once; of a burst, each read gets more, which
readers of streams do not notice. Without it, many busy agents would wake a gateway thousands of times a second."""
WAIT_SECONDS: Final = 60.0
RECOVERY_SECONDS: Final = 1.0
STATUS_BUFFER: Final = 64
"""A reader of statuses that is further behind misses the oldest changes."""
_PAGE: Final = 500
_TASKS_IN_MEMORY: Final = 512


def _may_go_on() -> None:
    """Allows a reader to go on: the default check."""


class UpdateSource(Protocol):
    """Calls a listener with each durable update; those of one task come in order."""

    def listen(self, listener: Listener, /) -> Callable[[], None]: ...


class Feed:
    """Lets any number of readers follow tasks; each reader has its own position and a bounded buffer.

    Updates come from this process's journal, or from `source` if one is given.
    """

    def __init__(
        self, journal: Journal, store: TaskStore, *, source: UpdateSource | None = None, buffer: int = BUFFERED_UPDATES
    ) -> None:
        self._journal = journal
        self._store = store
        self._buffer = buffer
        self._readers: dict[TaskId | None, list[_Reader]] = {}
        if source is not None:
            source.listen(self._on_update)
        else:
            journal.listen(self._on_update, self.has_readers_of)

    def is_followed(self, task_id: TaskId) -> bool:
        """Decides whether a reader that waits for this one task follows it now."""
        return any(reader.waits for reader in self._readers.get(task_id, ()))

    def has_readers_of(self, task_id: TaskId) -> bool:
        """Decides whether a reader follows this task, alone or with all others."""
        return task_id in self._readers or None in self._readers

    def recheck(self) -> None:
        """Calls each reader's check; a reader whose check fails gets its error instead of the next update."""
        for readers in self._readers.values():
            for reader in readers:
                reader.recheck()

    async def follow(
        self, task_id: TaskId, after: int | None = None, *, check: Callable[[], None] = _may_go_on, waits: bool = True
    ) -> AsyncGenerator[Update, None]:
        """Yields the current task, or each update after the seq `after`, then live updates until the task ends.

        A reader that only looks on (not `waits`) does not count for `is_followed`.

        Raises the SynapseError that `check` raises when `recheck` calls it, and:
            TaskNotFound: there is no such task.
            FeedLagged: the reader was too slow; it can resume after the seq that the error names.
        """
        with self._joined(task_id, check, waits=waits) as reader:
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
        """Yields each update of every task, from now on or after the cursor `after`; does not end by itself.

        Live updates come from this feed's source: this process's journal, or the whole store. With `inbox`, yields only
        tasks of that inbox; the host that holds its lease then misses none.

        Raises FeedLagged.
        """
        with self._joined(None) as reader:
            reader.seen = after or 0
            async with aclosing(self._whole_log_and_live(reader, is_live=after is None)) as updates:
                async for update in updates:
                    if inbox in ("", update.task.inbox):
                        yield update

    async def _whole_log_and_live(self, reader: _Reader, *, is_live: bool) -> AsyncGenerator[Update, None]:
        """Yields the updates of every task after those that the reader has seen, each once and in order."""
        while True:
            if not is_live:
                reader.start_over()
                async with aclosing(LogReader(self._journal, self._store).after(reader.seen)) as updates:
                    async for update in updates:
                        reader.seen = update.cursor
                        yield update
                # As below: updates that the buffer dropped meanwhile are in the log.
                is_live = not reader.has_overflowed
                continue
            update = await reader.next()
            if update.cursor > reader.seen:
                reader.seen = update.cursor
                yield update

    async def _log_and_live(self, task_id: TaskId, reader: _Reader, version: int) -> AsyncGenerator[Update, None]:
        """Yields the updates of a task after `version`, each at least once and in order; 0 reads the whole log."""
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
                # A reader that was slow with the log lost only updates that are in the log: it reads on there.
                is_live = not reader.has_overflowed
                continue
            update = await reader.next()
            if update.task.version > version + 1:
                is_live = False
            elif update.task.version == version + 1:
                version += 1
                yield update

    @contextmanager
    def _joined(
        self, key: TaskId | None, check: Callable[[], None] = _may_go_on, *, waits: bool = True
    ) -> Generator[_Reader]:
        """Registers a reader of one task, or of all (None), until the block ends."""
        reader = _Reader(self._buffer, check, waits=waits)
        readers = self._readers.setdefault(key, [])
        readers.append(reader)
        try:
            yield reader
        finally:
            readers.remove(reader)
            if not readers:
                del self._readers[key]

    def _on_update(self, update: Update) -> None:
        if not self._readers:
            return
        for key in (update.task.id, None):
            for reader in self._readers.get(key, ()):
                reader.put(update)


class _Reader:
    """The updates that one reader has not fetched yet. A full buffer is dropped as a whole: the log has them."""

    def __init__(self, limit: int, check: Callable[[], None], *, waits: bool) -> None:
        self.waits = waits
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
        """Forgets an overflow before the log is read: the dropped updates are in the log."""
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


def _all(_recorded: Recorded) -> bool:
    return True


class LogReader:
    """Reads the log of all tasks as updates. It caches recent tasks, so that most events need no second read."""

    def __init__(self, journal: Journal, store: TaskStore) -> None:
        self._journal = journal
        self._store = store
        self._tasks: OrderedDict[TaskId, Task] = OrderedDict()
        self.cursor = 0
        """The cursor of the last event read, wanted or not."""

    async def after(self, cursor: int, wanted: Callable[[Recorded], bool] = _all) -> AsyncGenerator[Update, None]:
        """Yields the wanted updates after `cursor`; ends at the end of the log."""
        self.cursor = cursor
        while page := await self._store.read_after(self.cursor, limit=_PAGE):
            for recorded in page:
                before = self._tasks.pop(recorded.event.task_id, None)
                # A task whose event is skipped leaves the cache: without that event it cannot be built further.
                task = await self._task_after(recorded, before) if wanted(recorded) else None
                self.cursor = recorded.cursor
                if task is not None:
                    self._remember(task)
                    yield Update(recorded.seq, recorded.event, task, recorded.position)
            if len(page) < _PAGE:
                return

    def _remember(self, task: Task) -> None:
        if task.state.is_terminal:
            return  # the few events that may follow are read again
        self._tasks[task.id] = task
        if len(self._tasks) > _TASKS_IN_MEMORY:
            self._tasks.popitem(last=False)

    async def _task_after(self, recorded: Recorded, before: Task | None) -> Task | None:
        """Returns the task after this event; None when the log was pruned meanwhile."""
        if before is not None or isinstance(recorded.event, TaskOpened):
            return rebuild(before, (recorded.event,))
        async with aclosing(self._journal.updates(recorded.event.task_id)) as updates:
            async for update in updates:
                if update.seq == recorded.seq:
                    return update.task
        return None


class LogFollower:
    """Calls listeners with every update in the store, while `running` is entered at least once."""

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
        """Calls `listener` with each update, in the order of the log; returns a function that stops it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def listen_events(self, listener: Callable[[Recorded], None]) -> None:
        """Calls `listener` with each event, wanted or not, without its task: that is cheap."""
        self._event_listeners.append(listener)

    def only(self, wanted: Callable[[TaskId], bool]) -> None:
        """Limits updates to the tasks for which `wanted` returns true; skipping the others is cheap."""
        self._wanted = wanted

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Reads the log until the block ends, and delivers each wanted update that becomes durable after it has begun.

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

    async def _read(self, cursor: int) -> None:
        loop = asyncio.get_running_loop()
        reader = LogReader(self._journal, self._store)
        reader.cursor = cursor
        while True:
            begun, least = loop.time(), self._gather_seconds
            try:
                async with aclosing(reader.after(reader.cursor, self._on_event)) as updates:
                    async for update in updates:
                        for listener in tuple(self._listeners):
                            listener(update)
                # All up to `cursor` has been read, or was pruned.
                reader.cursor = max(reader.cursor, cursor)
                cursor = await self._store.wait_after(reader.cursor, WAIT_SECONDS)
            except SynapseError as error:
                # Readers miss nothing: it goes on at the same seq.
                log.warning("log_not_read", extra={"error": error.code})
                least = RECOVERY_SECONDS
            except Exception as defect:
                # All streams depend on this task, so a defect must not end it: they would stall without a word.
                log.exception("log_not_read", extra={"error": type(defect).__name__})
                least = RECOVERY_SECONDS
            await pause(max(begun + least - loop.time(), 0.0))

    def _on_event(self, recorded: Recorded) -> bool:
        """Calls the event listeners; returns whether the update of this event is wanted."""
        for listener in self._event_listeners:
            listener(recorded)
        return self._wanted(recorded.event.task_id)


async def follow_status(driver: Driver) -> AsyncGenerator[AgentStatus, None]:
    """Yields the agent's status, then each change of its state, which the log of tasks lacks; ends when it exits."""
    changes: deque[AgentStatus] = deque(maxlen=STATUS_BUFFER)
    changed = asyncio.Event()

    def listen(status: AgentStatus) -> None:
        changes.append(status)
        changed.set()

    stop_listening = driver.watch(listen)
    try:
        changes.append(driver.view().status)
        last = ""
        while last != EXITED:
            if not changes:
                changed.clear()
                await changed.wait()
            status = changes.popleft()
            if status.state != last:
                last = status.state
                yield status
    finally:
        stop_listening()
