"""An agent that needs nothing but the message answers before it is recorded: both become durable together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from synapse.core.caller import Caller
from synapse.core.driver import Answered, Submitted, TurnEvent
from synapse.core.errors import MessageIdReused, StoreFailed
from synapse.core.events import TaskOpened
from synapse.core.message import Message, TextPart
from synapse.core.requests import SendAndFollow, SendAndWait, SendMessage
from synapse.core.task import INTERRUPT_PRIORITY, Task, TaskState
from tests.fakes.driver import FakeDriver
from tests.fakes.harness import AgentHarness, claude, say, working
from tests.fakes.stores import SlowStore, settle

ME = Caller()


def echo(message: Message) -> Sequence[TurnEvent]:
    """An agent that always can."""
    return [Submitted("script", "taken"), Answered(parts=(TextPart(text=f"at once: {message.text}"),), source="script")]


def quick(**more: Any) -> AgentHarness:
    return AgentHarness(answer_at_once=echo, **more)


def message(text: str = "hello", message_id: str = "", **more: Any) -> SendMessage:
    return SendMessage(message=say(text, message_id), dialect="a2a_v1", **more)


def answer(task: Task) -> str:
    return task.artifacts[0].text


async def test_message_and_answer_are_one_append() -> None:
    store = SlowStore()
    harness = quick(store=store)
    sending = asyncio.ensure_future(harness.settled(message("hi")))
    await settle()
    store.commit()
    task = await sending

    assert store.waiting == 0
    assert (task.state, answer(task)) == (TaskState.COMPLETED, "at once: hi")
    assert [one.step.value for one in task.receipts] == ["queued", "submitted", "answered"]
    log = await store.read_after(0, task_id=task.id)
    assert isinstance(log[0].event, TaskOpened)
    assert len(log) == task.version


async def test_a_store_that_fails_leaves_neither_message_nor_answer() -> None:
    store = SlowStore()
    harness = quick(store=store)
    sending = asyncio.ensure_future(harness.settled(message("hi", "m-1")))
    await settle()
    store.fail_next(StoreFailed("the disk is full"))

    with pytest.raises(StoreFailed):
        await sending
    assert await store.read_after(0) == []
    assert await store.find_message("", "", "m-1") is None


async def test_a_caller_that_does_not_wait_finds_the_message_queued() -> None:
    harness = quick()
    task = await harness.service.handle(message(), ME)

    assert (task.state, harness.worker.waiting) == (TaskState.SUBMITTED, (task.id,))


async def test_a_follower_sees_each_state() -> None:
    async with working(quick()) as harness, asyncio.timeout(5):
        updates = await harness.service.handle(SendAndFollow(message()), ME)
        states = [update.task.state async for update in updates]

    assert states[0] is TaskState.SUBMITTED
    assert states[-1] is TaskState.COMPLETED


@pytest.mark.parametrize(
    "special",
    [{"priority": INTERRUPT_PRIORITY}, {"response_expected": True, "sender": claude()}],
    ids=["it interrupts", "its sender waits for a reply"],
)
async def test_a_message_that_needs_more_than_an_answer_takes_a_turn(special: dict[str, Any]) -> None:
    async with working(quick()) as harness:
        task = await harness.settled(message("hi", **special))

    assert answer(task) == "echo: hi"


async def test_an_answer_at_once_does_not_overtake_queued_messages() -> None:
    driver = FakeDriver()
    driver.go_on.clear()
    async with working(quick(driver=driver)) as harness, asyncio.timeout(5):
        await harness.send("first")
        await driver.taken.wait()
        during_a_turn = await harness.service.handle(SendAndWait(message("second")), ME)
        behind_the_queue = await harness.service.handle(SendAndWait(message("third")), ME)
        driver.go_on.set()

        assert answer(await during_a_turn.settled()) == "echo: second"
        assert answer(await behind_the_queue.settled()) == "echo: third"


async def test_the_same_message_twice_is_answered_once() -> None:
    harness = quick()
    first, second = await harness.settled(message("hi", "m-1")), await harness.settled(message("hi", "m-1"))

    assert first == second
    with pytest.raises(MessageIdReused):
        await harness.settled(message("ho", "m-1"))


async def test_an_agent_that_cannot_now_is_given_the_message_later() -> None:
    async with working(AgentHarness(answer_at_once=lambda _message: None)) as harness:
        task = await harness.settled(message("hi"))

    assert answer(task) == "echo: hi"


async def test_an_agent_that_fails_at_it_is_given_the_message_in_its_turn() -> None:
    def broken(_message: Message) -> Sequence[TurnEvent]:
        raise LookupError("a defect")

    async with working(AgentHarness(answer_at_once=broken)) as harness:
        task = await harness.settled(message("hi"))

    assert answer(task) == "echo: hi"
