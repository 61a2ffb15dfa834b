"""The writer: batches, limits, and failures that affect only the work that caused them."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import sys
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from synapse.core.errors import InvalidRequest, StoreFailed, StoreLocked, TaskNotFound, VersionConflict
from synapse.core.events import Recorded, TaskEvent, TaskOpened
from synapse.core.lifecycle import replay
from synapse.core.store import KnownMessage, TaskQuery
from synapse.core.task import TaskState
from synapse.store import reader, writer
from synapse.store.codec import micros
from synapse.store.file import connect, lock_path
from tests.fakes.facts import TASK, after, handed, hidden, message, moved, noted, numbered, opened
from tests.fakes.leased_store import LeasedStore


@contextmanager
def lock_held(path: Path) -> Generator[None]:
    """Holds the lock as another process would."""
    descriptor = os.open(lock_path(path), os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


async def a_round_of_the_loop() -> None:
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    loop.call_soon(over.set_result, None)
    await over


async def test_a_write_that_waits_too_long_for_the_lock_fails_and_is_never_written(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async with asyncio.timeout(20):
        store = await LeasedStore.open(path, lock_timeout=0.3)
        with lock_held(path):
            first = store.append(replay([opened()]), [opened()])
            behind = store.append(replay([opened(), handed("a")]), [handed("a")])
            for late in (first, behind):
                with pytest.raises(StoreLocked) as refused:
                    await late
                assert str(path) in refused.value.hint
        await store.append(replay([opened("later")]), [opened("later")])

        with pytest.raises(TaskNotFound):
            await store.load(TASK)
        assert len(await store.read_after(0)) == 1
        await store.close()


async def test_a_short_wait_for_the_lock_is_no_failure(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async with asyncio.timeout(20):
        store = await LeasedStore.open(path, lock_timeout=10)
        with lock_held(path):
            waiting = [store.append(replay([opened(numbered(n))]), [opened(numbered(n))]) for n in range(5)]
            # Reading does not need the lock, and gives the writer time to reach it.
            assert await store.read_after(0) == []
            assert not any(one.done() for one in waiting)
        await asyncio.gather(*waiting)
        await store.close()


async def test_a_lock_of_sqlite_itself_is_reported_after_the_timeout(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async with asyncio.timeout(20):
        store = await LeasedStore.open(path, lock_timeout=0.2)
        shell = sqlite3.connect(path, isolation_level=None)
        shell.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreLocked):
            await store.append(replay([opened()]), [opened()])
        shell.execute("ROLLBACK")
        shell.close()

        await store.append(replay([opened()]), [opened()])
        await store.close()


@pytest.mark.parametrize("tasks", [1, 2, 63, 64, 65, 131])
async def test_a_batch_is_read_back_completely_and_in_order(tmp_path: Path, tasks: int) -> None:
    path = tmp_path / "store.db"

    async with asyncio.timeout(20):
        store = await LeasedStore.open(path)
        events: list[list[TaskEvent]] = [
            [opened(numbered(n)), moved(TaskState.WORKING, numbered(n))] for n in range(tasks)
        ]
        with lock_held(path):
            waiting = [store.append(replay(pair), pair, digest=f"digest {n}") for n, pair in enumerate(events)]
        firsts = [await done for done in waiting]

        assert firsts == list(range(1, 2 * tasks + 1, 2))
        written = [event for pair in events for event in pair]
        assert list(await store.read_after(0, limit=1000)) == list(map(Recorded, range(1, 2 * tasks + 1), written))
        assert (await store.list(TaskQuery())).total == tasks
        last = await store.find_message("", "", f"message of {numbered(tasks - 1)}")
        assert last is not None
        assert last.digest == f"digest {tasks - 1}"
        await store.close()


@pytest.fixture
def fair_threads() -> Iterator[None]:
    """Threads that take turns often: a loop that never rests leaves another one only what Python takes from it."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0001)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("fair_threads")
async def test_a_loop_that_always_has_more_to_write_is_not_waited_for(tmp_path: Path) -> None:
    """The loop wakes the thread when it submits no more; a loop that submits in each iteration must not delay that."""
    async with asyncio.timeout(20):
        store = await LeasedStore.open(tmp_path / "store.db")
        written = [store.append(replay([opened(numbered(0))]), [opened(numbered(0))])]
        while not written[0].done():
            number = numbered(len(written))
            written.append(store.append(replay([opened(number)]), [opened(number)]))
            await a_round_of_the_loop()

        assert await asyncio.gather(*written) == list(range(1, len(written) + 1))
        await store.close()


