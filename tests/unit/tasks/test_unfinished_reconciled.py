"""A message that an earlier host was sending: what its CLI says became of it ends the doubt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from synapse.core.caller import Caller
from synapse.core.driver import DeliveryUncertain, Failed, SendOutcome, Typing, message_key
from synapse.core.errors import Conflict
from synapse.core.requests import ResolveTask
from synapse.core.task import ReceiptStep, Task, TaskState
from synapse.tasks.admission import envelope_line
from tests.fakes.driver import FakeDriver
from tests.fakes.harness import AgentHarness, working
from tests.fakes.stores import settle

STUCK = (Typing(), DeliveryUncertain("no proof"), Failed("never", "reached"))


def stuck() -> FakeDriver:
    """A driver whose turns stay in doubt."""
    driver = FakeDriver(lambda _turn: list(STUCK))
    driver.holds_before = Failed
    driver.go_on.clear()
    return driver


def cli_that_says(outcome: SendOutcome, task: Task) -> Callable[[str, str], Awaitable[SendOutcome]]:
    """A CLI that knows this message by its key."""

    async def ask(key: str, typed: str) -> SendOutcome:
        assert key == message_key(task.id, task.message)
        assert typed == envelope_line(task, task.message)
        return outcome

    return ask


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
        await harness.in_doubt.reconcile(cli_that_says(SendOutcome.WITHDRAWN, task))
        ended = await harness.finished(task)

    assert (ended.state, ended.attention) == (TaskState.COMPLETED, "")
    assert harness.driver.typed == ["one"]
    again = [receipt for receipt in ended.receipts if receipt.step is ReceiptStep.QUEUED][-1]
    assert (again.source, again.evidence) == ("signal", "its server had not begun it, and gave it back")


async def test_a_message_that_its_cli_has_is_not_sent_again_and_has_no_answer() -> None:
    harness, task = await left_in_doubt()
    async with working(harness):
        await harness.in_doubt.reconcile(cli_that_says(SendOutcome.TAKEN, task))
        ended = await harness.finished(task)

    assert (ended.state, ended.reason) == (TaskState.FAILED, "agent_exited")
    assert harness.driver.typed == []
    assert ReceiptStep.SUBMITTED in [receipt.step for receipt in ended.receipts]


async def test_where_the_cli_knows_nothing_a_person_still_decides() -> None:
    harness, task = await left_in_doubt()
    async with working(harness):
        await harness.in_doubt.reconcile(cli_that_says(SendOutcome.UNKNOWN, task))

        assert await harness.task(task.id) == task
    assert task.attention


async def test_a_persons_decision_waits_for_what_the_cli_says() -> None:
    harness, task = await left_in_doubt()
    async with working(harness):
        deciding: list[asyncio.Task[Task]] = []

        async def ask(_key: str, _typed: str) -> SendOutcome:
            retry = ResolveTask(task_id=task.id, verdict="retry")
            deciding.append(asyncio.ensure_future(harness.service.handle(retry, Caller(via_socket=True))))
            await settle()
            assert harness.driver.typed == []
            return SendOutcome.WITHDRAWN

        await harness.in_doubt.reconcile(ask)
        with pytest.raises(Conflict):
            await deciding[0]
        await harness.finished(task)

    assert harness.driver.typed == ["one"]


@pytest.mark.parametrize("outcome", SendOutcome)
async def test_a_message_of_the_turn_that_runs_is_left_alone(outcome: SendOutcome) -> None:
    async with working(AgentHarness(stuck())) as harness:
        task = await harness.raised(await harness.send("one"))
        await harness.in_doubt.reconcile(cli_that_says(outcome, task))

        assert await harness.task(task.id) == task
    assert harness.driver.typed == ["one"]
