"""A host whose inbox another process has acquired: it types nothing, records nothing, and knows it."""

from __future__ import annotations

import asyncio

import pytest

from synapse.core.caller import Caller
from synapse.core.driver import Answered, QuestionRaised, Resumed, Submitted, Turn, TurnEvent, Typing
from synapse.core.errors import LeaseLost
from synapse.core.lifecycle import replay
from synapse.core.message import TextPart
from synapse.core.question import Option, Question, QuestionKind
from synapse.core.requests import AnswerQuestion
from synapse.core.store import Lease
from synapse.tasks.journal import Journal
from tests.fakes.driver import FakeDriver
from tests.fakes.facts import TASK, opened
from tests.fakes.harness import ME, AgentHarness, working
from tests.fakes.memory_store import MemoryStore
from tests.fakes.stores import settle

PERSON = Caller(via_socket=True)
QUESTION = Question(
    id="q-1",
    kind=QuestionKind.PERMISSION,
    title="Run it?",
    options=(Option(key="y", label="Yes"), Option(key="n", label="No")),
)


async def acquire(store: MemoryStore, holder: str) -> Lease:
    lease = await store.acquire(ME.inbox, holder, lambda _: False)
    assert lease is not None
    return lease


async def test_a_message_that_waits_is_not_typed_by_a_host_that_was_replaced() -> None:
    async with asyncio.timeout(10):
        store = MemoryStore()
        harness = AgentHarness(store=store, lease=await acquire(store, "one"))
        harness.driver.ready.clear()
        async with working(harness):
            task = await harness.send("hello")
            await acquire(store, "two")
            before = await store.read_after(0)

            harness.driver.ready.set()
            await harness.journal.lease_lost()
            await settle()

            assert [turn.task_id for turn in harness.driver.turns] == [task.id]
            assert harness.driver.typed == []
            assert await store.read_after(0) == before


async def test_a_send_to_a_host_that_was_replaced_fails() -> None:
    async with asyncio.timeout(10):
        store = MemoryStore()
        harness = AgentHarness(store=store, lease=await acquire(store, "one"))
        successor = await acquire(store, "two")
        async with working(harness):
            with pytest.raises(LeaseLost):
                await harness.send("hello")

            # Not even when the successor has gone: it may have left what this one knows nothing of.
            await store.release(successor)
            with pytest.raises(LeaseLost):
                await harness.send("hello again")
        assert await store.read_after(0) == []


async def test_an_answer_is_not_typed_by_a_host_that_was_replaced() -> None:
    def plot(_turn: Turn) -> list[TurnEvent]:
        answer = Answered(parts=(TextPart(text="done"),), source="screen")
        return [Typing(), Submitted("screen", "seen"), QuestionRaised(QUESTION), Resumed("keys"), answer]

    async with asyncio.timeout(10):
        store = MemoryStore()
        harness = AgentHarness(FakeDriver(plot), store, lease=await acquire(store, "one"))
        async with working(harness):
            task = await harness.send("hello")
            await harness.reached(task, "submitted")
            await settle()
            await acquire(store, "two")

            with pytest.raises(LeaseLost):
                await harness.service.handle(AnswerQuestion(task_id=task.id, option="y"), PERSON)

            assert harness.driver.choices == []


async def test_a_journal_without_a_lease_only_reads() -> None:
    async with asyncio.timeout(10):
        store = MemoryStore()
        journal = Journal(store)
        await store.append(replay([opened()]), [opened()])

        assert await journal.load(TASK) == replay([opened()])
        with pytest.raises(ValueError, match="only reads"):
            await journal.record(opened())
