"""A person at a terminal, played by a test: types, reads, and changes the window's size."""

from __future__ import annotations

import os
import re
import select
import signal
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from synapse.drivers.pty.process import Launch, Program, spawn
from synapse.drivers.pty.tty import set_size
from tests.integration.pty.terminals import BOUND, environment

SHELL_PROMPT = "sh$ "


class Seat:
    """One terminal with a program on it."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.pid = program.pid
        self.terminal = program.terminal
        self.seen = b""
        self._mark = 0

    def types(self, keys: str | bytes) -> None:
        """Types; only output after this counts for the next `sees`."""
        self._mark = len(self.seen)
        os.write(self.terminal, keys.encode() if isinstance(keys, str) else keys)

    def sees(self, text: str | bytes) -> None:
        """Reads until `text` is on its way to the screen."""
        wanted = text.encode() if isinstance(text, str) else text
        self.reads_until(lambda: wanted in self.seen[self._mark :], repr(text))

    def matches(self, pattern: str) -> re.Match[str]:
        """Reads until the pattern is found; returns the match."""
        self.reads_until(lambda: re.search(pattern, self._new()) is not None, pattern)
        found = re.search(pattern, self._new())
        assert found is not None
        return found

    def reads_until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + BOUND
        while not condition():
            ready, _, _ = select.select((self.terminal,), (), (), max(end - time.monotonic(), 0))
            assert ready, f"{what} did not come; there is: {self.seen[self._mark :]!r}"
            try:
                self.seen += os.read(self.terminal, 65536)
            except OSError as error:
                raise AssertionError(f"{what} did not come before the end: {self.seen[self._mark :]!r}") from error

    def reads_to_end(self) -> None:
        """Reads until the program has closed the terminal."""
        end = time.monotonic() + BOUND
        with suppress(OSError):
            while select.select((self.terminal,), (), (), max(end - time.monotonic(), 0))[0]:
                self.seen += os.read(self.terminal, 65536)
        assert time.monotonic() < end, f"it did not end; there is: {self.seen[self._mark :]!r}"

    def resizes(self, columns: int, rows: int) -> None:
        set_size(self.terminal, columns, rows)

    def _new(self) -> str:
        return self.seen[self._mark :].decode(errors="replace")


@contextmanager
def seated(*command: str) -> Generator[Seat, None, None]:
    """Runs a command on a new terminal, and ends it."""
    env = environment({"PS1": SHELL_PROMPT, "HISTFILE": "/dev/null"})
    program = spawn(Launch(command=command, env=env, columns=100, rows=30))
    try:
        yield Seat(program)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        os.close(program.terminal)
        os.waitpid(program.pid, 0)


def children(pid: int) -> list[int]:
    """Returns the processes that any thread of a process has started."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for path in lists for word in path.read_text(encoding="ascii").split()]
