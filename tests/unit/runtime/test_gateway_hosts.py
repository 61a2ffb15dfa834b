"""What a gateway learns of hosts from the registry."""

from __future__ import annotations

import os
from pathlib import Path

from synapse.core.agent import AgentEntry
from synapse.core.extension import Extension, to_text
from synapse.registries.files import FileRegistry
from synapse.runtime.gateway_hosts import HostAgents
from synapse.service.gateway_directory import GatewayDirectory
from synapse.transports.host_client import HostClient
from tests.fakes.clock import FakeClock

PLAN = Extension(uri="urn:plan", required=True)
PACE = Extension(uri="urn:pace")


def test_the_entry_of_a_host_tells_what_it_declares_and_one_that_is_gone_leaves_what_is_told(tmp_path: Path) -> None:
    registry = FileRegistry(tmp_path / "registry")
    clock = FakeClock()
    hosts = HostAgents(registry, HostClient(clock.monotonic), clock, me="gateway")
    directory = GatewayDirectory(hosts, extensions={"gone": (PACE,)})

    assert directory.extensions_of("ada") == ()
    registry.write(AgentEntry("synapse-dummy-8190", "dummy", name="ada", pid=os.getpid(), extensions=to_text((PLAN,))))
    assert directory.extensions_of("ada") == (PLAN,)
    assert directory.extensions_of("gone") == (PACE,)
