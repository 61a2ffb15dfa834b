"""A real gateway: a process of its own that shares its home with the hosts behind it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from synapse.core.agent import AgentEntry, entry_from
from tests.conformance.real_hosts import COMMAND, CONFORMANCE, PATIENCE, environ
from tests.conformance.wire_client import Reply, WireClient
from tests.integration.waiting import until

IN_PROCESS = f"""
[[agents]]
id = "tck"
driver = "scripted"
script = "{CONFORMANCE}"
"""


@dataclass(frozen=True)
class RunningGateway:
    """A gateway: its address and its process."""

    entry: AgentEntry
    home: Path
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://localhost:{self.entry.port}"

    def ask(self, method: str, path: str, body: object = None, *, key: str = "", **headers: str) -> Reply:
        """Sends one request with the credentials `key`; each other keyword is a header."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if key:
            named["Authorization"] = f"Bearer {key}"
        return WireClient(self.entry.port).request(method, path, body, named)


@contextmanager
def gateway(home: Path, config: str = IN_PROCESS, *flags: str) -> Generator[RunningGateway]:
    """Runs a gateway until the end of the block, on a free port."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "gateway.toml").write_text(config, encoding="utf-8")
    process = subprocess.Popen(
        [*COMMAND, "gateway", "--port", "0", *flags],
        env=environ(home),
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        yield RunningGateway(_entry(home, process), home, process)
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


def new_key(home: Path, name: str, *flags: str) -> str:
    """Returns a new API key of the gateway."""
    made = [*COMMAND, "keys", "create", name, "--json", *flags]
    done = subprocess.run(made, env=environ(home), cwd=home, check=True, capture_output=True, timeout=PATIENCE)
    fields: dict[str, Any] = json.loads(done.stdout)
    return str(fields["key"])


def _entry(home: Path, process: subprocess.Popen[bytes]) -> AgentEntry:
    def written() -> AgentEntry | None:
        assert process.poll() is None, process.communicate(timeout=PATIENCE)[1].decode()
        for file in (home / "gateways").glob("[!.]*.json"):
            entry = entry_from(json.loads(file.read_text(encoding="utf-8")))
            if entry is not None and entry.pid == process.pid:
                return entry
        return None

    entry = until(written, "a gateway")
    assert isinstance(entry, AgentEntry)
    return entry
