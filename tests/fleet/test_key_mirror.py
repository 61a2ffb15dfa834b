"""Keys and sessions of two gateways over a real nats-server: made on one, honoured and revoked on both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from synapse.auth import mirror
from synapse.auth.api_keys import Grant, KeyFile, id_in
from synapse.auth.mirror import mirror_folder
from synapse.auth.sessions import SessionFile
from synapse.config.fleet import FleetConfig, save_fleet
from synapse.config.process import SystemClock
from synapse.core.errors import KeyNotFound
from synapse.core.waiting import pause
from synapse.link.key_mirror import KeyMirror
from synapse.link.nats_bus import NatsBus
from synapse.link.nats_connection import Access
from tests.fleet.nats_server import NatsServer, nats_server

BOUND = 20.0
CLOCK = SystemClock()


@pytest.fixture(scope="module", name="server")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with nats_server(tmp_path_factory.mktemp("nats")) as server:
        yield server


@dataclass(frozen=True)
class Homes:
    """Two machines with gateways."""

    one: Path
    two: Path


@asynccontextmanager
async def homes(server: NatsServer, folder: Path) -> AsyncGenerator[Homes]:
    number = abs(hash(folder)) % 10**6
    found = Homes(folder / "one", folder / "two")
    async with AsyncExitStack() as stack:
        tasks: list[asyncio.Task[None]] = []
        for home in (found.one, found.two):
            home.mkdir()
            machine = f"{home.name}{number}"
            save_fleet(home, FleetConfig(fleet="f", machine=machine, servers=()))
            bus = await stack.enter_async_context(
                NatsBus(Access(machine=machine, servers=(server.url,), makes_streams=True))
            )
            await bus.wait_connected(BOUND)
            await bus.make_missing()
            tasks.append(asyncio.create_task(KeyMirror(home, bus, machine, clock=CLOCK, note=list[str]().append).run()))
        try:
            yield found
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(BOUND):
        while not condition():
            await pause(0.01)


async def test_a_key_is_honoured_and_revoked_on_all_gateways(server: NatsServer, tmp_path: Path) -> None:
    async with homes(server, tmp_path) as here:
        key, text = KeyFile(here.one, CLOCK).create("laptop", Grant(agents=frozenset({"codex", "x@two"})))
        other = KeyFile(here.two, CLOCK)
        await until(lambda: other.find(key.key_id))
        mirrored = other.find(id_in(text))
        assert mirrored is not None
        assert mirrored.matches(text)
        machine = other.mirrored()[0].machine
        assert mirrored.agents == frozenset({f"codex@{machine}", "x@two"})
        assert mirrored.caller().scope == key.caller().scope
        for file in mirror_folder(here.two).iterdir():
            with suppress(FileNotFoundError):  # the mirror replaces its files
                assert text.encode() not in file.read_bytes()

        other.revoke(f"laptop@{machine}")

        assert other.find(key.key_id) is None
        own = KeyFile(here.one, CLOCK)
        await until(lambda: not own.all())
        assert own.find(key.key_id) is None
        with pytest.raises(KeyNotFound):
            own.revoke("laptop")


async def test_a_key_that_its_own_machine_revokes_is_refused_elsewhere(server: NatsServer, tmp_path: Path) -> None:
    async with homes(server, tmp_path) as here:
        own, other = KeyFile(here.one, CLOCK), KeyFile(here.two, CLOCK)
        key, _ = own.create("laptop", Grant())
        await until(lambda: other.find(key.key_id))

        own.revoke("laptop")

        await until(lambda: other.find(key.key_id) is None)
        assert other.mirrored() == ()


async def test_webhooks_of_a_key_stop_on_every_gateway_machine_when_it_is_revoked(
    server: NatsServer, tmp_path: Path
) -> None:
    async with homes(server, tmp_path) as here:
        own, host = KeyFile(here.one, CLOCK), KeyFile(here.two, CLOCK)
        key, _ = own.create("laptop", Grant())
        # Also before the host's machine knows the key.
        assert host.is_good_for_webhooks(f"{key.key_id}@one")
        await until(lambda: host.find(key.key_id))

        own.revoke("laptop")

        await until(lambda: not host.is_good_for_webhooks(f"{key.key_id}@one"))


async def test_sessions_of_browsers_are_mirrored_and_ended_everywhere(server: NatsServer, tmp_path: Path) -> None:
    async with homes(server, tmp_path) as here:
        own, other = SessionFile(here.one, CLOCK), SessionFile(here.two, CLOCK)
        made = own.create(frozenset({"read", "send"}), timedelta(hours=1))
        session_id = made.session.session_id
        await until(lambda: other.find(session_id))
        found = other.find(session_id)
        assert found is not None
        assert found.matches(made.cookie, made.token)

        other.revoke(session_id)

        assert other.find(session_id) is None
        await until(lambda: own.find(session_id) is None)


async def test_mirrored_keys_are_good_for_an_hour_without_the_fleet(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with homes(server, tmp_path) as here:
        other = KeyFile(here.two, CLOCK)
        key, _ = KeyFile(here.one, CLOCK).create("laptop", Grant())
        await until(lambda: other.find(key.key_id))

    assert other.find(key.key_id) is not None
    monkeypatch.setattr(mirror, "STALE_AFTER", timedelta(0))
    assert other.find(key.key_id) is None
    assert other.is_good_for_webhooks(f"{key.key_id}@one")
