"""A gateway keeps the search index current in the background."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from synapse.core.caller import Caller
from synapse.core.errors import StoreLocked
from synapse.core.override import override
from synapse.core.requests import ListTasks
from synapse.core.store import SearchProgress
from synapse.gateway import search
from synapse.gateway.search import keep_search_current
from tests.fakes.facts import numbered, opened
from tests.fakes.gateway_world import LAPTOP, OPERATOR, PHONE, world
from tests.fakes.leased_store import LeasedStore
from tests.fakes.memory_store import MemoryStore
from tests.unit.store.stories import keep

BOUND = 5.0


class IndexedStore(MemoryStore):
    """Counts how often it is asked to index, and needs three steps for it; it may fail first."""

    def __init__(self, *failures: str) -> None:
        super().__init__()
        self.steps = 0
        self.became_current = asyncio.Event()
        self._failures = list(failures)

    @override
    async def update_search(self, seconds: float) -> SearchProgress:
        self.steps += 1
        if self._failures:
            raise StoreLocked(self._failures.pop(0))
        last = await self.last_seq()
        if self.steps >= 3:
            self.became_current.set()
        return SearchProgress(last if self.steps >= 3 else 0, last)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_REST_SECONDS", "_GATHER_SECONDS", "_RETRY_SECONDS"):
        monkeypatch.setattr(search, name, 0.001)


async def test_the_index_is_built_and_then_waits_for_the_next_event() -> None:
    store = IndexedStore()
    await keep(store, opened(numbered(1)))
    keeping = asyncio.ensure_future(keep_search_current(store, is_on=True))
    async with asyncio.timeout(BOUND):
        await store.became_current.wait()
        assert store.steps == 3
        store.became_current.clear()

        await keep(store, opened(numbered(2)))
        await store.became_current.wait()
    keeping.cancel()


async def test_a_store_that_fails_is_tried_again_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    store = IndexedStore("locked", "locked")
    await keep(store, opened(numbered(1)))
    keeping = asyncio.ensure_future(keep_search_current(store, is_on=True))
    async with asyncio.timeout(BOUND):
        await store.became_current.wait()
    keeping.cancel()

    assert [record.message for record in caplog.records] == ["search_index_not_updated"]


async def test_search_that_is_switched_off_deletes_the_index_and_ends(tmp_path: Path) -> None:
    store = await LeasedStore.open(tmp_path / "store.db")
    await keep(store, opened(numbered(1)))
    await store.update_search(1)
    await store.close()
    store = await LeasedStore.open(tmp_path / "store.db", search=False)

    async with asyncio.timeout(BOUND):
        await keep_search_current(store, is_on=False)

    assert not (tmp_path / "search.db").exists()
    await store.close()


async def test_a_caller_finds_only_what_it_may_see() -> None:
    async with world() as here:
        own = await here.sent("write the parser")
        await here.sent("another parser", PHONE)
        await here.sent("read the lexer")
        limited = Caller(scope="key:x", sees_all=True, agents=frozenset({"bob"}))

        async def found(caller: Caller, *, agent: str = "", context: str = "") -> list[str]:
            page = await here.ask(ListTasks(text=" parser ", agent=agent, context_id=context), caller)
            return [task.id for task in page.tasks]

        assert await found(LAPTOP) == await found(LAPTOP, agent="ada") == [own.id]
        assert len(await found(OPERATOR)) == 2
        assert await found(limited) == []
        assert await found(LAPTOP, context="other") == []
        assert len((await here.ask(ListTasks(text=" "), LAPTOP)).tasks) == 2, "a blank text filters nothing"
