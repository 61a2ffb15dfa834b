"""Reading tasks and events from SQLite: each function is one look at one instant."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final, cast

from synapse.core.errors import IllegalTransition, StoreCorrupt, StoreTooNew, TaskFinished, TaskNotFound
from synapse.core.events import Recorded
from synapse.core.message import Json
from synapse.core.store import KnownMessage, TaskPage, TaskQuery, is_wanted
from synapse.core.task import EXPIRED, Task, TaskId, TaskState
from synapse.service.journal import rebuild
from synapse.stores.cursor import Cursor
from synapse.stores.rows import KINDS, compact_json, decode_event, decode_task, micros
from synapse.stores.sqlite_queries import query

_LAST_CHARACTER: Final = "\U0010ffff"
_LARGEST: Final = 2**63 - 1
_MOST_TEXTS: Final = 8
_OPEN: Final = frozenset(state for state in TaskState if not state.is_terminal)
_HAS_EXPIRED: Final = compact_json({"reason": EXPIRED})[1:-1]
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
    for place in [(inbox, scope)] if inbox and scope else _senders(connection, inbox, scope):
        row = connection.execute(query("find_message"), (*place, message_id)).fetchone()
        if row is not None:
            return KnownMessage(TaskId(row[0]), row[1])
    return None


def _senders(connection: Connection, inbox: str, scope: str) -> Iterator[tuple[str, str]]:
    """The inboxes and scopes that have messages. There are few, so an index by message id would cost more than this."""
    place = ("", "")
    while row := connection.execute(query("next_senders"), place).fetchone():
        place = (row[0], row[1])
        if inbox in ("", place[0]) and scope in ("", place[1]):
            yield place


def open_tasks(connection: Connection, inbox: str) -> list[Task]:
    return [_task(connection, row) for row in connection.execute(query("open_tasks"), (inbox,)).fetchall()]


def read_after(connection: Connection, seq: int, task_id: TaskId | None, limit: int) -> list[Recorded]:
    seq = min(seq, _LARGEST)
    if task_id is None:
        rows = connection.execute(query("events_of_all"), (seq, limit))
    else:
        rows = connection.execute(query("events_of_task"), (task_id, seq, limit))
    return [_recorded(*row) for row in rows]


def last_seq(connection: Connection) -> int:
    row = connection.execute(query("last_seq")).fetchone()
    return row[0] if row else 0


def list_tasks(connection: Connection, wanted: TaskQuery) -> TaskPage:
    conditions, values = _conditions(wanted)
    index = _index(wanted)
    if wanted.metadata or wanted.expired is not None:
        return _list_by_looking(connection, wanted, index, conditions, values)
    counting = _counting(wanted, index, conditions, values)
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


def _index(wanted: TaskQuery) -> str:
    """The index to use where SQLite, which does not know how the values are spread, would walk through all tasks."""
    if wanted.context_id:
        return "INDEXED BY tasks_by_context"
    # Few tasks are open at any time.
    return "INDEXED BY tasks_open" if wanted.states and wanted.states <= _OPEN else ""


def _counting(wanted: TaskQuery, index: str, conditions: str, values: Sequence[Any]) -> tuple[str, Sequence[Any]]:
    """The query for how many tasks there are, and its values: kept counts where they tell, else by counting."""
    if wanted.agent_id or wanted.context_id or wanted.parent_id or wanted.updated_after is not None:
        return query("count_tasks").format(index=index, conditions=conditions), tuple(values)
    conditions, values = _conditions(wanted, table="task_counts")
    return query("counted_tasks").format(conditions=conditions), values


def _list_by_looking(
    connection: Connection, wanted: TaskQuery, index: str, conditions: str, values: list[Any]
) -> TaskPage:
    """The same by what only the task itself says: SQLite finds those that may fit, and each is looked at."""
    for text in (*_texts_in(wanted.metadata), *((_HAS_EXPIRED,) if wanted.expired else ())):
        # A snapshot that is not the last word may lack what was noted since.
        conditions += " AND (snapshots.version IS NOT tasks.version OR instr(snapshots.body, ?) > 0)"
        values.append(text)
    if wanted.expired:
        conditions += " AND tasks.state = 'failed'"
    after = Cursor.parse(wanted.cursor) if wanted.cursor else None
    rows = connection.execute(query("list_tasks").format(index=index, conditions=conditions), (*values, -1))
    found: list[tuple[Cursor, Task]] = []
    total = 0
    for row in rows:
        if not _fits_unread(row, wanted) and not is_wanted(_task(connection, row), wanted):
            continue
        total += 1
        place = Cursor(row[2], row[0])
        if len(found) <= wanted.limit and (after is None or place < after):
            found.append((place, _task(connection, row)))
    page = found[: wanted.limit]
    following = page[-1][0].text() if len(found) > len(page) > 0 else ""
    return TaskPage(tuple(task for _, task in page), following, total)


def _fits_unread(row: Sequence[Any], wanted: TaskQuery) -> bool:
    """Whether the text of a task says that it fits, so that it is not made into a task only to be counted."""
    *_, version, snapshot_version, snapshot = row
    return (
        wanted.expired is False and not wanted.metadata and snapshot_version == version and _HAS_EXPIRED not in snapshot
    )


def _texts_in(metadata: Json) -> Iterator[str]:
    """Pieces that a snapshot has whose metadata has these values."""
    for key, value in islice(metadata.items(), _MOST_TEXTS):
        if isinstance(value, dict):
            yield from _texts_in(cast("Json", value))
        elif isinstance(value, str):
            yield compact_json({key: value})[1:-1]
        else:
            # Numbers have more than one spelling.
            yield f"{compact_json(key)}:"


def _conditions(wanted: TaskQuery, table: str = "tasks") -> tuple[str, list[Any]]:
    # Only tasks that can be seen are counted.
    conditions = ["tasks.hidden = 0"] if table == "tasks" else ["true"]
    values: list[Any] = []
    for column in ("inbox", "agent_id", "scope", "context_id", "parent_id"):
        if value := getattr(wanted, column):
            conditions.append(f"{table}.{column} = ? AND {table}.{column} <> ''")
            values.append(value)
    if wanted.states and wanted.states <= _OPEN:
        conditions.append(f"{table}.state IN ('submitted', 'working', 'input_required', 'auth_required')")
    if wanted.states:
        conditions.append(f"{table}.state IN ({', '.join('?' * len(wanted.states))})")
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
