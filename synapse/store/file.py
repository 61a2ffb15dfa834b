"""Opening a store's file: connections with the right settings, and the schema brought up to date.

Where a store may lie: on a local disk, in a private folder.

What SQLite's errors mean for the person who has to do something about them.

Numbers that stand for texts in an index, where a text is as good as random.

Each new entry of such an index lands on a page of its own, which is written twice. Of numbers a page holds three times
as many, so fewer pages are written, and those that are needed again are still in memory. Ids of ours hold the time, and
their numbers are in its order: then new entries share a page. Different texts may have the same number: whoever finds a
row by it compares the text, too.

The SQL of queries.sql, by name, and how one statement takes many rows.
"""

from __future__ import annotations

import fcntl
import os
import re
import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from hashlib import blake2b
from importlib import resources
from itertools import chain
from pathlib import Path
from threading import Event
from typing import Any, Final
from urllib.parse import quote

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

APPLICATION_ID: Final = 0x53594E41
"""Spells SYNA in the file's header, so that a foreign database is not taken for ours."""
_LOOK_AGAIN_SECONDS: Final = 0.02
_LEASE_EPOCHS: Final = 7
"""The schema that gave leases an epoch, and renamed the column of their holders."""
_WAL_PAGES: Final = 4000
"""About 16 MB: fewer, longer checkpoints than SQLite's default of 1000 pages."""


def connect(path: Path, *, lock_timeout: float) -> sqlite3.Connection:
    """Return a connection that may be used by one thread at a time, with transactions in our own hands.

    The file must be there: who reads a store that was deleted must not leave an empty one in its place.
    """
    connection = sqlite3.connect(
        uri(path), uri=True, timeout=lock_timeout, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA synchronous = FULL")
        # What a statement could have to take back is kept in memory: as a file it was half of all that was written.
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_PAGES * 4096}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def every_holder(_holder: str) -> bool:
    """Say that the holder of a lease is alive: the safe answer for callers that cannot tell."""
    return True


