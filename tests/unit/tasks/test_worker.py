"""The worker: order, intent before effect, interrupts, and what an exit does."""

from __future__ import annotations

import asyncio

import pytest

from synapse.core.caller import Caller
from synapse.core.driver import (
    Answered,
    Deferred,
    DeliveryUncertain,
    Failed,
    InputRequested,
    Refused,
    Submitted,
    Turn,
    TurnEvent,
    Typing,
)
from synapse.core.message import TextPart
from synapse.core.override import override
from synapse.core.requests import CancelTask, ResolveTask
from synapse.core.task import ReceiptStep, TaskState
from tests.fakes.driver import FakeDriver, echo
from tests.fakes.harness import AgentHarness, working


async def test_a_message_is_typed_submitted_and_answered() -> None:
    async with working(AgentHarness()) as harness:
        task = await harness.finished(await harness.send("hello"))

        assert task.state is TaskState.COMPLETED
        assert [receipt.step for receipt in task.receipts] == ["queued", "typed", "submitted", "answered"]
        assert task.artifacts[0].text == "echo: hello"
        assert task.artifacts[0].metadata == {"source": "screen", "inferred": True}


async def test_the_intent_is_durable_before_the_first_byte() -> None:
    harness = AgentHarness()
    durable: list[ReceiptStep] = []
    stored: list[str] = []
    harness.journal.listen(
        lambda update: durable.append(update.task.receipts[-1].step) if update.task.receipts else None
    )
    harness.driver.on_typing = lambda: stored.extend(durable)
    async with working(harness):
        await harness.finished(await harness.send("hello"))

    assert stored[-1] == "typed"


async def test_higher_priority_goes_first_and_equals_keep_their_order() -> None:
    harness = AgentHarness()
    harness.driver.ready.clear()
    async with working(harness):
        tasks = [await harness.send(text, priority=p) for text, p in (("a", 3), ("b", 1), ("c", 4), ("d", 3))]
        harness.driver.ready.set()
        for task in tasks:
            await harness.finished(task)

    assert [turn.message.text for turn in harness.driver.turns] == ["c", "a", "d", "b"]


async def test_priority_five_interrupts_the_running_turn_and_goes_ahead_of_the_queue() -> None:
    harness = AgentHarness()
    harness.driver.go_on.clear()
    async with working(harness):
        running = await harness.send("long work")
        queued = await harness.send("queued work")
        await harness.reached(running, "submitted")
        urgent = await harness.send("stop!", priority=5)

        assert (await harness.finished(running)).reason == "interrupted"
        assert (await harness.finished(running)).state is TaskState.CANCELED
        await harness.finished(urgent)
        await harness.finished(queued)

    assert harness.driver.interrupts == 1
    assert [turn.message.text for turn in harness.driver.turns] == ["long work", "stop!", "queued work"]


class StubbornDriver(FakeDriver):
    """A driver that cannot interrupt: it fails, or takes for ever."""

    def __init__(self, failure: Exception | None) -> None:
        super().__init__()
        self._failure = failure
        self.asked = asyncio.Event()

    @override
    async def interrupt(self) -> bool:
        self.asked.set()
        if self._failure is not None:
            raise self._failure
        await asyncio.Event().wait()
        return True


@pytest.mark.parametrize("failure", [OSError("no such process"), None], ids=["it fails", "its sender gives up"])
async def test_a_message_that_could_not_interrupt_is_delivered_nonetheless(failure: Exception | None) -> None:
    driver = StubbornDriver(failure)
    async with working(AgentHarness(driver)) as harness:
        sending = asyncio.ensure_future(harness.send("stop!", priority=5))
        await asyncio.wait_for(driver.asked.wait(), 5)
        if failure is None:
            sending.cancel()
        await asyncio.wait({sending}, timeout=5)

        await asyncio.wait_for(driver.taken.wait(), 5)
        assert [turn.message.text for turn in driver.turns] == ["stop!"]


@pytest.mark.parametrize(
    ("end", "state"),
    [
        (Answered(parts=(TextPart(text="all of it"),), source="signal"), TaskState.COMPLETED),
        (Answered(parts=(TextPart(text="all of it"),), source="transcript"), TaskState.COMPLETED),
        (Refused("that is not mine to do"), TaskState.REJECTED),
        (InputRequested(parts=(TextPart(text="which one?"),)), TaskState.INPUT_REQUIRED),
        (Answered(parts=(TextPart(text="the half of i"),), source="screen"), TaskState.CANCELED),
        (Failed("interrupted", "its hook says so"), TaskState.CANCELED),
    ],
)
async def test_a_turn_that_ended_whole_before_the_interrupt_took_effect_keeps_its_end(
    end: TurnEvent, state: TaskState
) -> None:
    def plot(turn: Turn) -> list[TurnEvent]:
        return [Typing(), Submitted("signal", "it has it"), end] if "long" in turn.message.text else echo(turn)

    harness = AgentHarness(FakeDriver(plot))
    harness.driver.go_on.clear()
    async with working(harness):
        running = await harness.reached(await harness.send("long work"), "submitted")
        urgent = await harness.send("stop!", priority=5)
        await harness.finished(urgent)

        assert (await harness.task(running.id)).state is state


