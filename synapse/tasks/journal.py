"""The only way to change a task: checks an event, makes it durable, then notifies the listeners. In that order.

    record ─► waiting ─applied─► on its way to the store ─durable─► announced, caller answered
                 ▲                           │
                 └── read, apply once more ◄─┴─ version conflict     (any other failure: failed, with all behind it)

A journal writes to the inbox whose lease it was given, until that is lost. Without a lease it only reads.
Each task that this process writes has a `_TaskWriter`, with at most one append on its way. Records that come meanwhile
wait and go together with the next append. So a record is checked only against durable events, or stored with them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

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
from synapse.core.message import DataPart, FilePart, Part, TextPart
from synapse.core.store import Lease, TaskStore
from synapse.core.task import Task, TaskId

log = logging.getLogger(__name__)

Listener = Callable[[Update], None]
Then = Callable[[Task], tuple[TaskEvent, ...]]

FINISHED_IN_MEMORY: Final = 64
"""Callers that wait for the end ask for the task soon after it, if at all. With 512, each message took more CPU time
than with 128; below that there was no difference. The cause is not known; it may be CPU cache misses."""
LARGEST_IN_MEMORY: Final = 64 * 1024
"""Characters of a finished task that is kept in memory; a larger one is read from the store when needed."""
_PAGE: Final = 500


def rebuild(known: Task | None, events: Iterable[TaskEvent]) -> Task:
    """Returns `known` with `events` applied to it; without it, the events begin with TaskOpened.

    For readers of the log (stores, feeds): recorded events are checked again only by the lifecycle.
    """
    return replay(events) if known is None else apply(known, *events)


def _all(_task_id: TaskId) -> bool:
    return True


class _Entry:
    """The events of one `record`, and the future of its caller."""

    __slots__ = ("after", "before", "digest", "done", "events", "is_second_try", "then")

    before: Task | None
    after: Task
    """The task before and after these events; set once they are on their way."""

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
        return bool(self.events) and isinstance(self.events[0], TaskOpened)

    @property
    def goes_alone(self) -> bool:
        return self.is_second_try or bool(self.digest)

    def apply_to(self, task: Task | None) -> Task:
        """Raises Conflict."""
        self.before = task
        self.after = rebuild(task, self.events) if self.events or task is None else task
        if self.then is not None:
            more = self.then(self.after)
            self.then = None  # called once, also when the entry is tried again
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
    """The state of one task that this process writes, and the entries to be stored."""

    __slots__ = ("durable", "on_its_way", "pending", "task", "task_id", "waiting")

    def __init__(self, task_id: TaskId, known: Update | None = None) -> None:
        self.task_id = task_id
        self.task = known.task if known else None
        """The task as stored, as far as this process knows; None when it has to be read first."""
        self.durable = known
        """The task that readers get: as this process has written it. The seq is 0 when it was read without its log."""
        self.waiting: list[_Entry] = []
        self.on_its_way: list[_Entry] = []
        self.pending: asyncio.Future[Any] | None = None
        """The store operation that is not done yet."""

    def forget(self) -> None:
        self.task = self.durable = None


class Journal:
    """Records events and notifies listeners. Keeps open tasks in memory, and the last few that finished."""

    def __init__(
        self, store: TaskStore, lease: Lease | None = None, *, keep_finished: int = FINISHED_IN_MEMORY
    ) -> None:
        self._store = store
        self._lease = lease
        self._loss: LeaseLost | None = None
        self._lost = asyncio.Event()
        self._keep_finished = keep_finished
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writers: dict[TaskId, _TaskWriter] = {}
        self._finished: OrderedDict[TaskId, Update] = OrderedDict()
        self._listeners: list[tuple[Listener, Callable[[TaskId], bool]]] = []

    async def record(self, *events: TaskEvent, digest: str = "", then: Then | None = None) -> Task:
        """Makes the events of one task durable together, notifies the listeners, and returns the task after them.

        A `digest` claims the message id of the first event. `then` gets the task after the events and returns further
        events to record with them; it must not raise. Cancelling the wait does not withdraw the events.

        Raises:
            IllegalTransition, TaskFinished: the lifecycle does not allow it.
            TaskNotFound: there is no such task.
            VersionConflict: another process changed the task meanwhile, twice; or the message id is claimed.
            LeaseLost: another process has acquired the inbox; this journal records nothing more.
            StoreFailed: nothing was recorded.
        """
        return await self.record_nowait(*events, digest=digest, then=then)

    def record_nowait(self, *events: TaskEvent, digest: str = "", then: Then | None = None) -> asyncio.Future[Task]:
        """Records without waiting: behind earlier records of the task, and committed in groups. See `record`."""
        task_id = events[0].task_id
        for event in events:
            if event.task_id != task_id:
                raise ValueError("one record is about one task")
        return self._add(task_id, events, digest, then)

    async def record_if(self, task_id: TaskId, decide: Then) -> Task:
        """Records the events that `decide` returns for the task as it is behind all earlier records; perhaps none.

        Nothing else is recorded between the decision and its events. Returns the task after them.

        Raises what `record` raises.
        """
        return await self._add(task_id, (), "", decide)

    def _add(
        self, task_id: TaskId, events: tuple[TaskEvent, ...], digest: str, then: Then | None
    ) -> asyncio.Future[Task]:
        self._require_lease()
        # Looked up once: each lookup costs a system call.
        self._loop = self._loop or asyncio.get_running_loop()
        entry = _Entry(events, digest, self._loop.create_future(), then)
        if self._loss is not None:
            entry.fail(self._loss)
            return entry.done
        writer = self._writers.get(task_id)
        if writer is None:
            writer = self._writers[task_id] = _TaskWriter(task_id, self._finished.pop(task_id, None))
        writer.waiting.append(entry)
        self._advance(writer)
        return entry.done

    async def verify_lease(self) -> None:
        """Raises LeaseLost when another process has the inbox. Call it before an effect that no record precedes."""
        if self._loss is not None:
            raise self._loss
        if self._lease is not None:
            try:
                await self._store.verify(self._lease)
            except LeaseLost as loss:
                self._lose(loss)
                raise

    async def lease_lost(self) -> None:
        """Waits until the lease is known to be lost."""
        await self._lost.wait()

    @property
    def has_lost_lease(self) -> bool:
        """Whether the lease is known to be lost."""
        return self._loss is not None

    async def adopt(self, inbox: str) -> Sequence[Task]:
        """Reads the open tasks of an inbox whose lease this process holds; returns them and keeps them in memory."""
        tasks = await self._store.open_tasks(inbox)
        for task in tasks:
            self._writers.setdefault(task.id, _TaskWriter(task.id, Update(0, None, task)))
        return tasks

    async def load(self, task_id: TaskId) -> Task:
        """Returns the durable state of the task.

        Raises TaskNotFound.
        """
        return self.known(task_id) or await self._store.load(task_id)

    async def load_latest(self, task_id: TaskId) -> Task:
        """Waits for the task's pending append, which other processes may see before this one, then returns the task.

        Raises TaskNotFound.
        """
        writer = self._writers.get(task_id)
        if writer is not None and writer.pending is not None:
            await asyncio.wait({writer.pending})
        return await self.load(task_id)

    def known(self, task_id: TaskId) -> Task | None:
        """Returns the task if this process has it in memory, without asking the store."""
        known = self._known(task_id)
        return known.task if known else None

    def open_tasks(self) -> Sequence[Task]:
        """Returns the unfinished tasks that this process writes, in their durable state, oldest first."""
        tasks = (writer.durable.task for writer in self._writers.values() if writer.durable is not None)
        return sorted((task for task in tasks if not task.state.is_terminal), key=lambda task: task.created_at)

    async def snapshot(self, task_id: TaskId) -> Update:
        """Returns the durable state of the task, with the seq of its last event.

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
        """Yields the whole log of a task: each event with the task after it."""
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
        """Returns the id of the only task of the inbox whose id begins with `prefix`; hidden tasks do not count.

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
        """Returns the task of the inbox that `wanted` names: by its whole id, or unless `exact` by a unique prefix.

        Raises TaskNotFound or AmbiguousTask.
        """
        task = await self.load(TaskId(wanted) if exact else await self.resolve_id(wanted, inbox))
        if task.hidden or task.inbox != inbox:
            raise TaskNotFound(wanted)
        return task

    def listen(self, listener: Listener, wants: Callable[[TaskId], bool] = _all) -> Callable[[], None]:
        """Calls `listener` with each durable update of the tasks that it `wants`, in the order of the seqs.

        Returns a function that stops it.
        """
        entry = (listener, wants)
        self._listeners.append(entry)
        return lambda: self._listeners.remove(entry)

    def _known(self, task_id: TaskId) -> Update | None:
        writer = self._writers.get(task_id)
        if writer is not None:
            return writer.durable
        known = self._finished.get(task_id)
        if known is not None:
            self._finished.move_to_end(task_id)
        return known

    def _advance(self, writer: _TaskWriter) -> None:
        """Sends waiting entries to the store, as far as possible now."""
        while writer.waiting and writer.pending is None:
            if writer.task is None and not writer.waiting[0].opens:
                writer.pending = asyncio.ensure_future(self._store.load(writer.task_id))
                writer.pending.add_done_callback(partial(self._on_read, writer))
                return
            try:
                self._send(writer)
            except Conflict as refusal:
                writer.waiting.pop(0).fail(refusal)
        if writer.pending is None:
            self._retire(writer)

    def _send(self, writer: _TaskWriter) -> None:
        """Appends the first waiting entry, and those behind it that can go along. Raises Conflict if it is refused."""
        task = writer.task
        going: list[_Entry] = []
        for entry in writer.waiting:
            if going and (entry.goes_alone or going[0].goes_alone):
                break
            try:
                task = entry.apply_to(task)
            except Conflict:
                if not going:
                    raise
                break  # an entry before it is not durable yet: it is checked again once that is
            going.append(entry)
        del writer.waiting[: len(going)]
        events = _events_of(going)
        if not events:
            # All of them decided to record nothing.
            for entry in going:
                entry.succeed()
            return
        writer.on_its_way = going
        appending = self._store.append(going[-1].after, events, lease=self._require_lease(), digest=going[0].digest)
        # Stores that write in their own thread return a future; this check costs less than `ensure_future`.
        writer.pending = appending if isinstance(appending, asyncio.Future) else asyncio.ensure_future(appending)
        writer.pending.add_done_callback(partial(self._on_appended, writer))

    def _on_appended(self, writer: _TaskWriter, appending: asyncio.Future[int]) -> None:
        """Takes the result of the append that was on its way."""
        entries, writer.on_its_way, writer.pending = writer.on_its_way, [], None
        if error := _error_of(appending):
            self._failed(writer, entries, error)
        else:
            self._committed(writer, entries, appending.result())
        self._advance(writer)

    def _committed(self, writer: _TaskWriter, entries: Sequence[_Entry], first_seq: int) -> None:
        writer.task = entries[-1].after
        events = _events_of(entries)
        writer.durable = Update(first_seq + len(events) - 1, None, writer.task)
        # Waiting callers run only after this function, so the listeners are notified first.
        for entry in entries:
            entry.succeed()
        listeners = [listener for listener, wants in self._listeners if wants(writer.task_id)]
        if not listeners:
            return
        task = entries[0].before
        for seq, event in enumerate(events, first_seq):
            task = rebuild(task, (event,))
            update = Update(seq, event, task)
            for listener in listeners:
                listener(update)

    def _failed(self, writer: _TaskWriter, entries: Sequence[_Entry], error: BaseException) -> None:
        writer.forget()
        if isinstance(error, LeaseLost):
            self._lose(error)
        first = entries[0]
        is_late = isinstance(error, VersionConflict) and not first.opens and not first.is_second_try
        is_one_of_many = isinstance(error, InvalidRequest) and len(entries) > 1
        if is_late or is_one_of_many:
            for entry in entries:
                entry.is_second_try = True
            writer.waiting[:0] = entries
        else:
            # The entries behind it relied on it.
            _fail([*entries, *writer.waiting], error)
            writer.waiting.clear()

    def _require_lease(self) -> Lease:
        if self._lease is None:
            raise ValueError("a journal without a lease only reads")
        return self._lease

    def _lose(self, loss: LeaseLost) -> None:
        """Refuses all further records: a successor writes the inbox."""
        if self._loss is None:
            self._loss = loss
            self._lost.set()
            log.error("lease_lost", extra={"inbox": self._lease.inbox if self._lease else ""})

    def _on_read(self, writer: _TaskWriter, reading: asyncio.Future[Task]) -> None:
        """Takes the task that the store has read, and goes on with the waiting entries."""
        writer.pending = None
        if error := _error_of(reading):
            _fail(writer.waiting, error)
            writer.waiting.clear()
        else:
            writer.task = reading.result()
        self._advance(writer)

    def _retire(self, writer: _TaskWriter) -> None:
        """Removes an idle writer whose task is finished or no longer known."""
        if self._writers.get(writer.task_id) is not writer:
            return
        if writer.durable is None:
            del self._writers[writer.task_id]
        elif writer.durable.task.state.is_terminal:
            del self._writers[writer.task_id]
            if _length(writer.durable.task) > LARGEST_IN_MEMORY:
                return
            self._finished[writer.task_id] = writer.durable
            if len(self._finished) > self._keep_finished:
                self._finished.popitem(last=False)


def _events_of(entries: Sequence[_Entry]) -> Sequence[TaskEvent]:
    return entries[0].events if len(entries) == 1 else [event for entry in entries for event in entry.events]


def _length(task: Task) -> int:
    contents = [one.parts for one in task.history] + [one.parts for one in task.artifacts]
    return sum([_part_length(part) for parts in contents for part in parts])


def _part_length(part: Part) -> int:
    match part:
        case TextPart():
            return len(part.text)
        case FilePart():
            return len(part.content or b"")
        case DataPart():
            return len(repr(part.data))


def _fail(entries: Iterable[_Entry], error: BaseException) -> None:
    for entry in entries:
        entry.fail(error)


def _error_of(future: asyncio.Future[Any]) -> BaseException | None:
    # A store that is cancelled at shutdown has not done it; for waiting callers that is a failure like any other.
    return StoreFailed("the store stopped before it was done") if future.cancelled() else future.exception()