def open_file(path: Path, *, lock_timeout: float, is_alive: IsAlive = every_holder) -> sqlite3.Connection:
    """Return a connection to a store of the current schema, making or migrating the file first if needed.

    Several processes may do this at once. Raises StoreFailed (StoreInUse when a holder of a lease that is alive keeps
    the file from being migrated), OSError or sqlite3.Error.
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


def check_file(path: Path, *, lock_timeout: float) -> None:
    """Read the whole file and raise StoreCorrupt if SQLite finds fault with it."""
    with closing(connect(path, lock_timeout=lock_timeout)) as connection:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise corrupt(path, verdict)


@contextmanager
def file_lock(path: Path, timeout: float) -> Generator[None]:
    """Hold the lock that every writer takes. For rare moments: it looks again and again, so it does not queue.

    Raises StoreLocked.
    """
    descriptor = os.open(lock_path(path), os.O_RDWR | os.O_CLOEXEC)
    never = Event()
    try:
        for _ in range(max(1, int(timeout / _LOOK_AGAIN_SECONDS))):
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            never.wait(_LOOK_AGAIN_SECONDS)
        else:
            raise locked(path)
        yield
    finally:
        os.close(descriptor)


def _pending(connection: sqlite3.Connection, path: Path) -> list[tuple[int, str]]:
    """The migrations that the file still needs."""
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
    """The schema's version, the program it belongs to and the number of its tables, all of the same instant."""
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
    # Schema 4 had a function of its own for each kind of id.
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
    """Raise StoreInUse while a process that holds a lease runs: it has opened the store with the older schema.

    The caller holds the lock file, so nobody acquires a lease meanwhile.
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
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if file == lock_path(path):
                doorbell.prepare(descriptor)
        finally:
            os.close(descriptor)
        if file.stat().st_mode & 0o077:
            file.chmod(0o600)


def lock_path(path: Path) -> Path:
    """The file whose lock is taken before each write, and by which listeners are woken behind it.

    Never the database itself, whose locks are SQLite's own.
    """
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


_PRIMARY_CODE = 0xFF


def store_error(error: Exception, path: Path) -> SynapseError:
    """Return our error for one that came out of sqlite3 or the file system."""
    match error:
        case SynapseError():
            return error
        case sqlite3.Error():
            return _from_sqlite(error, path)
        case OSError():
            return StoreFailed(
                f"{path}: {error.strerror or error}", hint="the state folder must be yours and writable (SYNAPSE_HOME)"
            )
        case _:
            # A name with half a surrogate pair, a number beyond 64 bits: nothing that SQLite can hold.
            return InvalidRequest(f"this cannot be stored: {error}")


def locked(path: Path) -> StoreLocked:
    return StoreLocked(
        f"another process holds the lock of {path}",
        hint=f"a stopped host may hold it: `fuser {path}.lock` names it; continue or end that process",
    )


def corrupt(path: Path, what: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"{path} is damaged: {what}",
        hint="stop all agents and move it away with what belongs to it "
        f"(`mkdir {path}.damaged && mv {path} {path}-wal {path}-shm {path}.damaged`); a new one is made at the next "
        f"start. `sqlite3 {path}.damaged/{path.name} .recover` shows what can be saved",
    )


def _from_sqlite(error: sqlite3.Error, path: Path) -> StoreFailed:
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
            # A quota that is used up is told so: only a disk without space has an error of its own.
            return StoreFailed(
                f"{path}: {error}",
                hint=f"is there space, and quota? `df -h {path.parent}`; `synapse doctor` checks the store",
            )
        case _:
            return StoreFailed(f"{path}: {error}", hint="`synapse doctor` checks the store")


_BYTES: Final = 8
_LEAST: Final = -(2 ** (8 * _BYTES - 1))
_BEGINS_WITH_TIME: Final = "7"
_WITH_TIME: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-([78])[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
"""A UUID of version 7, which begins with the time, or of version 8, which ends with it where we made it."""


def text_key(text: str) -> int:
    """A number for a text that somebody else chose; finding many texts with the same number takes too long to try.

    Raises UnicodeEncodeError.
    """
    return int.from_bytes(blake2b(text.encode(), digest_size=_BYTES).digest(), signed=True)


def id_key(text: str) -> int:
    """A number for the id of a task or a context; see `runtime.ids`.

    Raises UnicodeEncodeError.
    """
    ours = _WITH_TIME.fullmatch(text)
    if ours is None:
        return text_key(text)
    if ours[1] == _BEGINS_WITH_TIME:
        return _LEAST + int(text[:8] + text[9:13] + text[14:18], 16)
    return _LEAST + int(text[24:] + text[19:23], 16)


Row = tuple[object, ...]

_NAME: Final = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_VALUES: Final = re.compile(r"(?<=VALUES )\([?, ]+\)")
_SIZES: Final = (64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1)
"""How many rows one statement takes: few steps for any number of rows, and few statements that are kept prepared. With
the columns that they have, older SQLite takes no more values."""


def query(name: str) -> str:
    """Return the statement of that name."""
    return _queries()[name]


def write_many(connection: sqlite3.Connection, name: str, rows: Sequence[Row]) -> None:
    """Run a statement that has VALUES for many rows, in few steps.

    Each step lets go of the interpreter, and the thread gets it back only when the busy loop lets go of it too.
    """
    for statement, values in _in_groups(name, rows):
        connection.execute(statement, values)


def read_many(connection: sqlite3.Connection, name: str, rows: Sequence[Row]) -> list[Any]:
    """The same for a statement that answers."""
    return [row for statement, values in _in_groups(name, rows) for row in connection.execute(statement, values)]


def migrations() -> list[tuple[int, str]]:
    """Return the migrations in order: the schema's version after each, and its statements."""
    folder = resources.files("synapse.store").joinpath("migrations")
    files = [file for file in folder.iterdir() if file.name.endswith(".sql")]
    return sorted((int(file.name.partition("_")[0]), file.read_text(encoding="utf-8")) for file in files)


def _in_groups(name: str, rows: Sequence[Row]) -> Iterator[tuple[str, list[object]]]:
    done = 0
    while done < len(rows):
        count = next(size for size in _SIZES if size <= len(rows) - done)
        yield _for_many(name, count), list(chain.from_iterable(rows[done : done + count]))
        done += count


@cache
def _for_many(name: str, count: int) -> str:
    return _VALUES.sub(lambda one: ", ".join([one[0]] * count), query(name))


@cache
def _queries() -> dict[str, str]:
    text = resources.files("synapse.store").joinpath("queries.sql").read_text(encoding="utf-8")
    _, *pieces = _NAME.split(text)
    return {name: body.strip().removesuffix(";") for name, body in zip(pieces[::2], pieces[1::2], strict=True)}
