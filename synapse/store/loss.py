"""Notices that a store's files are gone from under the process that has them open, and saves what it still has.

    at the path       what a write does there                                  what is done
    ─────────────     ────────────────────────────────────────────────────     ─────────────────────────────────────
    our files         lasts                                                    it is acknowledged
    nothing           goes to files that vanish with the last process          it is refused; the store is put back at
                                                                               the end, from the files still open
    other files       is seen by nobody who opens the path                     it is refused; the store is saved beside
                                                                               them at the end, unless they have it all
    ours, elsewhere   lasts, where nobody looks for it                         it is refused until they are moved back
    ours, with other  damages what was written over it                         it is refused; nothing can be saved
    content

SQLite itself does not look: in WAL mode it goes on with the files that it has open.
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

from synapse.core.errors import StoreLost
from synapse.store.file import APPLICATION_ID, uri

log = logging.getLogger(__name__)

SAVED: Final = ".saved-"
"""Stands between the store's name and the process that saved it."""
_MAGIC: Final = b"SQLite format 3\0"
# The database header (sqlite.org/fileformat2.html §1.3): page size, change counter, size in pages, application id.
_HEADER: Final = struct.Struct(">16sH6xII36xI")
_LARGEST_PAGE: Final = 65_536

Identity = tuple[int, int]
"""Device and inode."""


class Loss(Enum):
    """What happened to the files of a store, as it is told."""

    NONE = ""
    DELETED = "was deleted"
    REPLACED = "was replaced by another file"
    MOVED = "was moved"
    LOG_GONE = "lost its write-ahead log (the files -wal and -shm beside it)"
    OVERWRITTEN = "was truncated or overwritten"
    HIDDEN = "cannot be seen any more"


class StoreFiles:
    """The files of an open store: the database, its write-ahead log, and the index of that.

    To be made once the database was read through a connection, which makes the other two, and closed behind the last
    connection: POSIX drops the locks that a process has on a file with the first descriptor of it that is closed.
    """

    def __init__(self, path: Path) -> None:
        """Raises OSError when they are not there."""
        self.path = path
        self._text = str(path)
        self._others = (f"{path}-wal", f"{path}-shm")
        self._looking = Lock()
        self.generation = 0
        """Grows whenever other files have become the store's: connections of before belong to none."""
        self._take_up()

    def _take_up(self) -> None:
        self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        self._identity = _identity(os.fstat(self._descriptor))
        self._other_identities = tuple(_identity_at(other) for other in self._others)
        self._seen = (0, 0)
        self._counter = 0
        self._application = _Header(self._descriptor).application

    def adopt(self) -> None:
        """Take the files that are at the path now for the store's; a connection has read them.

        Raises OSError.
        """
        with self._looking:
            before = self._descriptor
            self._take_up()
            os.close(before)
            self.generation += 1

    def fault(self) -> str:
        """Say what happened to the files, or nothing when they are as they were."""
        loss = self.loss()
        now = self._path_now() if loss is Loss.MOVED else ""
        return f"{loss.value} to {now}" if now else loss.value

    def require(self) -> None:
        """Raises StoreLost unless the files are as they were."""
        if fault := self.fault():
            raise lost(self.path, fault)

    def close(self) -> None:
        """Let the files go; a second time is no error."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def save(self, connection: sqlite3.Connection) -> bool:
        """Save what is only in the files that are still open, if they are gone from their path.

        Returns whether the store at the path has all of it now. Raises OSError or sqlite3.Error.
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
                # It is whole elsewhere, or there is nothing left of it that could be saved.
                log.warning("store_not_saved", extra={"path": str(self.path), "why": self.fault()})
                return False
            case _:
                assert_never(loss)

    def loss(self) -> Loss:
        """What happened to the files."""
        try:
            there = os.stat(self._text)  # noqa: PTH116 - with each write and read, and a Path doubles what it costs
        except FileNotFoundError:
            return self._gone()
        except OSError:
            return Loss.HIDDEN
        if _identity(there) != self._identity:
            return Loss.REPLACED if self._gone() is Loss.DELETED else Loss.MOVED
        if (there.st_mtime_ns, there.st_size) != self._seen and not self._is_same_within():
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

    def _is_same_within(self) -> bool:
        """The file was written: by a checkpoint, most likely. Somebody may also have copied another one over it."""
        # Readers and the writer look from threads of their own, and each has to compare with what was there before it.
        with self._looking:
            there, header = os.fstat(self._descriptor), _Header(self._descriptor)
            # A new store has its number in the log until the first checkpoint, and none in the database.
            is_ours = header.is_sqlite and header.application in (self._application, APPLICATION_ID)
            if not is_ours or header.counter < self._counter:
                return False
            if there.st_size < self._seen[1] and there.st_size < header.size:
                return False
            self._counter, self._application = header.counter, header.application
            self._seen = (there.st_mtime_ns, there.st_size)
            return True

    def _save_into_place(self, connection: sqlite3.Connection) -> bool:
        """The database is where it was, without its log. What the log still held is written into the database."""
        if any(_identity_at(other) not in (None, ours) for other, ours in self._our_others()):
            # Others have begun another log for it: writing beside them would damage it.
            return self._save_copy(connection)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        log.warning("store_put_back", extra={"path": str(self.path)})
        return True

    def _save_copy(self, connection: sqlite3.Connection) -> bool:
        """Write all of it to a new file, and give that the store's own name if nothing has it."""
        # Each by itself: with `parents=True` the umask would decide who may write above it.
        for folder in reversed((self.path.parent, *self.path.parent.parents)):
            folder.mkdir(mode=0o700, exist_ok=True)
        saved = self.path.with_name(f"{self.path.name}{SAVED}{os.getpid()}")
        saved.unlink(missing_ok=True)
        os.close(os.open(saved, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(saved)) as copy:
            connection.backup(copy)
        _flush(saved)
        for other, ours in self._our_others():
            # What is left of the deleted database's log is in the copy. Whoever opens another database there would take
            # it for that one's.
            if ours is not None and _identity_at(other) == ours:
                other.unlink(missing_ok=True)
        try:
            # Unlike a rename, this never takes the place of a file that somebody made meanwhile.
            self.path.hardlink_to(saved)
        except FileExistsError:
            if _has_everything_of(saved, self.path):
                saved.unlink()  # another process has put it back, or somebody restored it
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
    """The error for a store that is not where it was."""
    return StoreLost(
        f"{path} {what} while this process had it open; nothing was stored",
        hint="`synapse restart` the agents that run (`synapse list`): the first one puts back what was stored before",
    )


class _Header:
    """The beginning of a database file."""

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
        return _identity(os.stat(path))  # noqa: PTH116 - see above
    except OSError:
        return None


def _has_everything_of(saved: Path, path: Path) -> bool:
    """Whether the store at `path` has every change that the one at `saved` has."""
    try:
        with closing(sqlite3.connect(uri(saved), uri=True)) as connection:
            connection.execute("ATTACH ? AS other", (uri(path),))
            missing = connection.execute(
                "SELECT 1 FROM main.appends AS ours LEFT JOIN other.appends AS theirs"
                " ON theirs.seq = ours.seq AND theirs.body = ours.body WHERE theirs.seq IS NULL LIMIT 1"
            ).fetchone()
    except sqlite3.Error:
        return False  # it is no store of ours
    return missing is None


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # not every file system flushes folders
            raise
    finally:
        os.close(descriptor)
