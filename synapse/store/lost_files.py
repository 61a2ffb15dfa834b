"""Detects that the files of an open store were deleted, replaced or moved, and saves what the process still has open.

    at the path        a write                                      what Synapse does
    ─────────────      ────────────────────────────────────────     ──────────────────────────────────────────────────
    our files          is durable                                   acknowledges it
    nothing            goes to files that vanish with the last      refuses it; puts the store back at the end, from
                       process                                      the files that are still open
    other files        is invisible to those who open the path      refuses it; saves the store beside the other files
                                                                    at the end, unless they have everything
    ours, moved        is durable, but at another path              refuses it until the files are moved back
    ours, overwritten  damages the new content                      refuses it; nothing can be saved

SQLite does not check this: in WAL mode it continues with the files that it has open.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import struct
from contextlib import closing
from enum import Enum
from pathlib import Path
from threading import Lock
from typing import Final, assert_never

from synapse.config.private_files import make_folders
from synapse.core.errors import StoreLost
from synapse.store.file import APPLICATION_ID, uri

log = logging.getLogger(__name__)

SAVED: Final = ".saved-"
"""Between the name of the store and the pid of the process that saved it, in the name of a saved copy."""
_MAGIC: Final = b"SQLite format 3\0"
# The database header (sqlite.org/fileformat2.html §1.3): page size, change counter, size in pages, application id.
_HEADER: Final = struct.Struct(">16sH6xII36xI")
_LARGEST_PAGE: Final = 65_536

Identity = tuple[int, int]
"""Device and inode."""


class Loss(Enum):
    """What happened to the files of a store, in the words of the error."""

    NONE = ""
    DELETED = "was deleted"
    REPLACED = "was replaced by another file"
    MOVED = "was moved"
    LOG_GONE = "lost its write-ahead log (the files -wal and -shm beside it)"
    OVERWRITTEN = "was truncated or overwritten"
    HIDDEN = "is no longer accessible"


class StoreFiles:
    """The files of an open store: the database, its write-ahead log, and the index of the log.

    Create it after the database was read through a connection, which creates the other two. Close it after the last
    connection: POSIX drops all locks of a process on a file as soon as the process closes any descriptor of it.
    """

    def __init__(self, path: Path) -> None:
        """Raises OSError when the database does not exist."""
        self.path = path
        self._text = str(path)
        self._others = (f"{path}-wal", f"{path}-shm")
        self._checking = Lock()
        self.generation = 0
        """Grows with each `adopt`: connections of an earlier generation belong to files that are gone."""
        self._remember()

    def _remember(self) -> None:
        """Opens the database, and notes the identities and the header of the files at the path."""
        self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        self._identity = _identity(os.fstat(self._descriptor))
        self._other_identities = tuple(_identity_at(other) for other in self._others)
        self._seen = (0, 0)
        self._counter = 0
        self._application = _Header(self._descriptor).application

    def adopt(self) -> None:
        """Continues with the files that are at the path now; a connection has read them. Raises OSError."""
        with self._checking:
            before = self._descriptor
            self._remember()
            os.close(before)
            self.generation += 1

    def fault(self) -> str:
        """Returns what happened to the files, or "" when they are in place."""
        loss = self.loss()
        now = self._path_now() if loss is Loss.MOVED else ""
        return f"{loss.value} to {now}" if now else loss.value

    def require(self) -> None:
        """Raises StoreLost unless the files are in place."""
        if fault := self.fault():
            raise lost(self.path, fault)

    def close(self) -> None:
        """Closes the files. Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def save(self, connection: sqlite3.Connection) -> bool:
        """Saves the content of files that are gone from their path, from those that are still open.

        Returns whether the store at the path is complete now. Raises OSError or sqlite3.Error.
        """
        loss = self.loss()
        match loss:
            case Loss.NONE:
                return True
            case Loss.DELETED | Loss.REPLACED:
                return self._save_copy(connection)
            case Loss.LOG_GONE:
                return self._save_into_place(connection)
            case Loss.MOVED | Loss.OVERWRITTEN | Loss.HIDDEN:
                # The store is complete elsewhere, or nothing of it is left to save.
                log.warning("store_not_saved", extra={"path": str(self.path), "why": self.fault()})
                return False
            case _:
                assert_never(loss)

    def loss(self) -> Loss:
        """Returns what happened to the files."""
        try:
            there = os.stat(self._text)  # noqa: PTH116 - runs for each read and write, and a Path doubles the cost
        except FileNotFoundError:
            return self._gone()
        except OSError:
            return Loss.HIDDEN
        if _identity(there) != self._identity:
            return Loss.REPLACED if self._gone() is Loss.DELETED else Loss.MOVED
        if (there.st_mtime_ns, there.st_size) != self._seen and not self._has_our_content():
            return Loss.OVERWRITTEN
        wal, shm = self._others
        if (_identity_at(wal), _identity_at(shm)) != self._other_identities:
            return Loss.LOG_GONE
        return Loss.NONE

    def _gone(self) -> Loss:
        return Loss.MOVED if os.fstat(self._descriptor).st_nlink else Loss.DELETED

    def _path_now(self) -> str:
        try:
            return str(Path(f"/proc/self/fd/{self._descriptor}").readlink())
        except OSError:
            return ""

    def _has_our_content(self) -> bool:
        """Whether the database is still ours after it was written: by a checkpoint, or by a copy over it."""
        # Called from the threads of readers and of the writer; each has to compare with the state before its own call.
        with self._checking:
            there, header = os.fstat(self._descriptor), _Header(self._descriptor)
            # Until its first checkpoint a new store has its application id only in the log.
            is_ours = header.is_sqlite and header.application in (self._application, APPLICATION_ID)
            if not is_ours or header.counter < self._counter:
                return False
            if there.st_size < self._seen[1] and there.st_size < header.size:
                return False
            self._counter, self._application = header.counter, header.application
            self._seen = (there.st_mtime_ns, there.st_size)
            return True

    def _save_into_place(self, connection: sqlite3.Connection) -> bool:
        """Writes the content of the deleted log into the database, which is still in place."""
        if any(_identity_at(other) not in (None, ours) for other, ours in self._our_others()):
            # Another process has begun a new log: a checkpoint of the old one would damage the database.
            return self._save_copy(connection)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        log.warning("store_put_back", extra={"path": str(self.path)})
        return True

    def _save_copy(self, connection: sqlite3.Connection) -> bool:
        """Writes the whole store to a new file, and links that to the store's path if the path is free."""
        make_folders(self.path.parent)
        saved = self.path.with_name(f"{self.path.name}{SAVED}{os.getpid()}")
        saved.unlink(missing_ok=True)
        os.close(os.open(saved, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(saved)) as copy:
            connection.backup(copy)
        _flush(saved)
        for other, ours in self._our_others():
            # The copy has the content of this log. At the path SQLite would use a leftover log for another database.
            if ours is not None and _identity_at(other) == ours:
                other.unlink(missing_ok=True)
        try:
            # Unlike a rename, a link never replaces a file that another process made meanwhile.
            self.path.hardlink_to(saved)
        except FileExistsError:
            if _has_everything_of(saved, self.path):
                saved.unlink()  # another process has put it back, or a user restored it
                return True
            log.warning("store_saved_beside", extra={"path": str(saved)})
            return False
        saved.unlink()
        _flush(self.path.parent)
        log.warning("store_put_back", extra={"path": str(self.path)})
        return True

    def _our_others(self) -> list[tuple[Path, Identity | None]]:
        return list(zip(map(Path, self._others), self._other_identities, strict=True))


def lost(path: Path, what: str) -> StoreLost:
    """Returns the error for a store whose files are not in place."""
    return StoreLost(
        f"{path} {what} while this process had it open; nothing was stored",
        hint="`synapse restart` the running agents (`synapse list`): the first one puts the store back",
    )


class _Header:
    """The header of a database file; all zeros when it is too short."""

    def __init__(self, descriptor: int) -> None:
        data = os.pread(descriptor, _HEADER.size, 0)
        whole = data if len(data) == _HEADER.size else bytes(_HEADER.size)
        magic, page_size, self.counter, pages, self.application = _HEADER.unpack(whole)
        self.is_sqlite = magic == _MAGIC
        self.size = pages * (page_size if page_size > 1 else _LARGEST_PAGE)


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


def _identity_at(path: Path | str) -> Identity | None:
    try:
        return _identity(os.stat(path))  # noqa: PTH116 - see `loss`
    except OSError:
        return None


def _has_everything_of(saved: Path, path: Path) -> bool:
    """Whether the store at `path` has every append that the one at `saved` has."""
    try:
        with closing(sqlite3.connect(uri(saved), uri=True)) as connection:
            connection.execute("ATTACH ? AS other", (uri(path),))
            missing = connection.execute(
                "SELECT 1 FROM main.appends AS ours LEFT JOIN other.appends AS theirs"
                " ON theirs.seq = ours.seq AND theirs.body = ours.body WHERE theirs.seq IS NULL LIMIT 1"
            ).fetchone()
    except sqlite3.Error:
        return False  # not a store
    return missing is None


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # not every file system can flush folders
            raise
    finally:
        os.close(descriptor)
