"""Decisions about messages in doubt: one counts, it is remembered, and whoever waits is told."""

from __future__ import annotations

import asyncio

from synapse.core.caller import Caller
from synapse.core.driver import DeliveryUncertain, Failed, InputRequested, Submitted, Turn, TurnEvent, Typing
from synapse.core.errors import Conflict
from synapse.core.message import TextPart
from synapse.core.requests import ResolveTask, SendMessage
from synapse.core.task import ReceiptStep, Task, TaskState
from tests.fakes.courier import Carried
from tests.fakes.desk import CLAUDE, Desk, claude, say, working
from tests.fakes.driver import FakeDriver, echo
from tests.fakes.stores import settle

PERSON = Caller(via_socket=True)
STUCK = (Typing(), DeliveryUncertain("no proof"), Failed("never", "reached"))


def stuck_at_first() -> FakeDriver:
    """A driver whose first turn stays in doubt."""

    def plot(turn: Turn) -> list[TurnEvent]:
        return list(STUCK) if len(driver.turns) == 1 else echo(turn)

    driver = FakeDriver(plot)
    driver.holds_before = Failed
    driver.go_on.clear()
    return driver


async def test_of_two_people_who_decide_at_once_the_first_counts() -> None:
    async with working(Desk(stuck_at_first())) as desk:
        task = await desk.send("one")
        await desk.raised(task)
        decided = ResolveTask(task_id=task.id, verdict="retry")
        results = await asyncio.gather(
            *(desk.service.handle(decided, PERSON) for _ in range(2)), return_exceptions=True
        )
        ended = await desk.finished(task)
        await desk.finished(await desk.send("two"))

    assert [isinstance(result, Conflict) for result in results] == [False, True]
    assert ended.state is TaskState.COMPLETED
    assert desk.driver.typed == ["one", "one", "two"]


async def test_what_is_to_be_typed_again_needs_no_person_any_more() -> None:
    async with working(Desk(stuck_at_first())) as desk:
        task = await desk.send("one")
        await desk.raised(task)
        desk.driver.ready.clear()
        waiting: Task = await desk.service.handle(ResolveTask(task_id=task.id, verdict="retry"), PERSON)

        assert (waiting.attention, waiting.receipt and waiting.receipt.step) == ("", ReceiptStep.QUEUED)
        desk.driver.ready.set()
        await desk.finished(task)


async def test_a_retry_of_a_later_message_of_a_task_is_no_first_message() -> None:
    def plot(turn: Turn) -> list[TurnEvent]:
        if len(driver.turns) == 1:
            return [Typing(), Submitted("screen", "seen"), InputRequested(parts=(TextPart(text="where?"),))]
        return list(STUCK) if len(driver.turns) == 2 else echo(turn)

    driver = FakeDriver(plot)
    driver.holds_before = Failed
    driver.go_on.clear()

    async with working(Desk(driver)) as desk:
        task = await desk.settled(SendMessage(message=say("deploy"), dialect="a2a_v1"))
        assert task.state is TaskState.INPUT_REQUIRED
        more = SendMessage(message=say("staging"), dialect="a2a_v1", task_id=task.id)
        await desk.service.handle(more, Caller())
        await desk.raised(task)
        await desk.service.handle(ResolveTask(task_id=task.id, verdict="retry"), PERSON)
        await desk.finished(task)

    assert [(turn.message.text, turn.first) for turn in driver.turns] == [
        ("deploy", True),
        ("staging", False),
        ("staging", False),
    ]


async def test_whoever_waits_for_a_message_that_a_person_saw_delivered_is_told() -> None:
    driver = stuck_at_first()
    async with working(Desk(driver)) as earlier:
        task = await earlier.send("?", sender=claude(), response_expected=True, sender_task_id="t-1")
        await earlier.raised(task)
    desk = Desk(store=earlier.store)
    await desk.recover()
    async with working(desk):
        ended: Task = await desk.service.handle(ResolveTask(task_id=task.id, verdict="delivered"), PERSON)
        await asyncio.wait_for(desk.courier.something.wait(), 5)
        await settle()

    assert ended.state is TaskState.COMPLETED
    words = "the turn ended without an answer"
    assert desk.courier.carried == [Carried(CLAUDE.agent_id, "t-1", words, False, True)]
