"""The replica of other machines' logs: a store's file with the logs of many machines, written by one process.

    batch ─► fleet.log decides: Taken ─► Replica file: rows applied, mark and head moved, one transaction ─► doorbell

Tasks and events are in the tables of a store, so that a gateway reads them as it reads its own. Beside them:

    logs        one row for each incarnation of a machine, with the mark up to which its log is here
    marks       the marks of its batches: other replicas can be given the same batches
    origins     for each append the log that it came from, and its seq there. That seq is what clients see, so that a
                stream goes on at any gateway. `is_made`: no machine wrote it, this replica did; see `close_log`
    originals   the text of an append that had to be written in another way
    unread      rows that this version cannot read, and rows of tasks that it does not have, as they came

An inbox is stored with its machine, `box2!codex`; the agent's id as it is, except in the column that finds tasks by it,
which has `synapse-codex-8120@box2`. A message that a gateway kept for a machine has the scope of its caller. All else
is kept as it is, and `read_log` returns the rows byte for byte as they came.

A machine ships its whole log again in a new incarnation. Tasks that it still has replace those of the old log. When the
new log is complete, the others that were open are lost: they read `failed`, reason `machine_lost`.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections import Counter, OrderedDict
from collections.abc import Container, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from synapse.core.address import on_machine, remote_inbox
from synapse.core.caller import GATEWAY_SCOPE, MACHINE_SCOPE
from synapse.core.errors import IllegalTransition, StoreCorrupt, TaskFinished
from synapse.core.events import StateChanged, TaskEvent, TaskOpened
from synapse.core.task import Task, TaskId, TaskState
from synapse.fleet.log import MACHINE_LOST, LogRow, Mark, ReplicaHead, Taken
from synapse.fleet.wire import Incarnation
from synapse.store import doorbell, reader
from synapse.store.codec import EventRow, decode_event, encode_events, encode_task, from_json, micros, moment, to_json
from synapse.store.file import file_lock, lock_path, migrations, open_file
from synapse.store.log_rows import StoredAppend, encode_append, read_append
from synapse.store.queries import Row, id_key, query, text_key, write_many
from synapse.store.side_file import transaction
from synapse.store.writer import (
    SNAPSHOT_EVENTS,
    Group,
    add_stored_bytes,
    add_task_counts,
    prune_some,
    task_row,
)
from synapse.tasks.journal import rebuild

LOCK_TIMEOUT: Final = 10.0
KEEP_MARKS: Final = timedelta(days=8)
"""How long marks are kept: a replica that stands at an older one starts again."""
_TASKS_IN_MEMORY: Final = 4096
_READ_AGAIN: Final = 500
_NO_CLAIM: Final[Row] = (None, None, None)
_INBOX: Final = re.compile(r'\[\["task_opened",-?\d+,\{"agent_id":"(?:[^"\\]|\\.)*","inbox":"')
"""The beginning of the text of every append that opens a task, up to its inbox."""
_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS logs (
    number INTEGER PRIMARY KEY,
    machine TEXT NOT NULL,
    counter INTEGER NOT NULL, -- of the incarnation
    nonce TEXT NOT NULL,
    seq INTEGER NOT NULL,     -- the mark up to which the log is here
    digest BLOB NOT NULL,
    is_closed INTEGER NOT NULL,
    opened_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    UNIQUE (machine, counter, nonce)
)""",
    """CREATE TABLE IF NOT EXISTS marks (
    log INTEGER NOT NULL, seq INTEGER NOT NULL, digest BLOB NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (log, seq)
) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS origins (
    seq INTEGER PRIMARY KEY, log INTEGER NOT NULL, origin_seq INTEGER NOT NULL, is_made INTEGER NOT NULL
)""",
    "CREATE UNIQUE INDEX IF NOT EXISTS origins_by_log ON origins (log, origin_seq) WHERE is_made = 0",
    "CREATE TABLE IF NOT EXISTS originals (seq INTEGER PRIMARY KEY, body TEXT NOT NULL)",
    """CREATE TABLE IF NOT EXISTS unread (
    log INTEGER NOT NULL, origin_seq INTEGER NOT NULL, task_id TEXT NOT NULL, version INTEGER NOT NULL,
    body TEXT NOT NULL, message_id TEXT, digest TEXT, at INTEGER NOT NULL, PRIMARY KEY (log, origin_seq)
) WITHOUT ROWID""",
    """CREATE TRIGGER IF NOT EXISTS append_deleted AFTER DELETE ON appends BEGIN
    DELETE FROM origins WHERE seq = OLD.seq;
    DELETE FROM originals WHERE seq = OLD.seq;
END""",
)


