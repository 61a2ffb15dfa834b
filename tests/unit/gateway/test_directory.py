"""What a gateway learns of hosts from the registry."""

from __future__ import annotations

import os
from pathlib import Path

from synapse.core.agent import AgentEntry
from synapse.core.extension import Extension, to_text
from synapse.gateway.directory import GatewayDirectory, LocalAgents
from synapse.net.hosts import open_host_client
from synapse.registry.local import open_registry
from tests.fakes.clock import FakeClock

PLAN = Extension(uri="urn:plan", required=True)
PACE = Extension(uri="urn:pace")


async def test_the_entry_of_a_host_tells_what_it_declares_and_one_that_is_gone_leaves_what_is_told(
    tmp_path: Path,
) -> None:
    ada = AgentEntry("synapse-dummy-8190", "dummy", name="ada", pid=os.getpid(), extensions=to_text((PLAN,)))
    clock = FakeClock()
    registry = open_registry(tmp_path / "registry", clock.monotonic)
    hosts = LocalAgents(registry, open_host_client(registry, clock, registry.recheck), me="gateway")
    directory = GatewayDirectory(hosts, extensions={"gone": (PACE,)})

    await directory.refresh()
    assert directory.extensions_of("ada") == ()
    await registry.publish(ada)
    assert not directory.is_current()
    await directory.refresh()
    assert directory.extensions_of("ada") == (PLAN,)
    assert directory.extensions_of("gone") == (PACE,)
