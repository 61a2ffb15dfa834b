"""The one door through which tasks change: check the event, make it durable, then tell everybody. In that order.

    record ─► waiting ─applied─► on its way to the store ─durable─► announced, caller answered
                 ▲                           │
                 └── read, apply once more ◄─┴─ version conflict     (any other failure: failed, with all behind it)

A journal writes the inbox whose lease it was given, and nothing more once that is lost. Without a lease it only reads.
Each task that this process writes has a line. One append of a line is on its way at a time; what is recorded meanwhile
waits and goes together with the next. So a record is judged only against what is durable, or goes with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from synapse.core.errors import (
    AmbiguousTask,
    Conflict,
    InvalidRequest,
    LeaseLost,
    StoreFailed,
    TaskNotFound,
    VersionConflict,
)
from synapse.core.events import TaskEvent, TaskOpened, Update
from synapse.core.lifecycle import apply, replay
from synapse.core.message import DataPart, FilePart, TextPart
from synapse.core.store import Lease, TaskStore
from synapse.core.task import Task, TaskId

log = logging.getLogger(__name__)

Listener = Callable[[Update], None]
Then = Callable[[Task], tuple[TaskEvent, ...]]
T = TypeVar("T")

FINISHED_IN_MEMORY: Final = 64
"""Whoever waited for the end asks soon, if at all. With 512 each message took more processor time than with 128; below
that no difference was seen. Why is not known; the memory that is in no cache any more may be it."""
LARGEST_IN_MEMORY: Final = 64 * 1024
"""Letters of a finished task that is kept in memory; a larger one is read from the store when somebody asks."""
_PAGE: Final = 500


def rebuild(known: Task | None, events: Iterable[TaskEvent]) -> Task:
    """Return `known` with `events` applied to it; without it, the events begin with TaskOpened.

    For readers of the log (stores, feeds): what was recorded is not judged a second time by anything but the lifecycle.
    """
    return replay(events) if known is None else apply(known, *events)


def _all(_task_id: TaskId) -> bool:
    return True


class _Entry:
    """The events of one `record`, and who waits for them."""

    __slots__ = ("after", "before", "digest", "done", "events", "is_second_try", "then")

    before: Task | None
    after: Task
    """The task as it was, and as it is by these events; known once they are on their way."""

    def __init__(
        self, events: tuple[TaskEvent, ...], digest: str, done: asyncio.Future[Task], then: Then | None
    ) -> None:
        self.events = events
        self.then = then
        self.digest = digest
        self.done = done
        self.is_second_try = False

    @property
    def opens(self) -> bool:
        return isinstance(self.events[0], TaskOpened)

    @property
    def goes_alone(self) -> bool:
        return self.is_second_try or bool(self.digest)

    def apply_to(self, task: Task | None) -> Task:
        """Raises Conflict."""
        self.before = task
        self.after = rebuild(task, self.events)
        if self.then is not None:
            more = self.then(self.after)
            self.then = None  # what it said stays said, also when the entry is tried again
            self.events += more
            self.after = rebuild(self.after, more)
        return self.after

    def succeed(self) -> None:
        if not self.done.done():
            self.done.set_result(self.after)

    def fail(self, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class _TaskWriter:
    """What this process knows of one task, and what is to become of it."""

    __slots__ = ("durable", "on_its_way", "pending", "task", "task_id", "waiting")

    def __init__(self, task_id: TaskId, known: Update | None = None) -> None:
        self.task_id = task_id
        self.task = known.task if known else None
        """As it is stored, for all we know; None when it has to be read first."""
        self.durable = known
        """What readers see: the task as this process has written it. The seq is 0 when it was read without its log."""
        self.waiting: list[_Entry] = []
        self.on_its_way: list[_Entry] = []
        self.pending: asyncio.Future[Any] | None = None
        """What the store was asked and has not answered."""

    def forget(self) -> None:
        self.task = self.durable = None


class Journal:
    """Records events and tells listeners. Keeps open tasks in memory, and the last few that finished."""

    def __init__(
        self, store: TaskStore, lease: Lease | None = None, *, keep_finished: int = FINISHED_IN_MEMORY
    ) -> None:
        self._store = store
        self._lease = lease
        self._loss: LeaseLost | None = None
        self._lost = asyncio.Event()
        self._keep_finished = keep_finished
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lines: dict[TaskId, _TaskWriter] = {}
        self._finished: OrderedDict[TaskId, Update] = OrderedDict()
        self._listeners: list[tuple[Listener, Callable[[TaskId], bool]]] = []

    async def record(self, *events: TaskEvent, digest: str = "", then: Then | None = None) -> Task:
        """Make the events of one task durable together, tell the listeners, and return the task after them.

        A `digest` claims the message id of the first event. `then` is told the task after the events, and tells what is
        to be recorded with them; it raises nothing. Giving up the wait does not take the events back.

        Raises:
            IllegalTransition, TaskFinished: the lifecycle does not allow it.
            TaskNotFound: there is no such task.
            VersionConflict: somebody else changed the task meanwhile, twice; or the message id is claimed.
            LeaseLost: another process has acquired the inbox; this journal records nothing more.
            StoreFailed: nothing was recorded.
        """
        return await self.record_nowait(*events, digest=digest, then=then)

    def record_nowait(self, *events: TaskEvent, digest: str = "", then: Then | None = None) -> asyncio.Future[Task]:
        """The same without waiting: behind what was recorded earlier of the same task, committed in groups."""
        self._require_lease()
        task_id = events[0].task_id
        for event in events:
            if event.task_id != task_id:
                raise ValueError("one record is about one task")
        # Known once it is used: asking for it costs a call of the system each time.
        self._loop = self._loop or asyncio.get_running_loop()
        entry = _Entry(events, digest, self._loop.create_future(), then)
        if self._loss is not None:
            entry.fail(self._loss)
            return entry.done
        line = self._line_of(task_id)
        line.waiting.append(entry)
        self._advance(line)
        return entry.done

    async def verify_lease(self) -> None:
        """Raises LeaseLost when another process has acquired the inbox: to be asked before what no record precedes."""
        if self._loss is not None:
            raise self._loss
        if self._lease is not None:
            try:
                await self._store.verify(self._lease)
            except LeaseLost as loss:
                self._lose(loss)
                raise

    async def lease_lost(self) -> None:
        """Wait until the lease is known to be lost."""
        await self._lost.wait()

    @property
    def has_lost_lease(self) -> bool:
        """Whether the lease is known to be lost."""
        return self._loss is not None

    async def adopt(self, inbox: str) -> Sequence[Task]:
        """Read the open tasks of an inbox whose lease this process holds, and keep them in memory from now on."""
        tasks = await self._store.open_tasks(inbox)
        for task in tasks:
            self._lines.setdefault(task.id, _TaskWriter(task.id, Update(0, None, task)))
        return tasks

    async def load(self, task_id: TaskId) -> Task:
        """Return the task as it is durable.

        Raises TaskNotFound.
        """
        return self.known(task_id) or await self._store.load(task_id)

    async def load_latest(self, task_id: TaskId) -> Task:
        """The same, once what is on its way to the store has arrived: others may have seen it there before us.

        Raises TaskNotFound.
        """
        line = self._lines.get(task_id)
        if line is not None and line.pending is not None:
            await asyncio.wait({line.pending})
        return await self.load(task_id)

    def known(self, task_id: TaskId) -> Task | None:
        """The same without asking the store, for a task that this process has in memory."""
        known = self._known(task_id)
        return known.task if known else None

    def open_tasks(self) -> Sequence[Task]:
        """The unfinished tasks that this process writes, as they are durable, oldest first."""
        tasks = (line.durable.task for line in self._lines.values() if line.durable is not None)
        return sorted((task for task in tasks if not task.state.is_terminal), key=lambda task: task.created_at)

    async def snapshot(self, task_id: TaskId) -> Update:
        """Return the task as it is durable, with the seq of its last event.

        Raises TaskNotFound.
        """
        known = self._known(task_id)
        if known is not None and known.seq:
            return known
        now: Update | None = None
        async for update in self.updates(task_id):
            now = Update(update.seq, None, update.task)
        if now is None:
            raise TaskNotFound(task_id)
        return now

    async def updates(self, task_id: TaskId) -> AsyncGenerator[Update, None]:
        """The whole log of a task: each event with the task after it."""
        task: Task | None = None
        seq = 0
        while page := await self._store.read_after(seq, task_id=task_id, limit=_PAGE):
            for recorded in page:
                task = rebuild(task, (recorded.event,))
                seq = recorded.seq
                yield Update(seq, recorded.event, task)
            if len(page) < _PAGE:
                return

    async def resolve_id(self, prefix: str, inbox: str = "") -> TaskId:
        """Return the id of the one task of the inbox that `prefix` means; hidden tasks do not count.

        Raises TaskNotFound or AmbiguousTask.
        """
        known = self._known(TaskId(prefix))
        if known is not None and not known.task.hidden and inbox in ("", known.task.inbox):
            return known.task.id
        found = await self._store.find(prefix, inbox=inbox) if prefix else ()
        if TaskId(prefix) in found:
            return TaskId(prefix)
        if not found:
            raise TaskNotFound(prefix)
        if len(found) > 1:
            raise AmbiguousTask(prefix, list(found))
        return found[0]

    async def find(self, wanted: str, inbox: str, *, exact: bool) -> Task:
        """Return the task of the inbox that `wanted` means: its whole id, or else a beginning that only it has.

        Raises TaskNotFound or AmbiguousTask.
        """
        task = await self.load(TaskId(wanted) if exact else await self.resolve_id(wanted, inbox))
        if task.hidden or task.inbox != inbox:
            raise TaskNotFound(wanted)
        return task

    def listen(self, listener: Listener, wants: Callable[[TaskId], bool] = _all) -> Callable[[], None]:
        """Call `listener` with each update of a task that it wants, once that is durable, in the order of the seqs.

        Returns how to stop that.
        """
        heard = (listener, wants)
        self._listeners.append(heard)
        return lambda: self._listeners.remove(heard)

    def _known(self, task_id: TaskId) -> Update | None:
        line = self._lines.get(task_id)
        if line is not None:
            return line.durable
        known = self._finished.get(task_id)
        if known is not None:
            self._finished.move_to_end(task_id)
        return known

    def _line_of(self, task_id: TaskId) -> _TaskWriter:
        line = self._lines.get(task_id)
        if line is None:
            line = self._lines[task_id] = _TaskWriter(task_id, self._finished.pop(task_id, None))
        return line

    def _advance(self, line: _TaskWriter) -> None:
        """Send what waits to the store, as far as that can be done now."""
        while line.waiting and line.pending is None:
            if line.task is None and not line.waiting[0].opens:
                self._read(line)
                return
            try:
                self._send(line)
            except Conflict as refusal:
                line.waiting.pop(0).fail(refusal)
        if line.pending is None:
            self._retire(line)

    def _send(self, line: _TaskWriter) -> None:
        """Send the first that waits, and those behind it that can go with it; raises Conflict when it is refused."""
        task = line.task
        going: list[_Entry] = []
        for entry in line.waiting:
            if going and (entry.goes_alone or going[0].goes_alone):
                break
            try:
                task = entry.apply_to(task)
            except Conflict:
                if not going:
                    raise
                break  # what refuses it is not durable yet: it is judged again when that is so
            going.append(entry)
        del line.waiting[: len(going)]
        line.on_its_way = going
        appending = self._store.append(
            going[-1].after, _events_of(going), lease=self._require_lease(), digest=going[0].digest
        )
        line.pending = _as_future(appending)
        line.pending.add_done_callback(partial(self._settle, line))

    def _settle(self, line: _TaskWriter, appending: asyncio.Future[int]) -> None:
        """The store is done with what was on its way."""
        entries, line.on_its_way, line.pending = line.on_its_way, [], None
        if error := _error_of(appending):
            self._failed(line, entries, error)
        else:
            self._committed(line, entries, appending.result())
        self._advance(line)

    def _committed(self, line: _TaskWriter, entries: Sequence[_Entry], first_seq: int) -> None:
        line.task = entries[-1].after
        events = _events_of(entries)
        line.durable = Update(first_seq + len(events) - 1, None, line.task)
        # Those who wait run only after this function, so the listeners hear of it first.
        for entry in entries:
            entry.succeed()
        listeners = [listener for listener, wants in self._listeners if wants(line.task_id)]
        if not listeners:
            return
        task = entries[0].before
        for seq, event in enumerate(events, first_seq):
            task = rebuild(task, (event,))
            update = Update(seq, event, task)
            for listener in listeners:
                listener(update)

    def _failed(self, line: _TaskWriter, entries: Sequence[_Entry], error: BaseException) -> None:
        line.forget()
        if isinstance(error, LeaseLost):
            self._lose(error)
        first = entries[0]
        is_late = isinstance(error, VersionConflict) and not first.opens and not first.is_second_try
        is_one_of_many = isinstance(error, InvalidRequest) and len(entries) > 1
        if is_late or is_one_of_many:
            for entry in entries:
                entry.is_second_try = True
            line.waiting[:0] = entries
        else:
            # What was recorded behind it took it for granted.
            _fail([*entries, *line.waiting], error)
            line.waiting.clear()

    def _require_lease(self) -> Lease:
        if self._lease is None:
            raise ValueError("a journal without a lease only reads")
        return self._lease

    def _lose(self, loss: LeaseLost) -> None:
        """Record nothing more: a successor writes the inbox."""
        if self._loss is None:
            self._loss = loss
            self._lost.set()
            log.error("lease_lost", extra={"inbox": self._lease.inbox if self._lease else ""})

    def _read(self, line: _TaskWriter) -> None:
        line.pending = asyncio.ensure_future(self._store.load(line.task_id))
        line.pending.add_done_callback(partial(self._take_in, line))

    def _take_in(self, line: _TaskWriter, reading: asyncio.Future[Task]) -> None:
        """The store has answered what the task is; go on with what waited for that."""
        line.pending = None
        if error := _error_of(reading):
            _fail(line.waiting, error)
            line.waiting.clear()
        else:
            line.task = reading.result()
        self._advance(line)

    def _retire(self, line: _TaskWriter) -> None:
        """Nothing is on its way: let a line leave memory when the task is finished, or not known to be true."""
        if self._lines.get(line.task_id) is not line:
            return
        if line.durable is None:
            del self._lines[line.task_id]
        elif line.durable.task.state.is_terminal:
            del self._lines[line.task_id]
            if _letters(line.durable.task) > LARGEST_IN_MEMORY:
                return
            self._finished[line.task_id] = line.durable
            if len(self._finished) > self._keep_finished:
                self._finished.popitem(last=False)


def _events_of(entries: Sequence[_Entry]) -> Sequence[TaskEvent]:
    return entries[0].events if len(entries) == 1 else [event for entry in entries for event in entry.events]


def _letters(task: Task) -> int:
    said = [one.parts for one in task.history] + [one.parts for one in task.artifacts]
    return sum([len(part.text) if isinstance(part, TextPart) else _size(part) for parts in said for part in parts])


def _size(part: FilePart | DataPart) -> int:
    return len(part.content or b"") if isinstance(part, FilePart) else len(repr(part.data))


def _fail(entries: Iterable[_Entry], error: BaseException) -> None:
    for entry in entries:
        entry.fail(error)


def _as_future(appending: Awaitable[T]) -> asyncio.Future[T]:
    # Stores that write in a thread of their own give a future; to find that out costs less than `ensure_future` does.
    return appending if isinstance(appending, asyncio.Future) else asyncio.ensure_future(appending)


def _error_of(future: asyncio.Future[Any]) -> BaseException | None:
    # A store that is cancelled, at shutdown, has not done it; for those who wait that is a failure like any other.
    return StoreFailed("the store stopped before it was done") if future.cancelled() else future.exception()
