"""Registering external agents: a name belongs to one agent, however many requests arrive at once."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from synapse.config.process import SystemClock
from synapse.config.settings import Settings
from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.errors import AgentNotFound, ExternalAddressRefused, InvalidField, NameTaken, NoAgentThere
from synapse.core.requests import AddExternal, RegisterAgent, RemoveExternal, SendExternal
from synapse.dialects.a2a_v0_3 import routes as a2a_v0_3
from synapse.dialects.a2a_v1 import routes as a2a_v1
from synapse.dialects.hub import encode as hub
from synapse.dialects.supervisor import routes as supervisor
from synapse.external.client import open_externals
from synapse.gateway.external import GatewayExternals
from synapse.gateway.in_process import InProcessAgents, InProcessSockets
from synapse.net.hosts import open_host_client
from synapse.registry.files import UNKNOWN, FileRegistry, start_time
from synapse.registry.local import open_local_registry
from tests.fakes.facts import opened as waiting
from tests.fakes.harness import say
from tests.fakes.leased_store import LeasedStore
from tests.fakes.strangers import card_1_0, stranger_at_home
from tests.unit.store.stories import keep

pytestmark = pytest.mark.integration

BOUND = 20.0
GATEWAY = "synapse-gateway-1"
OWNER = Caller(via_socket=True)
LAPTOP = Caller(scope="key:laptop", name="laptop")
SHARED = Caller(name="shared")
"""A key in the scope of the user's own tasks; it has no more rights than any other key."""


def running() -> int:
    """Returns how many agents run in this process, listed or not."""
    return sum("InProcessAgent._run" in repr(task.get_coro()) for task in asyncio.all_tasks())


@asynccontextmanager
async def opened(home: Path, *, allow: bool = False) -> AsyncGenerator[tuple[GatewayExternals, InProcessAgents]]:
    store = await LeasedStore.open(home / "store.db")
    agents = InProcessAgents()
    clock = SystemClock()
    registry = open_local_registry(home / "registry", clock.monotonic)
    folder = tempfile.TemporaryDirectory(prefix="s")
    settings = Settings(home=home, uds_dir=Path(folder.name), sources={"uds_dir": "test"}, allow_private_agents=allow)
    try:
        async with asyncio.timeout(BOUND):
            sockets = InProcessSockets(AgentEntry(GATEWAY, "gateway"), registry, settings)
            yield (
                GatewayExternals(
                    settings,
                    store,
                    registry,
                    agents,
                    clock,
                    hosts=open_host_client(registry, clock, registry.recheck),
                    gateways=open_local_registry(home / "gateways", clock.monotonic),
                    sockets=sockets,
                ),
                agents,
            )
    finally:
        await agents.stop()
        await store.close()
        folder.cleanup()


def runs_here(agent_id: str, name: str = "") -> AgentEntry:
    pid = os.getpid()
    return AgentEntry(agent_id, "codex", name=name, pid=pid, pid_started=start_time(pid) or UNKNOWN)


@pytest.mark.parametrize("taken", ["ada", "synapse-codex-8120"])
async def test_the_name_and_the_id_of_a_running_agent_cannot_be_registered(tmp_path: Path, taken: str) -> None:
    async def story(url: str) -> None:
        async with opened(tmp_path) as (externals, agents):
            with pytest.raises(NameTaken):
                await externals.register(RegisterAgent(url=url, agent=taken), OWNER)
            assert list(agents()) == []

    registry = FileRegistry(tmp_path / "registry")
    registry.write(runs_here("synapse-codex-8121", "ada"))
    registry.write(runs_here("synapse-codex-8120"))
    with stranger_at_home() as stranger:
        stranger.serves("/.well-known/agent-card.json", card_1_0(stranger.url))
        await story(stranger.url)


async def test_messages_queued_for_a_local_agent_are_not_inherited_by_an_external_one(tmp_path: Path) -> None:
    async def story(url: str) -> None:
        async with opened(tmp_path) as (externals, agents):
            store = await LeasedStore.open(tmp_path / "store.db")
            await keep(store, waiting("of a host", inbox="ada", agent_id="synapse-codex-8120"))
            await keep(store, waiting("of its own", inbox="other", agent_id="other"))
            await store.close()

            with pytest.raises(NameTaken, match="messages wait"):
                await externals.register(RegisterAgent(url=url, agent="ada"), OWNER)
            await externals.register(RegisterAgent(url=url, agent="other"), OWNER)

            assert [agent.name for agent in agents()] == ["other"]

    with stranger_at_home() as stranger:
        stranger.serves("/.well-known/agent-card.json", card_1_0(stranger.url))
        await story(stranger.url)


async def test_concurrent_registrations_of_an_agent_result_in_one(tmp_path: Path) -> None:
    async def story(url: str) -> None:
        register = RegisterAgent(url=url, agent="other")
        async with opened(tmp_path) as (externals, agents):
            await asyncio.gather(*(externals.register(register, OWNER) for _ in range(5)))
            assert [agent.name for agent in agents()] == ["other"]
            assert running() == 1

            ends = await asyncio.gather(*(externals.remove("other") for _ in range(2)), return_exceptions=True)
            assert [isinstance(end, AgentNotFound) for end in ends].count(True) == 1
            assert running() == 0

    with stranger_at_home() as stranger:
        stranger.serves("/.well-known/agent-card.json", card_1_0(stranger.url))
        await story(stranger.url)


