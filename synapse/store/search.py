"""The search index of a store: a file of its own beside it, made from the log and only read together with it.

    log ─► tasks that changed since the last indexed seq ─► their texts as they are now ─► FTS5, in `search.db`

Nothing is lost with the file: a missing, damaged or foreign one is built again. It is never part of a write to the
store, which is attached read-only. Any process may build; a lock file lets one do so at a time, for a few milliseconds,
so that several take turns. `progress` names the last append that is indexed, and its task: if the store no longer has
that task, it is another store, and the index begins anew. (A store prunes a task only after it was unchanged for long.)

Pruning writes no event. Every visible task has a row in `docs`, so the index has to forget some when it has more rows
than the store has visible tasks.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote

from synapse.core.errors import SearchNotReady, StoreCorrupt, StoreLocked, StoreTooNew
from synapse.core.store import SearchProgress, TaskPage, TaskQuery
from synapse.store import reader
from synapse.store.file import file_lock, lock_path, uri
from synapse.store.lost_files import StoreFiles
from synapse.store.queries import query, text_key
from synapse.store.search_words import Search, normalized, text_of_task
from synapse.store.side_file import create_private, identity_at, transaction

log = logging.getLogger(__name__)

SCHEMA: Final = 1
"""Grows whenever the tables or the words of texts change: an index of an older schema is built again."""
_TABLES: Final = (
    "DROP TABLE IF EXISTS texts",
    "DROP TABLE IF EXISTS docs",
    "DROP TABLE IF EXISTS progress",
    "CREATE VIRTUAL TABLE texts USING fts5(body, tokenize = 'ascii', prefix = '3')",
    "CREATE TABLE docs (number INTEGER PRIMARY KEY, version INTEGER NOT NULL, text_key INTEGER NOT NULL)",
    "CREATE TABLE progress (seq INTEGER NOT NULL, task INTEGER NOT NULL, task_id TEXT NOT NULL)",
    "INSERT INTO progress VALUES (0, 0, '')",
)
_APPLICATION_ID: Final = 0x53594E53
"""Spells SYNS in the file's header."""
_STEP_SECONDS: Final = 0.02
"""How long one transaction takes: the checkpoints of the store and other processes wait for it."""
_STEP_APPENDS: Final = 200
_FORGOTTEN_AT_ONCE: Final = 500
_QUERY_SECONDS: Final = 2.0
"""How long a search indexes what is new before it says that the index is not ready."""
_PRIMARY_CODE: Final = 0xFF
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

T = TypeVar("T")


def index_path(store: Path) -> Path:
    """Returns the path of the search index of a store."""
    return store.with_name("search.db")


