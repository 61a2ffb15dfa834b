"""Why messages wait: one reason, since when, and when a person should look."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from synapse.core.caller import Caller
from synapse.core.driver import DeliveryUncertain, Hold, HoldReason, Submitted, Turn, TurnEvent, Typing
from synapse.core.errors import StoreFull
from synapse.core.events import TaskEvent
from synapse.core.override import override
from synapse.core.requests import GetStatus
from synapse.core.task import Task
from synapse.store.memory import MemoryStore
from tests.fakes.desk import Desk, working
from tests.fakes.driver import FakeDriver
from tests.fakes.questions import PERMISSION, asked, asks
from tests.fakes.stores import settle

PERSON = ("a person has a half-typed line", HoldReason.PERSON)


class FullStore(MemoryStore):
    """Takes nothing while its disk is full."""

    is_full = False

    @override
    def append(self, task: Task, events: Sequence[TaskEvent], *, digest: str = "") -> asyncio.Future[int]:
        if not self.is_full:
            return super().append(task, events, digest=digest)
        failed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        failed.set_exception(StoreFull("no space left for store.db", hint="free some space: `df -h`"))
        return failed


async def held(desk: Desk) -> Hold | None:
    status = await desk.service.handle(GetStatus(), Caller())
    found: Hold | None = status.held
    return found


def shut_desk(why: str, reason: HoldReason) -> Desk:
    desk = Desk()
    desk.driver.ready.clear()
    desk.driver.gate = (why, reason)
    return desk


async def test_without_messages_nothing_is_held() -> None:
    async with working(shut_desk(*PERSON)) as desk:
        assert await held(desk) is None


async def test_what_waits_says_why_and_since_when_until_it_flows() -> None:
    async with working(shut_desk(*PERSON)) as desk:
        begun = desk.clock.now()
        tasks = [await desk.send("one"), await desk.send("two")]
        await settle()
        desk.clock.advance(29)
        found = await held(desk)
        assert found is not None
        assert (found.reason, found.why, found.messages) == (PERSON[1], PERSON[0], 2)
        assert (found.since, found.task_id, found.is_overdue) == (begun, tasks[0].id, False)
        desk.clock.advance(1)
        found = await held(desk)
        assert found is not None
        assert found.is_overdue

        desk.driver.gate = None
        desk.driver.ready.set()
        for task in tasks:
            await desk.finished(task)
        assert await held(desk) is None


async def test_the_time_that_the_agent_was_at_work_does_not_count() -> None:
    async with working(shut_desk("the agent is working", HoldReason.WORKING)) as desk:
        await desk.send("one")
        await settle()
        desk.clock.advance(3600)
        found = await held(desk)
        assert found is not None
        assert (found.reason, found.is_overdue) == (HoldReason.WORKING, False)

        desk.driver.gate, desk.driver.since = PERSON, desk.clock.now()
        found = await held(desk)
        assert found is not None
        assert (found.since, found.is_overdue) == (desk.clock.now(), False)


async def test_a_turn_that_runs_holds_nothing() -> None:
    desk = Desk()
    desk.driver.go_on.clear()
    async with working(desk):
        await desk.reached(await desk.send("long work"), "submitted")
        await desk.send("next")
        desk.clock.advance(3600)

        assert await held(desk) is None
        desk.driver.restless_since = desk.clock.now() - timedelta(minutes=1)
        found = await held(desk)
        assert found is not None
        assert (found.reason, found.messages, found.is_overdue) == (HoldReason.NEVER_RESTS, 1, True)


async def test_a_message_in_doubt_holds_those_behind_it() -> None:
    def doubtful(_turn: Turn) -> list[TurnEvent]:
        return [Typing(), DeliveryUncertain("nothing shows that it was taken"), Submitted("screen", "never")]

    desk = Desk(FakeDriver(doubtful))
    desk.driver.go_on.clear()
    async with working(desk):
        task = await desk.raised(await desk.send("one"))
        assert await held(desk) is None
        await desk.send("two")
        desk.clock.advance(31)
        found = await held(desk)

        assert found is not None
        assert (found.reason, found.task_id, found.messages) == (HoldReason.IN_DOUBT, task.id, 1)
        assert found.why == f"task {task.short_id} is in doubt: nothing shows that it was taken"
        assert found.is_overdue


async def test_a_question_in_a_turn_holds_those_behind_it() -> None:
    async with working(Desk(asks(PERMISSION))) as desk:
        await asked(desk)
        await desk.send("two")
        found = await held(desk)

        assert found is not None
        assert found.reason is HoldReason.DIALOG


@pytest.mark.timeout(20)
async def test_a_store_that_cannot_be_written_is_the_reason_until_it_can() -> None:
    store = FullStore()
    desk = Desk(store=store)
    desk.driver.ready.clear()
    async with working(desk):
        task = await desk.send("one")
        store.is_full = True
        desk.driver.ready.set()
        while (found := await held(desk)) is None:
            await settle()

        assert (found.reason, found.messages, found.task_id) == (HoldReason.STORE, 1, task.id)
        assert found.why == "the store cannot be written: no space left for store.db"
        assert found.hint == "free some space: `df -h`"
        assert desk.driver.typed == []
        store.is_full = False
        await desk.finished(task)
        assert await held(desk) is None
