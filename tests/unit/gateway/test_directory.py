"""The directory of a gateway follows the registry."""

from __future__ import annotations

import os
from pathlib import Path

from synapse.core.agent import AgentEntry
from synapse.core.extension import Extension, to_text
from synapse.gateway.directory import GatewayDirectory, LocalAgents
from synapse.net.hosts import open_host_client
from synapse.registry.local import open_local_registry
from tests.fakes.clock import FakeClock

PLAN = Extension(uri="urn:plan", required=True)
PACE = Extension(uri="urn:pace")


async def test_a_host_entry_declares_extensions_and_the_configured_ones_outlive_it(
    tmp_path: Path,
) -> None:
    ada = AgentEntry("synapse-dummy-8190", "dummy", name="ada", pid=os.getpid(), extensions=to_text((PLAN,)))
    clock = FakeClock()
    registry = open_local_registry(tmp_path / "registry", clock.monotonic)
    hosts = LocalAgents(registry, open_host_client(registry, clock, registry.recheck), me="gateway")
    directory = GatewayDirectory(hosts, extensions={"gone": (PACE,)})

    await directory.refresh()
    assert directory.extensions_of("ada") == ()
    await registry.publish(ada)
    assert not directory.is_current()
    await directory.refresh()
    assert directory.extensions_of("ada") == (PLAN,)
    assert directory.extensions_of("gone") == (PACE,)
