"""The registry as a folder of files, one for each agent: `{agent_id}.json`.

`synapse send` imports this file: no pathlib, no json, no typing.
"""

import os

from synapse.core.agent import AgentEntry, entry_from
from synapse.core.json_text import decode_object, encode
from synapse.registries.processes import is_gone, is_running, own_namespace

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

        from synapse.registries.private_folders import make_private

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
