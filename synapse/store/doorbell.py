"""Wakes processes that follow the event log when another process has appended to it.

    writer: COMMIT ─► reads one byte of the lock file ─inotify─► each listener wakes, and reads the log

A ring only says that the log may have grown. It costs the writer one system call, changes nothing on disk, and needs no
list of listeners: the kernel drops those that have died. A ring is lost if the writer is killed right after its commit,
so listeners also check without one, every QUIET_SECONDS. Without inotify they check every POLL_SECONDS.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ctypes

QUIET_SECONDS: Final = 1.0
"""How long a listener waits for a ring before it checks without one."""
POLL_SECONDS: Final = 0.01
"""How long it waits where there is no inotify."""
_ACCESS: Final = 0x1
_ATTRIBUTES: Final = 0x4
_EVENT: Final = struct.Struct("iIII")
_BUFFER: Final = 4096


def ring(lock_file: int) -> None:
    """Wakes all listeners; `lock_file` is a descriptor of a file that `prepare` has prepared."""
    # The commit counts even if the ring fails.
    with suppress(OSError):
        os.pread(lock_file, 1, 0)


def prepare(lock_file: int) -> None:
    """Writes one byte to an empty lock file: the kernel reports no access for a read of an empty file."""
    if not os.fstat(lock_file).st_size:
        os.pwrite(lock_file, b"\n", 0)


class Listener:
    """Receives the rings of one store. Belongs to the event loop that it was made in, until `close`."""

    def __init__(self, lock_file: Path) -> None:
        self.rings = 0
        """The number of rings; several at once count as one."""
        self._path = os.fsencode(lock_file)
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Future[None]] = set()
        self._descriptor = _open_inotify()
        self._is_watching = self._watch()
        if self._descriptor >= 0:
            self._loop.add_reader(self._descriptor, self._receive)

    @property
    def hears(self) -> bool:
        """Whether rings arrive; if not, `wait` polls."""
        return self._is_watching

    async def wait(self, rings: int, seconds: float) -> None:
        """Returns when the count of rings is not `rings`, when it is time to check anyway, or after `seconds`."""
        if self.rings != rings:
            return
        self._is_watching = self._is_watching or self._watch()
        rung: asyncio.Future[None] = self._loop.create_future()
        self._waiting.add(rung)
        try:
            await asyncio.wait((rung,), timeout=min(seconds, QUIET_SECONDS if self._is_watching else POLL_SECONDS))
        finally:
            self._waiting.discard(rung)

    def close(self) -> None:
        """Stops listening. Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            self._loop.remove_reader(descriptor)
            os.close(descriptor)

    def _watch(self) -> bool:
        if self._descriptor < 0:
            return False
        return int(_libc().inotify_add_watch(self._descriptor, self._path, _ACCESS | _ATTRIBUTES)) >= 0

    def _receive(self) -> None:
        try:
            events = os.read(self._descriptor, _BUFFER)
        except BlockingIOError:
            return
        if _has_more_than_access(events):
            # The file may have been deleted, and created again for a store that was put back.
            self._is_watching = self._watch()
        self.rings += 1
        waiting, self._waiting = self._waiting, set()
        for rung in waiting:
            if not rung.done():
                rung.set_result(None)


def _has_more_than_access(events: bytes) -> bool:
    offset = 0
    while offset < len(events):
        _, mask, _, length = _EVENT.unpack_from(events, offset)
        if mask != _ACCESS:
            return True
        offset += _EVENT.size + length
    return False


def _open_inotify() -> int:
    """Returns a descriptor of inotify, or -1 where there is none."""
    if sys.platform != "linux":
        return -1
    return int(_libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))


def _libc() -> ctypes.CDLL:
    import ctypes  # noqa: PLC0415 - few processes listen

    return ctypes.CDLL(None)