async def test_neighbours_of_a_failing_append_keep_their_order(tmp_path: Path) -> None:
    async with asyncio.timeout(20):
        store = await LeasedStore.open(tmp_path / "store.db")
        await store.append(replay([opened()]), [opened()])
        finished: list[int] = []

        def note(number: int, _done: object) -> None:
            finished.append(number)

        waiting: list[asyncio.Future[int]] = []
        for number in range(1, 30):
            event = opened() if number % 7 == 0 else opened(numbered(number))
            waiting.append(store.append(replay([event]), [event]))
            waiting[-1].add_done_callback(partial(note, number))
        results = await asyncio.gather(*waiting, return_exceptions=True)

        assert finished == list(range(1, 30))
        assert [n for n, one in enumerate(results, 1) if isinstance(one, VersionConflict)] == [7, 14, 21, 28]
        assert (await store.list(TaskQuery(limit=100))).total == 26
        assert (await store.list(TaskQuery(limit=1))).total == 26, "what is rolled back is not counted"
        await store.close()


@pytest.mark.parametrize(
    "event",
    [
        opened(numbered(2), metadata={"what": {(1, 2): 3}}),
        opened(numbered(2), metadata={"what": object()}),
        opened(numbered(2), context_id="half a pair \ud800"),
        opened(numbered(2), metadata={"n": 10**5000}),
    ],
)
async def test_a_value_that_cannot_be_stored_fails_only_its_own_append(tmp_path: Path, event: TaskEvent) -> None:
    async with asyncio.timeout(20):
        store = await LeasedStore.open(tmp_path / "store.db")
        events = [opened(numbered(1)), event, opened(numbered(3))]
        results = await asyncio.gather(*(store.append(replay([one]), [one]) for one in events), return_exceptions=True)

        assert [isinstance(one, InvalidRequest) for one in results] == [False, True, False]
        assert [task.id for task in (await store.list(TaskQuery())).tasks] == [numbered(3), numbered(1)]
        await store.close()


async def test_deep_nesting_that_json_cannot_write_is_refused(tmp_path: Path) -> None:
    async with asyncio.timeout(20):
        store = await LeasedStore.open(tmp_path / "store.db")
        deep: list[Any] = []
        for _ in range(100_000):
            deep = [deep]
        event = opened(metadata={"deep": deep})
        with pytest.raises(InvalidRequest):
            await store.append(replay([event]), [event])
        await store.close()


async def test_a_text_that_cannot_be_stored_cannot_be_queried(tmp_path: Path) -> None:
    async with asyncio.timeout(20):
        store = await LeasedStore.open(tmp_path / "store.db")
        with pytest.raises(InvalidRequest):
            await store.find("\ud800")
        await store.close()


async def test_a_queue_that_is_full_refuses_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.db"
    monkeypatch.setattr(writer, "MAX_QUEUED", 3)

    async with asyncio.timeout(20):
        store = await LeasedStore.open(path)
        with lock_held(path):
            waiting = [store.append(replay([opened(numbered(n))]), [opened(numbered(n))]) for n in range(4)]
            with pytest.raises(StoreFailed, match="wait for the disk"):
                await waiting[3]
        await asyncio.gather(*waiting[:3])
        await store.close()


async def test_a_step_of_pruning_is_bounded_by_events_too(tmp_path: Path) -> None:
    async with asyncio.timeout(20):
        path = tmp_path / "store.db"
        store = await LeasedStore.open(path)
        for number in range(3):
            task_id = numbered(number)
            log: list[TaskEvent] = [opened(task_id), *(noted({}, task_id) for _ in range(1500))]
            log.append(moved(TaskState.COMPLETED, task_id))
            await store.append(replay(log), log)
        with closing(connect(path, lock_timeout=1)) as connection:
            assert [writer.prune_some(connection, micros(after(60))) for _ in range(4)] == [1, 1, 1, 0]
        await store.close()


