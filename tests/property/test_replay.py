"""The log is the truth: replayed, it is what the store loads and what the journal holds."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from synapse.core.events import TaskEvent
from synapse.core.lifecycle import replay
from synapse.core.store import TaskQuery
from synapse.core.task import Task
from synapse.store.codec import decode_event, decode_task, encode_events, encode_task, from_json
from synapse.tasks.journal import Journal
from tests.fakes.facts import numbered
from tests.fakes.leased_store import LeasedStore
from tests.fakes.leases import ANY_LEASE
from tests.fakes.memory_store import MemoryStore
from tests.property.histories import cuts, histories

AnyStore = MemoryStore | LeasedStore
Tell = Callable[[Callable[[AnyStore], Awaitable[None]]], None]

# One store serves all examples of a test: each has a task of its own.
numbers = itertools.count(1)
one_store_for_all = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@pytest.fixture(params=["memory", "sqlite"])
def tell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tell]:
    with asyncio.Runner() as runner:
        path = tmp_path / "store.db"
        store = runner.run(LeasedStore.open(path)) if request.param == "sqlite" else MemoryStore()

        def run(story: Callable[[AnyStore], Awaitable[None]]) -> None:
            async def bounded() -> None:
                async with asyncio.timeout(20):
                    await story(store)

            runner.run(bounded())

        yield run
        runner.run(store.close())


@one_store_for_all
@given(data=st.data())
def test_replay_equals_load_equals_what_the_journal_holds(tell: Tell, data: st.DataObject) -> None:
    log = data.draw(histories(numbered(next(numbers))))
    pieces = data.draw(cuts(log))
    is_awaited = data.draw(st.lists(st.booleans(), min_size=len(pieces), max_size=len(pieces)))

    async def story(store: AnyStore) -> None:
        journal = Journal(store, ANY_LEASE)
        done: list[asyncio.Future[Task]] = []
        for piece, awaited in zip(pieces, is_awaited, strict=True):
            done.append(journal.record_nowait(*piece))
            if awaited:
                await done[-1]
        await asyncio.gather(*done)
        task_id = log[0].task_id

        expected = replay(log)
        stored = await store.read_after(0, task_id=task_id)
        assert [one.event for one in stored] == log
        assert await store.load(task_id) == expected
        assert await journal.load(task_id) == expected
        assert expected.version == len(log)
        listed = (await store.list(TaskQuery(context_id=expected.context_id))).tasks
        assert listed == (() if expected.hidden else (expected,))

    tell(story)


@given(log=histories())
def test_rows_come_back_as_they_were(log: list[TaskEvent]) -> None:
    body = encode_events(log)
    assert body.encode().decode() == body, "SQLite holds it"
    assert [decode_event(log[0].task_id, row) for row in from_json(body)] == log
    task = replay(log)
    assert decode_task(from_json(encode_task(task))) == task
