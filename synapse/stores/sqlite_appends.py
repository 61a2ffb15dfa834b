"""Events on their way into SQLite: encoded where they come from, written many at a time."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from synapse.core.errors import InvalidRequest, VersionConflict
from synapse.core.events import MessageAdded, Recorded, StateChanged, TaskEvent, TaskOpened
from synapse.core.task import Task, TaskId
from synapse.stores.rows import encode_event, encode_task, micros
from synapse.stores.sqlite_queries import query

_MOST_ROWS: Final = 64
"""Of one statement; with the columns that they have, older SQLite takes no more values."""

EventRow = tuple[TaskId, int, str, int, str]
Claim = tuple[str, str, str, str, str]


@dataclass(slots=True)
class Append:
    """What one `append` writes, ready to be bound, and who waits for it."""

    task: Task
    events: Sequence[TaskEvent]
    rows: list[EventRow]
    claim: Claim | None
    snapshot: str | None
    done: asyncio.Future[Sequence[Recorded]]

    @property
    def version_before(self) -> int:
        return self.task.version - len(self.events)

    def succeed(self, first_seq: int) -> None:
        self.done.set_result([Recorded(seq, event) for seq, event in enumerate(self.events, first_seq)])


def encode(task: Task, events: Sequence[TaskEvent], digest: str, done: asyncio.Future[Sequence[Recorded]]) -> Append:
    """Raises InvalidRequest."""
    try:
        rows = [
            (task.id, version, kind, micros(event.at), body)
            for version, event in enumerate(events, task.version - len(events) + 1)
            for kind, body in (encode_event(event),)
        ]
        changes_state = any(isinstance(event, StateChanged) for event in events)
        snapshot = encode_task(task) if changes_state else None
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidRequest(f"this cannot be stored: {error}") from error
    return Append(task, events, rows, _claim(task, events[0], digest), snapshot, done)


def write(connection: sqlite3.Connection, appends: Sequence[Append]) -> list[int]:
    """Write all of them and return the first seq of each, or raise and leave the transaction to be rolled back.

    Raises VersionConflict or sqlite3.Error.
    """
    if not appends:
        return []
    row = connection.execute(query("last_seq")).fetchone()
    seq: int = row[0] if row else 0
    firsts: list[int] = []
    event_rows: list[tuple[object, ...]] = []
    for append in appends:
        firsts.append(seq + 1)
        event_rows += [(*columns, seq + index) for index, columns in enumerate(append.rows, 1)]
        seq += len(append.rows)
    try:
        _insert(connection, "insert_event", event_rows)
        _write_tasks(connection, appends)
        _insert(connection, "claim_message", [append.claim for append in appends if append.claim])
    except sqlite3.IntegrityError as error:
        raise VersionConflict(f"somebody else was first ({error})") from error
    return firsts


def _write_tasks(connection: sqlite3.Connection, appends: Sequence[Append]) -> None:
    opened = [append for append in appends if not append.version_before]
    changed = [append for append in appends if append.version_before]
    _insert(connection, "insert_task", [_task_row(append.task) for append in opened])
    if changed:
        updates = [(*_changing(append.task), append.task.id, append.version_before) for append in changed]
        if connection.executemany(query("update_task"), updates).rowcount != len(changed):
            raise VersionConflict("somebody else changed the task first")
    # Only the last snapshot of a task counts.
    snapshots = {append.task.id: append for append in appends if append.snapshot}.values()
    if snapshots:
        rows = [(append.task.version, append.snapshot, append.task.id) for append in snapshots]
        connection.executemany(query("write_snapshot"), rows)


def _insert(connection: sqlite3.Connection, name: str, rows: Sequence[tuple[object, ...]]) -> None:
    """Insert many rows with few statements.

    Each statement lets go of the interpreter, and the thread gets it back only when the busy loop lets go of it too.
    """
    done = 0
    while done < len(rows):
        # Powers of two, so that few different statements are kept prepared.
        count = min(_MOST_ROWS, 1 << ((len(rows) - done).bit_length() - 1))
        values = [value for row in rows[done : done + count] for value in row]
        connection.execute(_insert_many(name, count), values)
        done += count


@cache
def _insert_many(name: str, count: int) -> str:
    head, values, row = query(name).partition("VALUES")
    return head + values + ",".join([row] * count)


def _task_row(task: Task) -> tuple[object, ...]:
    return (
        task.id,
        task.inbox,
        task.agent_id,
        task.scope,
        task.context_id,
        task.parent_id,
        micros(task.created_at),
        *_changing(task),
    )


def _changing(task: Task) -> tuple[object, ...]:
    return task.state.value, micros(task.updated_at), task.version, task.hidden


def _claim(task: Task, first: TaskEvent, digest: str) -> Claim | None:
    if digest and isinstance(first, TaskOpened | MessageAdded):
        return task.inbox, task.scope, first.message.message_id, task.id, digest
    return None
