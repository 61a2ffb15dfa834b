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
from synapse.core.store import Lease
from synapse.core.task import Task
from tests.fakes.driver import FakeDriver
from tests.fakes.harness import AgentHarness, working
from tests.fakes.leases import ANY_LEASE
from tests.fakes.memory_store import MemoryStore
from tests.fakes.questions import PERMISSION, asked, asks
from tests.fakes.stores import settle

PERSON = ("a person has a half-typed line", HoldReason.PERSON)


class FullStore(MemoryStore):
    """Takes nothing while its disk is full."""

    is_full = False

    @override
    def append(
        self, task: Task, events: Sequence[TaskEvent], *, lease: Lease = ANY_LEASE, digest: str = ""
    ) -> asyncio.Future[int]:
        if not self.is_full:
            return super().append(task, events, lease=lease, digest=digest)
        failed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        failed.set_exception(StoreFull("no space left for store.db", hint="free some space: `df -h`"))
        return failed


async def held(harness: AgentHarness) -> Hold | None:
    status = await harness.service.handle(GetStatus(), Caller())
    found: Hold | None = status.held
    return found


def closed_gate(why: str, reason: HoldReason) -> AgentHarness:
    harness = AgentHarness()
    harness.driver.ready.clear()
    harness.driver.gate = (why, reason)
    return harness


async def test_without_messages_nothing_is_held() -> None:
    async with working(closed_gate(*PERSON)) as harness:
        assert await held(harness) is None


async def test_a_hold_has_a_reason_and_a_start_until_messages_are_delivered() -> None:
    async with working(closed_gate(*PERSON)) as harness:
        begun = harness.clock.now()
        tasks = [await harness.send("one"), await harness.send("two")]
        await settle()
        harness.clock.advance(29)
        found = await held(harness)
        assert found is not None
        assert (found.reason, found.why, found.messages) == (PERSON[1], PERSON[0], 2)
        assert (found.since, found.task_id, found.is_overdue) == (begun, tasks[0].id, False)
        harness.clock.advance(1)
        found = await held(harness)
        assert found is not None
        assert found.is_overdue

        harness.driver.gate = None
        harness.driver.ready.set()
        for task in tasks:
            await harness.finished(task)
        assert await held(harness) is None


async def test_the_time_that_the_agent_was_at_work_does_not_count() -> None:
    async with working(closed_gate("the agent is working", HoldReason.WORKING)) as harness:
        await harness.send("one")
        await settle()
        harness.clock.advance(3600)
        found = await held(harness)
        assert found is not None
        assert (found.reason, found.is_overdue) == (HoldReason.WORKING, False)

        harness.driver.gate, harness.driver.since = PERSON, harness.clock.now()
        found = await held(harness)
        assert found is not None
        assert (found.since, found.is_overdue) == (harness.clock.now(), False)


async def test_a_turn_that_runs_holds_nothing() -> None:
    harness = AgentHarness()
    harness.driver.go_on.clear()
    async with working(harness):
        await harness.reached(await harness.send("long work"), "submitted")
        await harness.send("next")
        harness.clock.advance(3600)

        assert await held(harness) is None
        harness.driver.restless_since = harness.clock.now() - timedelta(minutes=1)
        found = await held(harness)
        assert found is not None
        assert (found.reason, found.messages, found.is_overdue) == (HoldReason.NEVER_RESTS, 1, True)


async def test_a_message_in_doubt_holds_those_behind_it() -> None:
    def doubtful(_turn: Turn) -> list[TurnEvent]:
        return [Typing(), DeliveryUncertain("nothing shows that it was taken"), Submitted("screen", "never")]

    harness = AgentHarness(FakeDriver(doubtful))
    harness.driver.go_on.clear()
    async with working(harness):
        task = await harness.raised(await harness.send("one"))
        assert await held(harness) is None
        await harness.send("two")
        harness.clock.advance(31)
        found = await held(harness)

        assert found is not None
        assert (found.reason, found.task_id, found.messages) == (HoldReason.IN_DOUBT, task.id, 1)
        assert found.why == f"task {task.short_id} is in doubt: nothing shows that it was taken"
        assert found.is_overdue


async def test_a_question_in_a_turn_holds_those_behind_it() -> None:
    async with working(AgentHarness(asks(PERMISSION))) as harness:
        await asked(harness)
        await harness.send("two")
        found = await held(harness)

        assert found is not None
        assert found.reason is HoldReason.DIALOG


@pytest.mark.timeout(20)
async def test_a_store_that_cannot_be_written_is_the_reason_until_it_can() -> None:
    store = FullStore()
    harness = AgentHarness(store=store)
    harness.driver.ready.clear()
    async with working(harness):
        task = await harness.send("one")
        store.is_full = True
        harness.driver.ready.set()
        while (found := await held(harness)) is None:
            await settle()

        assert (found.reason, found.messages, found.task_id) == (HoldReason.STORE, 1, task.id)
        assert found.why == "the store cannot be written: no space left for store.db"
        assert found.hint == "free some space: `df -h`"
        assert harness.driver.typed == []
        store.is_full = False
        await harness.finished(task)
        assert await held(harness) is None
