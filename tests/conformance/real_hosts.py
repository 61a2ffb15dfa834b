"""Real agent hosts: processes of their own, with a store on disk, in a home of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from synapse.core.agent import AgentEntry, entry_from

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, str(ROOT / "bin" / "synapse")]
CONFORMANCE = ROOT / "docs" / "examples" / "conformance.toml"
EXTENSIONS = ROOT / "docs" / "examples" / "extensions.toml"
PATIENCE = 30.0
FOREIGN = ("SYNAPSE_AGENT_ID", "SYNAPSE_SOCKET", "PYTHONDONTWRITEBYTECODE")


def environ(home: Path) -> dict[str, str]:
    ours = {"SYNAPSE_HOME": str(home), "SYNAPSE_UDS_DIR": str(home / "s"), "PYTHONPATH": str(ROOT)}
    # The webhooks and external agents of the tests are on loopback.
    ours |= {"SYNAPSE_ALLOW_PRIVATE_WEBHOOKS": "1", "SYNAPSE_ALLOW_PRIVATE_AGENTS": "1"}
    return {name: value for name, value in os.environ.items() if name not in FOREIGN} | ours


def synapse(home: Path, *arguments: str) -> str:
    """Runs `synapse …` as the person of this home, and returns what it prints."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        env=environ(home),
        cwd=home,
        check=True,
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
    )
    return done.stdout


@contextmanager
def scripted_host(home: Path, script: Path = CONFORMANCE, name: str = "conf") -> Generator[AgentEntry]:
    """Runs a scripted agent until the end of the block; NAME.err has its stderr."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / f"{name}.err").open("wb") as said:
        host = subprocess.Popen(
            [*COMMAND, "scripted", str(script), "--name", name],
            env=environ(home),
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
    try:
        yield _entry(home, name, host)
    finally:
        host.terminate()
        host.wait(PATIENCE)


@contextmanager
def dummy_host(home: Path, name: str = "ada") -> Generator[AgentEntry]:
    """Runs the built-in agent on a pseudo-terminal, in the background."""
    home.mkdir(parents=True, exist_ok=True)
    started = [*COMMAND, "start", "dummy", "--name", name, "--no-instructions"]
    subprocess.run(started, env=environ(home), cwd=home, check=True, capture_output=True, timeout=PATIENCE)
    try:
        yield _entry(home, name)
    finally:
        stopped = [*COMMAND, "stop", "--all", "--force"]
        subprocess.run(stopped, env=environ(home), cwd=home, check=False, capture_output=True, timeout=PATIENCE)


def entry_of(home: Path, name: str) -> AgentEntry:
    """Returns the registry entry of an agent that another process starts, such as a gateway."""
    return _entry(home, name)


def _entry(home: Path, name: str, host: subprocess.Popen[bytes] | None = None) -> AgentEntry:
    """Returns the registry entry once it exists: a host writes it when it answers."""
    registry = home / "registry"
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for file in registry.glob("*.json") if registry.is_dir() else ():
            entry = entry_from(json.loads(file.read_text(encoding="utf-8")))
            if entry is not None and entry.name == name:
                return entry
        assert host is None or host.poll() is None, "the host has ended"
        time.sleep(0.02)
    raise AssertionError(f"no agent '{name}' after {PATIENCE} seconds")
