"""Identifies the peer of a connection by what the kernel knows: its user, and its process on a Unix socket.

On a Unix socket SO_PEERCRED gives uid and pid. For TCP, the kernel finds the peer's own socket by the connection's two
addresses. Only a socket that is ESTABLISHED and has a real inode counts: one that was closed after sending shows uid 0
and inode 0.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import struct
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from synapse.core.caller import Caller
from synapse.server.lineage import UNKNOWN, Lineage, peer_process

SocketAddress = tuple[str, int]
T = TypeVar("T")

PEER: Final = "peer"
"""The key of the connection's Peer in the scope's `state`."""
# Its own pool: the loop's default threads may wait for seconds, such as for a host that does not answer.
_READERS: Final = ThreadPoolExecutor(2, "peers")

_ESTABLISHED: Final = 1
_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_REQUEST: Final = 1
_ANY_COOKIE: Final = 0xFFFFFFFF
_HEADER: Final = struct.Struct("=IHHII")
_QUESTION: Final = struct.Struct("=BBBBI")
_PORTS: Final = struct.Struct("!HH")
_INTERFACE: Final = struct.Struct("=III")
# Of the answer: family, state, …; the addresses (48 bytes); expires, rqueue, wqueue, uid, inode.
_ANSWER: Final = struct.Struct("=BBBB48sIIIII")


def owner_of(theirs: SocketAddress, ours: SocketAddress, proc: Path = Path("/proc")) -> int | None:
    """Returns the uid that owns the socket bound to `theirs` and connected to `ours`, or None when not certain."""
    if sys.platform != "linux":
        return None
    try:
        return ask_kernel(theirs, ours)
    except OSError:
        # Some kernels lack sock_diag, and a sandbox may forbid it. Reading the table is a hundred times slower
        # (3.4 ms: the kernel walks all its hash buckets), but it is always there.
        return read_table(theirs, ours, proc)


def ask_kernel(theirs: SocketAddress, ours: SocketAddress) -> int | None:
    """Asks by netlink (sock_diag). Raises OSError where it does not exist, or the kernel finds no such socket."""
    addresses = (
        _PORTS.pack(theirs[1], ours[1])
        + socket.inet_aton(theirs[0]).ljust(16, b"\0")
        + socket.inet_aton(ours[0]).ljust(16, b"\0")
        + _INTERFACE.pack(0, _ANY_COOKIE, _ANY_COOKIE)
    )
    question = _QUESTION.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + addresses
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as netlink:
        netlink.settimeout(0.2)
        netlink.send(_HEADER.pack(_HEADER.size + len(question), _BY_FAMILY, _REQUEST, 1, 0) + question)
        answer = netlink.recv(4096)
    if len(answer) < _HEADER.size + _ANSWER.size or _HEADER.unpack_from(answer)[1] != _BY_FAMILY:
        raise OSError("the kernel does not know that socket")
    _, state, _, _, _, _, _, _, uid, inode = _ANSWER.unpack_from(answer, _HEADER.size)
    return int(uid) if state == _ESTABLISHED and inode else None


def read_table(theirs: SocketAddress, ours: SocketAddress, proc: Path = Path("/proc")) -> int | None:
    """Searches /proc/net/tcp, and tcp6, which has the row of a program that uses an IPv6 socket for IPv4."""
    for name, spell in (("tcp", _hexadecimal), ("tcp6", _hexadecimal_mapped)):
        row = re.compile(
            rf"^ *\d+: {spell(theirs)} {spell(ours)} ([0-9A-F]{{2}}) \S+ \S+ \S+ +(\d+) +\d+ +(\d+) ", re.MULTILINE
        )
        try:
            table = (proc / "net" / name).read_text(encoding="ascii")
        except OSError:
            continue
        if found := row.search(table):
            state, uid, inode = int(found[1], 16), int(found[2]), int(found[3])
            return uid if state == _ESTABLISHED and inode else None
    return None


def _hexadecimal(address: SocketAddress) -> str:
    # The kernel prints the address as a number in the machine's own byte order.
    (number,) = struct.unpack("=I", socket.inet_aton(address[0]))
    return f"{number:08X}:{address[1]:04X}"


def _hexadecimal_mapped(address: SocketAddress) -> str:
    (mark,) = struct.unpack("=I", b"\0\0\xff\xff")
    return f"{0:016X}{mark:08X}{_hexadecimal(address)}"


class Peer:
    """The other end of one connection, with what is known about it; lives as long as the connection."""

    __slots__ = ("caller", "lineage", "pid", "uid", "via_socket")

    def __init__(self, *, via_socket: bool, uid: int | None = None, pid: int = 0, lineage: Lineage = UNKNOWN) -> None:
        self.via_socket = via_socket
        self.uid = uid
        self.pid = pid
        self.lineage = lineage
        self.caller: Caller | None = None


UNKNOWN_PEER: Final = Peer(via_socket=False)
"""The peer of a request that came without one."""


def peer_of(connection: socket.socket) -> Peer:
    """Returns what the kernel knows of the other end of a new connection."""
    if connection.family != socket.AF_UNIX:
        return Peer(via_socket=False, uid=_tcp_owner(connection))
    if sys.platform != "linux":
        return Peer(via_socket=True)
    size = struct.calcsize("3i")
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    if uid != os.getuid():
        return Peer(via_socket=True, uid=uid, pid=pid)
    # At once, in the loop: a command that is killed right after its request has exited a moment later, and its message
    # would be of an unverified sender (decision 0024).
    return Peer(via_socket=True, uid=uid, pid=pid, lineage=peer_process(connection, pid)())


def read_in_thread(read: Callable[[], T]) -> asyncio.Future[T]:
    """Runs `read`, which reads /proc, outside of the event loop."""
    return asyncio.get_running_loop().run_in_executor(_READERS, read)


def _tcp_owner(connection: socket.socket) -> int | None:
    try:
        theirs, ours = connection.getpeername(), connection.getsockname()
    except OSError:
        return None  # the peer has already closed it
    return owner_of(theirs[:2], ours[:2]) if connection.family == socket.AF_INET else None
