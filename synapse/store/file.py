"""The file of a store: makes, migrates and opens it, and translates the errors of SQLite.

A store is an SQLite database in WAL mode in a private folder on a local disk. A lock file beside it queues writers and
wakes listeners (see `doorbell`).
"""

from __future__ import annotations

import fcntl
import os
import re
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from importlib import resources
from pathlib import Path
from threading import Event
from typing import Final
from urllib.parse import quote

from synapse.config.private_files import make_folders
from synapse.core.errors import (
    InvalidRequest,
    StoreCorrupt,
    StoreFailed,
    StoreFull,
    StoreInUse,
    StoreLocked,
    StoreTooNew,
    StoreUnsafe,
    SynapseError,
)
from synapse.core.store import IsAlive
from synapse.store import doorbell
from synapse.store.queries import id_key, query, text_key

APPLICATION_ID: Final = 0x53594E41
"""Spells SYNA in the file's header, so that Synapse recognises its own databases."""
_LOCK_POLL_SECONDS: Final = 0.02
_LEASE_EPOCHS: Final = 7
"""The schema that gave leases an epoch, and renamed the column of their holders."""
_WAL_PAGES: Final = 4000
"""About 16 MB: fewer, longer checkpoints than SQLite's default of 1000 pages."""
_PRIMARY_CODE: Final = 0xFF
"""Masks an extended error code of SQLite down to its primary one."""
_MOUNTS: Final = Path("/proc/self/mountinfo")
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
# SQLite's WAL needs an index in memory that all processes share, and locks that network file systems do not keep.
# Sources: sqlite.org/wal.html ("does not work over a network filesystem"), sqlite.org/howtocorrupt.html §2.
_NETWORK_TYPES: Final = re.compile(
    r"9p|afs|beegfs|ceph|cifs|coda|davfs|drvfs|glusterfs|gpfs|lustre|ncpfs|nfs4?|orangefs|pvfs2|smb3|smbfs|vboxsf"
    r"|fuse\.(ceph-fuse|davfs2?|gcsfuse|glusterfs|goofys|hdfs|nfs|rclone|s3fs|smbnetfs|sshfs)"
)


def assume_alive(_holder: str) -> bool:
    """Returns True: the safe `is_alive` for callers that cannot tell whether a holder of a lease is alive."""
    return True


def open_file(path: Path, *, lock_timeout: float, is_alive: IsAlive = assume_alive) -> sqlite3.Connection:
    """Returns a connection to a store of the current schema; creates or migrates the file first if needed.

    Several processes may do this at once. Raises StoreFailed (StoreInUse while a process that holds a lease uses an
    older schema), OSError or sqlite3.Error.
    """
    prepare_location(path)
    connection = connect(path, lock_timeout=lock_timeout)
    try:
        if _pending(connection, path):
            with file_lock(path, lock_timeout):
                _migrate(connection, path, is_alive)
    except BaseException:
        connection.close()
        raise
    return connection


def connect(path: Path, *, lock_timeout: float) -> sqlite3.Connection:
    """Returns a connection for one thread at a time that begins no transaction by itself.

    Raises sqlite3.Error also when the file does not exist: reading a deleted store must not create an empty one.
    """
    connection = sqlite3.connect(
        uri(path), uri=True, timeout=lock_timeout, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA synchronous = FULL")
        # Keeps statement journals in memory: as files they were half of all bytes written.
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_PAGES * 4096}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def check_file(path: Path, *, lock_timeout: float) -> None:
    """Reads the whole file. Raises StoreCorrupt if SQLite finds damage."""
    with closing(connect(path, lock_timeout=lock_timeout)) as connection:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise corrupt(path, verdict)


@contextmanager
def file_lock(path: Path, timeout: float) -> Generator[None]:
    """Holds the lock that every writer takes. It polls instead of queueing, so use it rarely.

    Raises StoreLocked.
    """
    descriptor = os.open(lock_path(path), os.O_RDWR | os.O_CLOEXEC)
    pause = Event()
    try:
        for _ in range(max(1, int(timeout / _LOCK_POLL_SECONDS))):
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            pause.wait(_LOCK_POLL_SECONDS)
        else:
            raise locked(path)
        yield
    finally:
        os.close(descriptor)


def prepare_location(path: Path) -> None:
    """Creates the folder and the files of a store, readable by their user only.

    Raises:
        StoreUnsafe: the folder is on a network file system.
        OSError: a folder or file cannot be created.
    """
    refuse_network(path.parent, _MOUNTS.read_text(encoding="utf-8", errors="replace") if _MOUNTS.exists() else "")
    make_folders(path.parent)
    for file in (path, lock_path(path)):
        # SQLite gives the WAL the mode of the database file.
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if file == lock_path(path):
                doorbell.prepare(descriptor)
        finally:
            os.close(descriptor)
        if file.stat().st_mode & 0o077:
            file.chmod(0o600)


def refuse_network(folder: Path, mounts: str) -> None:
    """Raises StoreUnsafe if `folder` is on a network file system, by `mounts` in the format of /proc/self/mountinfo."""
    kind = filesystem_type(folder.resolve(), mounts)
    if _NETWORK_TYPES.fullmatch(kind):
        raise StoreUnsafe(
            f"{folder} is on a network file system ({kind}), where SQLite would damage the store",
            hint="set SYNAPSE_HOME to a folder on a local disk",
        )


