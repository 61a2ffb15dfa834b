"""The stream of an agent's status."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial

from synapse.core.agent import EXITED, READY, WAITING, WORKING
from synapse.core.driver import AgentStatus
from synapse.tasks.feed import STATUS_BUFFER, follow_status
from tests.fakes.clock import FakeClock
from tests.fakes.driver import FakeDriver

BOUND = 5.0


def status(state: str) -> AgentStatus:
    return AgentStatus(state=state, why="the test says so", source="screen", since=FakeClock().now())


def tell(driver: FakeDriver, *states: str) -> None:
    for state in states:
        driver.listeners.tell(partial(status, state))


async def test_the_stream_starts_with_the_current_state_and_has_each_change_until_the_agent_exits() -> None:
    driver = FakeDriver()
    statuses = follow_status(driver)
    async with asyncio.timeout(BOUND), aclosing(statuses):
        assert (await anext(statuses)).state == READY
        tell(driver, WORKING, WAITING, WAITING, WORKING, READY, EXITED, READY)
        assert [one.state async for one in statuses] == [WORKING, WAITING, WORKING, READY, EXITED]


async def test_a_reader_that_does_not_keep_up_misses_the_oldest_and_never_the_last() -> None:
    driver = FakeDriver()
    statuses = follow_status(driver)
    async with asyncio.timeout(BOUND), aclosing(statuses):
        await anext(statuses)
        tell(driver, *[WORKING, READY] * STATUS_BUFFER, WORKING, EXITED)
        states = [one.state async for one in statuses]
        assert (len(states), states[-1]) == (STATUS_BUFFER, EXITED)


async def test_a_reader_that_leaves_is_no_longer_notified() -> None:
    driver = FakeDriver()
    statuses = follow_status(driver)
    await anext(statuses)
    await statuses.aclose()

    def nobody_listens() -> AgentStatus:
        raise AssertionError("somebody listens")

    driver.listeners.tell(nobody_listens)
