"""The registry as a folder of files, one for each agent: `{agent_id}.json`.

`synapse send` imports this file: no pathlib, no json, no typing.

Is a process still the one that was meant? A pid alone may have been given to another process since.

`synapse send` imports this file, so it imports nothing that a bare interpreter has not loaded already.
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
    import socket  # type: ignore[no-redef]  # the same under its public name

SUFFIX = ".json"
BROKEN_SUFFIX = ".broken"


class FileRegistry:
    """Implements `core.registry.Registry`. `notes` tells what was put right while reading."""

    def __init__(self, folder: "str | os.PathLike[str]") -> None:
        self.folder = os.fspath(folder)
        self.notes: list[str] = []

    def entries(self) -> "list[AgentEntry]":
        """The agents whose hosts live, or may live; entries of dead hosts are removed, and broken files moved aside."""
        living: list[AgentEntry] = []
        for entry in self.written():
            if is_alive(entry):
                living.append(entry)
            else:
                self.remove_dead(entry)
        return living

    def written(self) -> "list[AgentEntry]":
        """All entries, those of dead hosts too, by agent id."""
        names = sorted(name for name in self._names() if name.endswith(SUFFIX) and not name.startswith("."))
        return [entry for entry in map(self._read, names) if entry is not None]

    def find(self, agent_id: str) -> "AgentEntry | None":
        """The entry of exactly this agent, whether its host lives or not."""
        return self._read(agent_id + SUFFIX) if _is_file_name(agent_id) else None

    def write(self, entry: AgentEntry) -> None:
        """Make `entry` visible to others, whole or not at all."""
        if not _is_file_name(entry.agent_id):
            raise ValueError(f"{entry.agent_id!r} cannot be an agent id")
        # `synapse send` writes no entry, and pays for none of this.
        from pathlib import Path

        from synapse.config.private_files import make_private

        make_private(Path(self.folder))
        path = self._path(entry.agent_id + SUFFIX)
        draft = self._path(f".{entry.agent_id}.{os.getpid()}")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(encode(entry.as_dict()) + "\n")
        os.replace(draft, path)

    def restore(self, entry: AgentEntry) -> bool:
        """Write `entry` again if its file was lost, and return whether it was. A file of another host stays."""
        if self.find(entry.agent_id) is not None:
            return False
        self.write(entry)
        return True

    def remove(self, agent_id: str) -> None:
        """Forget an agent; it is no error if it is not there."""
        if _is_file_name(agent_id):
            _without_error(os.unlink, self._path(agent_id + SUFFIX))

    def remove_dead(self, entry: AgentEntry) -> None:
        """Forget `entry`, unless a new host has taken its place since it was read."""
        now = self.find(entry.agent_id)
        if now is not None and (now.pid, now.pid_started) == (entry.pid, entry.pid_started):
            self.remove(entry.agent_id)
            forgotten = self.find(entry.agent_id) is None
            removed = "removed" if forgotten else "could not remove"
            self.notes.append(f"{removed} {entry.agent_id}: its host (pid {entry.pid}) is gone")

    def _names(self) -> "list[str]":
        try:
            return os.listdir(self.folder)
        except FileNotFoundError:
            return []

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
            self._move_aside(path)
            return None
        return entry

    def _move_aside(self, path: str) -> None:
        # Writers rename whole files into place, so a broken one is not one that is just being written.
        _without_error(os.replace, path, path + BROKEN_SUFFIX)
        self.notes.append(f"{path} does not describe an agent; moved to {os.path.basename(path)}{BROKEN_SUFFIX}")

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)


def is_alive(entry: AgentEntry) -> bool:
    """Whether the host of `entry` lives, or may live: False only when it is certain that it is gone.

    A container or a sandbox may hide the host's pid from us, so a host whose socket takes a connection lives too. Where
    we may not connect either, nobody can tell.
    """
    if is_running(entry.pid, entry.pid_started):
        return True
    if not is_foreign(entry) and entry.pid_namespace and is_gone(entry.pid, entry.pid_started):
        return False
    return _may_accept(entry)


def is_foreign(entry: AgentEntry) -> bool:
    """Whether the host has pids of its own: it, or this process, runs in a container or a sandbox."""
    return entry.pid_namespace not in (0, own_namespace())


def _may_accept(entry: AgentEntry) -> bool:
    if not entry.socket:
        return False
    try:
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError:
        return True  # no socket can be had here, so nobody can tell
    try:
        probe.settimeout(0.2)
        probe.connect(entry.socket)
    except (PermissionError, TimeoutError):
        return True  # a sandbox forbids it; or its queue of connections is full, and somebody holds the socket
    except FileNotFoundError:
        # A sandbox may have a /tmp of its own. Where the folder is there, the host has taken its socket away.
        return is_foreign(entry) and not os.path.isdir(os.path.dirname(entry.socket))
    except OSError:
        return False
    finally:
        probe.close()
    return True


def _is_file_name(agent_id: str) -> bool:
    return bool(agent_id) and "/" not in agent_id and "\0" not in agent_id and not agent_id.startswith(".")


def _without_error(act: "Any", *paths: str) -> None:
    try:
        act(*paths)
    except OSError:
        return  # another process was first, or the folder is not ours to clean; either way there is nothing to do


GATEWAY = "gateway"
_GATEWAYS_FOLDER = "gateways"


def gateways(home: "str | os.PathLike[str]") -> FileRegistry:
    """Return the registry of this user's running gateways: a folder of its own, because a gateway is no agent."""
    return FileRegistry(os.path.join(home, _GATEWAYS_FOLDER))


