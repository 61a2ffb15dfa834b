"""Collecting the metrics of a gateway."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from socket import AF_UNIX, socket

import pytest

from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.errors import Forbidden, StoreFailed
from synapse.core.usage import UsageTotal
from synapse.gateway.metrics import Metrics, MetricsCollector
from synapse.gateway.remote import RemoteAgents
from synapse.net.hosts import UnixHostClient
from synapse.registry.files import links
from tests.fakes.clock import FakeClock
from tests.fakes.driver import FakeDriver
from tests.fakes.gateway_world import BOB_NAME, LAPTOP, World, world
from tests.fakes.listed_agents import ListedAgents
from tests.fakes.stores import settle


def collector(here: World, read_usage: Callable[[], Mapping[str, UsageTotal]] = dict) -> MetricsCollector:
    return MetricsCollector(here.directory, here.store, read_usage)


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


async def test_what_agents_cost_is_told_by_their_names_and_not_of_agents_that_have_left() -> None:
    async with world(FakeDriver()) as here:
        inbox = next(agent.entry.inbox for agent in here.directory.agents() if agent.name == "ada")
        costs = {inbox: UsageTotal(requests=1), "gone": UsageTotal(requests=2)}
        snapshot = await collector(here, lambda: costs).collect(LAPTOP)

    assert snapshot.usage == {"ada": UsageTotal(requests=1)}


async def test_a_usage_file_that_cannot_be_read_leaves_the_other_metrics() -> None:
    def read() -> Mapping[str, UsageTotal]:
        raise StoreFailed("it is damaged")

    async with world(FakeDriver()) as here:
        snapshot = await collector(here, read).collect(LAPTOP)

    assert snapshot.usage == {}
    assert snapshot.agents == {"ready": 2}


async def test_a_caller_for_some_agents_does_not_get_the_metrics_of_all() -> None:
    async def story() -> None:
        async with world() as here:
            await collector(here).collect(Caller(scope="key:1", agents=frozenset({"ada"})))

    with pytest.raises(Forbidden):
        await story()


async def test_the_metrics_of_the_link_come_with_those_of_the_gateway() -> None:
    async def read_link() -> bytes:
        return b"synapse_link_connected 1\n"

    async with world(FakeDriver()) as here:
        snapshot = await MetricsCollector(here.directory, here.store, dict, read_link).collect(LAPTOP)

    assert Metrics().text(snapshot).endswith(b"synapse_link_connected 1\n")


async def test_a_link_that_does_not_answer_reads_as_down_before_its_reader_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synapse.gateway.remote.METRICS_SECONDS", 0.01)
    with socket(AF_UNIX) as silent:
        silent.bind(str(tmp_path / "link.sock"))
        silent.listen()
        link = AgentEntry("synapse-link", "link", socket=str(tmp_path / "link.sock"), pid=os.getpid())
        links(tmp_path).write(link)
        hosts = UnixHostClient(ListedAgents(), FakeClock())
        remote = RemoteAgents(tmp_path, "gate", hosts, FakeClock())

        async with asyncio.timeout(20):
            told = await remote.link_metrics()

    assert b"synapse_link_connected 0" in told