class SearchIndex:
    """The index of one open store. One thread at a time uses it.

    Every method may raise StoreFailed, OSError or sqlite3.Error.
    """

    def __init__(self, files: StoreFiles, *, lock_timeout: float, now: Callable[[], float]) -> None:
        """`now` is a clock that is never set back, and that any thread may read."""
        self._files = files
        self._now = now
        self._path = index_path(files.path)
        self._lock_timeout = lock_timeout
        self._connection: sqlite3.Connection | None = None
        self._opened: tuple[int, tuple[int, int] | None] = (-1, None)
        """The generation of the store's files, and the identity of the index, that `_connection` was opened with."""

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def update(self, seconds: float) -> SearchProgress:
        """Indexes what is new in the store, for about `seconds` at most; returns how far it is now."""
        return self._repaired(lambda: self._update(self._now() + seconds))

    def page(self, wanted: TaskQuery) -> TaskPage:
        """Returns one page of the tasks that match, after what is new was indexed.

        Raises SearchNotReady while the index is being built, InvalidField or InvalidRequest.
        """
        search = Search.parse(wanted.text)

        def find() -> TaskPage:
            last = _progress(self._connected()).last
            progress = self._update(self._now() + _QUERY_SECONDS, last)
            if progress.seq < last:
                raise SearchNotReady(f"the search index is being built: {progress.percent} % of it is there")
            connection = self._connected()
            connection.execute("DELETE FROM found")
            if expression := search.expression:
                connection.execute("INSERT INTO found SELECT rowid FROM texts WHERE texts MATCH ?", (expression,))
            return reader.list_tasks(connection, wanted)

        return self._repaired(find)

    def forget_pruned(self) -> None:
        """Removes all tasks that the store no longer shows; does nothing if there is no index."""
        if self._path.exists():
            self._repaired(lambda: self._forget(float("inf")))

    def discard(self) -> None:
        """Deletes the index. Idempotent."""
        self.close()
        if self._path.exists():
            with self._locked(self._lock_timeout):
                self._unlink("", "-wal", "-shm")

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _repaired(self, act: Callable[[], T]) -> T:
        """Runs `act`, a second time with a new index if the present one is damaged."""
        try:
            return act()
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE not in _DAMAGED:
                raise
            log.warning("search_index_damaged", extra={"path": str(self._path), "error": str(error)})
        self.discard()
        return act()

    def _update(self, end: float, enough: int | None = None) -> SearchProgress:
        """Indexes until `end`, until nothing is left, or until the seq `enough`, while others go on to write."""
        connection = self._connected()
        while not (progress := _progress(connection)).is_current and (enough is None or progress.seq < enough):
            try:
                with self._locked(max(0.0, end - self._now())):
                    self._index_next(connection, min(end, self._now() + _STEP_SECONDS))
            except StoreLocked:
                return progress  # another process builds
            if self._now() >= end:
                return _progress(connection)
        if _has_too_many(connection):
            with suppress(StoreLocked):
                self._forget(end)
        return progress

    def _index_next(self, connection: sqlite3.Connection, end: float) -> None:
        """Indexes the tasks of the next appends in one transaction: of one at least, then until `end`."""
        with transaction(connection):
            done = connection.execute("SELECT seq, task, task_id FROM progress").fetchone()
            if not _is_of_store(connection, *done):
                for statement in _TABLES:
                    connection.execute(statement)
                done = (0, 0, "")
            appends = connection.execute(query("appends_to_index"), (done[0], _STEP_APPENDS)).fetchall()
            for append in appends:
                _index(connection, append[1])
                done = append
                if self._now() >= end:
                    break
            if len(appends) < _STEP_APPENDS and (not appends or done == appends[-1]):
                # Nothing is left: newer appends, if there were any, have been pruned.
                done = (reader.last_seq(connection), *done[1:])
            connection.execute("UPDATE progress SET seq = ?, task = ?, task_id = ?", done)

    def _forget(self, end: float) -> None:
        """Removes tasks that the store no longer shows, until `end`."""
        connection = self._connected()
        is_done = False
        while not is_done:
            with self._locked(self._lock_timeout), transaction(connection):
                gone = connection.execute(query("docs_to_forget"), (_FORGOTTEN_AT_ONCE,)).fetchall()
                for (number,) in gone:
                    _remove(connection, number)
            is_done = len(gone) < _FORGOTTEN_AT_ONCE or self._now() >= end

    def _unlink(self, *suffixes: str) -> None:
        for suffix in suffixes:
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    @contextmanager
    def _locked(self, seconds: float) -> Generator[None]:
        """Holds the right to write the index. Raises StoreLocked when another process holds it for `seconds`."""
        create_private(lock_path(self._path))
        with file_lock(self._path, seconds):
            yield

    def _connected(self) -> sqlite3.Connection:
        """Returns the connection to the index at the path and to the store. Raises StoreLost or StoreTooNew."""
        self._files.require()
        generation = self._files.generation
        if self._connection is None or self._opened != (generation, identity_at(self._path)):
            self.close()
            self._connection = self._open()
            self._opened = (generation, identity_at(self._path))
        return self._connection

    def _open(self) -> sqlite3.Connection:
        if not self._path.exists():
            with self._locked(self._lock_timeout):
                if not self._path.exists():
                    # SQLite would take a log that is left of a deleted index for the log of the new one.
                    self._unlink("-wal", "-shm")
                    create_private(self._path)
        connection = sqlite3.connect(
            uri(self._path), uri=True, timeout=self._lock_timeout, isolation_level=None, check_same_thread=False
        )
        try:
            if _schema_of(connection, self._path) < SCHEMA:
                with self._locked(self._lock_timeout):
                    connection.execute("PRAGMA journal_mode = WAL")
                    # Another process may have made them while this one waited.
                    if _schema_of(connection, self._path) < SCHEMA:
                        _make_tables(connection)
            # What is lost with the power is built again, but what is there has to be whole.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute("CREATE TEMP TABLE found (number INTEGER PRIMARY KEY)")
            connection.execute("ATTACH ? AS store", (f"file:{quote(str(self._files.path))}?mode=ro",))
        except BaseException:
            connection.close()
            raise
        return connection


