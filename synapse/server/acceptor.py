"""Accepts the connections of a TCP port, and refuses those that would leave no room for this user's own.

    own        the kernel says that this user owns the other end, or a request on the connection was admitted
    unproven   another user's or unknown, and not admitted yet: limited in total, and for each source

Every user of the machine can connect to a loopback port, and an idle connection costs an open file. When the process
runs out of open files, its Unix socket, its store and its terminal fail too.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from synapse.server.peer import PEER, Peer, peer_of

log = logging.getLogger(__name__)

SLOT: Final = "slot"
"""The key of the connection's Slot in the scope's `state`."""

_TOGETHER: Final = 64
"""Connections that are accepted before the loop goes on with other work."""
_PAUSE_SECONDS: Final = 0.5
_HANDSHAKE_SECONDS: Final = 15.0
_OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_READ_SIZE: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """How many TCP connections a server may have at once."""

    total: int
    unproven: int
    """Connections without an admitted request so far."""
    unproven_per_source: int
    """Unproven connections of one user of this machine, or of one address elsewhere."""


def limits_within(files: int, *, unproven: int, per_source: int) -> ConnectionLimits:
    """Returns limits for a process that may open `files` files: half of them stay for everything else."""
    total = max(8, files // 2)
    return ConnectionLimits(
        total=total,
        unproven=min(unproven, max(4, total // 2)),
        unproven_per_source=min(per_source, max(2, total // 4)),
    )


class Slot:
    """A slot held by one connection of a port. `release` is idempotent."""

    __slots__ = ("_is_proven", "_is_released", "_slots", "_source")

    def __init__(self, slots: Slots, source: str, *, is_proven: bool) -> None:
        self._slots = slots
        self._source = source
        self._is_proven = is_proven
        self._is_released = False

    def prove(self) -> None:
        """Counts the connection as proven; called with every admitted request."""
        if not self._is_proven and not self._is_released:
            self._is_proven = True
            self._slots.forget_unproven(self._source)

    def release(self) -> None:
        """Frees the slot."""
        if self._is_released:
            return
        if not self._is_proven:
            self._slots.forget_unproven(self._source)
        self._is_released = True
        self._slots.taken -= 1


class Slots:
    """The slots of one port."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._unproven: Counter[str] = Counter()
        self.taken = 0

    def take(self, source: str, *, is_own: bool) -> Slot | None:
        """Returns a slot for one more connection, or None when it must be refused."""
        if self.taken >= self._limits.total:
            return None
        if not is_own:
            if self._unproven.total() >= self._limits.unproven:
                return None
            if self._unproven[source] >= self._limits.unproven_per_source:
                return None
            self._unproven[source] += 1
        self.taken += 1
        return Slot(self, source, is_proven=is_own)

    def forget_unproven(self, source: str) -> None:
        self._unproven[source] -= 1
        if not self._unproven[source]:
            del self._unproven[source]


class Acceptor:
    """Accepts the connections of one listening TCP socket, from `start` to `close`."""

    def __init__(
        self,
        listener: socket.socket,
        new_protocol: Callable[[dict[str, Any]], asyncio.Protocol],
        limits: ConnectionLimits,
        *,
        refusal: bytes,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`new_protocol` creates the protocol of a connection, given the state that its requests share."""
        self._listener = listener
        self._new_protocol = new_protocol
        self._slots = Slots(limits)
        self._refusal = b"" if tls else refusal
        self._tls = tls
        self._uid = os.getuid()
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[None]] = set()
        self._resuming: asyncio.TimerHandle | None = None
        self._is_full = False

    def start(self) -> None:
        """Starts to accept connections."""
        self._listener.setblocking(False)
        self._loop.add_reader(self._listener, self._accept)

    def close(self) -> None:
        """Stops accepting; accepted connections stay."""
        if self._resuming is not None:
            self._resuming.cancel()
        else:
            self._loop.remove_reader(self._listener)
        for task in self._opening:
            task.cancel()

    def _accept(self) -> None:
        for _ in range(_TOGETHER):
            try:
                connection, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_RESOURCES:
                    raise
                # The listener stays readable, so trying again at once would be a busy loop.
                log.warning("out_of_open_files", extra={"error": str(error)})
                self._loop.remove_reader(self._listener)
                self._resuming = self._loop.call_later(_PAUSE_SECONDS, self._resume)
                return
            self._admit(connection, str(address[0]))

    def _resume(self) -> None:
        self._resuming = None
        self._loop.add_reader(self._listener, self._accept)

    def _admit(self, connection: socket.socket, address: str) -> None:
        connection.setblocking(False)
        peer = peer_of(connection)
        slot = self._slots.take(_source(peer, address), is_own=peer.uid == self._uid)
        if slot is None:
            self._refuse(connection, peer, address)
            return
        self._is_full = False
        opening = self._loop.create_task(self._open(connection, peer, slot))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)

    async def _open(self, connection: socket.socket, peer: Peer, slot: Slot) -> None:
        protocol = self._new_protocol({PEER: peer, SLOT: slot})
        timeout = _HANDSHAKE_SECONDS if self._tls else None
        try:
            await self._loop.connect_accepted_socket(
                lambda: protocol, connection, ssl=self._tls, ssl_handshake_timeout=timeout
            )
        except OSError:
            # The peer left, or does not speak TLS. (ssl.SSLError and TimeoutError are OSErrors.)
            slot.release()
            connection.close()
        except BaseException:
            slot.release()
            connection.close()
            raise

    def _refuse(self, connection: socket.socket, peer: Peer, address: str) -> None:
        if not self._is_full:
            # Logged once each time the port becomes full: a flood must not fill the log.
            self._is_full = True
            log.warning("connections_refused", extra={"address": address, "uid": peer.uid})
        try:
            if self._refusal:
                connection.send(self._refusal)
                connection.shutdown(socket.SHUT_WR)
                # Closing with unread bytes would reset the connection, and the peer would lose our answer.
                connection.recv(_READ_SIZE)
        except OSError:
            pass  # the peer has sent nothing, or has left
        finally:
            connection.close()


def _source(peer: Peer, address: str) -> str:
    if peer.uid is not None:
        return f"uid {peer.uid}"
    plain = ipaddress.ip_address(address.partition("%")[0])
    # One household has a /64 of its own, and could use another address each time.
    return str(plain if plain.version == 4 else ipaddress.ip_network((int(plain) >> 64 << 64, 64)))
