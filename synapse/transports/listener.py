"""Where a host listens: one TCP port on loopback, taken atomically, and one Unix socket that nobody else can open."""

from __future__ import annotations

import errno
import os
import socket
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from synapse.core.errors import InvalidSettings, PortTaken

LOOPBACK: Final = "127.0.0.1"
OVERFLOW_PORTS: Final = range(8200, 65536)
"""Where agents go when their own range is full."""
SOCKET_FOLDER: Final = Path("/tmp/synapse-a2a")  # noqa: S108 - the contract's folder; it is checked to be ours
BACKLOG: Final = 512
# sun_path, with the zero byte at its end.
LONGEST_SOCKET_PATH: Final = 107 if sys.platform == "linux" else 103


def bind_port(port: int, host: str = LOOPBACK) -> socket.socket:
    """Listen on exactly this port.

    Raises:
        PortTaken: another program does.
        InvalidSettings: this port cannot be had.
    """
    if not 0 <= port <= 65535:
        raise InvalidSettings(f"{port} is not a port", hint="choose one from 1024 to 65535")
    listener = _try_port(port, host)
    if listener is None:
        raise PortTaken(f"port {port} is taken by another program", hint="leave `--port` out to get a free one")
    return listener


def bind_first_free(ports: Iterable[int], host: str = LOOPBACK) -> socket.socket:
    """Listen on the first of `ports` that is free, or else on a free one from 8200 up.

    Raises:
        PortTaken: all of them are taken.
    """
    for candidates in (ports, OVERFLOW_PORTS):
        for port in candidates:
            listener = _try_port(port, host)
            if listener is not None:
                return listener
    raise PortTaken("no port is free, from the agent's own range to 65535", hint="`synapse list` shows who is here")


def socket_folder(wished: Path | None, *, uid: int, preferred: Path = SOCKET_FOLDER) -> Path:
    """Return the folder for sockets, made if needed: the wished one, or the usual one, or a second one of our own.

    Raises:
        InvalidSettings: it belongs to somebody else, or others can write into it.
    """
    if wished is not None:
        # A person's folder is taken as it is or not at all; its permissions are theirs.
        _make_private(wished)
        _require_ours(wished, uid)
        return wished
    own = preferred.with_name(f"{preferred.name}-{uid}")
    for folder in (preferred, own):
        _make_private(folder)
        if _is_ours(folder, uid):
            folder.chmod(0o700)
            return folder
    raise InvalidSettings(f"{own} belongs to another user", hint="set SYNAPSE_UDS_DIR to a folder of your own")


class UnixListener:
    """A Unix socket that listens at `path`, with mode 0600, until it is closed."""

    def __init__(self, path: Path) -> None:
        """Listen at `path`; a socket that a dead host left there is replaced.

        Raises:
            PortTaken: a living program listens there.
            InvalidSettings: the path is too long, or cannot be written.
        """
        length = len(os.fsencode(path))
        if length > LONGEST_SOCKET_PATH:
            raise InvalidSettings(
                f"the socket path {path} is {length} bytes long; the system takes {LONGEST_SOCKET_PATH}",
                hint="set SYNAPSE_UDS_DIR to a shorter folder",
            )
        if _somebody_listens(path):
            raise PortTaken(f"another program listens at {path}", hint="`synapse list` shows who is here")
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._inode = _listen_at(self.socket, path)
        except OSError as error:
            self.socket.close()
            raise InvalidSettings(
                f"no socket can be made at {path}: {error.strerror}", hint="set SYNAPSE_UDS_DIR to another folder"
            ) from error

    def close(self) -> None:
        """Stop listening and remove the socket's file, unless another host has put its own there."""
        self.socket.close()
        try:
            if self.path.lstat().st_ino == self._inode:
                self.path.unlink()
        except FileNotFoundError:
            return


def _try_port(port: int, host: str) -> socket.socket | None:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        # With SO_REUSEADDR two may bind; only one of them may listen.
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise InvalidSettings(
            f"port {port} cannot be used: {error.strerror}", hint="choose one from 1024 to 65535"
        ) from error
    return listener


def _make_private(folder: Path) -> None:
    try:
        # Each by itself: with `parents=True` the umask would decide who may write above it.
        for one in reversed((folder, *folder.parents)):
            one.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise InvalidSettings(
            f"{folder} cannot be a folder for sockets: {error.strerror}", hint="set SYNAPSE_UDS_DIR to another folder"
        ) from error


def _is_ours(folder: Path, uid: int) -> bool:
    # Not followed if it is a link: another user could have put one there.
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == uid


def _require_ours(folder: Path, uid: int) -> None:
    status = folder.stat()
    if status.st_uid != uid:
        raise InvalidSettings(f"{folder} belongs to another user", hint="set SYNAPSE_UDS_DIR to a folder of your own")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InvalidSettings(
            f"others can write into {folder}", hint="set SYNAPSE_UDS_DIR to a folder of its own, with mode 700"
        )


def _somebody_listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.2)
        try:
            probe.connect(str(path))
        except TimeoutError:
            return True  # its queue of connections is full
        except PermissionError:
            return path.exists()  # a sandbox forbids to look: what may be a living host's is not replaced
        except OSError:
            return False
    return True


def _listen_at(listener: socket.socket, path: Path) -> int:
    """Bind under a name of our own, close it to others, listen, and only then take the real name in one step."""
    draft = path.with_name(f".{os.getpid():x}.{listener.fileno():x}")
    draft.unlink(missing_ok=True)
    listener.bind(str(draft))
    try:
        draft.chmod(0o600)
        listener.listen(BACKLOG)
        inode = draft.stat().st_ino
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    return inode