UNKNOWN = 0
"""The start time of a process on a system that does not tell it."""


def own_namespace() -> int:
    """The PID namespace of this process; UNKNOWN on a system that has none."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return UNKNOWN


def start_time(pid: int) -> "int | None":
    """When `pid` started, in ticks since boot (field 22 of /proc/PID/stat), or None when no such process runs."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        if os.path.exists("/proc/self/stat"):
            return None
        return UNKNOWN if _takes_signals(pid) else None
    # The command's name stands in parentheses and may hold anything, so count from the last one.
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


_OWN: "dict[int, int]" = {}


def own_start_time() -> int:
    """When this process started, or UNKNOWN. It is read once: no event loop waits for it twice."""
    pid = os.getpid()
    if pid not in _OWN:
        _OWN[pid] = start_time(pid) or UNKNOWN
    return _OWN[pid]


def is_running(pid: int, started: int) -> bool:
    """Whether `pid` runs and is the process that started at `started` (UNKNOWN: any that has the pid)."""
    if pid <= 0:
        return False
    now = start_time(pid)
    return now is not None and (now == started or UNKNOWN in (started, now))


def is_gone(pid: int, started: int) -> bool:
    """Whether it is certain that the process has ended. False where this process may not look.

    It is certain when another process has the pid, or none has it. A pid that takes a signal, or forbids it, but has no
    files in /proc, may be hidden; a zombie is left to others to judge.
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
    """Whether `pid` is the process that started at `started`, and stands still: Ctrl-Z, SIGSTOP.

    One that a debugger holds (`t`) goes on by itself. A system without /proc does not tell.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return False
    fields = stat[stat.rindex(b")") + 2 :].split()
    return fields[0] == b"T" and started in (UNKNOWN, int(fields[19]))


def catches(pid: int, number: int) -> bool:
    """Whether the process has a handler for the signal; False where the system does not tell."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return False
    masks = [line for line in lines if line.startswith(b"SigCgt:")]
    return bool(masks) and bool(int(masks[0].split()[1], 16) >> (number - 1) & 1)


def controlling_terminal(pid: int) -> int:
    """The device number of the process's controlling terminal; 0 when it has none, or the system does not tell."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return 0
    return int(stat[stat.rindex(b")") + 2 :].split()[4])


def _takes_signals(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True
