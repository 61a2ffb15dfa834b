"""The listening sockets of a host: a TCP port on loopback, bound atomically, and a Unix socket that is private."""

from __future__ import annotations

import errno
import os
import select
import socket
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from synapse.config.private_files import make_folders
from synapse.core.errors import InvalidSettings, PortTaken

LOOPBACK: Final = "127.0.0.1"
OVERFLOW_PORTS: Final = range(8200, 65536)
"""The ports of agents whose own range is full."""
SOCKET_FOLDER: Final = Path("/tmp/synapse-a2a")  # noqa: S108 - the contract's folder; its owner is checked
BACKLOG: Final = 512
# sun_path, with the zero byte at its end.
LONGEST_SOCKET_PATH: Final = 107 if sys.platform == "linux" else 103


def bind_port(port: int, host: str = LOOPBACK) -> socket.socket:
    """Listens on exactly this port.

    Raises:
        PortTaken: another program listens there.
        InvalidSettings: this port cannot be used.
    """
    if not 0 <= port <= 65535:
        raise InvalidSettings(f"{port} is not a port", hint="choose one from 1024 to 65535")
    listener = _try_port(port, host)
    if listener is None:
        raise PortTaken(f"port {port} is taken by another program", hint="omit `--port` to get a free one")
    return listener


def bind_first_free(ports: Iterable[int], host: str = LOOPBACK) -> socket.socket:
    """Listens on the first of `ports` that is free, else on a free one from 8200 up.

    Raises:
        PortTaken: all of them are taken.
    """
    for candidates in (ports, OVERFLOW_PORTS):
        for port in candidates:
            listener = _try_port(port, host)
            if listener is not None:
                return listener
    raise PortTaken("no port is free, from the agent's own range to 65535", hint="`synapse list` shows who is here")


def socket_folders(runtime_folder: str, *, uid: int, preferred: Path = SOCKET_FOLDER) -> tuple[Path, ...]:
    """Returns the folders for the sockets of a user who has not chosen one, in the order of preference.

    `runtime_folder` is XDG_RUNTIME_DIR; by the XDG specification a relative path is ignored.
    """
    private = [Path(runtime_folder) / preferred.name] if runtime_folder.startswith("/") else []
    return (preferred, *private, preferred.with_name(f"{preferred.name}-{uid}"))


def fault_of(folder: Path, name: str, *, uid: int) -> str:
    """Says why a socket called `name` cannot be in `folder`, or returns an empty string. Changes nothing.

    Follows no links: another user could have put one into the temporary folder.
    """
    length = len(os.fsencode(folder / name))
    if length > LONGEST_SOCKET_PATH:
        return f"its path is too long for a socket ({length} bytes of {LONGEST_SOCKET_PATH})"
    try:
        above = folder.parent.stat()
        if above.st_uid not in (0, uid) or (above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX):
            return f"others could replace it in {folder.parent}"
        return _fault_in(folder.lstat(), uid)
    except FileNotFoundError:
        return "" if os.access(folder.parent, os.W_OK | os.X_OK) else f"it cannot be created in {folder.parent}"
    except OSError as error:
        return f"{error.strerror}"


def _fault_in(there: os.stat_result, uid: int) -> str:
    if there.st_uid != uid:
        return f"another user owns it (uid {there.st_uid})"
    if stat.S_ISLNK(there.st_mode):
        return "it is a link"
    return "" if stat.S_ISDIR(there.st_mode) else "it is not a folder"


def listen_in_first(folders: Iterable[Path], name: str, *, uid: int) -> UnixListener:
    """Listens at `name` in the first of these folders that can hold our socket.

    Raises:
        PortTaken: a running program of this user listens there.
        InvalidSettings: no folder can hold it; the error gives the reason for each.
    """
    faults: list[str] = []
    for folder in folders:
        fault = fault_of(folder, name, uid=uid)
        if not fault:
            try:
                _make_ours(folder, uid)
                return UnixListener(folder / name)
            except OSError as error:
                fault = f"{error.strerror}"
            except InvalidSettings as error:
                fault = str(error)
        faults.append(f"{folder}: {fault}")
    raise InvalidSettings(
        f"no folder can hold the agent's socket: {'; '.join(faults)}",
        hint="set SYNAPSE_UDS_DIR to a folder of your own",
    )


