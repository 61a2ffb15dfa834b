"""Threads that read: quick reads do not wait for long ones, each caller gets its result, and closing is clean."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from threading import Event

import pytest

from synapse.core.errors import StoreFailed, TaskNotFound
from synapse.core.lifecycle import replay
from synapse.core.store import TaskPage, TaskQuery
from synapse.core.task import TaskId
from synapse.store import reader as store_reader
from synapse.store.threads import ReadThread
from tests.fakes.facts import TASK, numbered, opened
from tests.fakes.leased_store import LeasedStore

BOUND = 20


@asynccontextmanager
async def reader(path: Path, gather: int = 1) -> AsyncGenerator[ReadThread]:
    one = ReadThread(path, lock_timeout=BOUND, gather=gather)
    try:
        yield one
    finally:
        await one.close()


class Blocker:
    """Work that blocks its thread from `begun` to `end`."""

    def __init__(self) -> None:
        self._begun = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._may_end = Event()

    async def begun(self) -> None:
        await self._begun.wait()

    def end(self) -> None:
        self._may_end.set()

    def pass_through(self) -> str:
        self._loop.call_soon_threadsafe(self._begun.set)
        assert self._may_end.wait(BOUND)
        return "through"


@pytest.mark.parametrize("wanted", [TaskQuery(), TaskQuery(metadata={"user": "ada"})])
async def test_a_long_list_does_not_delay_look_ups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: TaskQuery
) -> None:
    async with asyncio.timeout(BOUND):
        store = await LeasedStore.open(tmp_path / "store.db")
        blocker = Blocker()

        def list_slowly(_connection: sqlite3.Connection, _query: TaskQuery) -> TaskPage:
            blocker.pass_through()
            return TaskPage((), "", 0)

        monkeypatch.setattr(store_reader, "list_tasks", list_slowly)
        await store.append(replay([opened()]), [opened()])
        listing = asyncio.ensure_future(store.list(wanted))
        await blocker.begun()

        assert (await store.load(TASK)).version == 1
        assert len(await store.read_after(0)) == 1
        assert not listing.done()
        blocker.end()
        assert (await listing).total == 0
        await store.close()


async def test_a_scan_of_all_tasks_does_not_delay_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(BOUND):
        store = await LeasedStore.open(tmp_path / "store.db")
        blocker = Blocker()
        list_tasks = store_reader.list_tasks

        def list_slowly(connection: sqlite3.Connection, query: TaskQuery) -> TaskPage:
            if query.metadata:
                blocker.pass_through()
            return list_tasks(connection, query)

        monkeypatch.setattr(store_reader, "list_tasks", list_slowly)
        looking = asyncio.ensure_future(store.list(TaskQuery(metadata={"user": "ada"})))
        await blocker.begun()

        assert (await store.list(TaskQuery())).total == 0
        blocker.end()
        await looking
        await store.close()


@pytest.mark.parametrize("gather", [1, 4, 1000])
async def test_results_come_in_the_order_of_the_reads(tmp_path: Path, gather: int) -> None:
    async with asyncio.timeout(BOUND):
        async with reader(tmp_path / "any.db", gather) as one:
            answered: list[int] = []

            async def ask(number: int) -> None:
                answered.append(await one.run(lambda: number))

            for _ in range(3):
                await asyncio.gather(*(ask(number) for number in range(50)))

            assert answered == [*range(50)] * 3


async def test_an_error_reaches_only_the_caller_of_the_failed_read(tmp_path: Path) -> None:
    def fail(error: Exception) -> None:
        raise error

    async with asyncio.timeout(BOUND):
        async with reader(tmp_path / "any.db") as one:
            errors = (
                OSError("broken"),
                sqlite3.OperationalError("no such table"),
                TaskNotFound(TaskId("x")),
                KeyError(),
            )
            asked = [one.run(partial(fail, error)) for error in errors]
            sound = one.run(lambda: 1)
            told = await asyncio.gather(*asked, return_exceptions=True)

            assert [type(error) for error in told] == [StoreFailed, StoreFailed, TaskNotFound, KeyError]
            assert await sound == 1


async def test_a_cancelled_read_is_not_run(tmp_path: Path) -> None:
    async with asyncio.timeout(BOUND):
        async with reader(tmp_path / "any.db", gather=5) as one:
            blocker = Blocker()
            first = one.run(blocker.pass_through)
            asked: list[str] = []
            given_up = one.run(lambda: asked.append("asked"))
            await blocker.begun()
            given_up.cancel()
            blocker.end()

            assert await first == "through"
            assert await one.run(lambda: 2) == 2
            assert asked == []


async def test_closing_waits_for_the_current_read_and_cancels_the_others(tmp_path: Path) -> None:
    async with asyncio.timeout(BOUND):
        one = ReadThread(tmp_path / "any.db", lock_timeout=BOUND, gather=5)
        blocker = Blocker()
        before, running = one.run(lambda: "before"), one.run(blocker.pass_through)
        waiting = one.run(lambda: "never")
        await blocker.begun()
        one.stop()
        blocker.end()
        await one.close()

        assert (await before, await running) == ("before", "through")
        assert waiting.cancelled()
        with pytest.raises(StoreFailed, match="closed"):
            await one.run(lambda: "late")


async def test_an_unused_reader_closes_at_once(tmp_path: Path) -> None:
    async with asyncio.timeout(BOUND):
        async with reader(tmp_path / "any.db"):
            pass


async def test_a_closed_store_is_not_read(tmp_path: Path) -> None:
    async with asyncio.timeout(BOUND):
        store = await LeasedStore.open(tmp_path / "store.db")
        await store.close()
        for question in (store.load(numbered(1)), store.read_after(0), store.list(TaskQuery()), store.check()):
            with pytest.raises(StoreFailed, match="closed"):
                await question
