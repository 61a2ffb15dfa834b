"""Reading tasks and events from SQLite: each function is one look at one instant.

What the texts in the rows say; one that cannot be read is told by its name.

Where a page of tasks ends: the same in every store, opaque to everybody else.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from functools import lru_cache
from itertools import islice
from typing import Any, Final, NamedTuple, Self, cast

from synapse.core.errors import IllegalTransition, InvalidRequest, StoreCorrupt, StoreTooNew, TaskFinished, TaskNotFound
from synapse.core.events import Recorded, TaskEvent
from synapse.core.message import Json
from synapse.core.store import KnownMessage, TaskPage, TaskQuery, is_wanted
from synapse.core.task import EXPIRED, Task, TaskId, TaskState
from synapse.store.codec import EventRow, Fields, decode_event, decode_task, from_json, micros, to_json, unknown_kind
from synapse.store.queries import id_key, query, text_key
from synapse.tasks.journal import rebuild

_LAST_CHARACTER: Final = "\U0010ffff"
_LARGEST: Final = 2**63 - 1
_MOST_TEXTS: Final = 8
_WHOLE_ID: Final = 36
"""Letters of an id; see `runtime.ids`."""
_OPEN: Final = frozenset(state for state in TaskState if not state.is_terminal)
_HAS_EXPIRED: Final = to_json({"reason": EXPIRED})[1:-1]

Connection = sqlite3.Connection


def load(connection: Connection, task_id: TaskId) -> Task:
    """Raises TaskNotFound."""
    row = connection.execute(query("load_task"), (id_key(task_id), task_id)).fetchone()
    if row is not None and not _is_whole(row):
        # There is more to read, and it has to be of the same instant.
        with _one_instant(connection):
            row = connection.execute(query("load_task"), (id_key(task_id), task_id)).fetchone()
            return _found(connection, task_id, row)
    return _found(connection, task_id, row)


def is_whole_id(prefix: str) -> bool:
    """Whether it is found by its key. Of a shorter one all ids are looked through: only people type those."""
    return len(prefix) >= _WHOLE_ID


def find(connection: Connection, prefix: str, inbox: str, limit: int) -> list[TaskId]:
    if is_whole_id(prefix):
        rows = connection.execute(query("find_task"), (id_key(prefix), prefix, inbox))
    else:
        rows = connection.execute(query("find_tasks"), (prefix, prefix + _LAST_CHARACTER, inbox, limit))
    return [TaskId(task_id) for (task_id,) in rows]


def find_message(connection: Connection, inbox: str, scope: str, message_id: str) -> KnownMessage | None:
    row = connection.execute(query("find_message"), (text_key(message_id), message_id, inbox, scope)).fetchone()
    return KnownMessage(TaskId(row[0]), row[1]) if row else None


def open_tasks(connection: Connection, inbox: str) -> list[Task]:
    with _one_instant(connection):
        return [_task(connection, row) for row in connection.execute(query("open_tasks"), (inbox,)).fetchall()]


def read_after(connection: Connection, seq: int, task_id: TaskId | None, limit: int) -> list[Recorded]:
    seq = min(seq, _LARGEST)
    values: tuple[object, ...] = (seq,) if task_id is None else (task_id, id_key(task_id), seq)
    name = "appends_of_all" if task_id is None else "appends_of_task"
    found: list[Recorded] = []
    # Closed at once: a statement that was not read to its end would hold up the checkpoint of the log.
    with closing(connection.execute(query(name), values)) as rows:
        for last, of_task, body in rows:
            # An append may have begun before `seq`, and may go on after the limit.
            found += recorded_in(last, TaskId(of_task), body, seq, limit - len(found))
            if len(found) >= limit:
                break
    return found


def stored_bytes(connection: Connection, inbox: str, scope: str) -> int:
    """How many bytes of events are kept; an empty inbox or scope means any."""
    kept: int = connection.execute(query("kept_bytes"), (inbox, scope)).fetchone()[0]
    return kept


def last_seq(connection: Connection) -> int:
    row = connection.execute(query("last_seq")).fetchone()
    return row[0] if row else 0


def list_tasks(connection: Connection, wanted: TaskQuery) -> TaskPage:
    with _one_instant(connection):
        return _page(connection, wanted)


def _page(connection: Connection, wanted: TaskQuery) -> TaskPage:
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
        # What is not the last word may lack what was noted since.
        conditions += (
            " AND (COALESCE(snapshots.version, appends.version) IS NOT tasks.version"
            " OR instr(COALESCE(snapshots.body, appends.body), ?) > 0)"
        )
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
    return wanted.expired is False and not wanted.metadata and _is_whole(row) and _HAS_EXPIRED not in row[-1]


def _texts_in(metadata: Json) -> Iterator[str]:
    """Pieces that the text of a task has whose metadata has these values."""
    for key, value in islice(metadata.items(), _MOST_TEXTS):
        if isinstance(value, dict):
            yield from _texts_in(cast("Json", value))
        elif isinstance(value, str) and _has_one_spelling(key + value):
            yield to_json({key: value})[1:-1]
        elif _has_one_spelling(key):
            # Numbers have more than one spelling.
            yield f"{to_json(key)}:"


def _has_one_spelling(text: str) -> bool:
    """Whether all who wrote rows wrote `text` alike: some letters were written as escapes."""
    return text.isascii() and text.isprintable()


def _conditions(wanted: TaskQuery, table: str = "tasks") -> tuple[str, list[Any]]:
    # Only tasks that can be seen are counted.
    conditions = ["tasks.hidden = 0"] if table == "tasks" else ["true"]
    values: list[Any] = []
    for column in ("inbox", "agent_id", "scope", "context_id", "parent_id"):
        if value := getattr(wanted, column):
            conditions.append(f"{table}.{column} = ? AND {table}.{column} <> ''")
            values.append(value)
    if wanted.context_id:
        conditions.append(f"{table}.context_key = ?")
        values.append(id_key(wanted.context_id))
    if wanted.states and wanted.states <= _OPEN:
        conditions.append(f"{table}.state IN ('submitted', 'working', 'input_required', 'auth_required')")
    if wanted.states:
        conditions.append(f"{table}.state IN ({', '.join('?' * len(wanted.states))})")
        values += sorted(state.value for state in wanted.states)
    if wanted.updated_after is not None:
        conditions.append("tasks.updated_at > ?")
        values.append(micros(wanted.updated_after))
    return " AND ".join(conditions), values


@contextmanager
def _one_instant(connection: Connection) -> Generator[None]:
    """Read in one transaction; a single statement needs none."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _found(connection: Connection, task_id: TaskId, row: Sequence[Any] | None) -> Task:
    if row is None:
        raise TaskNotFound(task_id)
    return _task(connection, row)