def listen_in(folder: Path, name: str, *, uid: int) -> UnixListener:
    """Listens at `name` in the folder that the user has chosen, without changing the folder's mode.

    Raises:
        PortTaken: a running program listens there.
        InvalidSettings: another user owns the folder, others can write into it, or it cannot be created.
    """
    try:
        make_folders(folder)
    except OSError as error:
        raise InvalidSettings(
            f"{folder} cannot be a folder for sockets: {error.strerror}", hint="set SYNAPSE_UDS_DIR to another folder"
        ) from error
    _require_ours(folder, uid)
    return UnixListener(folder / name)


class UnixListener:
    """A Unix socket that listens at `path`, with mode 0600, until it is closed."""

    def __init__(self, path: Path) -> None:
        """Listens at `path`; replaces a socket that a dead host left there.

        Raises:
            PortTaken: a running program listens there.
            InvalidSettings: the path is too long, or cannot be written.
        """
        length = len(os.fsencode(path))
        if length > LONGEST_SOCKET_PATH:
            raise InvalidSettings(
                f"the socket path {path} is {length} bytes long; the system allows {LONGEST_SOCKET_PATH}",
                hint="set SYNAPSE_UDS_DIR to a shorter folder",
            )
        if _is_in_use(path):
            raise PortTaken(f"another program listens at {path}", hint="`synapse list` shows who is here")
        self.path = path
        self._is_withdrawn = False
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._inode = _listen_at(self.socket, path)
        except OSError as error:
            self.socket.close()
            raise InvalidSettings(
                f"no socket can be made at {path}: {error.strerror}", hint="set SYNAPSE_UDS_DIR to another folder"
            ) from error

    def is_missing(self) -> bool:
        """Whether the socket's file was removed, so that no process can connect."""
        try:
            self.path.lstat()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return False

    def renew(self) -> socket.socket:
        """Listens at its path again, on a new socket; the server keeps the old one.

        Raises OSError, or InvalidSettings when the folder was removed too and another user has created it.
        """
        folder = self.path.parent
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        if folder.lstat().st_uid != os.getuid():
            raise PermissionError(errno.EPERM, f"another user owns {folder}")
        _require_ours(folder, os.getuid())
        renewed = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._inode = _listen_at(renewed, self.path)
        except OSError:
            renewed.close()
            raise
        self.socket = renewed
        return renewed

    def withdraw(self) -> None:
        """Removes the socket's file, so that nobody else can connect; who has connected before is still accepted.

        Another socket may then be made at the path, and `close` leaves it alone.
        """
        self._remove()
        self._is_withdrawn = True

    def has_waiting(self) -> bool:
        """Whether somebody has connected who is not accepted yet."""
        poll = select.poll()  # select() refuses the descriptors of a process that has many
        poll.register(self.socket, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Stops listening and removes the socket's file, unless another host has replaced it."""
        self.socket.close()
        if not self._is_withdrawn:
            self._remove()

    def _remove(self) -> None:
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
        # With SO_REUSEADDR two processes may bind; only one of them can listen.
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise InvalidSettings(
            f"port {port} cannot be used: {error.strerror}", hint="choose one from 1024 to 65535"
        ) from error
    return listener


def _make_ours(folder: Path, uid: int) -> None:
    """Creates the folder if it is missing, and makes it private. Raises OSError when another user owns it."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    # By a descriptor: checks and changes one folder, even if another process puts a link in its place.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != uid:
            raise PermissionError(errno.EPERM, "another user owns it")
        if stat.S_IMODE(status.st_mode) != 0o700:
            os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)


def _require_ours(folder: Path, uid: int) -> None:
    status = folder.stat()
    if status.st_uid != uid:
        raise InvalidSettings(f"{folder} belongs to another user", hint="set SYNAPSE_UDS_DIR to a folder of your own")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InvalidSettings(
            f"others can write into {folder}", hint="set SYNAPSE_UDS_DIR to a private folder, with mode 700"
        )


def _is_in_use(path: Path) -> bool:
    try:
        # A folder that was open to others may hold another user's socket, which is replaced.
        if path.lstat().st_uid != os.getuid():
            return False
    except OSError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.2)
        try:
            probe.connect(str(path))
        except TimeoutError:
            return True  # its queue of connections is full
        except PermissionError:
            return path.exists()  # a sandbox forbids to connect: the socket of a running host must not be replaced
        except OSError:
            return False
    return True


def _listen_at(listener: socket.socket, path: Path) -> int:
    """Binds a temporary name, makes it private, listens, and only then renames it to `path`. Returns the inode."""
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
