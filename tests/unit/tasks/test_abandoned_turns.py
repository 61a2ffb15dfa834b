"""A turn in doubt that is given up: the worker goes on, and still ends when it is told to."""

from __future__ import annotations

import asyncio

from synapse.core.driver import Answered, DeliveryUncertain, Turn, TurnEvent, Typing
from synapse.core.message import TextPart
from tests.fakes.desk import Desk, working
from tests.fakes.driver import FakeDriver, echo


def doubtful(turn: Turn) -> list[TurnEvent]:
    return [Typing(), DeliveryUncertain("no proof"), Answered(parts=(TextPart(text="late"),), source="screen")]


async def test_a_turn_that_two_give_up_at_once_does_not_stop_the_worker() -> None:
    driver = FakeDriver(lambda turn: doubtful(turn) if turn.message.text == "one" else echo(turn))
    driver.go_on.clear()
    driver.holds_before = Answered
    async with working(Desk(driver)) as desk:
        task = await desk.raised(await desk.send("one"))
        given_up = await asyncio.gather(desk.worker.abandon(task.id), desk.worker.abandon(task.id))
        await desk.reached(await desk.send("two"), "submitted")

    assert all(given_up)


async def test_a_worker_that_is_stopped_while_its_turn_is_given_up_stops() -> None:
    driver = FakeDriver(doubtful)
    driver.go_on.clear()
    desk = Desk(driver)
    delivering = asyncio.ensure_future(desk.worker.run())
    task = await desk.raised(await desk.send("one"))
    giving_up = asyncio.ensure_future(desk.worker.abandon(task.id))
    # In the same round of the loop: the worker hears of both at once.
    asyncio.get_running_loop().call_soon(delivering.cancel)
    await asyncio.wait({delivering, giving_up}, timeout=5)

    assert delivering.cancelled()
