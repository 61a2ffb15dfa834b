"""Runs a CLI's own server and ends it with the host: not even a host that is killed leaves it behind.

    host ──pipe── server_guard ── server (leads a session of its own)

Nothing is ever written into the pipe. It closes when the host closes it or ends in any way; then the guard asks the
server to end, and after a while kills it with its process group. The commands that the server runs lead sessions of
their own and would go on: the guard ends them too, where the system shows them (Linux). Processes that a finished
command has left behind on purpose no longer belong to the server and stay.

The host runs it as a script (`python -I -S`), so it imports none of our modules and nothing slow.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from types import FrameType
from typing import Final

_ASK_SECONDS: Final = 0.5
_MAX_ASKS: Final = 6
_LOOK_SECONDS: Final = 0.02
_MAX_LOOKS: Final = 25
_NOT_STARTED: Final = 127
_START_FIELD: Final = 19
_ENDED: Final = ("Z", "X")
_IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ)


def main(argv: list[str]) -> int:
    """Runs `PATH ARGUMENT…` until it ends, or until the other end of the standard input is closed."""
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _note)
    server = os.fork()
    if server == 0:
        _exec(argv)
    is_wanted = True
    while is_wanted and not _has_ended(server):
        ready, _, _ = select.select([0, woken], [], [])
        signals = os.read(woken, 64) if woken in ready else b""
        is_wanted = 0 not in ready and not set(signals) - {signal.SIGCHLD}
    _end(server, woken)
    return 0


def _note(_number: int, _frame: FrameType | None) -> None:
    """Does nothing: the wakeup pipe has the signal's number."""


def _exec(argv: list[str]) -> None:
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    signal.set_wakeup_fd(-1)
    for number in (*_IGNORED_BY_PYTHON, signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(argv[0], argv, os.environ)  # noqa: S606  # the CLI itself, already looked up
    except OSError:
        os._exit(_NOT_STARTED)


def _end(server: int, woken: int) -> None:
    running = _descendants(server)
    signal.signal(signal.SIGALRM, _note)
    signal.setitimer(signal.ITIMER_REAL, _ASK_SECONDS, _ASK_SECONDS)
    asked = 0
    while not _has_ended(server) and asked < _MAX_ASKS:
        # Codex finishes the current turn after the first SIGTERM, and cleans up in two seconds after the second.
        _send(server, signal.SIGTERM)
        asked += 1
        _wait_for_alarm(server, woken)
    signal.setitimer(signal.ITIMER_REAL, 0)
    # Processes in its group end with it, also when the server has ended by itself.
    _send(server, signal.SIGKILL)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in _still(running):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        for _ in range(_MAX_LOOKS if _still(running) else 0):
            select.select([], [], [], _LOOK_SECONDS)
            if not _still(running):
                break


def _wait_for_alarm(server: int, woken: int) -> None:
    """Waits for SIGALRM, or for the server's end."""
    signals = b""
    while signal.SIGALRM not in signals and not _has_ended(server):
        select.select([woken], [], [])
        signals = os.read(woken, 64)


def _descendants(server: int) -> dict[int, str]:
    """Returns the server's descendants, each with the time of its start: process ids are reused."""
    found: dict[int, str] = {}
    waiting = [server]
    while waiting:
        pid = waiting.pop()
        new = [child for child in _children(pid) if child not in found]
        found.update((child, _started(child)) for child in new)
        waiting += new
    return found


def _children(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208  # pathlib is slow to load
        lists = [_read(f"/proc/{pid}/task/{thread}/children") for thread in threads]
    except OSError:
        # The process has ended, or this is not Linux.
        return []
    return [int(child) for line in lists for child in line.split()]


def _still(running: dict[int, str]) -> list[int]:
    return [pid for pid, started in running.items() if started and _started(pid) == started]


def _started(pid: int) -> str:
    """Returns when a process was started, in the system's count; empty if it has ended."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[_START_FIELD] if len(fields) > _START_FIELD and fields[0] not in _ENDED else ""


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:  # noqa: PTH123  # pathlib is slow to load
            return file.read()
    except OSError:
        return ""


def _has_ended(server: int) -> bool:
    try:
        return os.waitpid(server, os.WNOHANG)[0] == server
    except ChildProcessError:
        # It was reaped before.
        return True


def _send(server: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
