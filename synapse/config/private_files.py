"""Folders and files under the state folder: for their user alone, whatever the umask and whoever made them first."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def make_folders(folder: Path) -> None:
    """Make `folder`, and what is missing above it, each open to this user only; leave what is there as it is.

    `mkdir(parents=True)` would give its mode to the last folder alone, and leave the others to the umask.

    Raises OSError.
    """
    for one in reversed((folder, *folder.parents)):
        one.mkdir(mode=0o700, exist_ok=True)


def make_private(folder: Path) -> None:
    """Make a folder of our own as `make_folders` does; one that is there and open to others is closed to them.

    Raises OSError.
    """
    make_folders(folder)
    status = folder.stat()
    if status.st_uid == os.geteuid() and status.st_mode & _OTHERS:
        folder.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)


def write_private(path: Path, text: str) -> None:
    """Write a file that only this user may read, also one that was open to others before. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, 0o600)
        file.write(text)
