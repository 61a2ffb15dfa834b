"""A server that runs beside a CLI ends with it, and with the host that started it, however they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from synapse.drivers.pty.adapters.codex import GuardedServer
from tests.integration.waiting import until

BOUND = 15.0
# Says that it runs, with a child in its own process group, and one with a session of its own that a thread started.
# Ends when it is asked to, unless it is told to be stubborn.
SERVER = """
import os, pathlib, signal, subprocess, sys, threading, time
folder = pathlib.Path(sys.argv[1])
if sys.argv[2] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
pids = [os.getpid(), subprocess.Popen(["sleep", "600"]).pid]
def command():
    pids.append(subprocess.Popen(["sh", "-c", "sleep 600; true"], start_new_session=True).pid)
    ready.set()
    time.sleep(600)
ready = threading.Event()
threading.Thread(target=command, daemon=True).start()
ready.wait()
(folder / "pids").write_text(" ".join(map(str, pids)), encoding="ascii")
(folder / "listening").touch()
if sys.argv[2] == "short":
    sys.exit(3)
time.sleep(600)
"""
HOST = """
import pathlib, sys, time
from synapse.drivers.pty.adapters.codex import GuardedServer
folder = pathlib.Path(sys.argv[1])
server = GuardedServer((sys.executable, "-c", sys.argv[2], sys.argv[1], "gentle"), {"PATH": "/usr/bin:/bin"}, folder)
print(server.wait_for(folder / "listening"), flush=True)
time.sleep(600)
"""


def start(folder: Path, manner: str) -> GuardedServer:
    command = (sys.executable, "-c", SERVER, str(folder), manner)
    return GuardedServer(command, {"PATH": "/usr/bin:/bin"}, folder)


def pids(folder: Path) -> list[int]:
    return [int(pid) for pid in (folder / "pids").read_text(encoding="ascii").split()]


def are_gone(folder: Path) -> bool:
    return not any(_runs(pid) for pid in pids(folder))


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see who runs")


@pytest.mark.parametrize("manner", ["gentle", "stubborn"])
def test_a_server_that_is_stopped_ends_with_its_children(tmp_path: Path, manner: str) -> None:
    server = start(tmp_path, manner)
    assert server.wait_for(tmp_path / "listening")
    assert not are_gone(tmp_path)

    server.stop()

    until(lambda: are_gone(tmp_path), "the end of all")


def test_a_server_ends_when_its_host_is_killed(tmp_path: Path) -> None:
    command = (sys.executable, "-c", HOST, str(tmp_path), SERVER)
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as host:
        assert host.stdout is not None
        assert host.stdout.readline() == "True\n"
        assert not are_gone(tmp_path)

        os.kill(host.pid, signal.SIGKILL)

    until(lambda: are_gone(tmp_path), "the end of all")


def test_a_server_that_ends_by_itself_ends_its_group_and_is_not_waited_for(tmp_path: Path) -> None:
    server = start(tmp_path, "short")

    until(
        lambda: (tmp_path / "listening").exists() and not any(_runs(pid) for pid in pids(tmp_path)[:2]),
        "the server alone",
    )
    os.killpg(pids(tmp_path)[2], signal.SIGKILL)

    assert not server.wait_for(tmp_path / "never")
    server.stop()


def test_a_server_whose_program_is_missing_is_not_waited_for(tmp_path: Path) -> None:
    server = GuardedServer(("/no/such/program",), {}, tmp_path)

    assert not server.wait_for(tmp_path / "never")
    server.stop()
