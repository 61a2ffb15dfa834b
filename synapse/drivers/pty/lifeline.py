"""A thread that waits for a program: tells when it stops itself, and when it has ended."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterable

from synapse.drivers.pty.spawn import Program


class Lifeline:
    """Waits for one program. The callbacks come from its thread; `exited` comes once, with a shell's exit status."""

    def __init__(self, program: Program, *, stopped: Callable[[], None], exited: Callable[[int], None]) -> None:
        self._program = program
        self._stopped = stopped
        self._exited = exited
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="pty-lifeline", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def resume(self) -> None:
        """Let a program that has stopped itself go on."""
        self.send(signal.SIGCONT)

    def send(self, number: int) -> None:
        """Send a signal to the program's process group, unless it is gone: its number may be another's by then."""
        with contextlib.suppress(ProcessLookupError):
            if not self._is_over:
                os.killpg(self._program.pid, number)

    def _run(self) -> None:
        if self._program.report is None:
            status = self._wait_for_child()
        else:
            with open(self._program.report, encoding="ascii") as report:  # noqa: PTH123  # a pipe has no path
                reported = self._read_reports(report)
            ended = os.waitstatus_to_exitcode(os.waitpid(self._program.reaped_pid, 0)[1])
            status = ended if reported is None else reported
        self._is_over = True
        self._exited(shell_status(status))

    def _wait_for_child(self) -> int:
        while True:
            _, status = os.waitpid(self._program.pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                return os.waitstatus_to_exitcode(status)
            self._stopped()

    def _read_reports(self, report: Iterable[str]) -> int | None:
        """Follow what the session leader tells; None when it was killed before the program's end."""
        for line in report:
            word, _, value = line.strip().partition(" ")
            if word == "stopped":
                self._stopped()
            elif word == "exited":
                return int(value)
        return None


def shell_status(code: int) -> int:
    """The status that a shell would report: 128 and the number of the signal that ended it, else its own."""
    return 128 - code if code < 0 else code
