"""Abandoning a turn in doubt: the worker goes on, and still stops when it is cancelled."""

from __future__ import annotations

import asyncio

from synapse.core.driver import Answered, DeliveryUncertain, Turn, TurnEvent, Typing
from synapse.core.message import TextPart
from tests.fakes.driver import FakeDriver, echo
from tests.fakes.harness import AgentHarness, working


def doubtful(turn: Turn) -> list[TurnEvent]:
    return [Typing(), DeliveryUncertain("no proof"), Answered(parts=(TextPart(text="late"),), source="screen")]


async def test_a_turn_that_two_give_up_at_once_does_not_stop_the_worker() -> None:
    driver = FakeDriver(lambda turn: doubtful(turn) if turn.message.text == "one" else echo(turn))
    driver.go_on.clear()
    driver.holds_before = Answered
    async with working(AgentHarness(driver)) as harness:
        task = await harness.raised(await harness.send("one"))
        given_up = await asyncio.gather(harness.worker.abandon(task.id), harness.worker.abandon(task.id))
        await harness.reached(await harness.send("two"), "submitted")

    assert all(given_up)


async def test_a_worker_that_is_stopped_while_its_turn_is_given_up_stops() -> None:
    driver = FakeDriver(doubtful)
    driver.go_on.clear()
    harness = AgentHarness(driver)
    delivering = asyncio.ensure_future(harness.worker.run())
    task = await harness.raised(await harness.send("one"))
    giving_up = asyncio.ensure_future(harness.worker.abandon(task.id))
    # In the same round of the loop: the worker hears of both at once.
    asyncio.get_running_loop().call_soon(delivering.cancel)
    await asyncio.wait({delivering, giving_up}, timeout=5)

    assert delivering.cancelled()
