"""Reads tasks and events from SQLite. Each function reads one consistent state of the store.

A row has the text of a task at some version; `task_of` applies what was appended later. Text that cannot be decoded
raises StoreCorrupt, which names the task or the append, or StoreTooNew.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from itertools import islice
from typing import Any, Final, NamedTuple, Self, cast

from synapse.core.caller import LOCAL_SCOPE
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
_WHOLE_ID: Final = 36
"""The length of an id; see `config.process.new_id`."""
_MAX_FRAGMENTS: Final = 8
_OPEN: Final = frozenset(state for state in TaskState if not state.is_terminal)
_EXPIRED_FRAGMENT: Final = to_json({"reason": EXPIRED})[1:-1]
_CACHED_LENGTH: Final = 4096
_BY_NUMBER: Final = "NOT INDEXED"
"""Looks up the tasks of `found` by their numbers."""
_FEW_FOUND: Final = 2000
_HINT: Final = "`synapse doctor` checks the store"

Connection = sqlite3.Connection


class Cursor(NamedTuple):
    """The end of a page: the last change and the number of its last task. Pages are in descending order.

    Every store writes cursors in this format; callers treat them as opaque.
    """

    updated_at: int
    number: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns the cursor that `text` wrote. Raises InvalidRequest."""
        try:
            updated_at, number = map(int, text.split("."))
        except ValueError as error:
            raise _invalid_cursor() from error
        if max(abs(updated_at), abs(number)) > _LARGEST:
            raise _invalid_cursor()
        return cls(updated_at, number)

    def text(self) -> str:
        return f"{self.updated_at}.{self.number}"


def load(connection: Connection, task_id: TaskId) -> Task:
    """Returns the task. Raises TaskNotFound."""
    row = connection.execute(query("load_task"), (id_key(task_id), task_id)).fetchone()
    if row is not None and not _is_whole(row):
        # The later appends have to be read in the same transaction as the row.
        with _transaction(connection):
            row = connection.execute(query("load_task"), (id_key(task_id), task_id)).fetchone()
            return _found(connection, task_id, row)
    return _found(connection, task_id, row)


def load_inside(connection: Connection, task_id: TaskId) -> Task:
    """Returns the task, inside a transaction of the caller. Raises TaskNotFound."""
    return _found(connection, task_id, connection.execute(query("load_task"), (id_key(task_id), task_id)).fetchone())


def is_whole_id(prefix: str) -> bool:
    """Whether `prefix` can be found by its key. A shorter one takes a scan of all ids, but only people type those."""
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
    with _transaction(connection):
        return [task_of(connection, row) for row in connection.execute(query("open_tasks"), (inbox,)).fetchall()]


def read_after(connection: Connection, seq: int, task_id: TaskId | None, limit: int) -> list[Recorded]:
    seq = min(seq, _LARGEST)
    values: tuple[object, ...] = (seq,) if task_id is None else (task_id, id_key(task_id), seq)
    name = "appends_of_all" if task_id is None else "appends_of_task"
    found: list[Recorded] = []
    # Closed at once: a statement that is not read to its end would block the checkpoint of the WAL.
    with closing(connection.execute(query(name), values)) as rows:
        for last, of_task, body in rows:
            # An append may begin before `seq`, and may go on beyond the limit.
            found += recorded_in(last, TaskId(of_task), body, seq, limit - len(found))
            if len(found) >= limit:
                break
    return found


def stored_bytes(connection: Connection, inbox: str, scope: str) -> int:
    """Returns the size of the stored events in bytes; an empty inbox or scope matches all."""
    size: int = connection.execute(query("stored_bytes"), (inbox, scope)).fetchone()[0]
    return size


def store_id(connection: Connection) -> str:
    """Returns the id of the store."""
    found: str = connection.execute(query("store_id")).fetchone()[0]
    return found


def last_seq(connection: Connection) -> int:
    row = connection.execute(query("last_seq")).fetchone()
    return row[0] if row else 0


def list_tasks(connection: Connection, wanted: TaskQuery) -> TaskPage:
    """Returns one page of the tasks that match, newest change first. Raises InvalidRequest for an invalid cursor.

    For a query with a text, the table `found` has the numbers of the tasks with that text; see `SearchIndex`.
    """
    with _transaction(connection):
        return _page(connection, wanted)