def filesystem_type(folder: Path, mounts: str) -> str:
    """Returns the type of the file system that holds `folder`, or "" when it is unknown."""
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


def lock_path(path: Path) -> Path:
    """Returns the path of the file that writers lock before each write, and that wakes listeners after it.

    It is not the database itself, whose locks belong to SQLite.
    """
    return path.with_name(f"{path.name}.lock")


def uri(path: Path) -> str:
    """Returns the URI that opens an existing database; for a plain path SQLite would create an empty one."""
    return f"file:{quote(str(path))}?mode=rw"


def migrations() -> list[tuple[int, str]]:
    """Returns the migrations in order: the schema version after each, and its statements."""
    folder = resources.files("synapse.store").joinpath("migrations")
    files = [file for file in folder.iterdir() if file.name.endswith(".sql")]
    return sorted((int(file.name.partition("_")[0]), file.read_text(encoding="utf-8")) for file in files)


def store_error(error: Exception, path: Path) -> SynapseError:
    """Translates an exception of sqlite3 or of the file system."""
    match error:
        case SynapseError():
            return error
        case sqlite3.Error():
            return _sqlite_error(error, path)
        case OSError():
            return StoreFailed(
                f"{path}: {error.strerror or error}", hint="the state folder must be yours and writable (SYNAPSE_HOME)"
            )
        case _:
            # SQLite cannot hold a lone surrogate, or a number beyond 64 bits.
            return InvalidRequest(f"this cannot be stored: {error}")


def locked(path: Path) -> StoreLocked:
    return StoreLocked(
        f"another process holds the lock of {path}",
        hint=f"a stopped host may hold it: `fuser {path}.lock` shows its pid; continue or end that process",
    )


def corrupt(path: Path, what: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"{path} is damaged: {what}",
        hint="stop all agents and move the store away "
        f"(`mkdir {path}.damaged && mv {path} {path}-wal {path}-shm {path}.damaged`); the next start creates a "
        f"new one. `sqlite3 {path}.damaged/{path.name} .recover` shows what can be saved",
    )


def _pending(connection: sqlite3.Connection, path: Path) -> list[tuple[int, str]]:
    """Returns the migrations that the file still needs. Raises StoreCorrupt or StoreTooNew."""
    known = migrations()
    version, application, tables = _schema(connection)
    if application != APPLICATION_ID and (tables or version):
        raise corrupt(path, "it is a database of another program")
    if version > known[-1][0]:
        raise StoreTooNew(
            f"{path} was written by a newer Synapse (schema {version}; this one knows {known[-1][0]})",
            hint="upgrade Synapse, or set SYNAPSE_HOME to another folder",
        )
    return [(number, script) for number, script in known if number > version]


def _schema(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """Returns the schema version, the application id and the number of tables, read in one transaction."""
    connection.execute("BEGIN")
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return version, application, tables


def _migrate(connection: sqlite3.Connection, path: Path, is_alive: IsAlive) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreUnsafe(
            f"SQLite cannot use its write-ahead log for {path}", hint="set SYNAPSE_HOME to a folder on a local disk"
        )
    # Migrations call these by name; schema 4 had a separate function for contexts.
    for name, function in {"context_key": id_key, "id_key": id_key, "text_key": text_key}.items():
        connection.create_function(name, 1, function, deterministic=True)
    # Another process may have migrated the file while this one waited for the lock.
    pending = _pending(connection, path)
    if pending:
        _require_unused(connection, path, pending[-1][0], is_alive)
    for number, script in pending:
        try:
            connection.executescript(
                f"BEGIN IMMEDIATE; {script}; PRAGMA application_id = {APPLICATION_ID}; "
                f"PRAGMA user_version = {number}; COMMIT;"
            )
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _require_unused(connection: sqlite3.Connection, path: Path, schema: int, is_alive: IsAlive) -> None:
    """Raises StoreInUse while a process that holds a lease is alive: it has opened the store with the older schema.

    The caller holds the lock file, so no process can acquire a lease meanwhile.
    """
    version, _, _ = _schema(connection)
    if not version:
        return
    leases = connection.execute(query("leases" if version >= _LEASE_EPOCHS else "leases_before_epochs")).fetchall()
    inboxes = [inbox for inbox, holder in leases if is_alive(holder)]
    if inboxes:
        raise StoreInUse(
            f"{path} has to be upgraded from schema {version} to {schema}, "
            f"and agents that run an older Synapse use it: {', '.join(inboxes)}",
            hint="stop them (`synapse stop --all`), then start them again",
        )


def _sqlite_error(error: sqlite3.Error, path: Path) -> StoreFailed:
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
    match code:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return locked(path)
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return corrupt(path, str(error))
        case sqlite3.SQLITE_FULL:
            return StoreFull(f"no space left for {path}", hint=f"free some space: `df -h {path.parent}`")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return StoreFailed(
                f"{path}: {error}", hint=f"the file and its folder must be yours: `ls -ld {path.parent}`"
            )
        case sqlite3.SQLITE_IOERR:
            # SQLite reports an exhausted quota like this; only a full disk has its own code.
            return StoreFailed(
                f"{path}: {error}",
                hint=f"is there space, and quota? `df -h {path.parent}`; `synapse doctor` checks the store",
            )
        case _:
            return StoreFailed(f"{path}: {error}", hint="`synapse doctor` checks the store")
