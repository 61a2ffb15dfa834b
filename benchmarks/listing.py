"""ListTasks over many stored tasks: the first page, straight from the store, for every way in which it is asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.rows import QUICK, Effort, Figure, Row, within
from synapse.core.events import StateChanged, TaskEvent, TaskOpened
from synapse.core.message import Message, MessageId, Role, TextPart
from synapse.core.store import Lease, TaskQuery
from synapse.core.task import TaskId, TaskState
from synapse.store.sqlite import SqliteStore
from synapse.tasks.journal import rebuild

TITLE = "Listing stored tasks"
LIMIT_MS = 10.0
_WHOLE, _SMALL = 100_000, 10_000
_TIMES = 15
_START = datetime(2026, 1, 1, tzinfo=UTC)
_AT_ONCE = 2000


def run(effort: Effort) -> list[Row]:
    """Time the first page of each list."""
    with TemporaryDirectory(prefix="synapse-listing-") as folder:
        return asyncio.run(_measured(Path(folder) / "store.db", _SMALL if effort is QUICK else _WHOLE))


async def _measured(path: Path, tasks: int) -> list[Row]:
    store = await SqliteStore.open(path)
    try:
        leases = [await _acquired(store, f"agent-{number}") for number in range(2)]
        for first in range(0, tasks, _AT_ONCE):
            await asyncio.gather(*(_append(store, leases, number) for number in range(first, first + _AT_ONCE)))
        queries = {
            "of an agent": TaskQuery(inbox="agent-1", scope="local"),
            "of all agents": TaskQuery(scope="local"),
            "of one context": TaskQuery(scope="local", context_id="context 77"),
            "of an agent, completed": TaskQuery(
                inbox="agent-1", scope="local", states=frozenset({TaskState.COMPLETED})
            ),
            "of a scope that has few": TaskQuery(scope="key:few"),
        }
        return [
            within(LIMIT_MS, Figure(f"{tasks:,} tasks, first page {name}", await timed(store, query), "ms", 1000))
            for name, query in queries.items()
        ]
    finally:
        await store.close()


async def timed(store: SqliteStore, query: TaskQuery) -> Sequence[float]:
    """Returns how long each of several pages of `query` took."""
    seconds: list[float] = []
    for _ in range(_TIMES):
        begun = time.perf_counter()
        page = await store.list(query)
        seconds.append(time.perf_counter() - begun)
        if not page.tasks:
            raise ValueError("the list is empty, so this measures nothing")
    return seconds


async def _acquired(store: SqliteStore, inbox: str) -> Lease:
    lease = await store.acquire(inbox, "benchmark", lambda _holder: False)
    if lease is None:
        raise ValueError(f"somebody else holds '{inbox}' in a new store")
    return lease


async def _append(store: SqliteStore, leases: Sequence[Lease], number: int) -> None:
    at = _START + timedelta(seconds=number)
    lease = leases[number % 10 and 1]
    task_id = TaskId(f"{number:08d}-0000-4000-8000-000000000000")
    message = Message(message_id=MessageId(f"m-{number}"), role=Role.USER, parts=(TextPart(text="do this " * 20),))
    events: list[TaskEvent] = [
        TaskOpened(
            task_id=task_id,
            at=at,
            agent_id="synapse-scripted-8180",
            inbox=lease.inbox,
            context_id=f"context {number // 10}",
            scope="key:few" if number % 1000 == 0 else "local",
            dialect="a2a_v1",
            message=message,
            metadata={"sender": {"sender_id": "user", "sender_type": "user", "sender_endpoint": ""}},
        ),
        StateChanged(task_id=task_id, at=at, state=TaskState.WORKING),
        StateChanged(task_id=task_id, at=at, state=TaskState.COMPLETED),
    ]
    await store.append(rebuild(None, events), events, lease=lease)
