"""Events on their way into SQLite: encoded where they come from, written many at a time."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from synapse.core.errors import InvalidRequest, VersionConflict
from synapse.core.events import MessageAdded, StateChanged, TaskEvent, TaskOpened
from synapse.core.task import Task, TaskId
from synapse.stores.event_rows import encode_events
from synapse.stores.rows import encode_task, micros
from synapse.stores.sqlite_keys import id_key, text_key
from synapse.stores.sqlite_queries import Row, query, read_many, write_many

_LONG: Final = 64
"""A task that grows gets a snapshot whenever it has so many events more, so that loading it stays cheap."""

Group = tuple[str, str, str]
"""Inbox, scope and state: tasks are counted for each."""
Claim = tuple[str, str, str]
"""A message id that a caller chose, the inbox and the scope."""
_WITH_MESSAGE: Final = (TaskOpened, MessageAdded)
_NO_MESSAGE: Final[Row] = (None, None, None)


class Append:
    """What one `append` writes, ready to be bound, and who waits for it."""

    __slots__ = (
        "body",
        "bytes",
        "claim",
        "digest",
        "done",
        "events",
        "key",
        "message_key",
        "snapshot",
        "task",
        "version_before",
    )

    def __init__(self, task: Task, events: Sequence[TaskEvent], digest: str, done: asyncio.Future[int]) -> None:
        """Raises ValueError, TypeError or RecursionError for what JSON cannot hold."""
        self.task = task
        self.events = events
        self.digest = digest
        self.done = done
        self.version_before = task.version - len(events)
        self.key = id_key(task.id)
        self.body = encode_events(events)
        self.bytes = len(self.body) if self.body.isascii() else len(self.body.encode())
        # The first append holds all of the task.
        self.snapshot = encode_task(task) if self.version_before and _needs_snapshot(self) else None
        self.claim: Claim | None = None
        self.message_key = 0
        first = events[0]
        if digest and isinstance(first, _WITH_MESSAGE):
            self.claim = first.message.message_id, task.inbox, task.scope
            self.message_key = text_key(first.message.message_id)

    def succeed(self, first_seq: int) -> None:
        self.done.set_result(first_seq)


def encode(task: Task, events: Sequence[TaskEvent], digest: str, done: asyncio.Future[int]) -> Append:
    """Raises InvalidRequest."""
    try:
        return Append(task, events, digest, done)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidRequest(f"this cannot be stored: {error}") from error


def write(connection: sqlite3.Connection, appends: Sequence[Append]) -> list[int]:
    """Write all of them and return the first seq of each, or raise and leave the transaction to be rolled back.

    Raises VersionConflict or sqlite3.Error.
    """
    if not appends:
        return []
    row = connection.execute(query("last_seq")).fetchone()
    batch = _Batch(row[0] if row else 0, _stored(connection, appends), _claimed(connection, appends))
    firsts = [batch.add(append) for append in appends]
    batch.write(connection)
    return firsts


def count(connection: sqlite3.Connection, more: Mapping[Group, int]) -> None:
    """Note how many tasks there are more, or fewer, that can be seen."""
    write_many(connection, "count_more", [(*group, number) for group, number in more.items() if number])


def keep(connection: sqlite3.Connection, more: Mapping[tuple[str, str], int]) -> None:
    """Note how many bytes are kept more, or fewer, for each inbox and scope."""
    write_many(connection, "keep_more", [(*whose, size) for whose, size in more.items() if size])


class _Place(NamedTuple):
    """Where a task is stored, and what it was before; the version is 0 when it is opened only now."""

    number: int
    version: int
    group: Group | None
    """Where it is counted, if it can be seen."""


class _Batch:
    """The rows of many appends. Nobody else writes meanwhile, so what was read before is still so."""

    def __init__(self, last_seq: int, places: dict[TaskId, _Place], claimed: set[Claim]) -> None:
        self._seq = last_seq
        self._places = places
        self._claimed = claimed
        self._latest: dict[TaskId, Append] = {}
        self._appends: list[Row] = []
        self._snapshots: dict[int, Row] = {}
        self._bytes: Counter[tuple[str, str]] = Counter()

    def add(self, append: Append) -> int:
        """Return the seq of its first event; raises VersionConflict."""
        task = append.task
        first = self._seq + 1
        self._seq += len(append.events)
        place = self._places.setdefault(task.id, _Place(self._seq, 0, None))
        known = self._latest.get(task.id)
        if append.version_before != (known.task.version if known else place.version):
            raise VersionConflict("somebody else changed the task first")
        if append.claim in self._claimed:
            raise VersionConflict("somebody else claimed the message id first")
        self._latest[task.id] = append
        self._bytes[task.inbox, task.scope] += append.bytes
        message = _NO_MESSAGE
        if append.claim:
            self._claimed.add(append.claim)
            message = (append.message_key, append.claim[0], append.digest)
        self._appends.append((self._seq, place.number, task.version, *message, append.body))
        if append.snapshot:
            # Only the last snapshot of a task counts.
            self._snapshots[place.number] = (place.number, task.version, append.snapshot)
        return first

    def write(self, connection: sqlite3.Connection) -> None:
        new: list[Row] = []
        changed: list[Row] = []
        more: Counter[Group] = Counter()
        for task_id, append in self._latest.items():
            task = append.task
            number, version, group = self._places[task_id]
            if version:
                changed.append((number, task.state.value, micros(task.updated_at), task.version, task.hidden))
            else:
                new.append(_task_row(number, append.key, task))
            if group:
                more[group] -= 1
            if not task.hidden:
                more[task.inbox, task.scope, task.state.value] += 1
        write_many(connection, "insert_append", self._appends)
        write_many(connection, "insert_task", new)
        write_many(connection, "update_task", changed)
        write_many(connection, "write_snapshot", list(self._snapshots.values()))
        count(connection, more)
        keep(connection, self._bytes)


def _stored(connection: sqlite3.Connection, appends: Sequence[Append]) -> dict[TaskId, _Place]:
    """The tasks of these appends that are there already, and others whose ids have the same numbers."""
    rows = read_many(connection, "stored_tasks", [(append.key,) for append in appends])
    return {
        TaskId(task_id): _Place(number, version, None if hidden else (inbox, scope, state))
        for task_id, number, version, inbox, scope, state, hidden in rows
    }


def _claimed(connection: sqlite3.Connection, appends: Sequence[Append]) -> set[Claim]:
    """What is claimed already and has the keys of these appends."""
    keys = [(append.message_key,) for append in appends if append.claim]
    return set(read_many(connection, "claimed_messages", keys))


def _needs_snapshot(append: Append) -> bool:
    """Whether the task is to be kept as a whole, too."""
    if append.task.version // _LONG != append.version_before // _LONG:
        return True
    state = append.task.state
    return (state.is_terminal or state.is_interrupted) and any(
        isinstance(event, StateChanged) for event in append.events
    )


def _task_row(number: int, key: int, task: Task) -> Row:
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