@pytest.mark.parametrize("caller", [LAPTOP, SHARED])
async def test_a_key_may_not_register_an_address_of_this_machine(tmp_path: Path, caller: Caller) -> None:
    async def story(url: str) -> None:
        async with opened(tmp_path) as (externals, agents):
            with pytest.raises(InvalidField, match="is a loopback address") as refused:
                await externals.register(RegisterAgent(url=url, agent="other"), caller)
            assert refused.value.field == "url"
            assert "allow_private_agents" in refused.value.hint
            assert list(agents()) == []

    with stranger_at_home() as stranger:
        stranger.serves("/.well-known/agent-card.json", card_1_0(stranger.url))
        await story(stranger.url)
        assert stranger.heard == []


async def test_the_address_of_an_agent_that_a_key_registered_is_checked_at_every_call(tmp_path: Path) -> None:
    async def story(url: str) -> None:
        async with opened(tmp_path, allow=True) as (externals, _):
            agent = await externals.register(RegisterAgent(url=url, agent="other"), LAPTOP)
            assert agent.address_checked
            # It has no registry entry, so that no message of the user goes to it by mistake.
            assert FileRegistry(tmp_path / "registry").written() == []
        calls = len(stranger.heard)
        known = open_externals(tmp_path)
        with pytest.raises(ExternalAddressRefused, match="is a loopback address"):
            await known.send(SendExternal(alias="other", message=say("hello")))
        with pytest.raises(ExternalAddressRefused):
            await known.cancel("other", "there-1")
        assert len(stranger.heard) == calls

    with stranger_at_home() as stranger:
        stranger.serves("/.well-known/agent-card.json", card_1_0(stranger.url))
        await story(stranger.url)


async def test_an_agent_that_the_user_added_stays_unchecked_when_a_key_registers_it_again(tmp_path: Path) -> None:
    async def story(url: str) -> None:
        async with opened(tmp_path) as (externals, _):
            for caller in (OWNER, LAPTOP):
                agent = await externals.register(RegisterAgent(url=url, agent="other"), caller)
                assert not agent.address_checked

    with stranger_at_home() as stranger:
        stranger.serves("/.well-known/agent-card.json", card_1_0(stranger.url))
        await story(stranger.url)


async def test_the_error_for_an_address_without_an_agent_lists_what_was_tried(tmp_path: Path) -> None:
    async def story(*urls: str) -> list[NoAgentThere]:
        told: list[NoAgentThere] = []
        async with opened(tmp_path) as (externals, agents):
            for url in urls:
                with pytest.raises(NoAgentThere) as refused:
                    await externals.register(RegisterAgent(url=url), OWNER)
                told.append(refused.value)
            assert list(agents()) == []
        return told

    with stranger_at_home() as stranger, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening, so that no other process can listen there
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
        unreachable, no_card, no_name = await story(nobody, stranger.url, "http://a..b")

    assert nobody in str(unreachable)
    assert "nothing listens" in str(unreachable)
    assert "/.well-known/agent-card.json" in str(unreachable)
    assert str(no_card).endswith("/.well-known/agent-card.json answered 404; /.well-known/agent.json answered 404")
    assert "host name" in str(no_name)
    for encode_error in (supervisor.encode_error, hub.encode_error, a2a_v1.encode_error, a2a_v0_3.encode_error):
        answer = encode_error(unreachable)
        assert (answer.status, nobody.encode() in answer.body) == (400, True)


async def test_agents_that_another_process_adds_or_removes_are_noticed(tmp_path: Path) -> None:
    async def story(url: str) -> None:
        async with opened(tmp_path) as (externals, agents):
            await externals.start_known()
            command = open_externals(tmp_path)
            for alias in ("other", "third"):
                await command.add(AddExternal(url=url, alias=alias))
            await externals.recheck()
            assert {agent.name for agent in agents()} == {"other", "third"}
            (before,) = (agent.entry for agent in agents() if agent.name == "third")

            await command.remove(RemoveExternal("other"))
            await externals.recheck()

            (after,) = agents()
            assert after.entry is before  # it was not started anew
            assert running() == 1

    with stranger_at_home() as stranger:
        stranger.serves("/.well-known/agent-card.json", card_1_0(stranger.url))
        await story(stranger.url)


async def test_a_broken_file_does_not_affect_other_agents(tmp_path: Path) -> None:
    async def story(url: str) -> None:
        async with opened(tmp_path) as (externals, agents):
            await externals.register(RegisterAgent(url=url, agent="other"), OWNER)
            (tmp_path / "external" / "broken.json").write_text("{", encoding="utf-8")
            await externals.recheck()
            assert [agent.name for agent in agents()] == ["other"]

    with stranger_at_home() as stranger:
        stranger.serves("/.well-known/agent-card.json", card_1_0(stranger.url))
        await story(stranger.url)
