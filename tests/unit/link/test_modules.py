"""What a link loads: one runs on every machine of a fleet, all the time."""

from __future__ import annotations

import subprocess
import sys


def test_a_link_loads_nothing_that_only_hosts_use() -> None:
    code = "import synapse.cli.link, synapse.link.link, synapse.link.nats_bus, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, encoding="utf-8", timeout=60
    ).stdout.split()

    of_hosts = (
        "synapse.drivers",
        "synapse.tasks.intake",
        "synapse.tasks.worker",
        "synapse.terminal.profile",
        "pyghostty",
    )
    assert [name for name in loaded if name.startswith(of_hosts)] == []
    assert "synapse.link.link" in loaded
