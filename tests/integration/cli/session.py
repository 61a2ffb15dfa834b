"""A home of its own for real agents, and `synapse …` as a real process in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.samples.commands import Ran
from tests.samples.ports import own_port

ROOT = Path(__file__).resolve().parents[3]
COMMAND = [sys.executable, str(ROOT / "bin" / "synapse")]
PATIENCE = 30


class Session:
    """Runs commands that see only the agents of this session."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "work"
        self.folder.mkdir()
        ours = {"SYNAPSE_HOME": str(home), "SYNAPSE_UDS_DIR": str(home / "s"), "PYTHONPATH": str(ROOT)}
        foreign = ("SYNAPSE_AGENT_ID", "SYNAPSE_SOCKET", "PYTHONDONTWRITEBYTECODE")
        self.environ = {name: value for name, value in os.environ.items() if name not in foreign} | ours

    def run(self, *arguments: str, said: str = "", **environ: str) -> Ran:
        done = subprocess.run(
            [*COMMAND, *arguments],
            cwd=self.folder,
            env=self.environ | environ,
            input=said,
            capture_output=True,
            encoding="utf-8",
            timeout=PATIENCE,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )

    def start(self, name: str, *more: str, port: int | None = None) -> dict[str, Any]:
        """Start the dummy, on a port that nobody takes while it is stopped."""
        chosen = str(own_port() if port is None else port)
        ran = self.run("start", "dummy", "--name", name, "--port", chosen, "--no-instructions", "--json", *more)
        assert ran.code == 0, ran
        agent: dict[str, Any] = ran.json
        return agent


@contextmanager
def session(home: Path, kind: type[Session] = Session) -> Generator[Session]:
    """A session whose agents are ended with it."""
    home.mkdir(parents=True, exist_ok=True)
    opened = kind(home)
    try:
        yield opened
    finally:
        if has_agents(home):
            opened.run("stop", "--all", "--force")


def has_agents(home: Path) -> bool:
    """Whether there is an agent or a gateway to stop; a command that finds none takes half a second to say so."""
    return any(file for folder in ("registry", "gateways") for file in (home / folder).glob("*.json"))
