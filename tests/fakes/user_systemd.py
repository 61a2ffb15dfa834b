"""A systemd user manager of the test's own, with a runtime folder and a home that nothing else uses.

systemd refuses to run as a user's manager on a machine that was not booted by systemd, as containers are; there it gets
a /run of its own, in a mount namespace.
"""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

SYSTEMD = Path("/lib/systemd/systemd")
BOOTED = "mount -t tmpfs none /run && mkdir -p /run/systemd/system && exec "
START_SECONDS = 20.0


@dataclass(frozen=True)
class UserSystemd:
    """A running user manager. `environ` leads the programs in its PATH to it, and has a home of its own."""

    environ: Mapping[str, str]
    home: Path

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=dict(self.environ), capture_output=True, encoding="utf-8", timeout=60, check=False
        )


@contextmanager
def user_systemd(folder: Path) -> Generator[UserSystemd]:
    """Runs a user manager until the block ends; skips the test where none can run."""
    if not SYSTEMD.exists() or shutil.which("systemctl") is None:
        pytest.skip("systemd is not installed")
    home, runtime = folder / "home", folder / "run"
    home.mkdir(exist_ok=True)
    runtime.mkdir(mode=0o700, exist_ok=True)
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
    environ = {**kept, "HOME": str(home), "XDG_RUNTIME_DIR": str(runtime), "LC_ALL": "C.UTF-8"}
    log = folder / "manager.log"
    command = f"{SYSTEMD} --user --log-target=console --log-level=warning"
    if not Path("/run/systemd/system").exists():
        # One namespace for the manager and all who ask it.
        command = f"exec unshare --mount --propagation private sh -c '{BOOTED}{command}'"
    with (
        # One at a time: two would use the same cgroups, and end each other's services.
        (Path(tempfile.gettempdir()) / "synapse-tests-systemd.lock").open("a", encoding="utf-8") as alone,
        log.open("wb") as output,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified,
    ):
        fcntl.flock(alone, fcntl.LOCK_EX)
        # systemd itself says when it is ready, as its services do.
        notified.bind(str(folder / "notify"))
        manager = subprocess.Popen(
            ["sh", "-c", command],
            env={**environ, "NOTIFY_SOCKET": str(folder / "notify")},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            ended = os.pidfd_open(manager.pid)
            told = b""
            while b"READY=1" not in told:
                readable, _, _ = select.select([notified.fileno(), ended], [], [], START_SECONDS)
                if notified.fileno() not in readable:
                    pytest.skip(f"no user manager runs here: {log.read_text(encoding='utf-8', errors='replace')}")
                told = notified.recv(4096)
            os.close(ended)
            # It also tells of each job that takes long, and would wait for ever until somebody reads that.
            notified.close()
            path = f"{_programs(folder, manager.pid)}:{environ['PATH']}"
            yield UserSystemd({**environ, "PATH": path}, home)
        finally:
            manager.terminate()
            manager.wait(30)


def _programs(folder: Path, manager: int) -> Path:
    """Writes a `systemctl` that sees the machine as the manager does, and so takes it for a booted one."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    program = programs / "systemctl"
    real = shutil.which("systemctl")
    program.write_text(
        f'#!/bin/sh\nexec nsenter --mount --target={manager} --wd={folder} {real} "$@"\n', encoding="utf-8"
    )
    program.chmod(0o755)
    return programs
