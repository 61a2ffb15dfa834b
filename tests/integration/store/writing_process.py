"""A process that writes into a store and prints each event once it is told that it is durable.

    python -m tests.integration.store.writing_process STORE NAME TASKS CONCURRENCY

Each task gets five events. A line of the output is `task version seq`; the last line is `done`, or `lost` when another
process has acquired the inbox, which is called NAME.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from synapse.core.errors import LeaseLost
from synapse.core.events import Update
from synapse.core.task import ReceiptStep, TaskState
from synapse.store.sqlite import SqliteStore
from synapse.tasks.journal import Journal
from tests.fakes.facts import handed, moved, opened, stepped


async def write(path: Path, name: str, tasks: int, concurrency: int) -> str:
    store = await SqliteStore.open(path)
    lease = await store.acquire(name, f"{name}:{os.getpid()}", lambda _holder: False)
    journal = Journal(store, lease)
    journal.listen(tell)
    numbers = iter(range(tasks))

    async def live() -> None:
        for number in numbers:
            task_id = f"{name}-{number}"
            await journal.record(opened(task_id, inbox=name), digest=task_id)
            await journal.record(stepped(ReceiptStep.TYPED, task_id))
            journal.record_nowait(moved(TaskState.WORKING, task_id))
            await journal.record(handed("an answer " * 20, task_id), moved(TaskState.COMPLETED, task_id))

    try:
        await asyncio.gather(*(live() for _ in range(concurrency)))
    except LeaseLost:
        return "lost"
    finally:
        await store.close()
    return "done"


def tell(update: Update) -> None:
    # One write call for each line: what a reader sees was said before the process was stopped or killed.
    sys.stdout.write(f"{update.task.id} {update.task.version} {update.seq}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    end = asyncio.run(write(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
    print(end, flush=True)  # noqa: T201 - the test reads it
