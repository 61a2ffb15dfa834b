"""What the store of a house says, read without any host."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from synapse.core.events import Recorded
from synapse.core.store import TaskQuery
from synapse.core.task import Task
from synapse.tasks.journal import rebuild
from tests.fakes.leased_store import LeasedStore

_PAGE = 500


def all_tasks(store: Path) -> list[Task]:
    """Every task in the file, newest change first."""

    async def read() -> list[Task]:
        opened = await LeasedStore.open(store)
        try:
            tasks: list[Task] = []
            cursor = ""
            while True:
                page = await opened.list(TaskQuery(limit=_PAGE, cursor=cursor))
                tasks += page.tasks
                cursor = page.next_cursor
                if not cursor:
                    return tasks
        finally:
            await opened.close()

    return asyncio.run(read())


def all_events(store: Path) -> list[Recorded]:
    """Every event in the file, in order."""

    async def read() -> list[Recorded]:
        opened = await LeasedStore.open(store)
        try:
            events: list[Recorded] = []
            while True:
                page: Sequence[Recorded] = await opened.read_after(events[-1].seq if events else 0, limit=_PAGE)
                events += page
                if len(page) < _PAGE:
                    return events
        finally:
            await opened.close()

    return asyncio.run(read())


def is_whole(store: Path) -> None:
    """Every task is exactly what its events amount to."""
    replayed: dict[str, Task] = {}
    for recorded in all_events(store):
        task_id = recorded.event.task_id
        replayed[task_id] = rebuild(replayed.get(task_id), (recorded.event,))
    assert {task.id: task for task in all_tasks(store)} == replayed
