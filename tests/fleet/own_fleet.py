"""A fleet with a server of its own, for tests: real nats-server, real keys, TLS, and machines that have joined."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats

from synapse.config.fleet import FleetConfig, load_fleet
from synapse.fleet import names
from synapse.link.enrolment import EnrolmentService, serve_fleet
from synapse.link.membership import invite, join_by_invitation
from synapse.link.nats_bus import NatsBus, access_of
from synapse.link.server import FleetServer
from tests.fleet.bus_conformance import BOUND

NUMBERS = itertools.count(1)
CONNECT: Any = vars(nats)["connect"]
"""nats-py leaves parts of its types open."""


@dataclass(frozen=True, slots=True)
class Hub:
    """The machine that runs the server."""

    home: Path
    logs: Path
    config: FleetConfig

    @property
    def server(self) -> FleetServer:
        return FleetServer(self.home, self.logs)


@asynccontextmanager
async def serving(hub: Hub, *, forgets: bool = True) -> AsyncGenerator[NatsBus]:
    """Does what the link of the server's machine does; without `forgets`, only what it does for machines that join."""
    async with NatsBus(access_of(hub.home, hub.config)) as bus:
        await bus.wait_connected(BOUND)
        served = serve_fleet(hub.home, hub.logs, bus) if forgets else EnrolmentService(bus, hub.server).serve()
        task = asyncio.create_task(served)
        try:
            yield bus
        finally:
            task.cancel()
            await asyncio.wait({task})


async def join(hub: Hub, home: Path, name: str, *, is_gateway: bool = False, forgets: bool = True) -> FleetConfig:
    """Invites a machine and lets it join, as two people would."""
    async with serving(hub, forgets=forgets):
        invitation = await asyncio.to_thread(invite, hub.home, hub.logs, name, is_gateway=is_gateway)
        config, warning = await asyncio.to_thread(join_by_invitation, home, invitation.text())
    assert warning == ""
    return config


@dataclass(frozen=True, slots=True)
class Fleet:
    """Machines that have joined."""

    hub: Hub
    homes: dict[str, Path]

    def bus(self, name: str) -> NatsBus:
        home = self.homes[name]
        config = load_fleet(home)
        assert config is not None
        return NatsBus(access_of(home, config))

    async def raw(self, name: str) -> Any:
        """Connects with a machine's key and no rules of ours, as a thief of the key would."""
        home = self.homes[name]
        config = load_fleet(home)
        assert config is not None
        context = ssl.create_default_context(cafile=config.ca)
        context.check_hostname = False
        return await CONNECT(
            config.servers[0],
            tls=context,
            nkeys_seed_str=access_of(home, config).seed,
            inbox_prefix=names.inbox_prefix(name),
            error_cb=ignore,
            allow_reconnect=False,
        )


async def ignore(error: Exception) -> None:
    """Drops what nats-py would print; a test looks at what happens."""


@asynccontextmanager
async def connected(*buses: NatsBus) -> AsyncGenerator[None]:
    if not buses:
        yield
        return
    async with buses[0] as bus:
        await bus.wait_connected(BOUND)
        async with connected(*buses[1:]):
            yield