async def test_a_gate_that_closed_again_leaves_the_message_queued_and_types_it_once() -> None:
    attempts: list[Turn] = []

    def closed_once(turn: Turn) -> list[TurnEvent]:
        attempts.append(turn)
        return [Deferred("a dialog opened")] if len(attempts) == 1 else echo(turn)

    async with working(AgentHarness(FakeDriver(closed_once))) as harness:
        task = await harness.finished(await harness.send("hello"))

        assert [receipt.step for receipt in task.receipts].count(ReceiptStep.TYPED) == 1
    assert len(attempts) == 2


async def test_an_agent_that_exits_fails_the_running_task_and_keeps_the_queue() -> None:
    harness = AgentHarness()
    harness.driver.go_on.clear()
    async with working(harness):
        running = await harness.send("work")
        waiting = await harness.send("later")
        await harness.reached(running, "submitted")
        harness.driver.exited = True
        harness.driver.go_on.set()
        ended = await harness.finished(running)

        assert (ended.state, ended.reason) == (TaskState.FAILED, "agent_exited")
        assert (await harness.task(waiting.id)).state is TaskState.SUBMITTED


async def test_a_failed_turn_says_why() -> None:
    plot: list[TurnEvent] = [Typing(), Failed("rate_limited", "try again at noon")]
    async with working(AgentHarness(FakeDriver(lambda _: plot))) as harness:
        task = await harness.finished(await harness.send("work"))

        assert (task.state, task.reason, task.note) == (TaskState.FAILED, "rate_limited", "try again at noon")
        assert task.receipts[-1].step is ReceiptStep.FAILED


async def test_a_queued_task_can_be_canceled_and_is_never_typed() -> None:
    harness = AgentHarness()
    harness.driver.ready.clear()
    async with working(harness):
        task = await harness.send("never mind")
        await harness.service.handle(CancelTask(task.id), Caller())
        harness.driver.ready.set()
        await harness.finished(await harness.send("other"))

    assert [turn.message.text for turn in harness.driver.turns] == ["other"]


async def test_a_running_task_that_is_canceled_interrupts_the_agent() -> None:
    harness = AgentHarness()
    harness.driver.go_on.clear()
    async with working(harness):
        task = await harness.send("work")
        await harness.reached(task, "submitted")
        canceled = await harness.service.handle(CancelTask(task.short_id), Caller())

        assert canceled.state is TaskState.CANCELED
        assert harness.driver.interrupts == 1
        await harness.finished(await harness.send("next"))


def doubtful(turn: Turn) -> list[TurnEvent]:
    late = Answered(parts=(TextPart(text="late"),), source="screen")
    return [Typing(), DeliveryUncertain("no proof that it was taken"), Submitted("screen", "seen at last"), late]


async def test_a_message_in_doubt_asks_for_a_person_until_proof_comes() -> None:
    harness = AgentHarness(FakeDriver(doubtful))
    seen: list[str] = []
    harness.journal.listen(lambda update: seen.append(update.task.attention))
    async with working(harness):
        task = await harness.finished(await harness.send("hello"))

    assert "no proof that it was taken" in seen
    assert (task.state, task.attention) == (TaskState.COMPLETED, "")


async def test_a_person_can_have_a_message_in_doubt_typed_again() -> None:
    attempts: list[Turn] = []

    def plot(turn: Turn) -> list[TurnEvent]:
        attempts.append(turn)
        stuck: list[TurnEvent] = [Typing(), DeliveryUncertain("no proof"), Failed("never", "reached")]
        return stuck if len(attempts) == 1 else echo(turn)

    harness = AgentHarness(FakeDriver(plot))
    harness.driver.go_on.clear()
    async with working(harness):
        task = await harness.send("hello")
        await harness.raised(task)
        await harness.service.handle(ResolveTask(task_id=task.id, verdict="retry"), Caller(via_socket=True))
        harness.driver.go_on.set()

        ended = await harness.finished(task)
        assert ended.state is TaskState.COMPLETED
        assert [receipt.step for receipt in ended.receipts].count(ReceiptStep.TYPED) == 2


async def test_a_turn_knows_the_trace_of_its_task() -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    async with working(AgentHarness()) as harness:
        await harness.finished(await harness.send("hello", metadata={"trace": {"traceparent": parent}}))

        assert harness.driver.turns[0].trace == (("traceparent", parent),)
