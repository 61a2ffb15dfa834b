"""Hosts in a private place: a registry, a store and sockets of their own, in a folder that goes when all is done."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.processes import SAID, SYNAPSE, running, wait_until
from synapse.client.http import HostAddress, NoAnswer, request

_ANSWER_SECONDS = 20.0
# As long as a benchmark lasts, and longer.
BUSY = "wait 3600"


@dataclass(frozen=True, slots=True)
class Host:
    """An agent's host that runs."""

    pid: int
    agent_id: str
    socket: str

    @property
    def name(self) -> str:
        """What it was called when it was started."""
        return _name_at(int(self.agent_id.rpartition("-")[2]))

    def get(self, path: str) -> dict[str, Any]:
        return self._ask("GET", path)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._ask("POST", path, body)

    def send(self, text: str, **metadata: object) -> str:
        """Leave a message; return the id of its task."""
        task = self.post("/tasks/send", {"message": message(text), "metadata": metadata})["task"]
        return str(task["id"])

    def is_ready(self) -> bool:
        """A message would be typed at once."""
        status = self.get("/status")
        return status["state"] == "ready" and not status["gate"] and not status["current_task"]

    def wait_ready(self) -> None:
        wait_until(self.is_ready, f"{self.agent_id} gets ready")

    def keep_busy(self) -> None:
        """Give the dummy something to do, so that whatever comes is queued."""
        self.wait_ready()
        task_id = self.send(BUSY)
        self._wait_for_state(task_id, "working")

    def wait_completed(self, task_id: str) -> None:
        self._wait_for_state(task_id, "completed")

    def _wait_for_state(self, task_id: str, state: str) -> None:
        wait_until(lambda: bool(self.get(f"/tasks/{task_id}")["status"] == state), f"the task is {state}")

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        answer = request(HostAddress(self.socket), method, path, body, timeout=_ANSWER_SECONDS)
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path} was answered with {answer.status}: {answer.body}")
        return answer.body


class Home:
    """A place for hosts. `env` is what they and the commands that speak with them are run with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SYNAPSE_")}
        self.env = {
            **inherited,
            "SYNAPSE_HOME": str(folder / "state"),
            "SYNAPSE_UDS_DIR": str(folder / "uds"),
            # The benchmarks queue more than a person would.
            "SYNAPSE_QUEUE_LIMIT": "1000000",
            "XDG_CONFIG_HOME": str(folder / "config"),
        }

    def write_profile(self, name: str, program: str, *arguments: str) -> None:
        """Make a profile of the user's own for a line program that shows the dummy's prompt."""
        command = [sys.executable, "-I", "-S", str(Path(__file__).with_name(program)), *arguments]
        path = self.folder / "config" / "synapse" / "profiles" / f"{name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_PROFILE.format(command=json.dumps(command)), encoding="utf-8")

    def socket_of(self, profile: str, port: int) -> str:
        return str(self.folder / "uds" / f"synapse-{profile}-{port}.sock")

    def with_path(self) -> dict[str, str]:
        """The environment of a peer of this folder, run as a module."""
        return {**self.env, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}

    @contextlib.contextmanager
    def host(self, profile: str = "dummy") -> Generator[Host]:
        """A background agent that answers."""
        port = free_port()
        with self._served(headless_command(profile, port), profile, port) as host:
            yield host

    @contextlib.contextmanager
    def scripted(self, script: str) -> Generator[Host]:
        """An agent that plays a script."""
        port = free_port()
        path = self.folder / f"script-{port}.toml"
        path.write_text(script, encoding="utf-8")
        command = [SYNAPSE, "scripted", str(path), "--name", _name_at(port), "--port", str(port)]
        with self._served(command, "scripted", port) as host:
            yield host

    @contextlib.contextmanager
    def gateway(self) -> Generator[Host]:
        """One address for all agents; this user comes in by its Unix socket."""
        port, grpc_port = free_port(), free_port()
        command = [SYNAPSE, "gateway", "--no-auth", "--port", str(port), "--grpc-port", str(grpc_port)]
        with self._served(command, "gateway", port) as host:
            yield host

    @contextlib.contextmanager
    def _served(self, command: list[str], kind: str, port: int) -> Generator[Host]:
        with running(command, self.env, self.folder) as process:
            host = Host(process.pid, f"synapse-{kind}-{port}", self.socket_of(kind, port))
            wait_until(lambda: answers(host) or process.poll() is not None, f"{host.agent_id} answers")
            if process.poll() is not None:
                raise RuntimeError(f"it ended: {(self.folder / SAID).read_text(encoding='utf-8')}")
            yield host


@contextlib.contextmanager
def temporary_home() -> Generator[Home]:
    """A place for hosts, removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="synapse-bench-"))
    try:
        yield Home(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def headless_command(profile: str, port: int) -> list[str]:
    """The command line of a background host, as `synapse start` runs it.

    It has a name, and so an inbox of its own: without one it would go on with what an earlier host was left with.
    """
    return [SYNAPSE, profile, "--headless", "--no-instructions", "--port", str(port), "--name", _name_at(port)]


def _name_at(port: int) -> str:
    return f"at-{port}"


def answers(host: Host) -> bool:
    """Whether the host speaks yet; `synapse PROFILE` in a terminal needs a while too."""
    try:
        host.get("/status")
    except NoAnswer:
        return False
    return True


def message(text: str) -> dict[str, Any]:
    """The contract's message."""
    return {"role": "user", "parts": [{"type": "text", "text": text}]}


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


_PROFILE = """\
title = "Benchmark"
command = {command}
ports = [8300, 8399]
limit_bytes = 3800

[interrupt]
signal = "SIGINT"

[times]
quiet = 0.02
settle = 0.03
person = 1.0
echo = 1.0
proof = 3.0

[prompt]
pattern = '^> (?P<text>.*)$'
at_cursor = true

[answer]
echo = '^> '
"""
