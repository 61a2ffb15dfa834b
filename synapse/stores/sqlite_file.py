"""Opening a store's file: connections with the right settings, and the schema brought up to date."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Final

from synapse.core.errors import StoreTooNew, StoreUnsafe
from synapse.stores.sqlite_errors import corrupt, locked
from synapse.stores.sqlite_keys import id_key, text_key
from synapse.stores.sqlite_location import lock_path, prepare_location, uri
from synapse.stores.sqlite_queries import migrations

APPLICATION_ID: Final = 0x53594E41
"""Spells SYNA in the file's header, so that a foreign database is not taken for ours."""
_LOOK_AGAIN_SECONDS: Final = 0.02
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


def open_file(path: Path, *, lock_timeout: float) -> sqlite3.Connection:
    """Return a connection to a store of the current schema, making or migrating the file first if needed.

    Several processes may do this at once. Raises StoreFailed, OSError or sqlite3.Error.
    """
    prepare_location(path)
    connection = connect(path, lock_timeout=lock_timeout)
    try:
        if _pending(connection, path):
            with file_lock(path, lock_timeout):
                _migrate(connection, path)
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


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreUnsafe(
            f"SQLite cannot use its write-ahead log for {path}", hint="set SYNAPSE_HOME to a folder on a local disk"
        )
    # Schema 4 had a function of its own for each kind of id.
    for name, function in {"context_key": id_key, "id_key": id_key, "text_key": text_key}.items():
        connection.create_function(name, 1, function, deterministic=True)
    # Another process may have migrated the file while this one waited for the lock.
    for number, script in _pending(connection, path):
        try:
            connection.executescript(
                f"BEGIN IMMEDIATE; {script}; PRAGMA application_id = {APPLICATION_ID}; "
                f"PRAGMA user_version = {number}; COMMIT;"
            )
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
