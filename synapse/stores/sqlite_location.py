"""Where a store may lie: on a local disk, in a private folder."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import quote

from synapse.core.errors import StoreUnsafe

# SQLite's WAL keeps an index in memory that all processes share, and locks that a network file system does not keep.
# Sources: sqlite.org/wal.html ("does not work over a network filesystem"), sqlite.org/howtocorrupt.html §2.
_NETWORK: Final = re.compile(
    r"9p|afs|beegfs|ceph|cifs|coda|davfs|drvfs|glusterfs|gpfs|lustre|ncpfs|nfs4?|orangefs|pvfs2|smb3|smbfs|vboxsf"
    r"|fuse\.(ceph-fuse|davfs2?|gcsfuse|glusterfs|goofys|hdfs|nfs|rclone|s3fs|smbnetfs|sshfs)"
)
_MOUNTS: Final = Path("/proc/self/mountinfo")
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


def prepare_location(path: Path) -> None:
    """Make the folder and an empty file for a store, readable by its user only.

    Raises:
        StoreUnsafe: the folder lies on a network file system.
        OSError: it cannot be made.
    """
    refuse_network(path.parent, _MOUNTS.read_text(encoding="utf-8", errors="replace") if _MOUNTS.exists() else "")
    # Each by itself: with `parents=True` the umask would decide who may write above it.
    for folder in reversed((path.parent, *path.parent.parents)):
        folder.mkdir(mode=0o700, exist_ok=True)
    for file in (path, lock_path(path)):
        # SQLite gives the WAL the mode of the database.
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        if file.stat().st_mode & 0o077:
            file.chmod(0o600)


def lock_path(path: Path) -> Path:
    """The file whose lock is taken before each write; never the database itself, whose locks are SQLite's own."""
    return path.with_name(f"{path.name}.lock")


def uri(path: Path) -> str:
    """The address of a database that is opened only if it is there: SQLite would make an empty one otherwise."""
    return f"file:{quote(str(path))}?mode=rw"


def refuse_network(folder: Path, mounts: str) -> None:
    """Raise StoreUnsafe when `mounts`, in the form of /proc/self/mountinfo, has the folder on a network file system."""
    kind = filesystem_type(folder.resolve(), mounts)
    if _NETWORK.fullmatch(kind):
        raise StoreUnsafe(
            f"{folder} lies on a network file system ({kind}), where SQLite would damage the store",
            hint="set SYNAPSE_HOME to a folder on a local disk",
        )


def filesystem_type(folder: Path, mounts: str) -> str:
    """Return the type of the file system that holds `folder`, or an empty string when it is not known."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        mount, _, source = line.partition(" - ")
        fields = mount.split(" ")
        if len(fields) < 5 or not source:
            continue
        point = Path(_OCTAL.sub(lambda code: chr(int(code[1], 8)), fields[4]))
        # A later mount on the same point hides the earlier one.
        if folder.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), source.split(" ")[0]
    return kind
