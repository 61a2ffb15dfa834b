"""The worker: order, intent before effect, interrupts, and what an exit does."""

from __future__ import annotations

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
from synapse.core.requests import CancelTask, ResolveTask
from synapse.core.task import ReceiptStep, TaskState
from tests.fakes.desk import Desk, working
from tests.fakes.driver import FakeDriver, echo


async def test_a_message_is_typed_submitted_and_answered() -> None:
    async with working(Desk()) as desk:
        task = await desk.finished(await desk.send("hello"))

        assert task.state is TaskState.COMPLETED
        assert [receipt.step for receipt in task.receipts] == ["queued", "typed", "submitted", "answered"]
        assert task.artifacts[0].text == "echo: hello"
        assert task.artifacts[0].metadata == {"source": "screen", "inferred": True}


async def test_the_intent_is_durable_before_the_first_byte() -> None:
    desk = Desk()
    durable: list[ReceiptStep] = []
    stored: list[str] = []
    desk.journal.listen(lambda update: durable.append(update.task.receipts[-1].step) if update.task.receipts else None)
    desk.driver.on_typing = lambda: stored.extend(durable)
    async with working(desk):
        await desk.finished(await desk.send("hello"))

    assert stored[-1] == "typed"


async def test_higher_priority_goes_first_and_equals_keep_their_order() -> None:
    desk = Desk()
    desk.driver.ready.clear()
    async with working(desk):
        tasks = [await desk.send(text, priority=p) for text, p in (("a", 3), ("b", 1), ("c", 4), ("d", 3))]
        desk.driver.ready.set()
        for task in tasks:
            await desk.finished(task)

    assert [turn.message.text for turn in desk.driver.turns] == ["c", "a", "d", "b"]


async def test_priority_five_interrupts_the_running_turn_and_goes_ahead_of_the_queue() -> None:
    desk = Desk()
    desk.driver.go_on.clear()
    async with working(desk):
        running = await desk.send("long work")
        queued = await desk.send("queued work")
        await desk.reached(running, "submitted")
        urgent = await desk.send("stop!", priority=5)

        assert (await desk.finished(running)).reason == "interrupted"
        assert (await desk.finished(running)).state is TaskState.CANCELED
        await desk.finished(urgent)
        await desk.finished(queued)

    assert desk.driver.interrupts == 1
    assert [turn.message.text for turn in desk.driver.turns] == ["long work", "stop!", "queued work"]


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

    desk = Desk(FakeDriver(plot))
    desk.driver.go_on.clear()
    async with working(desk):
        running = await desk.reached(await desk.send("long work"), "submitted")
        urgent = await desk.send("stop!", priority=5)
        await desk.finished(urgent)

        assert (await desk.task(running.id)).state is state


async def test_a_gate_that_closed_again_leaves_the_message_queued_and_types_it_once() -> None:
    attempts: list[Turn] = []

    def closed_once(turn: Turn) -> list[TurnEvent]:
        attempts.append(turn)
        return [Deferred("a dialog opened")] if len(attempts) == 1 else echo(turn)

    async with working(Desk(FakeDriver(closed_once))) as desk:
        task = await desk.finished(await desk.send("hello"))

        assert [receipt.step for receipt in task.receipts].count(ReceiptStep.TYPED) == 1
    assert len(attempts) == 2


async def test_an_agent_that_exits_fails_the_running_task_and_keeps_the_queue() -> None:
    desk = Desk()
    desk.driver.go_on.clear()
    async with working(desk):
        running = await desk.send("work")
        waiting = await desk.send("later")
        await desk.reached(running, "submitted")
        desk.driver.exited = True
        desk.driver.go_on.set()
        ended = await desk.finished(running)

        assert (ended.state, ended.reason) == (TaskState.FAILED, "agent_exited")
        assert (await desk.task(waiting.id)).state is TaskState.SUBMITTED


async def test_a_failed_turn_says_why() -> None:
    plot: list[TurnEvent] = [Typing(), Failed("rate_limited", "try again at noon")]
    async with working(Desk(FakeDriver(lambda _: plot))) as desk:
        task = await desk.finished(await desk.send("work"))

        assert (task.state, task.reason, task.note) == (TaskState.FAILED, "rate_limited", "try again at noon")
        assert task.receipts[-1].step is ReceiptStep.FAILED


async def test_a_queued_task_can_be_canceled_and_is_never_typed() -> None:
    desk = Desk()
    desk.driver.ready.clear()
    async with working(desk):
        task = await desk.send("never mind")
        await desk.service.handle(CancelTask(task.id), Caller())
        desk.driver.ready.set()
        await desk.finished(await desk.send("other"))

    assert [turn.message.text for turn in desk.driver.turns] == ["other"]


async def test_a_running_task_that_is_canceled_interrupts_the_agent() -> None:
    desk = Desk()
    desk.driver.go_on.clear()
    async with working(desk):
        task = await desk.send("work")
        await desk.reached(task, "submitted")
        canceled = await desk.service.handle(CancelTask(task.short_id), Caller())

        assert canceled.state is TaskState.CANCELED
        assert desk.driver.interrupts == 1
        await desk.finished(await desk.send("next"))


def doubtful(turn: Turn) -> list[TurnEvent]:
    late = Answered(parts=(TextPart(text="late"),), source="screen")
    return [Typing(), DeliveryUncertain("no proof that it was taken"), Submitted("screen", "seen at last"), late]


async def test_a_message_in_doubt_asks_for_a_person_until_proof_comes() -> None:
    desk = Desk(FakeDriver(doubtful))
    seen: list[str] = []
    desk.journal.listen(lambda update: seen.append(update.task.attention))
    async with working(desk):
        task = await desk.finished(await desk.send("hello"))

    assert "no proof that it was taken" in seen
    assert (task.state, task.attention) == (TaskState.COMPLETED, "")


async def test_a_person_can_have_a_message_in_doubt_typed_again() -> None:
    attempts: list[Turn] = []

    def plot(turn: Turn) -> list[TurnEvent]:
        attempts.append(turn)
        stuck: list[TurnEvent] = [Typing(), DeliveryUncertain("no proof"), Failed("never", "reached")]
        return stuck if len(attempts) == 1 else echo(turn)

    desk = Desk(FakeDriver(plot))
    desk.driver.go_on.clear()
    async with working(desk):
        task = await desk.send("hello")
        await desk.raised(task)
        await desk.service.handle(ResolveTask(task_id=task.id, verdict="retry"), Caller(via_socket=True))
        desk.driver.go_on.set()

        ended = await desk.finished(task)
        assert ended.state is TaskState.COMPLETED
        assert [receipt.step for receipt in ended.receipts].count(ReceiptStep.TYPED) == 2


async def test_a_turn_knows_the_trace_of_its_task() -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    async with working(Desk()) as desk:
        await desk.finished(await desk.send("hello", metadata={"trace": {"traceparent": parent}}))

        assert desk.driver.turns[0].trace == (("traceparent", parent),)
