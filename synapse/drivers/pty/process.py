"""Starts a program on a new pseudo-terminal, from any thread, and waits for it: for a stop (Ctrl-Z) and for its end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from synapse.core.errors import AgentFailed, CommandMissing
from synapse.drivers.pty.tty import TerminalSettings, apply_settings, set_size
from synapse.terminal.theme import Theme

_LEADER: Final = Path(__file__).with_name("session_leader.py")
_UNCATCHABLE: Final = {signal.SIGKILL, signal.SIGSTOP}
_NO_FILES: Final[Mapping[int, int]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The program to run and its terminal."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    columns: int = 80
    rows: int = 24
    theme: Theme = Theme.DARK
    """The answer to a program that asks for the terminal's colours when no person's terminal answers."""
    install_hint: str = ""
    """How to install the program, for the error when it is missing."""
    person_terminal: int | None = None
    """The terminal of the person who sees the program, if any: Ctrl-Z then works as in a shell."""
    settings: TerminalSettings | None = None
    """The first settings of the terminal: those of the person's terminal before raw mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program that was started."""

    pid: int
    """Its own process id, and that of its process group."""
    terminal: int
    """The controlling side of the pseudo-terminal, non-blocking."""
    tty: str
    """The path of the program's side of the terminal."""
    reaped_pid: int
    """The child process to wait for: the program or its session leader."""
    report: int | None
    """The pipe on which a session leader reports about the program; None when the program is our own child."""


def spawn(launch: Launch) -> Program:
    """Starts the program in a session of its own, with the new terminal, default signals and none of our files.

    Raises:
        CommandMissing: there is no such program.
        AgentFailed: the program exists but cannot be run.
    """
    path = find_command(launch.command[0], launch.env, launch.install_hint)
    terminal, program_side = os.openpty()
    try:
        set_size(program_side, launch.columns, launch.rows)
        apply_settings(program_side, launch.settings)
        tty = os.ttyname(program_side)
        if launch.person_terminal is not None:
            return _spawn_with_leader(path, launch, terminal, tty, launch.person_terminal)
        pid = _posix_spawn(path, launch.command, launch.env, tty)
        os.set_blocking(terminal, False)
        return Program(pid=pid, terminal=terminal, tty=tty, reaped_pid=pid, report=None)
    except BaseException:
        os.close(terminal)
        raise
    finally:
        os.close(program_side)


def find_command(name: str, env: Mapping[str, str], install_hint: str = "") -> str:
    """Returns the path of a program.

    Raises:
        CommandMissing: the program is not on the PATH of `env`.
    """
    path = locate(name, env.get("PATH"))
    if path is not None:
        return path
    if beside := shutil.which(name, path=env.get("PATH")):
        raise CommandMissing(
            f"'{name}' is found only as {beside}, by an entry of the PATH that means the current folder",
            hint="put the absolute path of its folder on the PATH",
        )
    raise CommandMissing(f"'{name}' is not installed, or not on the PATH", hint=install_hint)


def locate(name: str, search_path: str | None = None) -> str | None:
    """Returns the path of a program, or None.

    Ignores relative entries of the PATH: a project's folder must not decide which program is run.
    """
    entries = (os.environ.get("PATH", os.defpath) if search_path is None else search_path).split(os.pathsep)
    return shutil.which(name, path=os.pathsep.join(entry for entry in entries if entry.startswith(os.sep)))


def _spawn_with_leader(path: str, launch: Launch, terminal: int, tty: str, person: int) -> Program:
    report, written = os.pipe()
    try:
        # Descriptors in the child alone: there they may replace any file of ours.
        given = {written: max(written, person) + 1, person: max(written, person) + 2}
        arguments = (str(given[written]), str(given[person]), path, *launch.command)
        leader = (sys.executable, "-I", "-S", str(_LEADER), *arguments)
        reaped = _posix_spawn(sys.executable, leader, launch.env, tty, given)
    except BaseException:
        os.close(report)
        raise
    finally:
        os.close(written)
    try:
        pid = _read_pid(report, path)
    except BaseException:
        os.close(report)
        os.waitpid(reaped, 0)
        raise
    os.set_blocking(terminal, False)
    return Program(pid=pid, terminal=terminal, tty=tty, reaped_pid=reaped, report=report)


def _read_pid(report: int, path: str) -> int:
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(report, 1)):
        line += byte
    word, _, value = line.decode().strip().partition(" ")
    if word == "pid":
        return int(value)
    reason = os.strerror(int(value)) if word == "error" else "its session could not be started"
    raise AgentFailed(f"'{path}' cannot be run: {reason}")


def _posix_spawn(
    path: str, argv: tuple[str, ...], env: Mapping[str, str], tty: str, given: Mapping[int, int] = _NO_FILES
) -> int:
    """Starts a process that leads a new session on the terminal `tty`; `given` maps our descriptors to the child's.

    fork() in a process with threads may deadlock in the child; posix_spawn runs no code of ours there. A session leader
    without a terminal that opens one gets it as its controlling terminal.
    """
    actions: list[Any] = [(os.POSIX_SPAWN_CLOSE, number) for number in _inherited()]
    # Before 0, 1 and 2 are replaced: one of them may be a file that is given.
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
    """Returns the descriptors above 2 that a child would inherit; the kernel closes Python's own."""
    found: list[int] = []
    for entry in Path("/dev/fd").iterdir():
        number = int(entry.name)
        try:
            if number > 2 and os.get_inheritable(number):
                found.append(number)
        except OSError:
            # The descriptor that listed the folder is closed by now.
            continue
    return found


class ProcessWaiter:
    """Waits for one program in a thread, which runs the callbacks. `exited` is called once, with a shell's status."""

    def __init__(self, program: Program, *, stopped: Callable[[], None], exited: Callable[[int], None]) -> None:
        self._program = program
        self._stopped = stopped
        self._exited = exited
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="pty-waiter", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def resume(self) -> None:
        """Continues a program that has stopped itself."""
        self.send(signal.SIGCONT)

    def send(self, number: int) -> None:
        """Sends a signal to the program's process group, unless it is gone: its id may be reused by then."""
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
        """Follows the session leader's reports to the exit code; None if the leader was killed before that."""
        for line in report:
            word, _, value = line.strip().partition(" ")
            if word == "stopped":
                self._stopped()
            elif word == "exited":
                return int(value)
        return None


def shell_status(code: int) -> int:
    """Returns the status that a shell would report: for a program ended by a signal, 128 plus the signal's number."""
    return 128 - code if code < 0 else code
