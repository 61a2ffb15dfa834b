"""A message that an earlier host was sending: what its CLI says became of it ends the doubt."""

from __future__ import annotations

import pytest

from synapse.core.driver import DeliveryUncertain, Failed, SendOutcome, Typing
from synapse.core.task import ReceiptStep, Task, TaskState
from tests.fakes.driver import FakeDriver
from tests.fakes.harness import AgentHarness, working

STUCK = (Typing(), DeliveryUncertain("no proof"), Failed("never", "reached"))


def stuck() -> FakeDriver:
    """A driver whose turns stay in doubt."""
    driver = FakeDriver(lambda _turn: list(STUCK))
    driver.holds_before = Failed
    driver.go_on.clear()
    return driver


async def left_in_doubt() -> tuple[AgentHarness, Task]:
    """The next host, and the message that the host before it left in doubt."""
    async with working(AgentHarness(stuck())) as earlier:
        task = await earlier.raised(await earlier.send("one"))
    harness = AgentHarness(store=earlier.store)
    await harness.recover()
    return harness, await harness.task(task.id)


async def test_a_message_that_its_cli_gave_back_is_sent_again() -> None:
    harness, task = await left_in_doubt()
    async with working(harness):
        await harness.in_doubt.settle(task.id, SendOutcome.WITHDRAWN)
        ended = await harness.finished(task)

    assert (ended.state, ended.attention) == (TaskState.COMPLETED, "")
    assert harness.driver.typed == ["one"]
    again = [receipt for receipt in ended.receipts if receipt.step is ReceiptStep.QUEUED][-1]
    assert (again.source, again.evidence) == ("signal", "its server had not begun it, and gave it back")


async def test_a_message_that_its_cli_has_is_not_sent_again_and_has_no_answer() -> None:
    harness, task = await left_in_doubt()
    async with working(harness):
        await harness.in_doubt.settle(task.id, SendOutcome.TAKEN)
        ended = await harness.finished(task)

    assert (ended.state, ended.reason) == (TaskState.FAILED, "agent_exited")
    assert harness.driver.typed == []
    assert ReceiptStep.SUBMITTED in [receipt.step for receipt in ended.receipts]


async def test_where_the_cli_knows_nothing_a_person_still_decides() -> None:
    harness, task = await left_in_doubt()
    async with working(harness):
        await harness.in_doubt.settle(task.id, SendOutcome.UNKNOWN)

        assert await harness.task(task.id) == task
    assert task.attention


@pytest.mark.parametrize("outcome", SendOutcome)
async def test_a_message_of_the_turn_that_runs_is_left_alone(outcome: SendOutcome) -> None:
    async with working(AgentHarness(stuck())) as harness:
        task = await harness.raised(await harness.send("one"))
        await harness.in_doubt.settle(task.id, outcome)

        assert await harness.task(task.id) == task
    assert harness.driver.typed == ["one"]