async def test_closing_writes_the_queue_first(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async with asyncio.timeout(20):
        store = await LeasedStore.open(path)
        waiting = [store.append(replay([opened(numbered(n))]), [opened(numbered(n))]) for n in range(50)]
        await store.close()
        assert all(one.done() for one in waiting)
        with pytest.raises(StoreFailed, match="closed"):
            await store.append(replay([opened()]), [opened()])

        again = await LeasedStore.open(path)
        assert len(await again.read_after(0)) == 50
        await again.close()


async def test_cancelling_one_wait_does_not_disturb_the_others(tmp_path: Path) -> None:
    async with asyncio.timeout(20):
        store = await LeasedStore.open(tmp_path / "store.db")
        given_up = store.append(replay([opened()]), [opened()])
        given_up.cancel()
        log: list[TaskEvent] = [opened(), moved(TaskState.WORKING)]
        await store.append(replay(log), log[1:])

        assert (await store.load(TASK)).version == 2
        await store.close()


async def test_a_failing_check_of_a_holder_fails_only_that_acquisition(tmp_path: Path) -> None:
    async with asyncio.timeout(20):
        store = await LeasedStore.open(tmp_path / "store.db")

        def is_alive(holder: str, /) -> bool:
            raise StoreFailed(f"cannot tell about {holder}")

        assert await store.acquire("codex", "one", is_alive)
        claiming = asyncio.ensure_future(store.acquire("codex", "two", is_alive))
        await store.append(replay([replace(opened(), parent_id="p")]), [replace(opened(), parent_id="p")])
        with pytest.raises(StoreFailed, match="cannot tell"):
            await claiming
        await store.close()


async def test_two_processes_count_the_same_tasks(tmp_path: Path) -> None:
    async with asyncio.timeout(20):
        one, other = [await LeasedStore.open(tmp_path / "store.db") for _ in range(2)]
        logs: list[list[TaskEvent]] = [
            [opened(numbered(n)), moved(TaskState.COMPLETED, numbered(n)), hidden(numbered(n))] for n in range(4)
        ]
        for log in logs:
            await one.append(replay(log[:1]), log[:1])
        for log in logs[:3]:
            await other.append(replay(log[:2]), log[1:2])
        await one.append(replay(logs[0]), logs[0][2:])
        with pytest.raises(VersionConflict):
            await one.append(replay(logs[1]), [*logs[1][1:]])

        async def total(*states: TaskState) -> int:
            return (await other.list(TaskQuery(limit=1, states=frozenset(states)))).total

        assert (await total(), await total(TaskState.COMPLETED, TaskState.FAILED)) == (3, 2)
        assert await other.prune(after(60)) == 3
        assert await total() == 1
        await one.close()
        await other.close()


@pytest.mark.parametrize(
    "second",
    [
        opened(numbered(2), message=message(message_id="m")),
        opened(numbered(1), message=message(message_id="n")),
    ],
)
async def test_of_two_claims_in_one_batch_the_first_wins(tmp_path: Path, second: TaskOpened) -> None:
    path = tmp_path / "store.db"

    async with asyncio.timeout(20):
        store = await LeasedStore.open(path)
        events = [opened(numbered(1), message=message(message_id="m")), second, opened(numbered(3))]
        with lock_held(path):
            waiting = [store.append(replay([one]), [one], digest="d") for one in events]
        results = await asyncio.gather(*waiting, return_exceptions=True)

        assert [isinstance(one, VersionConflict) for one in results] == [False, True, False]
        assert [one.seq for one in await store.read_after(0)] == [1, 2]
        await store.close()


async def test_texts_with_the_same_key_are_distinguished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def seven(_text: str) -> int:
        return 7

    for module in (writer, reader):
        for name in ("context_key", "id_key", "last_id_key", "text_key"):
            monkeypatch.setattr(module, name, seven, raising=False)

    async with asyncio.timeout(20):
        store = await LeasedStore.open(tmp_path / "store.db")
        events = [opened(numbered(n), context_id=f"c{n}", message=message(message_id=f"m{n}")) for n in range(4)]
        await asyncio.gather(*(store.append(replay([one]), [one], digest=one.context_id) for one in events))
        again = opened(numbered(9), message=events[2].message)
        for late in (events[1], again):
            with pytest.raises(VersionConflict):
                await store.append(replay([late]), [late], digest="d")

        assert [await store.load(one.task_id) for one in events] == [replay([one]) for one in events]
        assert await store.find(numbered(2)[:8]) == [numbered(2)]
        assert await store.find_message("", "", "m3") == KnownMessage(numbered(3), "c3")
        assert [task.id for task in (await store.list(TaskQuery(context_id="c1"))).tasks] == [numbered(1)]
        assert len(await store.read_after(0, task_id=numbered(2))) == 1
        await store.close()
