"""Registering agents from elsewhere: a name is had by one, whoever asks for it and however many ask at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from synapse.core.agent import AgentEntry
from synapse.core.errors import AgentNotFound, NameTaken
from synapse.core.requests import RegisterAgent
from synapse.registries.files import FileRegistry
from synapse.registries.processes import UNKNOWN, start_time
from synapse.runtime.gateway_externals import GatewayExternals
from synapse.runtime.resident import Residents
from synapse.runtime.settings import Settings
from synapse.runtime.system_clock import SystemClock
from synapse.stores.sqlite import SqliteStore
from tests.fakes.facts import opened as waiting
from tests.fakes.strangers import card_1_0, stranger_at_home
from tests.unit.stores.stories import keep

pytestmark = pytest.mark.integration

BOUND = 20.0


def running() -> int:
    """How many residents there are, shown or not."""
    return sum("Resident._run" in repr(task.get_coro()) for task in asyncio.all_tasks())


@asynccontextmanager
async def opened(home: Path) -> AsyncGenerator[tuple[GatewayExternals, Residents]]:
    store = await SqliteStore.open(home / "store.db")
    residents = Residents()
    registry = FileRegistry(home / "registry")
    try:
        async with asyncio.timeout(BOUND):
            yield GatewayExternals(Settings(home=home), store, registry, residents, SystemClock()), residents
    finally:
        await residents.stop()
        await store.close()


def runs_here(agent_id: str, name: str = "") -> AgentEntry:
    pid = os.getpid()
    return AgentEntry(agent_id, "codex", name=name, pid=pid, pid_started=start_time(pid) or UNKNOWN)


@pytest.mark.parametrize("taken", ["ada", "synapse-codex-8120"])
def test_nobody_takes_the_name_or_the_id_of_an_agent_that_runs_here(tmp_path: Path, taken: str) -> None:
    async def story(url: str) -> None:
        async with opened(tmp_path) as (externals, residents):
            with pytest.raises(NameTaken):
                await externals.register(RegisterAgent(url=url, agent=taken))
            assert list(residents()) == []

    registry = FileRegistry(tmp_path / "registry")
    registry.write(runs_here("synapse-codex-8121", "ada"))
    registry.write(runs_here("synapse-codex-8120"))
    with stranger_at_home() as stranger:
        stranger.serves("/.well-known/agent-card.json", card_1_0(stranger.url))
        asyncio.run(story(stranger.url))


def test_what_waits_for_an_agent_of_this_machine_is_not_inherited_by_a_stranger(tmp_path: Path) -> None:
    async def story(url: str) -> None:
        async with opened(tmp_path) as (externals, residents):
            store = await SqliteStore.open(tmp_path / "store.db")
            await keep(store, waiting("of a host", inbox="ada", agent_id="synapse-codex-8120"))
            await keep(store, waiting("of its own", inbox="other", agent_id="other"))
            await store.close()

            with pytest.raises(NameTaken, match="messages wait"):
                await externals.register(RegisterAgent(url=url, agent="ada"))
            await externals.register(RegisterAgent(url=url, agent="other"))

            assert [agent.name for agent in residents()] == ["other"]

    with stranger_at_home() as stranger:
        stranger.serves("/.well-known/agent-card.json", card_1_0(stranger.url))
        asyncio.run(story(stranger.url))


def test_whoever_registers_an_agent_at_the_same_time_gets_the_same_one(tmp_path: Path) -> None:
    async def story(url: str) -> None:
        register = RegisterAgent(url=url, agent="other")
        async with opened(tmp_path) as (externals, residents):
            await asyncio.gather(*(externals.register(register) for _ in range(5)))
            assert [agent.name for agent in residents()] == ["other"]
            assert running() == 1

            ends = await asyncio.gather(*(externals.remove("other") for _ in range(2)), return_exceptions=True)
            assert [isinstance(end, AgentNotFound) for end in ends].count(True) == 1
            assert running() == 0

    with stranger_at_home() as stranger:
        stranger.serves("/.well-known/agent-card.json", card_1_0(stranger.url))
        asyncio.run(story(stranger.url))
