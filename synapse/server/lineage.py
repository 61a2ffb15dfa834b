"""Decides whether a connecting process belongs to an agent or to a person, from its ancestors in /proc.

A process counts as a person's if all of this holds while it is certainly the process that connected:

    it runs, and so do all its ancestors        an exited process leaves nothing to read
    none of them is a registered agent          its host, or its CLI
    none of them has our launch variables       a process that outlives its parents keeps its environment
    none of them has an agent's terminal        a process that strips its environment keeps its terminal

The terminals of tmux, ssh or an editor pass: no agent owns them. A fact that cannot be read counts against the process,
except the environment of ancestors that belong to other users.

A process that strips its environment, leaves its parents and leaves its terminal shows no sign of its agent any more.
Where that matters, a terminal is required that no agent can have opened (`terminal_doubt`).
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from synapse.core.agent import AgentEntry

LONGEST: Final = 64
"""A longer chain of ancestors is not followed, and counts as incomplete."""
TERMINAL_DEMANDED: Final = ("SYNAPSE_PERSON_PROOF", "terminal")
"""Also in the environment of an agent's CLI if its host accepts decisions only from a person's terminal."""
LAUNCH_VARIABLES: Final = (b"SYNAPSE_AGENT_ID", b"SYNAPSE_SOCKET", b"SYNAPSE_LAUNCHED_BY")
"""In the environment of an agent's CLI, and of a host that an agent started."""
PROC: Final = "/proc"
_TRIES: Final = 3
# <asm-generic/socket.h>, Linux 6.5; Python has no name for it. Only two rare architectures differ.
_SO_PEERPIDFD: Final = 77
_NUMBER: Final = struct.Struct("i")


class Process(NamedTuple):
    """One process as /proc shows it."""

    pid: int
    started: int
    """Ticks since boot."""
    terminal: int = 0
    """The device number of its controlling terminal; 0 when it has none."""
    session: int = 0
    """The pid of its session's leader: at a terminal that is the shell, in most cases."""
    name: bytes = b""


@dataclass(frozen=True, slots=True)
class Lineage:
    """A process and its ancestors, nearest first. `doubt` says why they are incomplete or uncertain."""

    processes: tuple[Process, ...] = ()
    named_agent: str = ""
    """The agent that the launch variables of one of them name."""
    doubt: str = ""
    is_entered: bool = False
    """The last of them has a parent outside of our PID namespace, as with `docker exec`."""
    demands_terminal: bool = False
    """It runs in an agent whose host accepts decisions only from a person's terminal."""


UNKNOWN: Final = Lineage(doubt="this system does not tell which process connects")


class Standing(NamedTuple):
    """What a lineage proves: an agent, or a person if `agent_id` and `doubt` are empty."""

    agent_id: str
    doubt: str


def standing_of(lineage: Lineage, entries: Iterable[AgentEntry]) -> Standing:
    """Decides whose process it is. `entries` are the registered agents."""
    agents = tuple(entries)
    if agent_id := agent_of(lineage.processes, agents):
        return Standing(agent_id, "")
    if lineage.named_agent:
        return Standing("", f"its environment is that of the agent {lineage.named_agent}")
    terminals = {entry.terminal: entry.agent_id for entry in agents if entry.terminal}
    for process in lineage.processes:
        if process.terminal in terminals:
            return Standing("", f"its terminal is that of the agent {terminals[process.terminal]}")
    return Standing("", lineage.doubt)


def terminal_doubt(lineage: Lineage, entries: Iterable[AgentEntry], proc: str = PROC) -> str:
    """Says why an agent could have opened the terminal of a process; empty if only a person can have.

    The program that opened it is above the session's leader: a terminal emulator, tmux, sshd. A process that an agent
    started is younger than the agent. Init, or systemd in its place, is above orphaned processes.
    """
    if not lineage.processes or not lineage.processes[0].terminal:
        return "it has no terminal"
    agents = [entry for entry in entries if entry.pid_started and not entry.gateway]
    oldest = min(agents, key=lambda entry: entry.pid_started, default=None)
    if oldest is None or lineage.is_entered:
        return ""
    leader = lineage.processes[0].session
    above = False
    for process in lineage.processes:
        above = above or process.pid == leader
        if not above or (process.pid != leader and (process.pid == 1 or process.name == _REAPER)):
            continue
        if process.started < oldest.pid_started or _is_another_users(process, proc):
            return ""
    return f"its terminal was opened by a program that is younger than the agent {oldest.agent_id}"


def agent_of(processes: Iterable[Process], entries: Iterable[AgentEntry]) -> str:
    """Returns the agent whose host or CLI is the nearest of these processes, or an empty string."""
    hosts: dict[int, AgentEntry] = {}
    clis: dict[int, AgentEntry] = {}
    for entry in entries:
        if entry.gateway:
            continue  # a gateway asks for others, and is none of the agents that live in it
        hosts[entry.pid] = entry
        if entry.cli_pid:
            clis[entry.cli_pid] = entry
    for process in processes:
        if process.pid in clis:
            return clis[process.pid].agent_id
        # A pid that was given to another process since has another start time.
        if process.pid in hosts and hosts[process.pid].pid_started in (0, process.started):
            return hosts[process.pid].agent_id
    return ""


