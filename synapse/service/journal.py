"""The one door through which tasks change: check the event, make it durable, then tell everybody. In that order.

    record ─► waiting ─apply to the head─► in flight ─durable─► announced, caller answered
                 ▲                             │
                 └── read again, apply once ◄──┴─ version conflict      (any other failure: fail, and all behind it)

Each task that this process writes has a line. Its *head* is the task with everything applied that is in flight, so a
second event need not wait for the first to be durable. Readers never see the head, only what is durable.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from synapse.core.errors import AmbiguousTask, Conflict, StoreFailed, TaskNotFound, VersionConflict
from synapse.core.events import Recorded, TaskEvent, TaskOpened, Update
from synapse.core.lifecycle import apply, replay
from synapse.core.store import TaskStore
from synapse.core.task import Task, TaskId

Listener = Callable[[Update], None]

FINISHED_IN_MEMORY: Final = 512
_PAGE: Final = 500


def rebuild(known: Task | None, events: Iterable[TaskEvent]) -> Task:
    """Return `known` with `events` applied to it; without it, the events begin with TaskOpened.

    For readers of the log (stores, feeds): what was recorded is not judged a second time by anything but the lifecycle.
    """
    if known is None:
        return replay(events)
    for event in events:
        known = apply(known, event)
    return known


@dataclass(slots=True)
class _Entry:
    """The events of one `record`, and who waits for them. `tasks` is the task after each event."""

    events: tuple[TaskEvent, ...]
    digest: str
    done: asyncio.Future[Task]
    tasks: list[Task] = field(default_factory=list[Task])
    read_again: bool = False

    @property
    def opens(self) -> bool:
        return isinstance(self.events[0], TaskOpened)

    def fail(self, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)


@dataclass(slots=True)
class _Line:
    """What this process knows of one task, and what is on its way to it."""

    task_id: TaskId
    head: Task | None = None
    durable: Update | None = None
    """Its seq is 0 when the task was read without its log."""
    waiting: deque[_Entry] = field(default_factory=deque[_Entry])
    in_flight: deque[_Entry] = field(default_factory=deque[_Entry])
    conflicted: list[_Entry] = field(default_factory=list[_Entry])
    broken: BaseException | None = None
    """Why everything still in flight will fail: it was applied to a head that never became true."""
    reading: asyncio.Future[Task] | None = None

    @property
    def is_idle(self) -> bool:
        return not (self.waiting or self.in_flight or self.reading)


class Journal:
    """Records events and tells listeners. Keeps open tasks in memory, and the last few that finished."""

    def __init__(self, store: TaskStore, *, keep_finished: int = FINISHED_IN_MEMORY) -> None:
        self._store = store
        self._keep_finished = keep_finished
        self._lines: dict[TaskId, _Line] = {}
        self._finished: OrderedDict[TaskId, Update] = OrderedDict()
        self._listeners: list[Listener] = []

    async def record(self, *events: TaskEvent, digest: str = "") -> Task:
        """Make the events of one task durable together, tell the listeners, and return the task after them.

        A `digest` claims the message id of the first event. Giving up the wait does not take the events back.

        Raises:
            IllegalTransition, TaskFinished: the lifecycle does not allow it.
            TaskNotFound: there is no such task.
            VersionConflict: somebody else changed the task meanwhile, twice; or the message id is claimed.
            StoreFailed: nothing was recorded.
        """
        return await self.record_soon(*events, digest=digest)

    def record_soon(self, *events: TaskEvent, digest: str = "") -> asyncio.Future[Task]:
        """The same without waiting: behind what was recorded earlier of the same task, committed in groups."""
        task_id = events[0].task_id
        if any(event.task_id != task_id for event in events):
            raise ValueError("one record is about one task")
        entry = _Entry(events, digest, asyncio.get_running_loop().create_future())
        line = self._line_of(task_id)
        line.waiting.append(entry)
        self._advance(line)
        return entry.done

    async def take_over(self, inbox: str) -> Sequence[Task]:
        """Read the open tasks of an inbox whose lease this process holds, and keep them in memory from now on."""
        tasks = await self._store.open_tasks(inbox)
        for task in tasks:
            self._lines.setdefault(task.id, _Line(task.id, head=task, durable=Update(0, None, task)))
        return tasks

    async def load(self, task_id: TaskId) -> Task:
        """Return the task as it is durable.

        Raises TaskNotFound.
        """
        known = self._known(task_id)
        return known.task if known else await self._store.load(task_id)

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

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with each update once it is durable, in the order of the seqs; return how to stop that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _known(self, task_id: TaskId) -> Update | None:
        line = self._lines.get(task_id)
        if line is not None:
            return line.durable
        known = self._finished.get(task_id)
        if known is not None:
            self._finished.move_to_end(task_id)
        return known

    def _line_of(self, task_id: TaskId) -> _Line:
        line = self._lines.get(task_id)
        if line is None:
            known = self._finished.pop(task_id, None)
            line = self._lines[task_id] = _Line(task_id, known.task if known else None, known)
        return line

    def _advance(self, line: _Line) -> None:
        """Apply what waits, as far as that can be done now, and hand it to the store."""
        while line.waiting and line.reading is None:
            entry = line.waiting[0]
            if line.head is None and line.in_flight:
                return  # what is still in flight was applied to a head that is gone: let it fail first
            if line.head is None and not entry.opens:
                self._read(line)
                return
            try:
                entry.tasks = _after_each(line.head, entry.events)
            except Conflict as refusal:
                if line.in_flight:
                    return  # the head that refuses it is not true yet: ask again when it is
                line.waiting.popleft()
                entry.fail(refusal)
            else:
                line.waiting.popleft()
                self._append(line, entry)
        self._retire(line)

    def _append(self, line: _Line, entry: _Entry) -> None:
        line.head = entry.tasks[-1]
        line.in_flight.append(entry)
        pending = asyncio.ensure_future(self._store.append(line.head, entry.events, digest=entry.digest))
        pending.add_done_callback(partial(self._settle, line))

    def _settle(self, line: _Line, pending: asyncio.Future[Sequence[Recorded]]) -> None:
        """The store is done with the entry that was longest in flight."""
        entry = line.in_flight.popleft()
        if error := _error_of(pending):
            self._failed(line, entry, error)
        else:
            self._committed(line, entry, pending.result())
        if not line.in_flight:
            line.broken = None
            line.waiting.extendleft(reversed(line.conflicted))
            line.conflicted.clear()
        self._advance(line)

    def _committed(self, line: _Line, entry: _Entry, recorded: Sequence[Recorded]) -> None:
        line.durable = Update(recorded[-1].seq, None, entry.tasks[-1])
        # The caller runs only after this function, so the listeners hear of it first.
        if not entry.done.done():
            entry.done.set_result(line.durable.task)
        for one, task in zip(recorded, entry.tasks, strict=True):
            update = Update(one.seq, one.event, task)
            for listener in tuple(self._listeners):
                listener(update)

    def _failed(self, line: _Line, entry: _Entry, error: BaseException) -> None:
        line.head = line.durable = None
        if line.broken is not None:
            entry.fail(line.broken)
        elif isinstance(error, VersionConflict) and not entry.opens and not entry.read_again:
            entry.read_again = True
            line.conflicted.append(entry)
        else:
            line.broken = error
            entry.fail(error)

    def _read(self, line: _Line) -> None:
        line.reading = asyncio.ensure_future(self._store.load(line.task_id))
        line.reading.add_done_callback(partial(self._take_in, line))

    def _take_in(self, line: _Line, reading: asyncio.Future[Task]) -> None:
        """The store has answered what the task is; go on with what waited for that."""
        line.reading = None
        if error := _error_of(reading):
            for entry in line.waiting:
                entry.fail(error)
            line.waiting.clear()
        else:
            line.head = reading.result()
        self._advance(line)

    def _retire(self, line: _Line) -> None:
        """Let a line leave memory when nothing is on its way and the task is finished, or not known to be true."""
        if not line.is_idle or self._lines.get(line.task_id) is not line:
            return
        if line.durable is None:
            del self._lines[line.task_id]
        elif line.durable.task.state.is_terminal:
            del self._lines[line.task_id]
            self._finished[line.task_id] = line.durable
            if len(self._finished) > self._keep_finished:
                self._finished.popitem(last=False)


def _after_each(task: Task | None, events: Iterable[TaskEvent]) -> list[Task]:
    tasks: list[Task] = []
    for event in events:
        task = rebuild(task, (event,))
        tasks.append(task)
    return tasks


def _error_of(future: asyncio.Future[Any]) -> BaseException | None:
    # A store that is cancelled, at shutdown, has not done it; for those who wait that is a failure like any other.
    return StoreFailed("the store stopped before it was done") if future.cancelled() else future.exception()
