"""A disk that can be full and have room again: a small file system of its own, or else a real limit for processes."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

_MEGABYTES = 6
_BLOCK = 4096


class SmallDisk(Protocol):
    """Where the home of a house lies."""

    @contextmanager
    def full(self, *processes: int) -> Generator[None]:
        """These processes can write nothing more to the disk until the end of the block."""
        ...


class OwnDisk:
    """A file system in memory; what fills it is a file."""

    def __init__(self, folder: Path) -> None:
        self._ballast = folder / "ballast"

    @contextmanager
    def full(self, *_processes: int) -> Generator[None]:
        with self._ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(_BLOCK))
        try:
            yield
        finally:
            self._ballast.unlink()


class Limited:
    """No file of the processes may grow beyond what the store's log has already."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "store.db-wal"

    @contextmanager
    def full(self, *processes: int) -> Generator[None]:
        before = [resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in processes]
        for pid, (_, hard) in zip(processes, before, strict=True):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (self._log.stat().st_size, hard))
        try:
            yield
        finally:
            for pid, limits in zip(processes, before, strict=True):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


@contextmanager
def small_disk(folder: Path) -> Generator[SmallDisk]:
    """A small disk at `folder`. Who may not mount one gets the limit: SQLite is told another error, and that is all."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if os.geteuid() or not _done("mount", "-t", "tmpfs", "-o", f"size={_MEGABYTES}m,mode=700", "tmpfs", str(folder)):
        yield Limited(folder)
        return
    try:
        yield OwnDisk(folder)
    finally:
        # Whoever still has a file open there must not keep it.
        _done("umount", "--lazy", str(folder))


def _done(*command: str) -> bool:
    with suppress(FileNotFoundError):
        return subprocess.run(command, capture_output=True, check=False, timeout=20).returncode == 0
    return False
