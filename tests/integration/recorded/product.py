"""The product as its users have it: the command `synapse`, in a home of its own. Nothing here imports the package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from tests.conformance.wire_client import WireClient
from tests.integration.recorded.golden import ROOT, Plain

COMMAND: Final = [sys.executable, str(ROOT / "bin" / "synapse")]
SCRIPT: Final = ROOT / "tests" / "golden" / "recorded" / "files" / "agent.toml"
PATIENCE: Final = 30.0
T = TypeVar("T")


@dataclass(frozen=True)
class Ran:
    """What came of one command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Product:
    """One user's Synapse."""

    home: Path
    running: ExitStack = field(default_factory=ExitStack)

    @property
    def environ(self) -> dict[str, str]:
        own = {
            "HOME": self.home / "user",
            "XDG_CONFIG_HOME": self.home / "config",
            "SYNAPSE_HOME": self.home,
            "SYNAPSE_UDS_DIR": self.home / "s",
            "PYTHONPATH": ROOT,
        }
        # The webhooks, and the agents from elsewhere, of the tests are on loopback.
        allowed = {"SYNAPSE_ALLOW_PRIVATE_WEBHOOKS": "1", "SYNAPSE_ALLOW_PRIVATE_AGENTS": "1"}
        fixed = {"COLUMNS": "100", "NO_COLOR": "1", "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "SHELL": "/bin/sh"}
        return {name: str(value) for name, value in own.items()} | allowed | fixed

    def run(self, *arguments: str, **variables: str) -> Ran:
        """Run `synapse …` to its end."""
        done = subprocess.run(
            [*COMMAND, *arguments],
            env=self.environ | variables,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=PATIENCE,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Run `synapse …` until the end of the test."""
        with (self.home / "started.err").open("ab") as said:
            process = subprocess.Popen(
                [*COMMAND, *arguments],
                env=self.environ,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
            )
        self.running.callback(_end, process)
        return process

    def start_agent(self, name: str, script: Path = SCRIPT) -> dict[str, Any]:
        """Start a scripted agent; return its registry entry."""
        process = self.start("scripted", str(script), "--name", name)
        return self._entry("registry", process)

    def start_gateway(self, config: str = "", *flags: str) -> dict[str, Any]:
        """Start a gateway on free ports; return its entry."""
        (self.home / "gateway.toml").write_text(config, encoding="utf-8")
        return self._entry("gateways", self.start("gateway", "--port", "0", *flags))

    def _entry(self, folder: str, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        def written() -> dict[str, Any] | None:
            assert process.poll() is None, (self.home / "started.err").read_text(encoding="utf-8")
            files = (self.home / folder).glob("[!.]*.json")
            entries: list[dict[str, Any]] = [json.loads(file.read_text(encoding="utf-8")) for file in files]
            return next((entry for entry in entries if entry["pid"] == process.pid), None)

        return until(written, f"an entry in {folder}")

    def plain(self, **entries: dict[str, Any]) -> Plain:
        """What shows the home and these agents by their names."""
        known = {str(self.home): "home", str(ROOT): "checkout", sys.executable: "python"}
        for name, entry in entries.items():
            known |= {entry["agent_id"]: f"{name} id", f":{entry['port']}": f":{name} port"}
        known |= {self.run("--version").out.split()[1]: "version"}
        return Plain(known)


@contextmanager
def product(home: Path) -> Generator[Product]:
    """A user's Synapse; whatever was started in it is ended."""
    home.chmod(0o700)
    (home / "user").mkdir()
    made = Product(home)
    with made.running:
        yield made


def wire(entry: dict[str, Any], *, over_socket: bool = False) -> WireClient:
    """A client of an agent or a gateway."""
    return WireClient(entry["port"], entry["socket"] if over_socket else "")


def until(condition: Callable[[], T | None], what: str) -> T:
    """Return the first result of `condition` that is true."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what}: not within {PATIENCE} seconds")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(PATIENCE)
