"""Starts a program on a new pseudo-terminal, from any thread of any process.

A thread that waits for a program: tells when it stops itself, and when it has ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import struct
import sys
import termios
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from synapse.core.errors import AgentFailed, CommandMissing
from synapse.drivers.pty.pump import IUTF8
from synapse.terminal.theme import Theme

_LEADER: Final = Path(__file__).with_name("session_leader.py")
_UNCATCHABLE: Final = {signal.SIGKILL, signal.SIGSTOP}
_NOTHING: Final[Mapping[int, int]] = {}

TerminalSettings = list[Any]
"""What `termios.tcgetattr` returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What is to be run, and on what terminal."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    columns: int = 80
    rows: int = 24
    theme: Theme = Theme.DARK
    """What the program is told when it asks for the terminal's colours and no person's terminal answers."""
    install_hint: str = ""
    """What to type when the program is not installed."""
    person_terminal: int | None = None
    """The person's terminal, if one sees the program: its settings are copied, and Ctrl-Z works as in a shell."""
    settings: TerminalSettings | None = None
    """Terminal settings to begin with, as they were before raw mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program that was started. `pid` is its own and its process group; `reaped_pid` is the child to wait for."""

    pid: int
    terminal: int
    """The controlling side of the pseudo-terminal, not blocking."""
    tty: str
    """The path of the program's own side."""
    reaped_pid: int
    report: int | None
    """Where a session leader tells what becomes of the program; None when it is our own child."""


def spawn(launch: Launch) -> Program:
    """Start the program. It leads a session with the new terminal, default signals and no file of ours.

    Raises:
        CommandMissing: there is no such program.
        AgentFailed: it is there but cannot be run.
    """
    path = find_command(launch.command[0], launch.env, launch.install_hint)
    terminal, program_side = os.openpty()
    try:
        set_size(program_side, launch.columns, launch.rows)
        _apply_settings(program_side, launch.settings)
        if launch.person_terminal is None:
            return _spawn_alone(path, launch, terminal, os.ttyname(program_side))
        return _spawn_led(path, launch, terminal, os.ttyname(program_side), launch.person_terminal)
    except BaseException:
        os.close(terminal)
        raise
    finally:
        os.close(program_side)


def find_command(name: str, env: Mapping[str, str], install_hint: str = "") -> str:
    """Return the path of a program.

    Raises:
        CommandMissing: it is not on the PATH of `env`.
    """
    path = locate(name, env.get("PATH"))
    if path is not None:
        return path
    if beside := shutil.which(name, path=env.get("PATH")):
        raise CommandMissing(
            f"'{name}' is found only as {beside}, by an entry of the PATH that means the current folder",
            hint="put the whole path of its folder on the PATH",
        )
    raise CommandMissing(f"'{name}' is not installed, or not on the PATH", hint=install_hint)


def locate(name: str, search_path: str | None = None) -> str | None:
    """Return the path of a program, or None. Relative entries of the PATH do not count: a project decides nothing."""
    entries = (os.environ.get("PATH", os.defpath) if search_path is None else search_path).split(os.pathsep)
    return shutil.which(name, path=os.pathsep.join(entry for entry in entries if entry.startswith(os.sep)))


def set_size(terminal: int, columns: int, rows: int) -> None:
    """Set a terminal's size; the kernel tells its foreground programs."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def drop_unread(tty: str) -> bool:
    """Drop what was typed at a terminal and not read yet; False if it has gone to a program that edits its own line."""
    side = os.open(tty, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        if not termios.tcgetattr(side)[3] & termios.ICANON:
            return False
        termios.tcflush(side, termios.TCIFLUSH)
        return True
    finally:
        os.close(side)


def count_unread(tty: str) -> int:
    """Return how many bytes were typed at a terminal that its program could read and has not read yet."""
    side = os.open(tty, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        return int(struct.unpack("i", fcntl.ioctl(side, termios.FIONREAD, b"\0" * 4))[0])
    finally:
        os.close(side)


def _apply_settings(terminal: int, settings: TerminalSettings | None) -> None:
    if settings is None:
        settings = termios.tcgetattr(terminal)
        # Backspace in a cooked terminal erases a whole character, not its last byte.
        settings[0] |= IUTF8
    termios.tcsetattr(terminal, termios.TCSANOW, settings)


def _spawn_alone(path: str, launch: Launch, terminal: int, name: str) -> Program:
    pid = _posix_spawn(path, launch.command, launch.env, name)
    os.set_blocking(terminal, False)
    return Program(pid=pid, terminal=terminal, tty=name, reaped_pid=pid, report=None)


def _spawn_led(path: str, launch: Launch, terminal: int, name: str, person: int) -> Program:
    report, told = os.pipe()
    try:
        # Numbers that only the child has: there they may take the place of any file of ours.
        given = {told: max(told, person) + 1, person: max(told, person) + 2}
        arguments = (str(given[told]), str(given[person]), path, *launch.command)
        leader = (sys.executable, "-I", "-S", str(_LEADER), *arguments)
        reaped = _posix_spawn(sys.executable, leader, launch.env, name, given)
    except BaseException:
        os.close(report)
        raise
    finally:
        os.close(told)
    try:
        pid = _first_report(report, path)
    except BaseException:
        os.close(report)
        os.waitpid(reaped, 0)
        raise
    os.set_blocking(terminal, False)
    return Program(pid=pid, terminal=terminal, tty=name, reaped_pid=reaped, report=report)


def _first_report(report: int, path: str) -> int:
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(report, 1)):
        line += byte
    word, _, value = line.decode().strip().partition(" ")
    if word == "pid":
        return int(value)
    reason = os.strerror(int(value)) if word == "error" else "its session could not be started"
    raise AgentFailed(f"'{path}' cannot be run: {reason}")


def _posix_spawn(
    path: str, argv: tuple[str, ...], env: Mapping[str, str], tty: str, given: Mapping[int, int] = _NOTHING
) -> int:
    """Start a process that leads a new session on the terminal `tty`; `given` maps files of ours to its numbers.

    fork() in a process with threads may deadlock in the child; posix_spawn runs no code of ours there. A session leader
    without a terminal that opens one gets it as its controlling terminal.
    """
    actions: list[Any] = [(os.POSIX_SPAWN_CLOSE, number) for number in _inherited()]
    # Before 0, 1 and 2 are replaced: a file that is given may be one of them.
    actions += [(os.POSIX_SPAWN_DUP2, ours, theirs) for ours, theirs in given.items()]
    actions += [(os.POSIX_SPAWN_OPEN, 0, tty, os.O_RDWR, 0)]
    actions += [(os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]
    try:
        return os.posix_spawn(
            path,
            argv,
            env,
            file_actions=actions,
            setsid=True,
            setsigmask=(),
            setsigdef=signal.valid_signals() - _UNCATCHABLE,
        )
    except OSError as error:
        raise AgentFailed(f"'{path}' cannot be run: {error.strerror}") from error


def _inherited() -> list[int]:
    """The files beyond 0, 1 and 2 that a child would get; Python's own are closed by the kernel."""
    found: list[int] = []
    for entry in Path("/dev/fd").iterdir():
        number = int(entry.name)
        try:
            if number > 2 and os.get_inheritable(number):
                found.append(number)
        except OSError:
            # The one that listed the folder is closed by now.
            continue
    return found


class ProcessWaiter:
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
