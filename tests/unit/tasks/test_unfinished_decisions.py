"""Decisions about messages in doubt: the first counts, it is recorded, and a waiting sender is notified."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from synapse.core.caller import Caller
from synapse.core.driver import DeliveryUncertain, Failed, InputRequested, Submitted, Turn, TurnEvent, Typing
from synapse.core.errors import Conflict, PersonRequired
from synapse.core.message import TextPart
from synapse.core.requests import ResolveTask, SendMessage
from synapse.core.task import ReceiptStep, Task, TaskState
from tests.fakes.driver import FakeDriver, echo
from tests.fakes.harness import CLAUDE, AgentHarness, claude, say, working
from tests.fakes.host_client import DeliveredReply
from tests.fakes.questions import GATEWAY_APPROVER, GATEWAY_SENDER, OTHER_AGENT
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
    async with working(AgentHarness(stuck_at_first())) as harness:
        task = await harness.send("one")
        await harness.raised(task)
        decided = ResolveTask(task_id=task.id, verdict="retry")
        results = await asyncio.gather(
            *(harness.service.handle(decided, PERSON) for _ in range(2)), return_exceptions=True
        )
        ended = await harness.finished(task)
        await harness.finished(await harness.send("two"))

    assert [isinstance(result, Conflict) for result in results] == [False, True]
    assert ended.state is TaskState.COMPLETED
    assert harness.driver.typed == ["one", "one", "two"]


@pytest.mark.parametrize(
    ("caller", "keys", "allowed"),
    [
        (GATEWAY_APPROVER, True, True),
        (GATEWAY_APPROVER, False, False),
        (GATEWAY_SENDER, True, False),
        (Caller(sees_all=True), True, False),
        (Caller(is_owner=True), True, False),
        (OTHER_AGENT, True, False),
        (replace(GATEWAY_APPROVER, machine="laptop", remote_sender="user"), True, True),
        (replace(GATEWAY_APPROVER, machine="laptop", remote_sender="synapse-claude-8100"), True, False),
        (replace(GATEWAY_SENDER, machine="laptop", remote_sender="user"), True, False),
    ],
)
async def test_a_caller_of_a_gateway_decides_only_with_an_explicit_right(
    caller: Caller, keys: bool, allowed: bool
) -> None:
    async with working(AgentHarness(stuck_at_first(), keys_may_answer=keys)) as harness:
        task = await harness.send("one")
        await harness.raised(task)
        decided = ResolveTask(task_id=task.id, verdict="fail")
        if allowed:
            assert (await harness.service.handle(decided, caller)).state is TaskState.FAILED
        else:
            with pytest.raises(PersonRequired):
                await harness.service.handle(decided, caller)
            assert (await harness.service.handle(decided, PERSON)).state is TaskState.FAILED


async def test_what_is_to_be_typed_again_needs_no_person_any_more() -> None:
    async with working(AgentHarness(stuck_at_first())) as harness:
        task = await harness.send("one")
        await harness.raised(task)
        harness.driver.ready.clear()
        waiting: Task = await harness.service.handle(ResolveTask(task_id=task.id, verdict="retry"), PERSON)

        assert (waiting.attention, waiting.receipt and waiting.receipt.step) == ("", ReceiptStep.QUEUED)
        harness.driver.ready.set()
        await harness.finished(task)


async def test_a_retry_of_a_later_message_of_a_task_is_no_first_message() -> None:
    def plot(turn: Turn) -> list[TurnEvent]:
        if len(driver.turns) == 1:
            return [Typing(), Submitted("screen", "seen"), InputRequested(parts=(TextPart(text="where?"),))]
        return list(STUCK) if len(driver.turns) == 2 else echo(turn)

    driver = FakeDriver(plot)
    driver.holds_before = Failed
    driver.go_on.clear()

    async with working(AgentHarness(driver)) as harness:
        task = await harness.settled(SendMessage(message=say("deploy"), dialect="a2a_v1"))
        assert task.state is TaskState.INPUT_REQUIRED
        more = SendMessage(message=say("staging"), dialect="a2a_v1", task_id=task.id)
        await harness.service.handle(more, Caller())
        await harness.raised(task)
        await harness.service.handle(ResolveTask(task_id=task.id, verdict="retry"), PERSON)
        await harness.finished(task)

    assert [(turn.message.text, turn.first) for turn in driver.turns] == [
        ("deploy", True),
        ("staging", False),
        ("staging", False),
    ]


async def test_the_sender_that_waits_is_notified_when_a_person_saw_its_message_delivered() -> None:
    driver = stuck_at_first()
    async with working(AgentHarness(driver)) as earlier:
        task = await earlier.send("?", sender=claude(), response_expected=True, sender_task_id="t-1")
        await earlier.raised(task)
    harness = AgentHarness(store=earlier.store)
    await harness.recover()
    async with working(harness):
        ended: Task = await harness.service.handle(ResolveTask(task_id=task.id, verdict="delivered"), PERSON)
        await asyncio.wait_for(harness.host_client.called.wait(), 5)
        await settle()

    assert ended.state is TaskState.COMPLETED
    words = "the turn ended without an answer"
    assert harness.host_client.delivered == [DeliveredReply(CLAUDE.agent_id, "t-1", words, False, True)]
