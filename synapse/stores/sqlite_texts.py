"""What the texts in the rows say; one that cannot be read is told by its name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, cast

from synapse.core.errors import IllegalTransition, StoreCorrupt, StoreTooNew, TaskFinished
from synapse.core.events import Recorded, TaskEvent
from synapse.core.task import Task, TaskId
from synapse.service.journal import rebuild
from synapse.stores.compact_json import from_json
from synapse.stores.event_rows import EventRow, decode_event, unknown_kind
from synapse.stores.rows import Fields, decode_task

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
