"""Deleting what nobody needs any more, a little at a time, so that others can write in between."""

from __future__ import annotations

import sqlite3
from collections import Counter
from typing import Final

from synapse.stores.sqlite_appends import Group, count, keep
from synapse.stores.sqlite_queries import query

_TASKS_AT_ONCE: Final = 100
_EVENTS_AT_ONCE: Final = 2000


def prune_some(connection: sqlite3.Connection, before: int) -> int:
    """Delete the oldest finished tasks that did not change since `before` with all that is theirs; return how many."""
    events = 0
    deleted = 0
    more: Counter[Group] = Counter()
    fewer: Counter[tuple[str, str]] = Counter()
    for number, task_id, inbox, scope, state, version, hidden in connection.execute(
        query("old_tasks"), (before, _TASKS_AT_ONCE)
    ).fetchall():
        if deleted and events + version > _EVENTS_AT_ONCE:
            break
        fewer[inbox, scope] -= connection.execute(query("bytes_of_task"), (number,)).fetchone()[0]
        connection.execute(query("delete_deliveries_of_task"), (task_id,))
        connection.execute(query("delete_pushes_of_task"), (task_id,))
        connection.execute(query("delete_appends"), (number,))
        connection.execute(query("delete_snapshot"), (number,))
        connection.execute(query("delete_task"), (number,))
        if not hidden:
            more[inbox, scope, state] -= 1
        events += version
        deleted += 1
    count(connection, more)
    keep(connection, fewer)
    return deleted
