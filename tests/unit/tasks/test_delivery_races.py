"""Races between the steps of a delivery: nothing is typed twice, lost, or left hanging."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import pytest

from synapse.core.caller import Caller
from synapse.core.driver import (
    Answered,
    Deferred,
    DeliveryUncertain,
    Failed,
    InputRequested,
    Submitted,
    Turn,
    TurnEvent,
    Typing,
)
from synapse.core.errors import AgentExited, Conflict, QueueFull, StoreLocked
from synapse.core.message import TextPart
from synapse.core.requests import CancelTask, Reply, ResolveTask, SendMessage
from synapse.core.task import ReceiptStep, Task, TaskState
from tests.fakes.driver import FakeDriver, echo
from tests.fakes.harness import AgentHarness, claude, say, working
from tests.fakes.stores import SlowStore

T = TypeVar("T")
LATE = Answered(parts=(TextPart(text="late"),), source="screen")


def hesitant() -> FakeDriver:
    """A driver that looks before it says that it will type."""
    driver = FakeDriver()
    driver.holds_before = Typing
    driver.go_on.clear()
    return driver


def doubtful(turn: Turn) -> list[TurnEvent]:
    return [Typing(), DeliveryUncertain("no proof"), LATE]


def rate_limited(turn: Turn) -> list[TurnEvent]:
    return [Typing(), Failed("rate_limited", "try again at noon")]


def typed_late(turn: Turn) -> list[TurnEvent]:
    return [Typing(), LATE]


async def test_a_message_canceled_before_its_intent_is_never_typed() -> None:
    driver = hesitant()
    async with working(AgentHarness(driver)) as harness:
        task = await harness.send("never mind")
        await asyncio.wait_for(driver.taken.wait(), 5)
        await harness.service.handle(CancelTask(task.id), Caller())
        driver.go_on.set()
        await harness.finished(await harness.send("other"))

    assert driver.typed == ["other"]


async def test_a_cancel_that_is_on_its_way_to_the_store_keeps_the_message_untyped() -> None:
    driver, store = hesitant(), SlowStore()
    async with working(AgentHarness(driver, store)) as harness:
        sending = asyncio.ensure_future(harness.send("never mind"))
        task = await committed(store, sending)
        await asyncio.wait_for(driver.taken.wait(), 5)
        canceling = asyncio.ensure_future(harness.service.handle(CancelTask(task.id), Caller()))
        await waiting(store, 1)
        driver.go_on.set()
        await breath()
        await committed(store, canceling)
        await committed(store, asyncio.ensure_future(harness.finished(task)))
        other = await committed(store, asyncio.ensure_future(harness.send("other")))
        await committed(store, asyncio.ensure_future(harness.finished(other)))

    assert driver.typed == ["other"]


async def test_a_turn_that_ends_while_its_reply_is_being_recorded_does_not_stop_the_worker() -> None:
    store = SlowStore()
    harness = AgentHarness(store=store)
    harness.driver.go_on.clear()
    async with working(harness):
        task = await committed(store, asyncio.ensure_future(harness.send("status?", response_expected=True)))
        await committed(store, asyncio.ensure_future(harness.reached(task, "submitted")))
        replying = asyncio.ensure_future(
            harness.service.handle(Reply(message=say("all green")), Caller(via_socket=True))
        )
        await waiting(store, 1)
        harness.driver.go_on.set()
        await breath()
        await committed(store, replying)
        ended = await committed(store, asyncio.ensure_future(harness.finished(task)))
        other = await committed(store, asyncio.ensure_future(harness.send("other")))
        await committed(store, asyncio.ensure_future(harness.finished(other)))

    assert [artifact.text for artifact in ended.artifacts] == ["all green"]


async def test_an_intent_that_was_withdrawn_is_queued_again_with_a_receipt() -> None:
    def plot(turn: Turn) -> list[TurnEvent]:
        return [Typing(), Deferred("a dialog opened")]

    async def story() -> Task:
        harness = AgentHarness(FakeDriver(plot))
        async with working(harness):
            task = await harness.send("hello")
            async with asyncio.timeout(5):
                async for update in harness.feed.follow(task.id, None):
                    if len(update.task.receipts) == 3:
                        harness.driver.ready.clear()
                        return update.task
        raise AssertionError("it was not queued again")

    task = await story()
    assert [receipt.step for receipt in task.receipts] == ["queued", "typed", "queued"]
    assert "a dialog opened" in task.receipts[-1].evidence


async def test_a_message_that_is_being_typed_when_its_deadline_passes_is_typed_to_the_end() -> None:
    harness = AgentHarness()
    harness.driver.plot = typed_late
    harness.driver.go_on.clear()
    async with working(harness):
        task = await harness.reached(await harness.send("now", metadata={"ttl": 10}), "typed")
        harness.clock.advance(11)
        await harness.in_doubt.expire()
        harness.driver.go_on.set()

        assert (await harness.finished(task)).state is TaskState.COMPLETED


async def test_a_message_whose_deadline_has_passed_is_not_typed_even_before_the_next_sweep() -> None:
    harness = AgentHarness()
    harness.driver.ready.clear()
    async with working(harness):
        task = await harness.send("too late", metadata={"ttl": 10})
        harness.clock.advance(11)
        harness.driver.ready.set()

        assert (await harness.finished(task)).reason == "expired"
        await harness.finished(await harness.send("other"))
    assert harness.driver.typed == ["other"]


async def test_a_deadline_ends_doubt_without_a_decision() -> None:
    harness = AgentHarness(FakeDriver(doubtful))
    harness.driver.go_on.clear()
    async with working(harness):
        task = await harness.raised(await harness.send("now", metadata={"ttl": 10}))
        harness.clock.advance(11)
        await harness.in_doubt.expire()

        assert (await harness.finished(task)).reason == "expired"


async def test_a_message_whose_agent_exits_before_anything_was_typed_stays_queued() -> None:
    driver = hesitant()
    harness = AgentHarness(driver)
    delivering = asyncio.ensure_future(harness.worker.run())
    task = await harness.send("later")
    await asyncio.wait_for(driver.taken.wait(), 5)
    driver.exited = True
    driver.go_on.set()
    with pytest.raises(AgentExited):
        await asyncio.wait_for(delivering, 5)
    after = AgentHarness(store=harness.store)
    await after.recover()

    assert after.worker.waiting == (task.id,)


async def test_a_message_that_is_just_being_typed_is_not_in_doubt() -> None:
    harness = AgentHarness()
    harness.driver.plot = typed_late
    harness.driver.go_on.clear()
    async with working(harness):
        task = await harness.reached(await harness.send("now"), "typed")

        with pytest.raises(Conflict):
            await harness.service.handle(ResolveTask(task_id=task.id, verdict="retry"), Caller(via_socket=True))


async def test_a_retry_that_meets_the_proof_does_not_type_again() -> None:
    def proven_late(turn: Turn) -> list[TurnEvent]:
        return [Typing(), DeliveryUncertain("no proof"), Submitted("screen", "seen"), LATE]

    store, driver = SlowStore(), FakeDriver(proven_late)
    driver.holds_before = Submitted
    driver.go_on.clear()
    harness = AgentHarness(driver, store)
    async with working(harness):
        task = await committed(store, asyncio.ensure_future(harness.send("now")))
        await committed(store, asyncio.ensure_future(harness.raised(task)))
        driver.go_on.set()
        await waiting(store, 1)
        retry = ResolveTask(task_id=task.id, verdict="retry")
        with pytest.raises(Conflict):
            await committed(store, asyncio.ensure_future(harness.service.handle(retry, Caller(via_socket=True))))

        ended = await committed(store, asyncio.ensure_future(harness.finished(task)))
    assert (ended.state, ended.artifacts[0].text) == (TaskState.COMPLETED, "late")
    assert len(driver.turns) == 1


async def test_a_person_who_saw_it_delivered_gets_the_answer_of_the_turn() -> None:
    harness = AgentHarness(FakeDriver(doubtful))
    harness.driver.go_on.clear()
    async with working(harness):
        task = await harness.raised(await harness.send("now"))
        told = await harness.service.handle(ResolveTask(task_id=task.id, verdict="delivered"), Caller(via_socket=True))
        assert (told.state, told.attention) == (TaskState.WORKING, "")
        assert harness.driver.confirmed
        harness.driver.go_on.set()

        ended = await harness.finished(task)
        assert (ended.state, ended.artifacts[0].text) == (TaskState.COMPLETED, "late")
        assert [receipt.step for receipt in ended.receipts].count(ReceiptStep.SUBMITTED) == 1


async def test_a_doubt_that_is_canceled_does_not_hold_up_the_queue() -> None:
    driver = FakeDriver(lambda turn: doubtful(turn) if turn.message.text == "one" else echo(turn))
    driver.go_on.clear()
    driver.holds_before = Answered
    async with working(AgentHarness(driver)) as harness:
        task = await harness.raised(await harness.send("one"))
        other = await harness.send("two")
        await harness.service.handle(CancelTask(task.id), Caller())
        await harness.reached(other, "submitted")

    assert driver.interrupts == 0


async def test_a_task_takes_no_second_message_while_the_first_is_on_its_way() -> None:
    harness = AgentHarness()
    harness.driver.go_on.clear()
    async with working(harness):
        task = await harness.reached(await harness.send("one"), "submitted")

        with pytest.raises(Conflict):
            await harness.send("two", task_id=task.id)
        assert len((await harness.task(task.id)).history) == 1


async def test_an_answer_to_a_question_that_is_sent_twice_is_taken_once() -> None:
    def asks_first(turn: Turn) -> list[TurnEvent]:
        return [Submitted("script", ""), InputRequested((TextPart(text="where?"),)) if turn.first else LATE]

    harness = AgentHarness(FakeDriver(asks_first))
    async with working(harness):
        task = await harness.reached(await harness.send("deploy"), "answered")
        answer = SendMessage(message=say("here", "m-2"), dialect="synapse", task_id=task.id)
        for _ in range(2):
            assert (await harness.service.handle(answer, Caller())).id == task.id

        assert (await harness.finished(task)).state is TaskState.COMPLETED
    assert [turn.message.text for turn in harness.driver.turns] == ["deploy", "here"]


async def test_held_messages_count_as_waiting() -> None:
    harness = AgentHarness(queue_limit=3, pair_per_minute=1)
    for text in ("delivered", "held", "held too"):
        await harness.send(text, sender=claude())

    with pytest.raises(QueueFull):
        await harness.send("one too many", sender=claude())


async def test_a_store_that_fails_for_a_while_stops_neither_the_worker_nor_the_message() -> None:
    store = SlowStore()
    harness = AgentHarness(store=store)
    async with working(harness):
        task = await committed(store, asyncio.ensure_future(harness.send("hello")))
        await waiting(store, 1)
        store.fail_next(StoreLocked("somebody holds the lock"))
        ended = await committed(store, asyncio.ensure_future(harness.finished(task)))

    assert ended.state is TaskState.COMPLETED
    assert len(harness.driver.turns) == 1


async def test_an_answer_that_cannot_be_stored_at_once_is_stored_later() -> None:
    store = SlowStore()
    harness = AgentHarness(store=store)
    harness.driver.plot = rate_limited
    harness.driver.go_on.clear()
    async with working(harness):
        task = await committed(store, asyncio.ensure_future(harness.send("hello")))
        await committed(store, asyncio.ensure_future(harness.reached(task, "typed")))
        harness.driver.go_on.set()
        await waiting(store, 1)
        store.fail_next(StoreLocked("somebody holds the lock"))
        ended = await committed(store, asyncio.ensure_future(harness.finished(task)))

    assert ended.reason == "rate_limited"
    assert len(harness.driver.turns) == 1


async def breath() -> None:
    """Let everything that is ready run once."""
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(ready.set_result, None)
    await ready


async def waiting(store: SlowStore, count: int) -> None:
    """Return once that many writes wait for the disk."""
    async with asyncio.timeout(5):
        while store.waiting < count:
            await breath()


async def committed(store: SlowStore, coming: asyncio.Future[T]) -> T:
    """Let the disk go on until `coming` is there."""
    async with asyncio.timeout(5):
        while not coming.done():
            await breath()
            store.commit()
    return coming.result()
