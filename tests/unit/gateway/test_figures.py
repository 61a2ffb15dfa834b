"""The figures of a gateway."""

from __future__ import annotations

import pytest

from synapse.core.caller import Caller
from synapse.core.errors import Forbidden
from synapse.gateway.metrics import MetricsCollector
from tests.fakes.driver import FakeDriver
from tests.fakes.gateway_world import BOB_NAME, LAPTOP, World, world
from tests.fakes.stores import settle


def taker(here: World) -> MetricsCollector:
    return MetricsCollector(here.directory, here.store, here.store.pushes)


async def test_agents_and_what_waits_for_them_are_counted() -> None:
    async with world(FakeDriver()) as here:
        figures = taker(here)
        await figures.take(LAPTOP)
        await here.sent()
        await settle()
        taken = await figures.take(LAPTOP)

    assert taken.agents == {"ready": 2}
    assert taken.waiting.keys() == taken.working.keys() == {"ada", BOB_NAME}
    assert {one.agent for one in taken.delivered} == {"ada"}, "agents are called as they are at the gateway"


async def test_a_caller_for_some_agents_does_not_get_the_figures_of_all() -> None:
    async def story() -> None:
        async with world() as here:
            await taker(here).take(Caller(scope="key:1", agents=frozenset({"ada"})))

    with pytest.raises(Forbidden):
        await story()
