"""Lets a host die at each step of a request that waits for a late answer, and another take up what it left.

    python deferring_host.py FOLDER

For N = 1, 2, … a process of its own is killed at the Nth point of its store's work (see crashing_host.py), while its
agent is asked, asks another, leaves, gets the answer as a message and so answers. A second process recovers.

    FOLDER/N/left       what the first process had stored of each task
    FOLDER/N/replies    what the second process replied
"""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from functools import partial
from pathlib import Path
from typing import cast

from synapse.core.store import TaskQuery
from synapse.store.sqlite import SqliteStore
from tests.fakes.agent_at_work import AgentAtWork
from tests.fakes.driver import FakeDriver, echo
from tests.fakes.harness import ME, AgentHarness, working
from tests.fakes.memory_store import MemoryStore
from tests.integration.recovery.crashing_host import MOST_POINTS, Fate, in_a_process, new_store, note


async def opened(folder: Path, driver: FakeDriver) -> tuple[SqliteStore, AgentHarness]:
    store = await SqliteStore.open(folder / "store.db")
    lease = await store.acquire(ME.inbox, str(os.getpid()), lambda _holder: False)
    assert lease is not None
    # A harness needs of it what every store has.
    kept = cast("MemoryStore", store)
    return store, AgentHarness(driver, kept, new_id=lambda: str(uuid.uuid4()), lease=lease)


async def first_life(folder: Path, fate: Fate) -> None:
    fate.follow_the_store()
    agent = AgentAtWork()
    store, agent.harness = await opened(folder, agent.driver)
    async with working(agent.harness):
        request = await agent.request("t-1")
        wait = await agent.asks()
        await agent.goes_on(request)
        await agent.answered(wait)
        await agent.until(request, lambda task: task.replied == "inferred")
    await store.close()


async def second_life(folder: Path) -> None:
    store, harness = await opened(folder, FakeDriver(echo))
    for task in (await store.list(TaskQuery())).tasks:
        kind = "message" if task.delivers else "request" if task.queued else "wait"
        note(folder / "left", f"{kind}|{task.state.value}|{task.reason}|{task.replied}")
    async with working(harness):
        await harness.recover()
        for task_id in harness.worker.waiting:
            await harness.finished(await harness.task(task_id))
        await harness.replies.drain(20)
    for reply in harness.host_client.delivered:
        note(folder / "replies", f"{reply.sender_task_id}|{reply.text}|{reply.failed}")
    await store.close()


def main(folder: Path) -> None:
    in_a_process(partial(new_store, folder / "empty.db"))
    for number in range(1, MOST_POINTS):
        place = folder / str(number)
        place.mkdir()
        shutil.copy(folder / "empty.db", place / "store.db")
        is_over = in_a_process(partial(first_life, place, Fate(number)))
        in_a_process(partial(second_life, place))
        if is_over:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