def _is_whole(row: Sequence[Any]) -> bool:
    """Whether the text in the row is the whole task: nothing was appended since."""
    version, text_version = row[3:5]
    return bool(version == text_version)


def _task(connection: Connection, row: Sequence[Any]) -> Task:
    """The task of a row of `load_task`, `open_tasks` or `list_tasks`: its text and what was appended since."""
    number, task_id, _, version, text_version, text = row
    if _is_whole(row):
        return (_task_in if len(text) > _SHORT else _known_task_in)(number, TaskId(task_id), version, text)
    later = connection.execute(query("appends_since"), (number, text_version or 0))
    return task_in(number, TaskId(task_id), version, text, later)


def _task_in(number: int, task_id: TaskId, version: int, text: str) -> Task:
    return task_in(number, task_id, version, text, ())


# Callers poll, and pages are shown again and again: the same text is the same task. Long ones would fill the memory.
_SHORT: Final = 4096
_known_task_in: Final = lru_cache(maxsize=512)(_task_in)


_HINT: Final = "`synapse doctor` checks the store"


def recorded_in(last: int, task_id: TaskId, body: str, after: int, most: int) -> Sequence[Recorded]:
    """The events after the seq `after` of the append that ends with the seq `last`, so many at most."""
    rows = _events_in(last, _parsed(f"append {last}", body))
    first = last - len(rows) + 1
    start = max(0, after + 1 - first)
    wanted = rows[start : start + most]
    return list(map(Recorded, range(first + start, last + 1), _decoded(last, task_id, wanted)))


def task_in(number: int, task_id: TaskId, version: int, text: str | None, later: Iterable[tuple[int, str]]) -> Task:
    """The task whose text is a snapshot (an object) or the first append (a list), and what was appended later."""
    known: Task | None = None
    events: list[TaskEvent] = []
    said = _parsed(f"task {task_id}", text or "[]")
    if isinstance(said, dict):
        known = _from_snapshot(task_id, cast("Fields", said))
    else:
        events += _decoded(number, task_id, _events_in(number, said))
    for seq, body in later:
        events += _decoded(seq, task_id, _events_in(seq, _parsed(f"append {seq}", body)))
    try:
        task = rebuild(known, events)
    except (IllegalTransition, TaskFinished) as error:
        raise StoreCorrupt(f"the log of task {task_id} makes no sense: {error}", hint=_HINT) from error
    if task.version != version:
        raise StoreCorrupt(f"the log of task {task_id} ends at {task.version} and not at {version}", hint=_HINT)
    return task


def _parsed(what: str, text: str) -> object:
    try:
        return from_json(text)
    except ValueError as error:
        raise StoreCorrupt(f"{what} cannot be read: {error}", hint=_HINT) from error


def _from_snapshot(task_id: TaskId, fields: Fields) -> Task:
    try:
        return decode_task(fields)
    except (LookupError, ValueError, TypeError) as error:
        raise StoreCorrupt(f"the snapshot of task {task_id} cannot be read: {error}", hint=_HINT) from error


def _events_in(last: int, said: object) -> list[EventRow]:
    if not isinstance(said, list):
        raise StoreCorrupt(f"append {last} is not a list of events", hint=_HINT)
    return cast("list[EventRow]", said)


def _decoded(last: int, task_id: TaskId, rows: Sequence[EventRow]) -> list[TaskEvent]:
    try:
        return [decode_event(task_id, row) for row in rows]
    except (LookupError, ValueError, TypeError) as error:
        for kind in filter(None, [unknown_kind(row) for row in rows]):
            raise StoreTooNew(
                f"append {last} has a '{kind}', which only a newer Synapse knows", hint="upgrade Synapse"
            ) from error
        raise StoreCorrupt(f"append {last} cannot be read: {error}", hint=_HINT) from error


_CURSOR_LIMIT: Final = 2**63


class Cursor(NamedTuple):
    """The last change and the number of a task: pages go down in this order."""

    updated_at: int
    number: int

    @classmethod
    def of(cls, updated_at: datetime, number: int) -> Self:
        return cls(micros(updated_at), number)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises InvalidRequest."""
        try:
            updated_at, number = map(int, text.split("."))
        except ValueError as error:
            raise _foreign() from error
        if max(abs(updated_at), abs(number)) >= _CURSOR_LIMIT:
            raise _foreign()
        return cls(updated_at, number)

    def text(self) -> str:
        return f"{self.updated_at}.{self.number}"


def _foreign() -> InvalidRequest:
    return InvalidRequest("the cursor is not one of ours", hint="begin again without a cursor")
