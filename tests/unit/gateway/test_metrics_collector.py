"""Collecting the metrics of a gateway."""

from __future__ import annotations

import pytest

from synapse.core.caller import Caller
from synapse.core.errors import Forbidden
from synapse.gateway.metrics import MetricsCollector
from tests.fakes.driver import FakeDriver
from tests.fakes.gateway_world import BOB_NAME, LAPTOP, World, world
from tests.fakes.stores import settle


def collector(here: World) -> MetricsCollector:
    return MetricsCollector(here.directory, here.store)


async def test_agents_and_what_waits_for_them_are_counted() -> None:
    async with world(FakeDriver()) as here:
        metrics = collector(here)
        await metrics.collect(LAPTOP)
        await here.sent()
        await settle()
        snapshot = await metrics.collect(LAPTOP)

    assert snapshot.agents == {"ready": 2}
    assert snapshot.waiting.keys() == snapshot.working.keys() == {"ada", BOB_NAME}
    assert {one.agent for one in snapshot.delivered} == {"ada"}, "agents are called as they are at the gateway"


async def test_a_caller_for_some_agents_does_not_get_the_metrics_of_all() -> None:
    async def story() -> None:
        async with world() as here:
            await collector(here).collect(Caller(scope="key:1", agents=frozenset({"ada"})))

    with pytest.raises(Forbidden):
        await story()
