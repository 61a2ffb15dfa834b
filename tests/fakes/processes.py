"""Processes that only exist, and stand still when they are told to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

from synapse.registry.files import start_time


class Bystander:
    """A process that does nothing; its pid may stand for a host's."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid
        self.started = start_time(process.pid) or 0

    def stop(self) -> None:
        """Let it stand still, and return when it does."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        os.waitid(os.P_PID, self.pid, os.WCONTINUED)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def bystander() -> Generator[Bystander]:
    """A process that lives as long as the block."""
    command = [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            yield Bystander(process)
        finally:
            process.kill()