def _page(connection: Connection, wanted: TaskQuery) -> TaskPage:
    conditions, values = _conditions(wanted)
    found = connection.execute("SELECT COUNT(*) FROM found").fetchone()[0] if wanted.text else 0
    index = _index_for(wanted, found)
    if wanted.metadata or wanted.expired is not None:
        return _scan_page(connection, wanted, index, conditions, values)
    counting = _counting(wanted, index, conditions, values)
    if wanted.cursor:
        conditions += " AND (tasks.updated_at, tasks.number) < (?, ?)"
        values += Cursor.parse(wanted.cursor)
    # One more than requested, to know whether there is a next page.
    values.append(wanted.limit + 1)
    rows = connection.execute(query("list_tasks").format(index=index, conditions=conditions), values).fetchall()
    is_last = len(rows) <= wanted.limit
    tasks = tuple(task_of(connection, row) for row in rows[: wanted.limit])
    if is_last and not wanted.cursor:
        return TaskPage(tasks, "", len(tasks))
    (total,) = connection.execute(*counting).fetchone()
    if is_last or not tasks:
        return TaskPage(tasks, "", total)
    number, _, updated_at, *_ = rows[wanted.limit - 1]
    return TaskPage(tasks, Cursor(updated_at, number).text(), total)


def _index_for(wanted: TaskQuery, found: int = 0) -> str:
    """Returns the index to name where SQLite, which has no statistics of the values, would scan all tasks."""
    if wanted.context_id:
        return "INDEXED BY tasks_by_context"
    # Few tasks are open at any time, so this index is small.
    if wanted.states and wanted.states <= _OPEN:
        return "INDEXED BY tasks_open"
    if not wanted.text:
        return ""
    if found <= _FEW_FOUND:
        return _BY_NUMBER
    # Most tasks on the way have the text, so a page is soon full; to sort all that were found takes 400 ms.
    if wanted.inbox:
        return "INDEXED BY tasks_by_inbox"
    return "INDEXED BY tasks_by_agent" if wanted.agent_id else "INDEXED BY tasks_by_change"


def _counting(wanted: TaskQuery, index: str, conditions: str, values: Sequence[Any]) -> tuple[str, Sequence[Any]]:
    """Returns the query for the total, with its values: the stored counts if they suffice, else a count of rows."""
    if wanted.text and wanted == TaskQuery(text=wanted.text, limit=wanted.limit, cursor=wanted.cursor):
        return "SELECT COUNT(*) FROM found", ()  # the search index has visible tasks only
    if wanted.agent_id or wanted.context_id or wanted.parent_id or wanted.text or wanted.updated_after is not None:
        return query("count_tasks").format(index=index, conditions=conditions), tuple(values)
    conditions, values = _conditions(wanted, table="task_counts")
    return query("counted_tasks").format(conditions=conditions), values


def _scan_page(connection: Connection, wanted: TaskQuery, index: str, conditions: str, values: list[Any]) -> TaskPage:
    """Returns a page by conditions on the text of tasks: SQLite finds candidates, and each is decoded and checked."""
    for fragment in (*_fragments(wanted.metadata), *((_EXPIRED_FRAGMENT,) if wanted.expired else ())):
        # Text of an older version may lack what later appends changed.
        conditions += (
            " AND (COALESCE(snapshots.version, appends.version) IS NOT tasks.version"
            " OR instr(COALESCE(snapshots.body, appends.body), ?) > 0)"
        )
        values.append(fragment)
    if wanted.expired:
        conditions += " AND tasks.state = 'failed'"
    after = Cursor.parse(wanted.cursor) if wanted.cursor else None
    rows = connection.execute(query("list_tasks").format(index=index, conditions=conditions), (*values, -1))
    found: list[tuple[Cursor, Task]] = []
    total = 0
    for row in rows:
        if not _matches_undecoded(row, wanted) and not is_wanted(task_of(connection, row), wanted):
            continue
        total += 1
        position = Cursor(row[2], row[0])
        if len(found) <= wanted.limit and (after is None or position < after):
            found.append((position, task_of(connection, row)))
    page = found[: wanted.limit]
    following = page[-1][0].text() if len(found) > len(page) > 0 else ""
    return TaskPage(tuple(task for _, task in page), following, total)


def _matches_undecoded(row: Sequence[Any], wanted: TaskQuery) -> bool:
    """Whether the text alone proves that the task matches, so that it need not be decoded only to be counted."""
    return wanted.expired is False and not wanted.metadata and _is_whole(row) and _EXPIRED_FRAGMENT not in row[-1]


def _fragments(metadata: Json) -> Iterator[str]:
    """Yields fragments that occur in the text of every task whose metadata has these values."""
    for key, value in islice(metadata.items(), _MAX_FRAGMENTS):
        if isinstance(value, dict):
            yield from _fragments(cast("Json", value))
        elif isinstance(value, str) and _has_one_spelling(key + value):
            yield to_json({key: value})[1:-1]
        elif _has_one_spelling(key):
            # Only the key: a number can be written in several ways.
            yield f"{to_json(key)}:"


def _has_one_spelling(text: str) -> bool:
    """Whether every version wrote `text` in the same way: some wrote other characters as escapes."""
    return text.isascii() and text.isprintable()


