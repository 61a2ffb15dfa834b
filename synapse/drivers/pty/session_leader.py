"""Leads the terminal session of a CLI that a person sees, so that Ctrl-Z works and a dead host leaves no raw terminal.

    host ── session_leader (owns the session, never reads or writes) ── CLI (a job of its own, in the foreground)

A process whose parent is outside its session is never stopped by Ctrl-Z: the kernel drops SIGTSTP for such groups. So a
parent inside the session is needed, as a shell would be. It reports to the host in lines:

    pid N · stopped · exited STATUS · error ERRNO

The host runs it as a script (`python -I -S`), so it imports none of our modules and nothing slow.
"""

from __future__ import annotations

import os
import signal
import sys
import termios
from types import FrameType
from typing import Final

_IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ)
_NOT_STARTED: Final = 127


def main(arguments: list[str]) -> int:
    """Runs `PATH ARGV…` as the foreground job of this session; reports to a pipe and restores the person's terminal."""
    report, person = int(arguments[0]), int(arguments[1])
    path, argv = arguments[2], arguments[3:]
    # The host gave the new terminal the settings of the person's terminal, so these are the ones to restore.
    settings = termios.tcgetattr(0)

    def host_is_gone(number: int, _frame: FrameType | None) -> None:
        _restore(person, settings)
        # End like any session leader that lost its terminal: the kernel then hangs up the CLI.
        os._exit(128 + number)

    signal.signal(signal.SIGHUP, host_is_gone)
    # Setting the foreground group from a background group would stop us.
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.set_inheritable(report, False)
    os.set_inheritable(person, False)
    started, failed = os.pipe()
    pid = os.fork()
    if pid == 0:
        _exec(path, argv, failed)
    os.close(failed)
    # The exec closes the pipe; if it fails, the pipe has the error.
    error = os.read(started, 16)
    _report(report, f"error {error.decode()}" if error else f"pid {pid}")
    return _watch(pid, report)


def _exec(path: str, argv: list[str], failed: int) -> None:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    for number in (*_IGNORED_BY_PYTHON, signal.SIGTTOU, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(path, argv, os.environ)  # noqa: S606  # the profile's own command, already looked up
    except OSError as error:
        os.write(failed, str(error.errno).encode())
        os._exit(_NOT_STARTED)


def _watch(pid: int, report: int) -> int:
    while True:
        _, status = os.waitpid(pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            _report(report, "stopped")
            continue
        code = os.waitstatus_to_exitcode(status)
        _report(report, f"exited {code}")
        return code if code >= 0 else 128 - code


def _report(pipe: int, line: str) -> None:
    try:
        os.write(pipe, line.encode() + b"\n")
    except BrokenPipeError:
        # The host is gone; the hang-up that follows ends us.
        return


def _restore(person: int, settings: list[object]) -> None:
    """Undoes raw mode, unless the host or the person's shell has done so already."""
    try:
        now = termios.tcgetattr(person)
        # Shells that edit lines switch ICANON off too, but never OPOST: both off means that our raw mode is still on.
        if not now[3] & termios.ICANON and not now[1] & termios.OPOST:
            termios.tcsetattr(person, termios.TCSANOW, settings)  # type: ignore[arg-type]  # as tcgetattr gave it
    except termios.error:
        return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
