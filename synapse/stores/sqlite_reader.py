"""Reading tasks and events from SQLite: each function is one look at one instant."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from synapse.core.errors import IllegalTransition, StoreCorrupt, StoreTooNew, TaskFinished, TaskNotFound
from synapse.core.events import Recorded
from synapse.core.store import KnownMessage, TaskPage, TaskQuery
from synapse.core.task import Task, TaskId, TaskState
from synapse.service.journal import rebuild
from synapse.stores.cursor import Cursor
from synapse.stores.rows import KINDS, decode_event, decode_task, micros
from synapse.stores.sqlite_queries import query

_LAST_CHARACTER: Final = "\U0010ffff"
_LARGEST: Final = 2**63 - 1
_OPEN: Final = frozenset(state for state in TaskState if not state.is_terminal)
_HINT: Final = "`synapse doctor` checks the store"

Connection = sqlite3.Connection


def load(connection: Connection, task_id: TaskId) -> Task:
    """Raises TaskNotFound."""
    row = connection.execute(query("load_task"), (task_id,)).fetchone()
    if row is None:
        raise TaskNotFound(task_id)
    return _task(connection, row)


def find(connection: Connection, prefix: str, inbox: str, limit: int) -> list[TaskId]:
    rows = connection.execute(query("find_tasks"), (prefix, prefix + _LAST_CHARACTER, inbox, limit))
    return [TaskId(task_id) for (task_id,) in rows]


def find_message(connection: Connection, inbox: str, scope: str, message_id: str) -> KnownMessage | None:
    row = connection.execute(query("find_message"), (inbox, scope, message_id)).fetchone()
    return KnownMessage(TaskId(row[0]), row[1]) if row else None


def open_tasks(connection: Connection, inbox: str) -> list[Task]:
    return [_task(connection, row) for row in connection.execute(query("open_tasks"), (inbox,)).fetchall()]


def read_after(connection: Connection, seq: int, task_id: TaskId | None, limit: int) -> list[Recorded]:
    seq = min(seq, _LARGEST)
    if task_id is None:
        rows = connection.execute(query("events_of_all"), (seq, limit))
    else:
        rows = connection.execute(query("events_of_task"), (task_id, seq, limit))
    return [_recorded(*row) for row in rows]


def list_tasks(connection: Connection, wanted: TaskQuery) -> TaskPage:
    conditions, values = _conditions(wanted)
    # Few tasks are open at any time; without the hint SQLite walks through all that ever were.
    index = "INDEXED BY tasks_open" if wanted.states and wanted.states <= _OPEN else ""
    counting = query("count_tasks").format(index=index, conditions=conditions), tuple(values)
    if wanted.cursor:
        conditions += " AND (tasks.updated_at, tasks.number) < (?, ?)"
        values += Cursor.parse(wanted.cursor)
    # One more than asked for, to know whether there is a next page.
    values.append(wanted.limit + 1)
    rows = connection.execute(query("list_tasks").format(index=index, conditions=conditions), values).fetchall()
    is_last = len(rows) <= wanted.limit
    tasks = tuple(_task(connection, row) for row in rows[: wanted.limit])
    if is_last and not wanted.cursor:
        return TaskPage(tasks, "", len(tasks))
    (total,) = connection.execute(*counting).fetchone()
    if is_last or not tasks:
        return TaskPage(tasks, "", total)
    number, _, updated_at, *_ = rows[wanted.limit - 1]
    return TaskPage(tasks, Cursor(updated_at, number).text(), total)


def _conditions(wanted: TaskQuery) -> tuple[str, list[Any]]:
    conditions = ["tasks.hidden = 0"]
    values: list[Any] = []
    for column in ("inbox", "agent_id", "scope", "context_id", "parent_id"):
        if value := getattr(wanted, column):
            conditions.append(f"tasks.{column} = ? AND tasks.{column} <> ''")
            values.append(value)
    if wanted.states and wanted.states <= _OPEN:
        conditions.append("tasks.state IN ('submitted', 'working', 'input_required', 'auth_required')")
    if wanted.states:
        conditions.append(f"tasks.state IN ({', '.join('?' * len(wanted.states))})")
        values += sorted(state.value for state in wanted.states)
    if wanted.updated_after is not None:
        conditions.append("tasks.updated_at > ?")
        values.append(micros(wanted.updated_after))
    return " AND ".join(conditions), values


def _task(connection: Connection, row: Sequence[Any]) -> Task:
    """The task of a row of `load_task`, `open_tasks` or `list_tasks`: its snapshot and the events since."""
    _, task_id, _, version, snapshot_version, snapshot = row
    known = _decoded(snapshot) if snapshot is not None else None
    if known is not None and snapshot_version == version:
        return known
    rows = connection.execute(query("events_since_snapshot"), (task_id, snapshot_version or 0))
    try:
        task = rebuild(known, (_recorded(*one).event for one in rows))
    except (IllegalTransition, TaskFinished) as error:
        raise StoreCorrupt(f"the log of task {task_id} makes no sense: {error}", hint=_HINT) from error
    if task.version != version:
        raise StoreCorrupt(f"the log of task {task_id} ends at {task.version} and not at {version}", hint=_HINT)
    return task


def _decoded(snapshot: str) -> Task:
    try:
        return decode_task(snapshot)
    except (LookupError, ValueError, TypeError) as error:
        raise StoreCorrupt(f"a snapshot cannot be read: {error}", hint=_HINT) from error


def _recorded(seq: int, task_id: str, kind: str, at: int, body: str) -> Recorded:
    if kind not in KINDS:
        raise StoreTooNew(f"event {seq} is a '{kind}', which only a newer Synapse knows", hint="upgrade Synapse")
    try:
        return Recorded(seq, decode_event(kind, TaskId(task_id), at, body))
    except (LookupError, ValueError, TypeError) as error:
        raise StoreCorrupt(f"event {seq} cannot be read: {error}", hint=_HINT) from error