def _conditions(wanted: TaskQuery, table: str = "tasks") -> tuple[str, list[Any]]:
    # `task_counts` has visible tasks only.
    conditions = ["tasks.hidden = 0"] if table == "tasks" else ["true"]
    values: list[Any] = []
    for column in ("inbox", "agent_id", "scope", "context_id", "parent_id"):
        if value := getattr(wanted, column):
            is_own_user = column == "scope" and value == LOCAL_SCOPE
            others = f"OR {table}.scope GLOB 'machine:*'" if is_own_user else ""  # see `core.caller.covers`
            conditions.append(f"({table}.{column} = ? AND {table}.{column} <> '' {others})")
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
    if wanted.text:
        conditions.append("tasks.number IN (SELECT number FROM found)")
    return " AND ".join(conditions), values


@contextmanager
def _transaction(connection: Connection) -> Generator[None]:
    """Reads several statements from one state of the store; a single statement needs no transaction."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _found(connection: Connection, task_id: TaskId, row: Sequence[Any] | None) -> Task:
    if row is None:
        raise TaskNotFound(task_id)
    return task_of(connection, row)


def _is_whole(row: Sequence[Any]) -> bool:
    """Whether the text in the row is the current version of the task."""
    version, text_version = row[3:5]
    return bool(version == text_version)


def task_of(connection: Connection, row: Sequence[Any]) -> Task:
    """Returns the task of a row of `load_task`, `open_tasks` or `list_tasks`: its text and what was appended later."""
    number, task_id, _, version, text_version, text = row
    if _is_whole(row):
        if len(text) > _CACHED_LENGTH:
            return _decode(number, TaskId(task_id), version, text, ())
        # Callers poll, and show pages again and again. Longer texts are not cached: they would fill the memory.
        return _cached_task(number, TaskId(task_id), version, text)
    later = connection.execute(query("appends_since"), (number, text_version or 0))
    return _decode(number, TaskId(task_id), version, text, later)


@lru_cache(maxsize=512)
def _cached_task(number: int, task_id: TaskId, version: int, text: str) -> Task:
    return _decode(number, task_id, version, text, ())


def _decode(number: int, task_id: TaskId, version: int, text: str | None, later: Iterable[tuple[int, str]]) -> Task:
    """Returns the task with a snapshot (an object) or the first append (a list) as its text, and with later appends.

    Raises StoreCorrupt or StoreTooNew.
    """
    known: Task | None = None
    events: list[TaskEvent] = []
    value = _parse(f"task {task_id}", text or "[]")
    if isinstance(value, dict):
        known = _decode_snapshot(task_id, cast("Fields", value))
    else:
        events += _decode_events(number, task_id, _rows_in(number, value))
    for seq, body in later:
        events += _decode_events(seq, task_id, _rows_in(seq, _parse(f"append {seq}", body)))
    try:
        task = rebuild(known, events)
    except (IllegalTransition, TaskFinished) as error:
        raise StoreCorrupt(f"the log of task {task_id} is inconsistent: {error}", hint=_HINT) from error
    if task.version != version:
        raise StoreCorrupt(f"the log of task {task_id} ends at version {task.version} instead of {version}", hint=_HINT)
    return task


def recorded_in(last: int, task_id: TaskId, body: str, after: int, most: int) -> Sequence[Recorded]:
    """Returns at most `most` events after the seq `after`, from the append that ends with the seq `last`."""
    rows = _rows_in(last, _parse(f"append {last}", body))
    first = last - len(rows) + 1
    start = max(0, after + 1 - first)
    wanted = rows[start : start + most]
    return list(map(Recorded, range(first + start, last + 1), _decode_events(last, task_id, wanted)))


def _parse(what: str, text: str) -> object:
    try:
        return from_json(text)
    except ValueError as error:
        raise StoreCorrupt(f"{what} cannot be read: {error}", hint=_HINT) from error


def _decode_snapshot(task_id: TaskId, fields: Fields) -> Task:
    try:
        return decode_task(fields)
    except (LookupError, ValueError, TypeError) as error:
        raise StoreCorrupt(f"the snapshot of task {task_id} cannot be read: {error}", hint=_HINT) from error


def _rows_in(last: int, value: object) -> list[EventRow]:
    if not isinstance(value, list):
        raise StoreCorrupt(f"append {last} is not a list of events", hint=_HINT)
    return cast("list[EventRow]", value)


def _decode_events(last: int, task_id: TaskId, rows: Sequence[EventRow]) -> list[TaskEvent]:
    try:
        return [decode_event(task_id, row) for row in rows]
    except (LookupError, ValueError, TypeError) as error:
        for kind in filter(None, [unknown_kind(row) for row in rows]):
            raise StoreTooNew(
                f"append {last} has a '{kind}' event, which only a newer Synapse knows", hint="upgrade Synapse"
            ) from error
        raise StoreCorrupt(f"append {last} cannot be read: {error}", hint=_HINT) from error


def _invalid_cursor() -> InvalidRequest:
    return InvalidRequest("the cursor is not valid", hint="start again without a cursor")
