"""A person's terminal: a command on a pseudo-terminal whose other end is read here."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

_READ_SIZE = 65536
_COLUMNS, _ROWS = 120, 40


class Terminal:
    """The end that a person sees and types at."""

    def __init__(self, pid: int, number: int) -> None:
        self.pid = pid
        self._number = number

    def type(self, keys: bytes) -> None:
        os.write(self._number, keys)

    def read(self, seconds: float = 10.0) -> bytes:
        """What has come, at least one byte; raises TimeoutError."""
        ready, _, _ = select.select([self._number], [], [], seconds)
        if not ready:
            raise TimeoutError("the program in the terminal is silent")
        return os.read(self._number, _READ_SIZE)

    def read_until(self, wanted: bytes, seconds: float = 20.0) -> None:
        """Read until `wanted` is the last that came, blanks and colours aside; raises TimeoutError."""
        tail = b""
        deadline = time.monotonic() + seconds
        while wanted not in tail:
            tail = tail[-1000:] + self.read(max(deadline - time.monotonic(), 0))

    def read_bytes(self, count: int) -> None:
        """Read so many bytes."""
        while count > 0:
            count -= len(self.read())

    def rest(self, seconds: float = 0.05) -> bytes:
        """Read until nothing has come for a while."""
        found = b""
        with contextlib.suppress(TimeoutError):
            while True:
                found += self.read(seconds)
        return found


@contextlib.contextmanager
def in_terminal(argv: Sequence[str], env: Mapping[str, str], folder: Path) -> Generator[Terminal]:
    """Run a command in a terminal of its own; it is hung up on afterwards."""
    pid, number = pty.fork()
    if pid == 0:
        try:
            os.chdir(folder)
            os.execve(argv[0], list(argv), env)
        finally:
            os._exit(127)
    fcntl.ioctl(number, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
    try:
        yield Terminal(pid, number)
    finally:
        _end(pid, number)


def _end(pid: int, number: int) -> None:
    """Hang up, as a window that is closed does, and wait for the end, reading what is still said."""
    os.kill(pid, signal.SIGHUP)
    deadline = time.monotonic() + 8
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            break
        if select.select([number], [], [], 0.02)[0]:
            with contextlib.suppress(OSError):
                os.read(number, _READ_SIZE)
    os.close(number)
