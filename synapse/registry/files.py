"""The registry: a folder with one file for each agent, `{agent_id}.json`, and whether the host in an entry is alive.

A pid alone does not identify a process, because the system reuses pids: an entry has the start time of its host, too.

`synapse send` imports this module, so it imports nothing that a bare interpreter has not loaded already: no pathlib, no
json, no typing.
"""

import os

from synapse.core.agent import AgentEntry, entry_from
from synapse.core.json_text import decode_object, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

try:
    import _socket as socket
except ImportError:
    import socket  # type: ignore[no-redef]  # its public name

SUFFIX = ".json"
BROKEN_SUFFIX = ".broken"
GATEWAY = "gateway"
UNKNOWN = 0
"""The start time of a process on a system that does not tell it."""
_own_start_times: "dict[int, int]" = {}
"""By pid, because a forked process inherits this table."""


class FileRegistry:
    """The entries of one folder, for code that may block. `notes` lists what it repaired while reading."""

    def __init__(self, folder: "str | os.PathLike[str]") -> None:
        self.folder = os.fspath(folder)
        self.notes: list[str] = []

    def entries(self) -> "list[AgentEntry]":
        """Returns the agents whose hosts may be alive; removes entries of dead hosts, and moves broken files aside."""
        alive: list[AgentEntry] = []
        for entry in self.written():
            if is_alive(entry):
                alive.append(entry)
            else:
                self.remove_dead(entry)
        return alive

    def written(self) -> "list[AgentEntry]":
        """Returns all entries by agent id, those of dead hosts included."""
        try:
            found = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        names = sorted(name for name in found if name.endswith(SUFFIX) and not name.startswith("."))
        return [entry for entry in map(self._read, names) if entry is not None]

    def find(self, agent_id: str) -> "AgentEntry | None":
        """Returns the entry with exactly this id, whether its host is alive or not."""
        return self._read(agent_id + SUFFIX) if _is_file_name(agent_id) else None

    def write(self, entry: AgentEntry) -> None:
        """Writes the file of `entry` atomically. Raises OSError, and ValueError for an id that is no file name."""
        if not _is_file_name(entry.agent_id):
            raise ValueError(f"{entry.agent_id!r} cannot be an agent id")
        # `synapse send` writes no entry, so it does not pay for these imports.
        from pathlib import Path

        from synapse.config.private_files import make_private, write_private

        make_private(Path(self.folder))
        path = self._path(entry.agent_id + SUFFIX)
        draft = self._path(f".{entry.agent_id}.{os.getpid()}")
        write_private(Path(draft), encode(entry.as_dict()) + "\n")
        os.replace(draft, path)

    def restore(self, entry: AgentEntry) -> bool:
        """Writes `entry` if its file is missing, and returns whether it was. Never replaces another host's file."""
        if self.find(entry.agent_id) is not None:
            return False
        self.write(entry)
        return True

    def remove(self, agent_id: str) -> None:
        """Removes the entry of an agent, if there is one."""
        if _is_file_name(agent_id):
            _ignore_os_error(os.unlink, self._path(agent_id + SUFFIX))

    def remove_dead(self, entry: AgentEntry) -> None:
        """Removes `entry`, unless a new host has replaced it since it was read."""
        now = self.find(entry.agent_id)
        if now is not None and (now.pid, now.pid_started) == (entry.pid, entry.pid_started):
            self.remove(entry.agent_id)
            outcome = "removed" if self.find(entry.agent_id) is None else "could not remove"
            self.notes.append(f"{outcome} {entry.agent_id}: its host (pid {entry.pid}) is gone")

    def _read(self, name: str) -> "AgentEntry | None":
        path = self._path(name)
        try:
            with open(path, "rb") as file:
                entry = entry_from(decode_object(file.read()))
        except FileNotFoundError:
            return None
        except OSError as error:
            self.notes.append(f"{path} cannot be read: {error.strerror}")
            return None
        except ValueError:
            entry = None
        if entry is None or entry.agent_id + SUFFIX != name:
            # Writers rename whole files into place, so a broken file is not one that is being written.
            _ignore_os_error(os.replace, path, path + BROKEN_SUFFIX)
            self.notes.append(f"{path} does not describe an agent; moved to {os.path.basename(path)}{BROKEN_SUFFIX}")
            return None
        return entry

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)


def gateways(home: "str | os.PathLike[str]") -> FileRegistry:
    """Returns the registry of this user's running gateways. It has its own folder, because a gateway is no agent."""
    return FileRegistry(os.path.join(home, "gateways"))


