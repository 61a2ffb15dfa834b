"""A nats-server of its own for a test, without any of Synapse: what an operator with a NATS already runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.fleet.waiting import until
from tests.samples.ports import own_port

BINARY = Path(sys.executable).parent / "nats-server"


@dataclass(slots=True)
class NatsServer:
    """A server that runs; `restart` kills it and starts it again at the same port."""

    folder: Path
    config: str
    process: subprocess.Popen[bytes]
    port: int

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def start_again(self) -> None:
        self.process, self.port = _start(self.folder, self.config, self.port)


@contextmanager
def nats_server(folder: Path, config: str = "", *, jetstream: bool = True) -> Generator[NatsServer]:
    """Runs a server with further lines of configuration."""
    if jetstream:
        config += f'\njetstream {{ store_dir: "{folder}/store", max_mem: 64MB, max_file: 256MB }}\n'
    # Not an ephemeral one: clients that connect again could take it while the server does not run.
    process, port = _start(folder, config, own_port())
    server = NatsServer(folder, config, process, port)
    try:
        yield server
    finally:
        server.kill()


def _start(folder: Path, config: str, port: int) -> tuple[subprocess.Popen[bytes], int]:
    file = folder / "nats.conf"
    file.write_text(f"host: 127.0.0.1\nport: {port}\n{config}", encoding="utf-8")
    ports = folder / "ports"
    ports.mkdir(exist_ok=True)
    for old in ports.iterdir():
        old.unlink()
    with (folder / "nats.log").open("ab") as output:
        process = subprocess.Popen([BINARY, "-c", file, "--ports_file_dir", ports], stdout=output, stderr=output)
    until(lambda: _ports(ports) or process.poll() is not None, "the ports file of nats-server")
    assert process.poll() is None, (folder / "nats.log").read_text(encoding="utf-8")
    return process, _ports(ports)


def _ports(folder: Path) -> int:
    for file in folder.iterdir():
        try:
            return int(json.loads(file.read_bytes())["nats"][0].rpartition(":")[2])
        except (ValueError, OSError):
            return 0  # it is just being written
    return 0
