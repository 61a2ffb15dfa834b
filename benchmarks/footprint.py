"""What a host costs while nobody asks anything: its start, its memory, its idle time. Beside it a bare uvicorn."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from benchmarks.hosts import Home, free_port, headless_command, temporary_home
from benchmarks.processes import end, memory, processor_seconds, running, wait_until
from benchmarks.rounds import interleave
from benchmarks.rows import Effort, Figure, Row, within

TITLE = "A host"

_MOST_LAUNCH_SECONDS = 0.5
_MOST_MEMORY_MB = 60
_MOST_IDLE_PERCENT = 0.5
_ROOT = Path(__file__).resolve().parents[1]


def run(effort: Effort) -> list[Row]:
    with temporary_home() as home:
        return [_launching(home, effort), *_running(home, effort)]


def _launching(home: Home, effort: Effort) -> Row:
    numbers = count()

    def host() -> float:
        port = free_port()
        return _launch(home, headless_command("dummy", port), home.socket_of("dummy", port), "/status")

    def echo() -> float:
        path = str(home.folder / f"launched-{next(numbers)}.sock")
        return _launch(home, _echo_command(path), path, "/tasks/1")

    contenders = {"host": host, "echo": echo}
    interleave(1, contenders)
    found = interleave(effort.launches, contenders)
    return within(
        _MOST_LAUNCH_SECONDS,
        Figure("launch → GET /status answered", found["host"], "s"),
        Figure("bare uvicorn", found["echo"], "s"),
    )


def _launch(home: Home, command: Sequence[str], path: str, asked: str) -> float:
    """Start a server; return the seconds until its first answer. Whoever listens early may answer late."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        command,
        env={**home.env, "PYTHONPATH": str(_ROOT)},
        cwd=home.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until(lambda: _answers(path, asked), "the first answer")
        return time.perf_counter() - begun
    finally:
        end(process)


def _answers(path: str, asked: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(10)
        try:
            connection.connect(path)
        except OSError:
            return False
        connection.sendall(f"GET {asked} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        return connection.recv(64).startswith(b"HTTP/1.1 200")


def _running(home: Home, effort: Effort) -> list[Row]:
    path = str(home.folder / "echo.sock")
    environment = {**home.env, "PYTHONPATH": str(_ROOT)}
    with home.host() as host, running(_echo_command(path), environment, home.folder) as echo:
        wait_until(lambda: _answers(path, "/tasks/1"), "the echo answers")
        host.wait_ready()
        for number in range(effort.messages):
            task_id = host.send(f"message {number}")
            host.wait_completed(task_id)
            _answers(path, "/tasks/1")
        sizes = memory(host.pid), memory(echo.pid)
        host.wait_ready()
        shares = _idle_percent((host.pid, echo.pid), effort.idle_seconds)
    return [
        within(
            _MOST_MEMORY_MB,
            Figure(f"memory after {effort.messages} messages", [sizes[0]], "MB"),
            Figure("bare uvicorn", [sizes[1]], "MB"),
        ),
        within(
            _MOST_IDLE_PERCENT,
            Figure(f"processor while idle, over {effort.idle_seconds:g} s", [shares[0]], "%"),
            Figure("bare uvicorn", [shares[1]], "%"),
        ),
    ]


def _idle_percent(pids: tuple[int, int], seconds: float) -> list[float]:
    time.sleep(1)  # what the last message left to do is done by then
    before = [processor_seconds(pid) for pid in pids]
    time.sleep(seconds)
    return [(processor_seconds(pid) - earlier) / seconds * 100 for pid, earlier in zip(pids, before, strict=True)]


def _echo_command(path: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.echo_app", path]