class ReplicaLog(NamedTuple):
    """How far the log of one incarnation is here."""

    number: int
    machine: str
    incarnation: Incarnation
    mark: Mark
    is_closed: bool
    opened_at: datetime
    changed_at: datetime
    """When its last batch was taken, by this machine's clock."""


class _Known(NamedTuple):
    """A task of the replica as it is before the next append of it."""

    number: int
    log: int
    task: Task
    origin_seq: int
    """Of its last append."""
    group: Group | None
    """The count that includes it in the file; None when none does."""


class _Unreadable(Exception):
    """A row that this version cannot apply; it is kept as it is."""


def open_replica(path: Path, *, lock_timeout: float = LOCK_TIMEOUT) -> sqlite3.Connection:
    """Returns a connection to the replica at `path`; creates or migrates it first.

    Raises StoreFailed, OSError or sqlite3.Error.
    """
    connection = open_file(path, lock_timeout=lock_timeout)
    try:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'append_deleted'").fetchone():
            with file_lock(path, lock_timeout), transaction(connection):
                for statement in _TABLES:
                    connection.execute(statement)
    except BaseException:
        connection.close()
        raise
    return connection


class ReplicaFile:
    """Writes the replica. One process has one; its methods block, one at a time. They raise sqlite3.Error, OSError."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._lock_file = os.open(lock_path(path), os.O_RDWR | os.O_CLOEXEC)
        self._schema = migrations()[-1][0]
        self._tasks: OrderedDict[TaskId, _Known] = OrderedDict()
        self._logs: dict[tuple[str, Incarnation], ReplicaLog] = {}
        self._load_logs()

    @classmethod
    def open(cls, path: Path) -> Self:
        """Opens the replica at `path`, and reads again what an earlier version could not read."""
        file = cls(path, open_replica(path))
        for log in file.logs():
            file._read_again(log)
        return file

    def close(self) -> None:
        self._connection.close()
        os.close(self._lock_file)

    def logs(self) -> list[ReplicaLog]:
        """Returns all logs of which the replica has a part, oldest incarnation first."""
        return sorted(self._logs.values(), key=lambda log: log.incarnation.counter)

    def heads(self) -> list[ReplicaHead]:
        """Returns how far the newest log of each machine is, for `fleet.log.Replica`."""
        newest = {log.machine: log for log in self.logs()}
        return [ReplicaHead(machine=log.machine, incarnation=log.incarnation, mark=log.mark) for log in newest.values()]

    def unread(self) -> dict[str, int]:
        """Returns how many rows of each machine cannot be read by this version."""
        machines = {log.number: log.machine for log in self._logs.values()}
        counts = Counter[str]()
        for number, count in self._connection.execute(query("count_unread")):
            counts[machines[number]] += count
        return dict(counts)

    def take(self, taken: Taken, now: datetime, gateways: Container[str] | None = None) -> int:
        """Writes the rows of a batch, its mark and the head, in one transaction; returns how many events were new.

        `gateways` are the machines that may send messages for callers of theirs; None means all. Large rows must have
        their data. Raises ValueError, OverflowError also, for rows that no store has written.
        """
        head = taken.head
        known = self._logs.get((head.machine, head.incarnation))
        if known is not None and known.mark == head.mark:
            return 0
        with transaction(self._connection):
            log = known or self._begin(head, now)
            batch = _Rows(self, log, micros(now), gateways)
            here = self._seqs_here(log, taken.rows)
            for row in taken.rows:
                # A large row that was pruned before it could be fetched has no data.
                if row.seq not in here and row.data:
                    batch.add(row.seq, read_append(row), is_known=taken.schema <= self._schema)
            batch.write()
            mark = head.mark
            self._connection.execute(query("move_log"), (mark.seq, mark.digest, micros(now), log.number))
            self._connection.execute(query("write_mark"), (log.number, mark.seq, mark.digest, micros(now)))
        self._logs[head.machine, head.incarnation] = log._replace(mark=mark, changed_at=now)
        return self._committed(batch)

    def restart(self, head: ReplicaHead, now: datetime) -> None:
        """Moves a log back to its start: the machine ships it again. Rows that are here are not written twice."""
        log = self._logs[head.machine, head.incarnation]
        with transaction(self._connection):
            self._connection.execute(query("move_log"), (0, b"", micros(now), log.number))
        self._logs[head.machine, head.incarnation] = log._replace(mark=head.mark, changed_at=now)

    def logs_to_close(self) -> list[ReplicaLog]:
        """Returns the logs of incarnations that have ended, and whose open tasks do not read as lost yet."""
        newest = {log.machine: log for log in self.logs()}
        return [log for log in self.logs() if not log.is_closed and newest[log.machine] != log]

    def close_log(self, log: ReplicaLog, now: datetime) -> int:
        """Records that the open tasks of an ended incarnation are lost; returns how many.

        Call it when the log of the machine's next incarnation is complete: tasks that it has too are not lost.
        """
        with transaction(self._connection):
            batch = _Rows(self, log, micros(now))
            for (task_id,) in self._connection.execute(query("open_tasks_of_log"), (log.number,)).fetchall():
                batch.lose(TaskId(task_id), now)
            batch.write()
            self._connection.execute(query("close_log"), (log.number,))
        self._logs[log.machine, log.incarnation] = log._replace(is_closed=True)
        return self._committed(batch)

    def prune(self, before: datetime, now: datetime) -> int:
        """Deletes some finished tasks unchanged since `before`, and old marks; returns how many tasks, 0 at the end."""
        with transaction(self._connection):
            deleted = prune_some(self._connection, before=micros(before))
            self._connection.execute(query("forget_marks"), (micros(now - KEEP_MARKS),))
            self._connection.execute(query("forget_unread"), (micros(before),))
        if deleted:
            self._tasks.clear()
        return deleted

    def read_log(
        self, head: ReplicaHead, *, most_marks: int, most_rows: int, most_bytes: int
    ) -> tuple[list[Mark], list[LogRow], bool]:
        """Returns the marks and rows of a log after `head`, for `fleet.log.batches_after`, and whether all rows fit.

        The rows are those that the machine shipped, byte for byte.
        """
        log = self._logs.get((head.machine, head.incarnation))
        if log is None:
            return [], [], True
        found = self._connection.execute(query("marks_after"), (log.number, head.mark.seq, most_marks))
        marks = [Mark(seq, digest) for seq, digest in found]
        rows: list[LogRow] = []
        size = 0
        up_to = marks[-1].seq if marks else head.mark.seq
        with closing(self._connection.execute(query("replica_rows"), (log.number, head.mark.seq, up_to))) as read:
            for found_row in read:
                row = _row_of(found_row, log.machine)
                if rows and (len(rows) >= most_rows or size + len(row.data) > most_bytes):
                    return marks, rows, False
                rows.append(row)
                size += len(row.data)
        return marks, rows, True

    def row_data(self, head: ReplicaHead, seq: int) -> bytes | None:
        """Returns the data of one row of a log as it came, or None."""
        log = self._logs.get((head.machine, head.incarnation))
        if log is None:
            return None
        found = self._connection.execute(query("replica_rows"), (log.number, seq - 1, seq)).fetchone()
        return None if found is None else _row_of(found, log.machine).data

    def _load_logs(self) -> None:
        self._logs.clear()
        for number, machine, counter, nonce, seq, digest, closed, opened, changed in self._connection.execute(
            query("replica_logs")
        ):
            incarnation = Incarnation(counter, nonce)
            self._logs[machine, incarnation] = ReplicaLog(
                number, machine, incarnation, Mark(seq, digest), bool(closed), moment(opened), moment(changed)
            )

    def _begin(self, head: ReplicaHead, now: datetime) -> ReplicaLog:
        at = micros(now)
        values = (head.machine, *head.incarnation, at, at)
        (number,) = self._connection.execute(query("begin_log"), values).fetchone()
        return ReplicaLog(
            number, head.machine, head.incarnation, Mark(), is_closed=False, opened_at=now, changed_at=now
        )

    def _seqs_here(self, log: ReplicaLog, rows: Sequence[LogRow]) -> set[int]:
        """Returns which of the rows are here already: those of a log that is shipped again."""
        if not rows:
            return set()
        found = self._connection.execute(query("known_origins"), (log.number, rows[0].seq - 1, rows[-1].seq))
        return {seq for (seq,) in found}

    def _read_again(self, log: ReplicaLog) -> None:
        """Applies the rows that were kept unread, as far as this version can read them."""
        last = 0
        while rows := self._connection.execute(query("unread_rows"), (log.number, last, _READ_AGAIN)).fetchall():
            with transaction(self._connection):
                batch = _Rows(self, log, 0)
                for seq, *fields in rows:
                    if batch.apply(seq, StoredAppend(*fields)):
                        self._connection.execute(query("delete_unread"), (log.number, seq))
                batch.write()
            self._committed(batch)
            last = rows[-1][0]

    def _committed(self, batch: _Rows) -> int:
        """Remembers the tasks of a committed transaction, and wakes the readers; returns how many events it had."""
        if not batch.events:
            return 0
        for task_id, known in batch.latest.items():
            self._tasks.pop(task_id, None)
            if not known.task.state.is_terminal:
                self._tasks[task_id] = known
        while len(self._tasks) > _TASKS_IN_MEMORY:
            self._tasks.popitem(last=False)
        doorbell.ring(self._lock_file)
        return batch.events

    def find(self, task_id: TaskId) -> _Known | None:
        """Returns a task as it is in the file."""
        if known := self._tasks.get(task_id):
            return known
        row = self._connection.execute(query("task_of_replica"), (id_key(task_id), task_id)).fetchone()
        if row is None:
            return None
        number, _version, inbox, scope, state, hidden, log, origin_seq = row
        task = reader.load_inside(self._connection, task_id)
        return _Known(number, log, task, origin_seq, None if hidden else (inbox, scope, state))

    @property
    def connection(self) -> sqlite3.Connection:
        return self._connection

    def machine_of(self, number: int) -> str:
        """Returns the machine of a log."""
        return next(log.machine for log in self._logs.values() if log.number == number)


class _Rows:
    """The rows of one transaction. All of them are of one log."""

    def __init__(self, file: ReplicaFile, log: ReplicaLog, at: int, gateways: Container[str] | None = None) -> None:
        self._file = file
        self._gateways = gateways
        self._connection = file.connection
        self._log = log
        self._at = at
        last = self._connection.execute(query("last_seq")).fetchone()
        self._seq: int = last[0] if last else 0
        self.events = 0
        self.latest: dict[TaskId, _Known] = {}
        self._before: dict[TaskId, _Known | None] = {}
        """The tasks as they are in the file; None for new ones."""
        self._appends: list[Row] = []
        self._origins: list[Row] = []
        self._originals: list[Row] = []
        self._unread: list[Row] = []
        self._to_snapshot: set[TaskId] = set()
        self._bytes: Counter[tuple[str, str]] = Counter()

    def add(self, origin_seq: int, append: StoredAppend, *, is_known: bool) -> None:
        """Adds a row of the log; one that cannot be applied is kept unread."""
        if is_known and self.apply(origin_seq, append):
            return
        fields = (append.task_id, append.version, append.body, append.message_id, append.digest)
        self._unread.append((self._log.number, origin_seq, *fields, self._at))

    def apply(self, origin_seq: int, append: StoredAppend) -> bool:
        """Adds a row of the log if this version can read it and has the beginning of its task."""
        try:
            self._apply(origin_seq, append)
        except (_Unreadable, IllegalTransition, TaskFinished, StoreCorrupt):
            return False
        except (LookupError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            return False  # damaged, or an event of a newer version
        return True

    def lose(self, task_id: TaskId, now: datetime) -> None:
        """Records that a task is lost with its machine."""
        known = self._file.find(task_id)
        if known is None or known.task.state.is_terminal:
            return
        lost = StateChanged(
            task_id=task_id,
            at=max(now, known.task.updated_at),
            state=TaskState.FAILED,
            reason=MACHINE_LOST,
            note=f"the machine {self._log.machine} has other files now, which do not know this task",
        )
        task = rebuild(known.task, (lost,))
        self._before.setdefault(task_id, known)
        self._keep(known, task, (lost,), encode_events((lost,)), known.origin_seq + 1, _NO_CLAIM, is_made=True)

    def write(self) -> None:
        """Writes all rows."""
        new: list[Row] = []
        changed: list[Row] = []
        snapshots: list[Row] = []
        counts: Counter[Group] = Counter()
        for task_id, known in self.latest.items():
            task, before = known.task, self._before[task_id]
            if before is None:
                row = task_row(known.number, id_key(task_id), task)
                new.append((*row[:4], on_machine(task.agent_id, self._log.machine), *row[5:]))
            else:
                changed.append((known.number, task.state.value, micros(task.updated_at), task.version, task.hidden))
                if before.group:
                    counts[before.group] -= 1
            if task_id in self._to_snapshot:
                snapshots.append((known.number, task.version, encode_task(task)))
            group = None if task.hidden else (task.inbox, task.scope, task.state.value)
            if group:
                counts[group] += 1
            self.latest[task_id] = known._replace(group=group)
        connection = self._connection
        write_many(connection, "insert_append", self._appends)
        write_many(connection, "insert_origin", self._origins)
        write_many(connection, "insert_original", self._originals)
        write_many(connection, "insert_unread", self._unread)
        write_many(connection, "insert_task", new)
        write_many(connection, "update_task", changed)
        write_many(connection, "write_snapshot", snapshots)
        add_task_counts(connection, counts)
        add_stored_bytes(connection, self._bytes)

    def _apply(self, origin_seq: int, append: StoredAppend) -> None:
        task_id = TaskId(append.task_id)
        rows: list[EventRow] = from_json(append.body)
        events = [decode_event(task_id, row) for row in rows]
        first = events[0]
        known = self.latest.get(task_id) or self._file.find(task_id)
        former: _Known | None = None
        body: str | None = append.body
        if isinstance(first, TaskOpened):
            former, known = known, None
            scope = _caller_scope(first, self._gateways)
            events[0] = replace(first, inbox=remote_inbox(first.inbox, self._log.machine), scope=scope)
            body = _with_machine(append.body, self._log.machine) if scope == first.scope else None
        elif known is None or known.log != self._log.number:
            raise _Unreadable
        task = rebuild(known.task if known else None, events)
        if task.version != append.version:
            raise _Unreadable
        if former is not None:
            self._delete(former)
        # Raises UnicodeEncodeError for what SQLite cannot hold in a column.
        f"{task.inbox}{task.agent_id}{task.scope}{task.context_id}{task.parent_id}".encode()
        claim = _NO_CLAIM
        if append.message_id is not None:
            claim = (text_key(append.message_id), append.message_id, append.digest)
        self._before.setdefault(task_id, known)
        if body is None:
            body = _rewritten(rows, task)
            self._originals.append((self._seq + len(events), append.body))
        self._keep(known, task, events, body, origin_seq, claim)

    def _keep(  # noqa: PLR0913 - the columns of an append
        self,
        known: _Known | None,
        task: Task,
        events: Sequence[TaskEvent],
        body: str,
        origin_seq: int,
        claim: Row,
        *,
        is_made: bool = False,
    ) -> None:
        self._seq += len(events)
        self.events += len(events)
        number = known.number if known else self._seq
        self._appends.append((self._seq, number, task.version, *claim, body))
        self._origins.append((self._seq, self._log.number, origin_seq, is_made))
        self._bytes[task.inbox, task.scope] += len(body) if body.isascii() else len(body.encode())
        if known is not None and _needs_snapshot(task, events):
            self._to_snapshot.add(task.id)
        group = known.group if known else None
        self.latest[task.id] = _Known(number, self._log.number, task, origin_seq, group)

    def _delete(self, known: _Known) -> None:
        """Deletes a task that an earlier incarnation of the same machine had, and that its new log has again."""
        if known.log == self._log.number or self._file.machine_of(known.log) != self._log.machine:
            # The log has a task of this id already, or another machine has: none can replace the tasks of others.
            raise _Unreadable
        connection, number, task = self._connection, known.number, known.task
        size = connection.execute(query("bytes_of_task"), (number,)).fetchone()[0]
        for name in ("delete_appends", "delete_snapshot", "delete_task"):
            connection.execute(query(name), (number,))
        add_stored_bytes(connection, {(task.inbox, task.scope): -size})
        if known.group:
            add_task_counts(connection, {known.group: -1})
        self._before[task.id] = None


def _row_of(found: Sequence[Any], machine: str) -> LogRow:
    """Returns the row of `replica_rows` as its machine shipped it."""
    seq, task_id, version, body, message_id, digest, original = found
    text = _without_machine(body, machine) if original is None else original
    return LogRow(seq, encode_append(StoredAppend(task_id, version, text, message_id, digest)))


def _with_machine(body: str, machine: str) -> str | None:
    """Returns the text of an append that opens a task, with the machine in its inbox; None for one of another form."""
    found = _INBOX.match(body)
    return None if found is None else f"{body[: found.end()]}{remote_inbox(body[found.end() :], machine)}"


def _without_machine(body: str, machine: str) -> str:
    """Returns the text of an append as its machine has it."""
    found = _INBOX.match(body)
    return body if found is None else body[: found.end()] + body[found.end() :].removeprefix(remote_inbox("", machine))


def _rewritten(rows: Sequence[EventRow], task: Task) -> str:
    """Returns the text of an append that opens a task, with the inbox and the scope that the task has here."""
    (kind, at, fields), *others = rows
    return to_json([[kind, at, {**fields, "inbox": task.inbox, "scope": task.scope}], *others])


def _caller_scope(opened: TaskOpened, gateways: Container[str] | None) -> str:
    """Returns the scope of a task for gateways: that of the caller whose message a gateway's machine kept and sent.

    The task itself has the scope of that machine, which is all that its own machine could prove. Other machines than
    `gateways` have no callers.
    """
    given = opened.metadata.get(GATEWAY_SCOPE)
    if not isinstance(given, str) or not given or not opened.scope.startswith(MACHINE_SCOPE):
        return opened.scope
    sender = opened.scope.removeprefix(MACHINE_SCOPE)
    return given if gateways is None or sender in gateways else opened.scope


def _needs_snapshot(task: Task, events: Sequence[TaskEvent]) -> bool:
    """Decides as the store's own writer does; the snapshot is written once for all appends of a batch."""
    if task.version // SNAPSHOT_EVENTS != (task.version - len(events)) // SNAPSHOT_EVENTS:
        return True
    is_end = task.state.is_terminal or task.state.is_interrupted
    return is_end and any(isinstance(event, StateChanged) for event in events)