def peer_process(connection: socket.socket, pid: int) -> Callable[[], Lineage]:
    """Opens a pidfd of the process that connected; returns a function that reads its lineage, once, in any thread.

    `pid` comes from SO_PEERCRED. From now on no other process can be mistaken for it.
    """
    if pid <= 0:
        return partial(Lineage, doubt="it runs in another PID namespace")
    try:
        process = _peer_pidfd(connection, pid)
    except OSError:
        return partial(Lineage, doubt=_EXITED)
    return partial(_read_twice, pid) if process is None else partial(_read_certain, pid, process)


def own_lineage() -> Lineage:
    """Returns the lineage of this process."""
    if sys.platform != "linux":
        named = next((value for name in LAUNCH_VARIABLES if (value := os.environ.get(name.decode()))), "")
        return Lineage(named_agent=named)
    return read_lineage(os.getpid())


def read_lineage(pid: int, proc: str = PROC) -> Lineage:
    """Reads a process and its ancestors; reads again if they change meanwhile, and in the end doubts them."""
    lineage = _read(pid, proc)
    for _ in range(_TRIES - 1):
        if not lineage.doubt:
            break
        lineage = _read(pid, proc)
    return lineage


_EXITED: Final = "the process that connected has exited"
_TERMINAL_DEMANDED: Final = "=".join(TERMINAL_DEMANDED).encode()
_REAPER: Final = b"systemd"


def _peer_pidfd(connection: socket.socket, pid: int) -> int | None:
    """Returns a pidfd of the process that connected, or None if the kernel has none. Raises OSError if it exited."""
    try:
        (process,) = _NUMBER.unpack(connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, _NUMBER.size))
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:
            raise
    else:
        return int(process)
    # A kernel before 6.5. The pid can only be another process's if all pids were used up since it connected.
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):
            return None  # one before 5.3, or a sandbox that does not know the call
        raise


def _read_certain(pid: int, process: int) -> Lineage:
    """Reads the lineage of the pidfd's process and closes the pidfd: a pid is not reused while its process runs."""
    try:
        lineage = read_lineage(pid)
        poll = select.poll()
        poll.register(process, select.POLLIN)
        return Lineage(doubt=_EXITED) if poll.poll(0) else lineage
    finally:
        os.close(process)


def _read_twice(pid: int) -> Lineage:
    """Reads the lineage without a pidfd; start times show whether the pid was reused meanwhile."""
    lineage = read_lineage(pid)
    try:
        now, _ = _stat(pid, PROC)
    except OSError:
        return Lineage(doubt=_EXITED)
    return lineage if lineage.processes[:1] == (now,) else Lineage(doubt=_EXITED)


def _read(pid: int, proc: str) -> Lineage:
    processes: list[Process] = []
    named = doubt = ""
    demanded = False
    at = pid
    while not doubt:
        try:
            process, parent = _stat(at, proc, may_have_exited=bool(processes))
        except OSError as error:
            # Init has no parent; where it is hidden from us, so are the processes of all other users.
            doubt = "" if at == 1 and processes else f"process {at} above it cannot be read: {error.strerror}"
            break
        if processes and process.started > processes[-1].started:
            doubt = f"process {at} above it is another one by now"
            break
        processes.append(process)
        try:
            environment = _content(f"{proc}/{at}/environ")
            named = named or _agent_in(environment)
            demanded = demanded or _TERMINAL_DEMANDED in environment.split(b"\0")
        except OSError as error:
            doubt = f"its environment cannot be read: {error.strerror}" if at == pid else ""
        if parent <= 0:
            return Lineage(tuple(processes), named, doubt, is_entered=at != 1, demands_terminal=demanded)
        if len(processes) == LONGEST:
            doubt = f"it has more than {LONGEST} ancestors"
        at = parent
    return Lineage(tuple(processes), named, doubt, demands_terminal=demanded)


def _stat(pid: int, proc: str, *, may_have_exited: bool = False) -> tuple[Process, int]:
    """Returns the process and its parent's pid. Raises OSError when it is gone, or hidden.

    A parent whose first thread has ended looks as if it had exited, and is still the parent until the last thread ends.
    """
    stat = _content(f"{proc}/{pid}/stat")
    # The command's name is in parentheses and may hold any character, so count from the last one.
    end = stat.rindex(b")")
    fields = stat[end + 2 :].split()
    if fields[0] in (b"Z", b"X") and not may_have_exited:
        raise ProcessLookupError(errno.ESRCH, "it has exited")
    name = stat[stat.index(b"(") + 1 : end]
    process = Process(pid, int(fields[19]), terminal=int(fields[4]), session=int(fields[3]), name=name)
    return process, int(fields[1])


def _is_another_users(process: Process, proc: str) -> bool:
    """Whether another user runs it. Only a login puts another user's process above one's own."""
    try:
        status = _content(f"{proc}/{process.pid}/status")
        if _stat(process.pid, proc)[0] != process:
            return False
    except OSError:
        return False
    # The real uid: a setuid program keeps it.
    real = next((line.split()[1] for line in status.splitlines() if line.startswith(b"Uid:")), b"")
    return real.isdigit() and int(real) != os.getuid()


def _agent_in(environment: bytes) -> str:
    """Returns the agent that the launch variables of an environment name, or an empty string."""
    for name in LAUNCH_VARIABLES:
        at = (b"\0" + environment).find(b"\0" + name + b"=")
        if at < 0:
            continue
        value = environment[at + len(name) + 1 :].partition(b"\0")[0]
        if value:
            return value.decode("utf-8", "replace")
    return ""


def _content(path: str) -> bytes:
    """Reads a file of /proc. Plain system calls: it runs for each ancestor of each connection."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces: list[bytes] = []
        while piece := os.read(file, 1 << 16):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(file)
