"""What the worker owes to the order of things: who goes first, what is never stopped half way, what is told once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress

from synapse.core.caller import Caller
from synapse.core.driver import Answered, Deferred, DeliveryUncertain, Submitted, Turn, TurnEvent, Typing
from synapse.core.errors import AgentExited
from synapse.core.events import AttentionChanged, ReceiptChanged
from synapse.core.lifecycle import replay
from synapse.core.message import Message, TextPart
from synapse.core.override import override
from synapse.core.requests import CancelTask, SendMessage
from synapse.core.task import INTERRUPT_PRIORITY, ReceiptStep, TaskState
from synapse.tasks import outcomes
from synapse.tasks.outcomes import AGENT_EXITED
from tests.fakes.desk import Desk, say, working
from tests.fakes.driver import FakeDriver, echo
from tests.fakes.facts import TASK, after, moved, opened, stepped
from tests.fakes.stores import settle

PROOF = Submitted("screen", "the prompt was cleared")


def test_proof_takes_back_the_question_to_a_person() -> None:
    doubt = AttentionChanged(task_id=TASK, at=after(2), attention="no proof")
    task = replay([opened(), stepped(ReceiptStep.TYPED), doubt])

    facts = outcomes.events_for(task, PROOF, after(3))

    assert AttentionChanged(task_id=TASK, at=after(3), attention="") in facts


def test_proof_of_what_a_person_has_said_already_is_no_second_step() -> None:
    task = replay([opened(), stepped(ReceiptStep.TYPED), stepped(ReceiptStep.SUBMITTED), moved(TaskState.WORKING)])

    assert outcomes.events_for(task, PROOF, after(3)) == ()


def test_an_intent_that_came_to_nothing_is_told_as_a_step_only_if_it_was_one() -> None:
    queued, typed = replay([opened()]), replay([opened(), stepped(ReceiptStep.TYPED)])

    assert outcomes.events_for(queued, Deferred("a dialog"), after(3)) == ()
    (taken_back,) = outcomes.events_for(typed, Deferred("a dialog"), after(3))
    assert isinstance(taken_back, ReceiptChanged)
    assert taken_back.step is ReceiptStep.QUEUED


async def test_a_task_that_has_ended_elsewhere_while_it_was_queued_is_not_begun() -> None:
    desk = Desk()
    desk.driver.ready.clear()
    async with working(desk):
        task = await desk.send("one")
        # As another process would, which knows nothing of our queue.
        await desk.journal.record(*outcomes.ended(task, after(9), TaskState.CANCELED, "canceled", "elsewhere"))
        desk.driver.ready.set()
        await desk.finished(await desk.send("two"))

    assert [turn.message.text for turn in desk.driver.turns] == ["two"]


async def test_a_message_that_could_not_be_typed_keeps_its_place() -> None:
    refused: list[str] = []

    def plot(turn: Turn) -> list[TurnEvent]:
        if refused:
            return echo(turn)
        refused.append(turn.message.text)
        return [Deferred("a person types")]

    desk = Desk(FakeDriver(plot))
    desk.driver.ready.clear()
    async with working(desk):
        tasks = [await desk.send(text) for text in ("one", "two")]
        desk.driver.ready.set()
        for task in tasks:
            await desk.finished(task)

    assert (refused, desk.driver.typed) == (["one"], ["one", "two"])


async def test_what_is_just_being_typed_is_not_interrupted_before_the_agent_has_it() -> None:
    desk = Desk()
    desk.driver.holds_before = Submitted
    desk.driver.go_on.clear()
    async with working(desk):
        first = await desk.send("one")
        await desk.reached(first, "typed")
        await desk.send("now", priority=INTERRUPT_PRIORITY)
        assert desk.driver.interrupts == 0

        desk.driver.go_on.set()
        ended = await desk.finished(first)
    assert (desk.driver.interrupts, ended.state, ended.reason) == (1, TaskState.CANCELED, outcomes.INTERRUPTED)


async def test_what_was_canceled_while_it_was_typed_is_stopped_once_the_agent_has_it() -> None:
    desk = Desk()
    desk.driver.holds_before = Submitted
    desk.driver.go_on.clear()
    async with working(desk):
        first = await desk.send("one")
        await desk.reached(first, "typed")
        await desk.service.handle(CancelTask(first.id), Caller())
        before = desk.driver.interrupts
        desk.driver.go_on.set()
        await desk.finished(await desk.send("two"))

    assert desk.driver.interrupts == before + 1
    assert (await desk.task(first.id)).state is TaskState.CANCELED


class DyingDriver(FakeDriver):
    """Takes its message without typing, and ends in the same moment."""

    @override
    async def take_turn(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        self.turns.append(turn)
        yield PROOF
        self.exited = True
        raise AgentExited("the program ended")


async def test_an_agent_that_ends_as_soon_as_it_has_the_message_does_not_get_it_again() -> None:
    desk = Desk(DyingDriver())
    task = await desk.send("once")
    with suppress(AgentExited):
        await asyncio.wait_for(desk.worker.run(), 5)
    await settle()

    ended = await desk.task(task.id)
    assert (ended.state, ended.reason) == (TaskState.FAILED, AGENT_EXITED)
    assert [receipt.step.value for receipt in ended.receipts] == ["queued", "submitted", "failed"]


def at_once(message: Message) -> Sequence[TurnEvent]:
    return [PROOF, Answered(parts=(TextPart(text=f"at once: {message.text}"),), source="script")]


async def test_nobody_who_waits_for_an_agent_that_is_not_ready_is_overtaken() -> None:
    driver = FakeDriver()
    driver.ready.clear()
    async with working(Desk(driver, answer_at_once=at_once)) as desk:
        first = await desk.send("first")
        second = asyncio.ensure_future(desk.settled(SendMessage(message=say("second"), dialect="a2a_v1")))
        await settle()
        assert not second.done()
        driver.ready.set()
        await desk.finished(first)
        await second

    assert driver.typed == ["first", "second"]


async def test_whatever_a_turn_says_after_doubt_the_intent_stands_once() -> None:
    def plot(_turn: Turn) -> list[TurnEvent]:
        return [
            Typing(),
            DeliveryUncertain("no proof"),
            PROOF,
            Answered(parts=(TextPart(text="late"),), source="screen"),
        ]

    async with working(Desk(FakeDriver(plot))) as desk:
        ended = await desk.finished(await desk.send("one"))

    assert [receipt.step.value for receipt in ended.receipts] == ["queued", "typed", "submitted", "answered"]
