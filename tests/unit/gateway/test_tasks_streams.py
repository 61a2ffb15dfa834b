"""Streams of revoked callers and waits for agents that are gone end without an event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from synapse.core.errors import AgentExited, StoreFailed, Unauthenticated
from synapse.core.events import Recorded, Update
from synapse.core.override import override
from synapse.core.requests import FollowTask, ForAgent, GetTask, ListTasks, SendAndFollow, SendAndWait, SubscribeTask
from synapse.core.task import Task, TaskId, TaskState
from synapse.gateway.tasks import MAX_MISSES
from tests.fakes.driver import FakeDriver
from tests.fakes.gateway_world import BOUND, LAPTOP, World, everything, message, world
from tests.fakes.memory_store import MemoryStore

SECRET = "secret/store.db is locked"


class TroubledStore(MemoryStore):
    """A store that cannot be read for a while, with an error that names files."""

    is_troubled = False

    @override
    async def load(self, task_id: TaskId) -> Task:
        self._fail()
        return await super().load(task_id)

    @override
    async def read_after(self, seq: int, *, task_id: TaskId | None = None, limit: int = 500) -> Sequence[Recorded]:
        self._fail()
        return await super().read_after(seq, task_id=task_id, limit=limit)

    def _fail(self) -> None:
        if self.is_troubled:
            raise StoreFailed(SECRET, hint="fuser secret/store.db")


class Badge:
    """Credentials that are valid until they are revoked."""

    counts = True

    def __call__(self) -> bool:
        return self.counts


def held() -> FakeDriver:
    """A driver whose turn continues until the test ends it."""
    driver = FakeDriver()
    driver.go_on.clear()
    return driver


async def looked(gateway: World, pending: asyncio.Future[Any], times: int) -> None:
    """Rechecks so many times; each time, what waits has seen the previous recheck."""
    for _ in range(times):
        await gateway.service.recheck()
        await asyncio.wait({pending}, timeout=0.02)


async def looked_until_done(gateway: World, pending: asyncio.Future[Any]) -> None:
    async with asyncio.timeout(BOUND):
        while not pending.done():
            await looked(gateway, pending, 1)


@pytest.mark.parametrize("request_type", [SendAndFollow, SubscribeTask, FollowTask])
async def test_a_stream_ends_when_the_credentials_of_its_reader_are_revoked(request_type: type) -> None:
    badge, driver = Badge(), held()
    async with world(driver) as gateway:
        caller = replace(LAPTOP, holds=badge)
        if request_type is SendAndFollow:
            asked = SendAndFollow(message())
        else:
            asked = request_type(task_id=(await gateway.sent()).id)
        updates: AsyncGenerator[Update, None] = await gateway.ask(ForAgent("ada", asked), caller)
        reading = asyncio.ensure_future(everything(updates))
        await asyncio.wait_for(driver.taken.wait(), BOUND)
        await looked(gateway, reading, 2)
        assert not reading.done()

        badge.counts = False
        await looked_until_done(gateway, reading)

        assert isinstance(reading.exception(), Unauthenticated)
        driver.go_on.set()


async def test_the_stream_of_another_caller_goes_on() -> None:
    badge, driver = Badge(), held()
    badge.counts = False
    async with world(driver) as gateway:
        task = await gateway.sent()
        others = await gateway.ask(ForAgent("ada", SubscribeTask(task_id=task.id)), replace(LAPTOP, holds=badge))
        ours = await gateway.ask(ForAgent("ada", SubscribeTask(task_id=task.id)))
        reading = [asyncio.ensure_future(everything(updates)) for updates in (others, ours)]
        await asyncio.wait_for(driver.taken.wait(), BOUND)

        await looked_until_done(gateway, reading[0])
        driver.go_on.set()

        assert isinstance(reading[0].exception(), Unauthenticated)
        assert (await asyncio.wait_for(reading[1], BOUND))[-1].task.state is TaskState.COMPLETED


async def test_the_error_of_a_store_that_fails_names_no_files(caplog: pytest.LogCaptureFixture) -> None:
    store, driver = TroubledStore(), held()
    async with world(driver, store) as gateway:
        sent = await gateway.service.handle(ForAgent("ada", SendAndWait(message())), LAPTOP)
        pending = asyncio.ensure_future(sent.settled())
        task = (await gateway.ask(ListTasks())).tasks[0]
        updates = await gateway.ask(ForAgent("ada", SubscribeTask(task_id=task.id, after=0)))
        store.is_troubled = True
        await looked_until_done(gateway, pending)
        for asked in (gateway.ask(GetTask(task.id)), pending, everything(updates)):
            with pytest.raises(StoreFailed, match="store failed") as failed:
                await asked
            assert "secret" not in f"{failed.value} {failed.value.hint}"
        store.is_troubled = False
        driver.go_on.set()
    told = [record.__dict__["error"] for record in caplog.records if record.message == "store_failed"]
    assert told == [SECRET] * 3


async def test_a_wait_for_an_agent_that_is_gone_ends_with_an_error() -> None:
    driver = held()
    async with world(driver) as gateway:
        sent = await gateway.service.handle(ForAgent("ada", SendAndWait(message())), LAPTOP)
        pending = asyncio.ensure_future(sent.settled())
        await asyncio.wait_for(driver.taken.wait(), BOUND)
        await looked(gateway, pending, MAX_MISSES + 1)
        assert not pending.done()

        gateway.desks.pop("ada")
        await looked_until_done(gateway, pending)

        with pytest.raises(AgentExited, match="is gone"):
            pending.result()
        driver.go_on.set()


async def test_a_wait_for_an_agent_that_comes_back_gets_its_answer() -> None:
    driver = held()
    async with world(driver) as gateway:
        sent = await gateway.service.handle(ForAgent("ada", SendAndWait(message())), LAPTOP)
        pending = asyncio.ensure_future(sent.settled())
        await asyncio.wait_for(driver.taken.wait(), BOUND)
        for _ in range(2):
            ada = gateway.desks.pop("ada")
            await looked(gateway, pending, MAX_MISSES - 1)
            gateway.desks["ada"] = ada
            await looked(gateway, pending, 1)
        driver.go_on.set()

        assert (await asyncio.wait_for(pending, BOUND)).state is TaskState.COMPLETED