def _schema_of(connection: sqlite3.Connection, path: Path) -> int:
    """Returns the schema of the index; 0 for a new file, or one that is not an index. Raises StoreTooNew."""
    (schema,) = connection.execute("PRAGMA main.user_version").fetchone()
    (application,) = connection.execute("PRAGMA main.application_id").fetchone()
    if application != _APPLICATION_ID:
        return 0
    if schema > SCHEMA:
        raise StoreTooNew(
            f"{path} was written by a newer Synapse (schema {schema}; this one knows {SCHEMA})",
            hint=f"upgrade Synapse, or delete {path}: it is built again",
        )
    return int(schema)


def _make_tables(connection: sqlite3.Connection) -> None:
    with transaction(connection):
        for statement in _TABLES:
            connection.execute(statement)
        connection.execute(f"PRAGMA main.application_id = {_APPLICATION_ID}")
        connection.execute(f"PRAGMA main.user_version = {SCHEMA}")


def _progress(connection: sqlite3.Connection) -> SearchProgress:
    with transaction(connection, write=False):
        seq, number, task_id = connection.execute("SELECT seq, task, task_id FROM progress").fetchone()
        last = reader.last_seq(connection)
        return SearchProgress(seq if _is_of_store(connection, seq, number, task_id) else 0, last)


def _is_of_store(connection: sqlite3.Connection, seq: int, number: int, task_id: str) -> bool:
    """Whether the index was made from the store as it is now, up to `seq`; the other two name the last task."""
    if not number:
        return connection.execute("SELECT 1 FROM appends LIMIT 1").fetchone() is None
    found = connection.execute("SELECT id FROM tasks WHERE number = ?", (number,)).fetchone()
    return found == (task_id,) and seq <= reader.last_seq(connection)


def _index(connection: sqlite3.Connection, number: int) -> None:
    """Indexes one task as it is now; does nothing if that is done."""
    row = connection.execute(query("task_to_index"), (number,)).fetchone()
    *stored, is_hidden, known_version, known_key = row
    version = stored[3]
    # A hidden task that has a row is one too many, so it is forgotten like a pruned one.
    if is_hidden or known_version == version:
        return
    try:
        text = normalized(text_of_task(reader.task_of(connection, stored)))
    except (StoreCorrupt, StoreTooNew) as error:
        log.warning("task_not_indexed", extra={"task": stored[1], "error": str(error)})
        text = ""
    key = text_key(text)
    # Most appends change no text.
    if key != known_key:
        _remove(connection, number)
        connection.execute("INSERT INTO texts (rowid, body) VALUES (?, ?)", (number, text))
    connection.execute("INSERT OR REPLACE INTO docs VALUES (?, ?, ?)", (number, version, key))


def _remove(connection: sqlite3.Connection, number: int) -> None:
    if connection.execute("DELETE FROM docs WHERE number = ?", (number,)).rowcount:
        connection.execute("DELETE FROM texts WHERE rowid = ?", (number,))


def _has_too_many(connection: sqlite3.Connection) -> bool:
    """Whether the index has more tasks than the store shows; it has been brought up to date."""
    with transaction(connection, write=False):
        return bool(connection.execute(query("has_docs_to_forget")).fetchone()[0])
