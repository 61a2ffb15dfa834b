"""Creates folders and files that only their user can read, whatever the umask and whichever process was first."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def make_folders(folder: Path) -> None:
    """Creates `folder` and its missing parents, open to this user only; leaves existing folders unchanged.

    `mkdir(parents=True)` would apply the mode to the last folder only, and the umask to the others.

    Raises OSError.
    """
    for one in reversed((folder, *folder.parents)):
        one.mkdir(mode=0o700, exist_ok=True)


def make_private(folder: Path) -> None:
    """Creates a folder as `make_folders` does, and closes an existing one of this user to others.

    Raises OSError.
    """
    make_folders(folder)
    status = folder.stat()
    if status.st_uid == os.geteuid() and status.st_mode & _OTHERS:
        folder.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)


def write_private(path: Path, text: str) -> None:
    """Writes a file that only this user may read; closes an existing one to others. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, 0o600)
        file.write(text)
