"""The order of the worker's steps: what goes first, what is never stopped half way, what is recorded once."""

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
from tests.fakes.driver import FakeDriver, echo
from tests.fakes.facts import TASK, after, moved, opened, stepped
from tests.fakes.harness import AgentHarness, say, working
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


def test_a_deferred_message_gets_a_receipt_only_if_its_intent_had_one() -> None:
    queued, typed = replay([opened()]), replay([opened(), stepped(ReceiptStep.TYPED)])

    assert outcomes.events_for(queued, Deferred("a dialog"), after(3)) == ()
    (taken_back,) = outcomes.events_for(typed, Deferred("a dialog"), after(3))
    assert isinstance(taken_back, ReceiptChanged)
    assert taken_back.step is ReceiptStep.QUEUED


async def test_a_task_that_has_ended_elsewhere_while_it_was_queued_is_not_begun() -> None:
    harness = AgentHarness()
    harness.driver.ready.clear()
    async with working(harness):
        task = await harness.send("one")
        # As another process would, which knows nothing of our queue.
        await harness.journal.record(*outcomes.ended(task, after(9), TaskState.CANCELED, "canceled", "elsewhere"))
        harness.driver.ready.set()
        await harness.finished(await harness.send("two"))

    assert [turn.message.text for turn in harness.driver.turns] == ["two"]


async def test_a_message_that_could_not_be_typed_keeps_its_place() -> None:
    refused: list[str] = []

    def plot(turn: Turn) -> list[TurnEvent]:
        if refused:
            return echo(turn)
        refused.append(turn.message.text)
        return [Deferred("a person types")]

    harness = AgentHarness(FakeDriver(plot))
    harness.driver.ready.clear()
    async with working(harness):
        tasks = [await harness.send(text) for text in ("one", "two")]
        harness.driver.ready.set()
        for task in tasks:
            await harness.finished(task)

    assert (refused, harness.driver.typed) == (["one"], ["one", "two"])


async def test_what_is_just_being_typed_is_not_interrupted_before_the_agent_has_it() -> None:
    harness = AgentHarness()
    harness.driver.holds_before = Submitted
    harness.driver.go_on.clear()
    async with working(harness):
        first = await harness.send("one")
        await harness.reached(first, "typed")
        await harness.send("now", priority=INTERRUPT_PRIORITY)
        assert harness.driver.interrupts == 0

        harness.driver.go_on.set()
        ended = await harness.finished(first)
    assert (harness.driver.interrupts, ended.state, ended.reason) == (1, TaskState.CANCELED, outcomes.INTERRUPTED)


async def test_what_was_canceled_while_it_was_typed_is_stopped_once_the_agent_has_it() -> None:
    harness = AgentHarness()
    harness.driver.holds_before = Submitted
    harness.driver.go_on.clear()
    async with working(harness):
        first = await harness.send("one")
        await harness.reached(first, "typed")
        await harness.service.handle(CancelTask(first.id), Caller())
        before = harness.driver.interrupts
        harness.driver.go_on.set()
        await harness.finished(await harness.send("two"))

    assert harness.driver.interrupts == before + 1
    assert (await harness.task(first.id)).state is TaskState.CANCELED


class DyingDriver(FakeDriver):
    """Takes its message without typing, and ends in the same moment."""

    @override
    async def take_turn(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        self.turns.append(turn)
        yield PROOF
        self.exited = True
        raise AgentExited("the program ended")


async def test_an_agent_that_ends_as_soon_as_it_has_the_message_does_not_get_it_again() -> None:
    harness = AgentHarness(DyingDriver())
    task = await harness.send("once")
    with suppress(AgentExited):
        await asyncio.wait_for(harness.worker.run(), 5)
    await settle()

    ended = await harness.task(task.id)
    assert (ended.state, ended.reason) == (TaskState.FAILED, AGENT_EXITED)
    assert [receipt.step.value for receipt in ended.receipts] == ["queued", "submitted", "failed"]


def at_once(message: Message) -> Sequence[TurnEvent]:
    return [PROOF, Answered(parts=(TextPart(text=f"at once: {message.text}"),), source="script")]


async def test_an_answer_at_once_does_not_overtake_messages_that_wait_for_the_agent() -> None:
    driver = FakeDriver()
    driver.ready.clear()
    async with working(AgentHarness(driver, answer_at_once=at_once)) as harness:
        first = await harness.send("first")
        second = asyncio.ensure_future(harness.settled(SendMessage(message=say("second"), dialect="a2a_v1")))
        await settle()
        assert not second.done()
        driver.ready.set()
        await harness.finished(first)
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

    async with working(AgentHarness(FakeDriver(plot))) as harness:
        ended = await harness.finished(await harness.send("one"))

    assert [receipt.step.value for receipt in ended.receipts] == ["queued", "typed", "submitted", "answered"]
