"""The socket and registry entry of an in-process agent, for as long as it runs."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from synapse.client.http import HostAddress, request
from synapse.config.process import SystemClock
from synapse.config.settings import BUNDLED_PROFILES, Settings
from synapse.core.agent import AgentEntry
from synapse.core.errors import AgentFailed
from synapse.core.json_text import object_in
from synapse.core.override import override
from synapse.drivers.scripted.script import read_script
from synapse.gateway.in_process import InProcessAgent, InProcessSockets, in_process_entry
from synapse.host.scripted import play
from synapse.net.hosts import open_host_client
from synapse.registry.files import FileRegistry
from synapse.registry.local import open_local_registry
from synapse.server.listener import UnixListener
from tests.conformance.real_hosts import CONFORMANCE
from tests.fakes.leased_store import LeasedStore

pytestmark = pytest.mark.integration

BOUND = 20.0
CLOCK = SystemClock()
GATEWAY = AgentEntry("synapse-gateway-8000", "gateway", port=8000, endpoint="http://localhost:8000")
HELLO: dict[str, Any] = {"message": {"role": "user", "parts": [{"type": "text", "text": "hello"}]}}


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    with tempfile.TemporaryDirectory(prefix="s") as sockets:
        yield Settings(
            home=tmp_path,
            uds_dir=Path(sockets),
            sources={"uds_dir": "test"},
            profile_sources=(BUNDLED_PROFILES,),
        )


def in_process_agent(
    name: str, store: LeasedStore, settings: Settings, sockets: InProcessSockets | None = None
) -> InProcessAgent:
    registry = open_local_registry(settings.registry, CLOCK.monotonic)
    return InProcessAgent(
        in_process_entry(name, "scripted", CLOCK),
        play(read_script(CONFORMANCE), CLOCK),
        store=store,
        registry=registry,
        hosts=open_host_client(registry, CLOCK, registry.recheck),
        settings=settings,
        open_socket=(sockets or InProcessSockets(GATEWAY, registry, settings)).open,
    )


async def test_the_socket_is_open_from_start_to_stop(settings: Settings) -> None:
    registry = FileRegistry(settings.registry)
    store = await LeasedStore.open(settings.store)
    try:
        async with asyncio.timeout(BOUND):
            one = in_process_agent("tck", store, settings)
            await one.start()
            (entry,) = registry.entries()
            told = (entry.name, entry.inbox, entry.gateway, entry.port, entry.endpoint)
            assert told == ("tck", "tck", GATEWAY.agent_id, 0, "http://localhost:8000/agents/tck")

            answer = await asyncio.to_thread(request, HostAddress(entry.socket), "POST", "/tasks/send", HELLO)
            assert (answer.status, bool(object_in(answer.body, "task")["id"])) == (200, True)

            await one.stop()
            assert registry.written() == []
            assert list(settings.uds_dir.iterdir()) == []
    finally:
        await store.close()


@pytest.mark.parametrize("name", ["claude", "codex-8120", "user", "x" * 41])
async def test_an_agent_whose_name_means_others_runs_without_a_socket(settings: Settings, name: str) -> None:
    store = await LeasedStore.open(settings.store)
    try:
        async with asyncio.timeout(BOUND):
            one = in_process_agent(name, store, settings)
            await one.start()
            assert one.is_running
            assert FileRegistry(settings.registry).written() == []
            await one.stop()
    finally:
        await store.close()


class ClosedSockets(InProcessSockets):
    """Sockets that are closed before a server can listen on them."""

    @override
    def _listen(self, entry: AgentEntry) -> UnixListener:
        listener = super()._listen(entry)
        listener.socket.close()
        return listener


async def test_an_agent_whose_server_cannot_start_says_so_instead_of_hanging(settings: Settings) -> None:
    sockets = ClosedSockets(GATEWAY, open_local_registry(settings.registry, CLOCK.monotonic), settings)
    store = await LeasedStore.open(settings.store)
    try:
        async with asyncio.timeout(BOUND):
            one = in_process_agent("tck", store, settings, sockets)
            with pytest.raises(AgentFailed, match=r"tck could not be started: .*Bad file descriptor"):
                await one.start()
            assert not one.is_running
            assert FileRegistry(settings.registry).written() == []
            # Its inbox is free for the next one.
            another = in_process_agent("tck", store, settings)
            await another.start()
            await another.stop()
    finally:
        await store.close()


async def test_an_agent_that_cannot_be_listed_runs_and_is_listed_as_soon_as_it_can(settings: Settings) -> None:
    settings.registry.write_text("not a folder", encoding="utf-8")
    sockets = InProcessSockets(GATEWAY, open_local_registry(settings.registry, CLOCK.monotonic), settings)
    store = await LeasedStore.open(settings.store)
    try:
        async with asyncio.timeout(BOUND):
            one = in_process_agent("tck", store, settings, sockets)
            await one.start()
            assert one.is_running

            settings.registry.unlink()
            await sockets.restore()
            assert [entry.name for entry in FileRegistry(settings.registry).entries()] == ["tck"]
            await one.stop()
    finally:
        await store.close()