def links(home: "str | os.PathLike[str]") -> FileRegistry:
    """Returns the registry of this user's link, which has one entry at most, `synapse-link`."""
    return FileRegistry(os.path.join(home, "links"))


def is_alive(entry: AgentEntry) -> bool:
    """Whether the host of `entry` is or may be alive: False only when it is certain that it has ended.

    A container or a sandbox may hide the host's pid from this process, so a host whose socket accepts a connection is
    alive, too. Where this process may not connect either, it cannot tell, and the answer is True.
    """
    if is_running(entry.pid, entry.pid_started):
        return True
    if not is_foreign(entry) and entry.pid_namespace and is_gone(entry.pid, entry.pid_started):
        return False
    return _may_accept_connections(entry)


def is_foreign(entry: AgentEntry) -> bool:
    """Whether the host is in another PID namespace: it, or this process, runs in a container or a sandbox."""
    return entry.pid_namespace not in (0, own_namespace())


def is_running(pid: int, started: int) -> bool:
    """Whether `pid` runs and is the process that started at `started` (UNKNOWN: any that has the pid)."""
    if pid <= 0:
        return False
    now = start_time(pid)
    return now is not None and (now == started or UNKNOWN in (started, now))


def is_gone(pid: int, started: int) -> bool:
    """Whether it is certain that the process has ended: no process has the pid, or another one.

    False for a pid that can be signalled, or must not be, but is missing in /proc, because that may be hidden; and for
    a zombie, which `is_running` judges.
    """
    now = start_time(pid)
    if now is not None:
        return UNKNOWN not in (now, started) and now != started
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def is_stopped(pid: int, started: int) -> bool:
    """Whether `pid` is the process that started at `started`, and is stopped by Ctrl-Z or SIGSTOP.

    False for a process that a debugger holds (`t`), which continues by itself, and on a system without /proc.
    """
    fields = _stat_fields(pid)
    return fields is not None and fields[0] == b"T" and started in (UNKNOWN, int(fields[19]))


def start_time(pid: int) -> "int | None":
    """Returns when `pid` started, in ticks since boot, or None when no such process runs."""
    fields = _stat_fields(pid)
    if fields is not None:
        return None if fields[0] in (b"Z", b"X") else int(fields[19])
    if os.path.exists("/proc/self/stat"):
        return None
    return UNKNOWN if _takes_signals(pid) else None


def own_start_time() -> int:
    """Returns when this process started, or UNKNOWN. Reads it once, so an event loop waits for it at most once."""
    pid = os.getpid()
    if pid not in _own_start_times:
        _own_start_times[pid] = start_time(pid) or UNKNOWN
    return _own_start_times[pid]


def own_namespace() -> int:
    """Returns the PID namespace of this process; UNKNOWN on a system that has none."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return UNKNOWN


def catches(pid: int, number: int) -> bool:
    """Whether the process has a handler for the signal; False on a system without /proc."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return False
    masks = [line for line in lines if line.startswith(b"SigCgt:")]
    return bool(masks) and bool(int(masks[0].split()[1], 16) >> (number - 1) & 1)


def controlling_terminal(pid: int) -> int:
    """Returns the device number of the process's controlling terminal; 0 when it has none, or without /proc."""
    fields = _stat_fields(pid)
    return 0 if fields is None else int(fields[4])


def _may_accept_connections(entry: AgentEntry) -> bool:
    if not entry.socket:
        return False
    try:
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError:
        return True  # this process may not open sockets, so it cannot tell
    try:
        probe.settimeout(0.2)
        probe.connect(entry.socket)
    except (PermissionError, TimeoutError):
        return True  # forbidden by a sandbox; or the backlog is full, so a process holds the socket
    except FileNotFoundError:
        # A sandbox may have its own /tmp. If the folder is there, the host has removed its socket.
        return is_foreign(entry) and not os.path.isdir(os.path.dirname(entry.socket))
    except OSError:
        return False
    finally:
        probe.close()
    return True


def _is_file_name(agent_id: str) -> bool:
    return bool(agent_id) and "/" not in agent_id and "\0" not in agent_id and not agent_id.startswith(".")


def _ignore_os_error(act: "Any", *paths: str) -> None:
    try:
        act(*paths)
    except OSError:
        return  # another process was first, or the folder is not writable: nothing left to do


def _stat_fields(pid: int) -> "list[bytes] | None":
    """Returns the fields of /proc/PID/stat from the third on: [0] is the state, [4] tty_nr, [19] the start time."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return None
    # The second field, the command's name in parentheses, may contain anything, so count from the last parenthesis.
    return stat[stat.rindex(b")") + 2 :].split()


def _takes_signals(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True
