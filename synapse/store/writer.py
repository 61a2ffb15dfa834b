"""Writes to the store in one thread of the process: it commits everything that waits in one transaction.

    submit ─► queue ─lock file held─► drained ─► one transaction ─► COMMIT ─► one call into the loop for all of them
                │                                      └ failed: again, each in its own transaction
                └ waited longer than the bound: StoreLocked, and it will not be written

SQLite's lock is not fair between processes: four that saturate it starve one another. `flock` queues them, so the
writer takes the lock file before each transaction. While it waits, the queue and so the next batch grow. A single write
never waits for others.

The caller's thread encodes the events of an append; the writer's thread only binds and inserts rows.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import sqlite3
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Condition, Event, Thread
from typing import Any, Final, Generic, NamedTuple, TypeVar

from synapse.core.errors import (
    InvalidRequest,
    LeaseLost,
    StoreFailed,
    StoreLocked,
    StoreLost,
    SynapseError,
    VersionConflict,
)
from synapse.core.events import MessageAdded, StateChanged, TaskEvent, TaskOpened
from synapse.core.store import Lease
from synapse.core.task import Task, TaskId
from synapse.store import doorbell
from synapse.store.codec import encode_events, encode_task, micros
from synapse.store.file import lock_path, locked, open_file, store_error
from synapse.store.lost_files import Loss, StoreFiles
from synapse.store.queries import Row, id_key, query, read_many, text_key, write_many

log = logging.getLogger(__name__)

MAX_QUEUED: Final = 20_000
GATHER_SECONDS: Final = 0.0005
_MAX_BATCH: Final = 1000
_ENOUGH: Final = 64
"""The loop wakes the thread for this many works without waiting for more."""
SNAPSHOT_EVENTS: Final = 64
"""A growing task gets a snapshot each time it has this many more events, so that loading it stays cheap."""
_PRUNE_TASKS: Final = 100
_PRUNE_EVENTS: Final = 2000
_WITH_MESSAGE: Final = (TaskOpened, MessageAdded)

Group = tuple[str, str, str]
"""Inbox, scope and state: tasks are counted for each."""
Claim = tuple[str, str, str]
"""A message id that a caller chose, the inbox and the scope."""
_NO_MESSAGE: Final[Row] = (None, None, None)

T = TypeVar("T")


class Append:
    """The rows of one `append`, encoded, and the future that its caller awaits."""

    __slots__ = (
        "body",
        "bytes",
        "claim",
        "digest",
        "done",
        "events",
        "key",
        "lease",
        "message_key",
        "snapshot",
        "task",
        "version_before",
    )

    def __init__(
        self, task: Task, events: Sequence[TaskEvent], lease: Lease, digest: str, done: asyncio.Future[int]
    ) -> None:
        """Raises ValueError, TypeError or RecursionError for what JSON cannot hold."""
        self.task = task
        self.lease = lease
        self.events = events
        self.digest = digest
        self.done = done
        self.version_before = task.version - len(events)
        self.key = id_key(task.id)
        self.body = encode_events(events)
        self.bytes = len(self.body) if self.body.isascii() else len(self.body.encode())
        # The first append holds the whole task, so it needs no snapshot.
        self.snapshot = encode_task(task) if self.version_before and _needs_snapshot(self) else None
        self.claim: Claim | None = None
        self.message_key = 0
        first = events[0]
        if digest and isinstance(first, _WITH_MESSAGE):
            self.claim = first.message.message_id, task.inbox, task.scope
            self.message_key = text_key(first.message.message_id)

    def succeed(self, first_seq: int) -> None:
        self.done.set_result(first_seq)


@dataclass(slots=True)
class Job(Generic[T]):
    """Any other work in a write transaction, and the future that its caller awaits."""

    run: Callable[[sqlite3.Connection], T]
    done: asyncio.Future[T]

    def succeed(self, result: T) -> None:
        self.done.set_result(result)


@dataclass(slots=True)
class _Recovery:
    """A request to put a lost store back; see `Writer.recover`."""

    done: asyncio.Future[bool]

    def succeed(self, result: bool) -> None:
        self.done.set_result(result)


Work = Append | Job[Any]
QueuedWork = Work | _Recovery
Outcome = tuple[QueuedWork, Any, SynapseError | None]
"""A work with its result, or with the error that it failed with."""


def encode_append(
    task: Task, events: Sequence[TaskEvent], lease: Lease, digest: str, done: asyncio.Future[int]
) -> Append:
    """Returns the append, ready to be submitted. Raises InvalidRequest for what JSON cannot hold."""
    try:
        return Append(task, events, lease, digest, done)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidRequest(f"this cannot be stored: {error}") from error


class Writer:
    """Owns the connection that writes. `_run` and its callees run in the thread, everything else in the event loop."""

    def __init__(self, files: StoreFiles, connection: sqlite3.Connection, *, lock_timeout: float) -> None:
        self._files = files
        self._path = path = files.path
        self._connection = connection
        self._lock_timeout = lock_timeout
        self._loop = asyncio.get_running_loop()
        self._lock_file = os.open(lock_path(path), os.O_RDWR | os.O_CLOEXEC)
        self._queue: deque[tuple[float, QueuedWork]] = deque()
        self._changed = Condition()
        self._is_idle = False
        self._is_waking = False
        self._closing = Event()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._expiry: asyncio.TimerHandle | None = None
        Thread(target=self._run, name="synapse-store-writer", daemon=True).start()

    def submit(self, work: QueuedWork) -> None:
        """Queues `work`. Its future is done when the work is durable; futures are done in the order of the calls."""
        if self._closing.is_set():
            work.done.set_exception(StoreFailed("the store is closed"))
            return
        if len(self._queue) >= MAX_QUEUED:
            hint = f"is the disk stuck? `df -h {self._path.parent}`"
            work.done.set_exception(StoreFailed(f"{MAX_QUEUED} writes already wait for the disk", hint=hint))
            return
        self._queue.append((self._loop.time(), work))
        if self._is_idle and not self._is_waking:
            self._is_waking = True
            self._loop.call_soon(self._wake, len(self._queue))
        if self._expiry is None:
            self._expiry = self._loop.call_later(self._lock_timeout, self._expire)

    def recover(self) -> asyncio.Future[bool]:
        """Puts the store back if it was deleted, and continues with it; the result says whether it can be used.

        Works submitted before fail with StoreLost, like all works while the store is lost.
        """
        done: asyncio.Future[bool] = self._loop.create_future()
        self.submit(_Recovery(done))
        return done

    async def close(self) -> None:
        """Writes the queue, then closes. Waits at most for the lock timeout while another process holds the lock."""
        with self._changed:
            self._closing.set()
            self._changed.notify()
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._closed), self._lock_timeout)
        if self._expiry is not None:
            self._expiry.cancel()

    def _wake(self, waited: int) -> None:
        """Wakes the thread once the loop submits no more: larger batches cost less, and the two compete for the GIL.

        `waited` is the length of the queue one iteration of the loop ago.
        """
        waiting = len(self._queue)
        if waited < waiting < _ENOUGH:
            self._loop.call_soon(self._wake, waiting)
            return
        self._is_waking = False
        # The thread checks the queue again after it has set `_is_idle`, so no work is missed.
        with self._changed:
            self._changed.notify()

    def _expire(self) -> None:
        """Fails works that have waited too long for the lock file."""
        self._expiry = None
        now = self._loop.time()
        late: list[QueuedWork] = []
        with self._changed:
            while self._queue and self._queue[0][0] <= now - self._lock_timeout:
                late.append(self._queue.popleft()[1])
            oldest = self._queue[0][0] if self._queue else None
        if oldest is not None:
            self._expiry = self._loop.call_at(oldest + self._lock_timeout, self._expire)
        _deliver([(work, None, locked(self._path)) for work in late])

    def _run(self) -> None:
        outcomes: list[Outcome] = []
        while self._wait_for_work():
            if len(outcomes) > 1:
                # Under load the next works follow at once; gathering them makes each a tenth cheaper.
                self._closing.wait(GATHER_SECONDS)
            outcomes = self._commit_queue()
            if outcomes:
                self._call_in_loop(_deliver, outcomes)
        try:
            self._files.save(self._connection)
        except (OSError, sqlite3.Error) as error:
            # The thread ends here, and no caller is left to get the error.
            log.warning("store_not_saved", extra={"path": str(self._path), "why": str(error)})
        self._connection.close()
        os.close(self._lock_file)
        self._call_in_loop(self._closed.set_result, None)

    def _call_in_loop(self, callback: Callable[[Any], object], argument: object) -> None:
        # The loop may be closed by the time another process releases the lock.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, argument)

    def _wait_for_work(self) -> bool:
        """Returns True when there may be work, False when the writer is closing and the queue is empty."""
        while not self._queue and not self._closing.is_set():
            with self._changed:
                self._is_idle = True
                if not self._queue and not self._closing.is_set():
                    self._changed.wait()
                self._is_idle = False
        # `_expire` may have emptied the queue meanwhile.
        return bool(self._queue) or not self._closing.is_set()

    def _commit_queue(self) -> list[Outcome]:
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX)
        except OSError as error:
            # The kernel may have no memory for locks (ENOLCK). The works fail; the thread goes on.
            failure = store_error(error, self._path)
            return [(work, None, failure) for work in self._take_batch()]
        try:
            batch = self._take_batch()
            writes = [work for work in batch if not isinstance(work, _Recovery)]
            outcomes = self._commit(writes) if writes else []
            return [*outcomes, *(self._recover(work) for work in batch if isinstance(work, _Recovery))]
        finally:
            fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    def _take_batch(self) -> list[QueuedWork]:
        with self._changed:
            return [self._queue.popleft()[1] for _ in range(min(len(self._queue), _MAX_BATCH))]

    def _commit(self, batch: Sequence[Work]) -> list[Outcome]:
        """Writes the batch in one transaction; if that fails, each work in its own, so that only faulty works fail."""
        try:
            return self._write(batch)
        except Exception as error:  # noqa: BLE001 - the callers get any error, and the thread goes on
            failure = store_error(error, self._path)
        if len(batch) == 1 or isinstance(failure, StoreLocked | StoreLost):
            return [(work, None, failure) for work in batch]
        return [outcome for work in batch for outcome in self._commit([work])]

    def _recover(self, work: _Recovery) -> Outcome:
        try:
            if not self._files.fault():
                return work, True, None
            # A store that lost only its log is saved at the end: a new connection would use the old index of the WAL.
            if self._files.loss() is Loss.LOG_GONE or not self._files.save(self._connection):
                return work, False, None
            connection = open_file(self._path, lock_timeout=self._lock_timeout)
            self._files.adopt()
            lock_file = os.open(lock_path(self._path), os.O_RDWR | os.O_CLOEXEC)
        except (OSError, sqlite3.Error, SynapseError) as error:
            return work, None, store_error(error, self._path)
        self._connection.close()
        os.close(self._lock_file)
        self._connection, self._lock_file = connection, lock_file
        return work, not self._files.fault(), None

    def _write(self, batch: Sequence[Work]) -> list[Outcome]:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            appends = [work for work in batch if isinstance(work, Append)]
            seqs = iter(_write_appends(connection, appends))
            results = [next(seqs) if isinstance(work, Append) else work.run(connection) for work in batch]
            # Before the commit: a refused work must not come back with a store that is put back later. And after it: a
            # commit to a file that is gone from its path must not be acknowledged.
            self._files.require()
            connection.execute("COMMIT")
            self._files.require()
            if appends:
                doorbell.ring(self._lock_file)
        except BaseException:
            # After some failures SQLite has already rolled back.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return [(work, result, None) for work, result in zip(batch, results, strict=True)]


def require_lease(connection: sqlite3.Connection, lease: Lease, inbox: str = "") -> None:
    """Raises LeaseLost unless `lease` is the current one of its inbox, and of `inbox` if that is given."""
    row = connection.execute(query("lease"), (lease.inbox,)).fetchone()
    if row != (lease.holder, lease.epoch):
        raise _lease_lost(lease.inbox)
    if inbox not in ("", lease.inbox):
        raise _lease_lost(inbox)


def add_task_counts(connection: sqlite3.Connection, more: Mapping[Group, int]) -> None:
    """Adds to the counts of visible tasks; the numbers may be negative."""
    write_many(connection, "add_task_counts", [(*group, number) for group, number in more.items() if number])


def add_stored_bytes(connection: sqlite3.Connection, more: Mapping[tuple[str, str], int]) -> None:
    """Adds to the stored bytes of each inbox and scope; the numbers may be negative."""
    write_many(connection, "add_stored_bytes", [(*owner, size) for owner, size in more.items() if size])


def prune_some(connection: sqlite3.Connection, before: int, relayed_before: int | None = None) -> int:
    """Deletes a few of the oldest finished tasks that have not changed since `before`, with all their rows.

    Those that other machines sent must not have changed since `relayed_before` either, if that is given.

    Returns how many tasks were deleted; 0 when none is left.
    """
    events = 0
    deleted = 0
    task_counts: Counter[Group] = Counter()
    stored_bytes: Counter[tuple[str, str]] = Counter()
    for number, task_id, inbox, scope, state, version, hidden in connection.execute(
        query("old_tasks"), (before, before if relayed_before is None else relayed_before, _PRUNE_TASKS)
    ).fetchall():
        if deleted and events + version > _PRUNE_EVENTS:
            break
        stored_bytes[inbox, scope] -= connection.execute(query("bytes_of_task"), (number,)).fetchone()[0]
        connection.execute(query("delete_deliveries_of_task"), (task_id,))
        connection.execute(query("delete_pushes_of_task"), (task_id,))
        connection.execute(query("delete_appends"), (number,))
        connection.execute(query("delete_snapshot"), (number,))
        connection.execute(query("delete_task"), (number,))
        if not hidden:
            task_counts[inbox, scope, state] -= 1
        events += version
        deleted += 1
    add_task_counts(connection, task_counts)
    add_stored_bytes(connection, stored_bytes)
    return deleted


def _write_appends(connection: sqlite3.Connection, appends: Sequence[Append]) -> list[int]:
    """Writes all appends and returns the first seq of each. The caller rolls back when this raises.

    Raises LeaseLost, VersionConflict or sqlite3.Error.
    """
    if not appends:
        return []
    # Usually one check: a host writes one inbox, with one lease.
    for append in {(id(one.lease), one.task.inbox): one for one in appends}.values():
        require_lease(connection, append.lease, append.task.inbox)
    row = connection.execute(query("last_seq")).fetchone()
    batch = _Batch(row[0] if row else 0, _stored(connection, appends), _claimed(connection, appends))
    firsts = [batch.add(append) for append in appends]
    batch.write(connection)
    return firsts


def _lease_lost(inbox: str) -> LeaseLost:
    return LeaseLost(
        f"this process no longer holds the inbox '{inbox}': another one has acquired it",
        hint="`synapse list` shows which agent has it now",
    )


class _StoredTask(NamedTuple):
    """A task as it is stored before the batch; its version is 0 when the batch opens it."""

    number: int
    version: int
    group: Group | None
    """The count that includes it; None when it is hidden."""


class _Batch:
    """The rows of many appends. The transaction excludes other writers, so what was read before still holds."""

    def __init__(self, last_seq: int, stored: dict[TaskId, _StoredTask], claimed: set[Claim]) -> None:
        self._seq = last_seq
        self._stored = stored
        self._claimed = claimed
        self._latest: dict[TaskId, Append] = {}
        self._appends: list[Row] = []
        self._snapshots: dict[int, Row] = {}
        self._bytes: Counter[tuple[str, str]] = Counter()

    def add(self, append: Append) -> int:
        """Returns the seq of its first event. Raises VersionConflict."""
        task = append.task
        first = self._seq + 1
        self._seq += len(append.events)
        stored = self._stored.setdefault(task.id, _StoredTask(self._seq, 0, None))
        known = self._latest.get(task.id)
        if append.version_before != (known.task.version if known else stored.version):
            raise VersionConflict("another writer changed the task first")
        if append.claim in self._claimed:
            raise VersionConflict("another writer claimed the message id first")
        self._latest[task.id] = append
        self._bytes[task.inbox, task.scope] += append.bytes
        message = _NO_MESSAGE
        if append.claim:
            self._claimed.add(append.claim)
            message = (append.message_key, append.claim[0], append.digest)
        self._appends.append((self._seq, stored.number, task.version, *message, append.body))
        if append.snapshot:
            # Only the last snapshot of a task is kept.
            self._snapshots[stored.number] = (stored.number, task.version, append.snapshot)
        return first

    def write(self, connection: sqlite3.Connection) -> None:
        new: list[Row] = []
        changed: list[Row] = []
        more: Counter[Group] = Counter()
        for task_id, append in self._latest.items():
            task = append.task
            number, version, group = self._stored[task_id]
            if version:
                changed.append((number, task.state.value, micros(task.updated_at), task.version, task.hidden))
            else:
                new.append(task_row(number, append.key, task))
            if group:
                more[group] -= 1
            if not task.hidden:
                more[task.inbox, task.scope, task.state.value] += 1
        write_many(connection, "insert_append", self._appends)
        write_many(connection, "insert_task", new)
        write_many(connection, "update_task", changed)
        write_many(connection, "write_snapshot", list(self._snapshots.values()))
        add_task_counts(connection, more)
        add_stored_bytes(connection, self._bytes)


def _stored(connection: sqlite3.Connection, appends: Sequence[Append]) -> dict[TaskId, _StoredTask]:
    """Returns the tasks of these appends that are stored already, and others whose ids have the same key."""
    rows = read_many(connection, "stored_tasks", [(append.key,) for append in appends])
    return {
        TaskId(task_id): _StoredTask(number, version, None if hidden else (inbox, scope, state))
        for task_id, number, version, inbox, scope, state, hidden in rows
    }


def _claimed(connection: sqlite3.Connection, appends: Sequence[Append]) -> set[Claim]:
    """Returns the claims that are stored already and have the keys of these appends."""
    keys = [(append.message_key,) for append in appends if append.claim]
    return set(read_many(connection, "claimed_messages", keys))


def _needs_snapshot(append: Append) -> bool:
    """Whether to store the whole task, too: it has grown, or a wait for it ends."""
    if append.task.version // SNAPSHOT_EVENTS != append.version_before // SNAPSHOT_EVENTS:
        return True
    state = append.task.state
    return (state.is_terminal or state.is_interrupted) and any(
        isinstance(event, StateChanged) for event in append.events
    )


def task_row(number: int, key: int, task: Task) -> Row:
    """Returns the row of a task for `insert_task`."""
    created = micros(task.created_at)
    return (
        number,
        key,
        task.id,
        task.inbox,
        task.agent_id,
        task.scope,
        id_key(task.context_id),
        task.context_id,
        task.parent_id,
        created,
        task.state.value,
        created if task.updated_at is task.created_at else micros(task.updated_at),
        task.version,
        task.hidden,
    )


def _deliver(outcomes: Sequence[Outcome]) -> None:
    """Sets the results of works, in the order in which they became durable."""
    for work, result, error in outcomes:
        if work.done.done():
            continue  # its caller was cancelled
        if error is not None:
            work.done.set_exception(error)
        else:
            work.succeed(result)
