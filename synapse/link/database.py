"""`link.db`: what the link must not forget, in HOME/fleet. SQLite, in WAL mode, durable with each commit.

    commit(writes) ─► queue ─► one thread: all that waits, in one transaction, in order ─► the futures of its callers

The tables hold the rows of `fleet.relay_io`, and `chain` those of `fleet.log`. A commit that fails changes nothing; the
link then reads the file again and goes on as after a crash. A file that is damaged or newer is never replaced: it may
hold the only copy of a message.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, NamedTuple, TypeVar, assert_never

import msgspec

from synapse.config.private_files import make_private
from synapse.core.errors import StoreCorrupt, StoreFailed, StoreTooNew
from synapse.core.message import TextPart
from synapse.core.types import Clock
from synapse.fleet.asks import AnswerBody, encode_answer_body, part_bodies, without_text
from synapse.fleet.log import ChainRow, ForgetChain, Mark
from synapse.fleet.relay_io import (
    ForgetHandled,
    HandledRow,
    Identity,
    LinkRows,
    OutboxRow,
    OutboxState,
    PeerRow,
    TailRow,
    Write,
)
from synapse.fleet.wire import NO_INCARNATION, End, Incarnation
from synapse.store.file import store_error, uri
from synapse.store.side_file import create_private, transaction

FILE: Final = "link.db"
SCHEMA: Final = 1
KEPT_SECONDS: Final = 8 * 24 * 3600.0
"""How long finished messages stay in the outbox, for people to see, and marks of the shipped log in the chain."""
KEPT_BYTES: Final = 64 * 1024 * 1024
"""How much text of finished messages stays. The texts above it go before that time, the oldest first; the ids stay,
by which a repeated message is known."""
MOST_REFUSED: Final = 10_000
"""How many refused messages stay. Their ids may be used again, so nothing needs the rows but people."""
_APPLICATION_ID: Final = 0x53594E4C
"""Spells SYNL in the file's header."""
_LOCK_SECONDS: Final = 5.0
_PRUNE_SECONDS: Final = 3600.0
_TABLES: Final = (
    """CREATE TABLE outbox (
        message_id TEXT PRIMARY KEY, to_machine TEXT NOT NULL, incarnation TEXT NOT NULL, n INTEGER NOT NULL,
        kind TEXT NOT NULL, target TEXT NOT NULL, task_id TEXT NOT NULL, body BLOB NOT NULL, queue INTEGER NOT NULL,
        state TEXT NOT NULL, created_at REAL NOT NULL, expires_at REAL NOT NULL, changed_at REAL NOT NULL,
        peer TEXT NOT NULL, why TEXT NOT NULL, error BLOB NOT NULL, ended BLOB, ends TEXT NOT NULL,
        told INTEGER NOT NULL, attempts INTEGER NOT NULL
    ) WITHOUT ROWID""",
    "CREATE INDEX outbox_task ON outbox (task_id)",
    "CREATE INDEX outbox_changed ON outbox (changed_at)",
    "CREATE INDEX outbox_state ON outbox (state)",
    """CREATE TABLE handled (
        machine TEXT NOT NULL, incarnation TEXT NOT NULL, n INTEGER NOT NULL, message_id TEXT NOT NULL,
        kind TEXT NOT NULL, receipt BLOB NOT NULL, PRIMARY KEY (machine, incarnation, n)
    ) WITHOUT ROWID""",
    """CREATE TABLE peers (
        machine TEXT PRIMARY KEY, incarnation TEXT NOT NULL, floor INTEGER NOT NULL, next_n INTEGER NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE identity (
        one INTEGER PRIMARY KEY CHECK (one = 1), incarnation TEXT NOT NULL, store_id TEXT NOT NULL,
        heard INTEGER NOT NULL
    )""",
    "CREATE TABLE tail (one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL, mark TEXT NOT NULL)",
    """CREATE TABLE chain (
        incarnation TEXT NOT NULL, seq INTEGER NOT NULL, digest BLOB NOT NULL, at REAL NOT NULL,
        PRIMARY KEY (incarnation, seq)
    ) WITHOUT ROWID""",
)
_OUTBOX_COLUMNS: Final = (
    "message_id, to_machine, incarnation, n, kind, target, task_id, body, queue, state, created_at, expires_at, "
    "changed_at, peer, why, error, ended, ends, told, attempts"
)
_LISTED_COLUMNS: Final = _OUTBOX_COLUMNS.replace("body", "x''").replace("ended", "NULL")
"""Those of lists, which need not read large texts."""
_SMALL: Final = 1024
"""Texts of so many bytes stay: without them, a row would hardly be shorter."""
_UNFINISHED: Final = "state IN ('open', 'accepted') OR told = 0"

T = TypeVar("T")
AnyWrite = Write | ChainRow | ForgetChain


class OpenMessages(NamedTuple):
    """How many messages to a machine are open, and when the oldest of them was sent."""

    to: str
    number: int
    oldest: float
    cancels: int = 0
    """How many of them were taken back or have expired, which the machine has yet to confirm."""


class WriteOrder:
    """Writes that belong together: after one of them has failed, none of the later ones is made."""

    def __init__(self) -> None:
        self.failure: StoreFailed | None = None
        """Of the thread of the file only."""


class LinkDatabase:
    """The open file. `commit` and the reads may be called in the event loop; `close` ends the thread."""

    def __init__(
        self, path: Path, clock: Clock, *, kept_bytes: int = KEPT_BYTES, most_refused: int = MOST_REFUSED
    ) -> None:
        """Opens the file, and makes it if it is missing.

        Raises StoreFailed: StoreTooNew for a newer file, StoreCorrupt for a damaged one.
        """
        self._path = path
        self._clock = clock
        self._connection = _open(path)
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._kept_bytes = kept_bytes
        self._most_refused = most_refused
        self._pruned_at = float("-inf")
        self._finished_bytes = 0
        """Texts of the messages that were finished since then."""
        self._thread = Thread(target=self._serve, name="synapse-link-db", daemon=True)
        self._thread.start()

    def commit(self, writes: Sequence[AnyWrite], order: WriteOrder | None = None) -> asyncio.Future[None]:
        """Makes the writes durable, after those of earlier calls. The future raises StoreFailed.

        With an order, it raises the failure of an earlier call with that order, and nothing is written.
        """
        done: asyncio.Future[None] = self._loop.create_future()
        self._queue.put(_Work(tuple(writes), None, done, order))
        return done

    def read_rows(self) -> asyncio.Future[LinkRows]:
        """Reads what the relay needs at its start. The future raises StoreFailed."""
        return self._read(_rows)

    def read_chain(self) -> asyncio.Future[list[ChainRow]]:
        """Reads the marks of the shipped log, in order."""
        return self._read(_chain)

    def read_outbox(self, *, limit: int = 1000) -> asyncio.Future[list[OutboxRow]]:
        """Reads the messages of the outbox that were sent for people and agents, the newest first.

        They have no bodies and no ends: `find_message` reads a whole one. If there are too many, the settled ones are
        left out first, and those that wait or are uncertain last.
        """

        def read(connection: sqlite3.Connection) -> list[OutboxRow]:
            rows: list[OutboxRow] = []
            # Named, and not excluded: so SQLite finds them by the index of states.
            for states in ("'open', 'uncertain'", "'accepted', 'refused', 'void'", "'settled'"):
                where = f"kind != 'ended' AND state IN ({states})"
                rows += _outbox(connection, where, (), limit - len(rows), _LISTED_COLUMNS)
            return sorted(rows, key=lambda row: row.created_at, reverse=True)

        return self._read(read)

    def read_overdue(self, before: float, *, limit: int = 1000) -> asyncio.Future[list[OutboxRow]]:
        """Reads the messages that were sent before a time and no machine has accepted yet, as `read_outbox` does."""
        where = "state = 'open' AND kind != 'ended' AND created_at < ?"
        return self._read(lambda connection: _outbox(connection, where, (before,), limit, _LISTED_COLUMNS))

    def count_open(self) -> asyncio.Future[list[OpenMessages]]:
        """Counts the messages for people and agents that their machines have not accepted yet, machine by machine."""
        return self._read(_count_open)

    def count_failed(self, since: float) -> asyncio.Future[int]:
        """Counts the messages that have failed after a time, perhaps unnoticed: kept ones, and uncertain ones."""
        # An expired message is open until the other machine confirms that no agent will get it.
        where = (
            "changed_at > ? AND kind != 'ended' AND (state = 'uncertain' OR (state = 'refused' AND queue) "
            "OR (kind = 'void' AND why = 'expired' AND state IN ('open', 'void')))"
        )
        statement = f"SELECT count(*) FROM outbox WHERE {where}"  # noqa: S608 - of constants only
        return self._read(lambda connection: int(connection.execute(statement, (since,)).fetchone()[0]))

    def read_receivers(self) -> asyncio.Future[list[str]]:
        """Reads the machines that have yet to accept a message or the end of a task."""
        return self._read(_receivers)

    def find_outbox(self, task_id: str, *, limit: int = 10) -> asyncio.Future[list[OutboxRow]]:
        """Reads the messages whose task has an id that begins so, or that have this message id."""
        # The ids are texts without wildcards; GLOB would take some for patterns.
        where = "kind != 'ended' AND ((task_id >= ? AND substr(task_id, 1, ?) = ?) OR message_id = ?)"
        return self._read(
            lambda connection: _outbox(connection, where, (task_id, len(task_id), task_id, task_id), limit)
        )

    def find_naming(self, waiting: str) -> asyncio.Future[list[OutboxRow]]:
        """Reads the messages whose bodies contain the id of a task that waits; only some of them may wait for it."""
        # Not by a column: few tasks wait, and each is looked for until its message is found, mostly once.
        where = "kind != 'ended' AND instr(body, CAST(? AS BLOB)) > 0"
        return self._read(lambda connection: _outbox(connection, where, (waiting,), -1))

    async def find_message(self, message_id: str) -> OutboxRow | None:
        """Reads one message of the outbox."""
        rows = await self._read(lambda connection: _outbox(connection, "message_id = ?", (message_id,), 1))
        return rows[0] if rows else None

    async def close(self) -> None:
        """Commits what waits, and closes the file."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _read(self, read: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        done: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_Work((), read, done))
        return done

    # The rest runs in the thread.

    def _serve(self) -> None:
        is_open = True
        while is_open:
            waiting = [self._queue.get()]
            while not self._queue.empty():
                waiting.append(self._queue.get())
            is_open = None not in waiting
            self._run([one for one in waiting if one is not None])
        self._connection.close()

    def _run(self, waiting: list[_Work]) -> None:
        writers = [one for one in waiting if one.read is None and one.failure is None]
        results: list[_Result] = [(one.done, None, one.failure) for one in waiting if one.failure is not None]
        error = self._write([write for one in writers for write in one.writes]) if writers else None
        for one in writers:
            if one.order is not None:
                one.order.failure = error
        results += [(one.done, None, error) for one in writers]
        results += [(one.done, *self._result_of(one.read)) for one in waiting if one.read is not None]
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(_deliver, results)

    def _write(self, writes: list[AnyWrite]) -> StoreFailed | None:
        """Writes in one transaction; returns the error, if there is one."""
        try:
            with transaction(self._connection):
                for write in writes:
                    _execute(self._connection, write, self._clock.now().timestamp())
                self._prune(writes)
        except Exception as error:  # noqa: BLE001 - the callers get any error, and the thread goes on
            return _failed(error, self._path)
        return None

    def _result_of(self, read: Callable[[sqlite3.Connection], Any]) -> tuple[Any, StoreFailed | None]:
        try:
            return read(self._connection), None
        except Exception as error:  # noqa: BLE001 - the caller gets any error, and the thread goes on
            return None, _failed(error, self._path)

    def _prune(self, writes: list[AnyWrite]) -> None:
        """Deletes what is old, or too much: every hour, and whenever a quarter of what stays has been added."""
        finished = (row for row in writes if isinstance(row, OutboxRow) and row.is_finished)
        self._finished_bytes += sum(len(row.body) + (len(row.end.answer) if row.end else 0) for row in finished)
        is_due = self._clock.monotonic() - self._pruned_at >= _PRUNE_SECONDS
        if not is_due and self._finished_bytes * 4 < self._kept_bytes:
            return
        self._pruned_at = self._clock.monotonic()
        self._finished_bytes = 0
        before = self._clock.now().timestamp() - KEPT_SECONDS
        self._connection.execute(f"DELETE FROM outbox WHERE changed_at < ? AND NOT ({_UNFINISHED})", (before,))  # noqa: S608 - of constants only
        self._delete_refused()
        self._shorten()
        self._connection.execute("DELETE FROM chain WHERE at < ? AND seq < (SELECT max(seq) FROM chain)", (before,))

    def _delete_refused(self) -> None:
        """Deletes refused messages above the number that stays, the oldest first."""
        refused = "state = 'refused' AND told = 1"
        oldest = f"SELECT changed_at FROM outbox WHERE {refused} ORDER BY changed_at DESC LIMIT 1 OFFSET ?"  # noqa: S608 - of constants only
        self._connection.execute(
            f"DELETE FROM outbox WHERE {refused} AND changed_at <= ({oldest})",  # noqa: S608 - of constants only
            (self._most_refused,),
        )

    def _shorten(self) -> None:
        """Deletes the texts of finished messages above the bytes that stay, the oldest first."""
        sizes = self._connection.execute(
            "SELECT message_id, length(body) + ifnull(length(ended), 0) FROM outbox "  # noqa: S608 - of constants only
            f"WHERE NOT ({_UNFINISHED}) ORDER BY changed_at DESC"
        ).fetchall()
        total = 0
        for message_id, size in sizes:
            total += size
            if total <= self._kept_bytes or size <= _SMALL:
                continue
            [row] = _outbox(self._connection, "message_id = ?", (message_id,), 1)
            end = msgspec.structs.replace(row.end, answer=_NOT_KEPT) if row.end and row.end.answer else row.end
            _execute(self._connection, replace(row, body=without_text(row.body), end=end), 0.0)


class _Work:
    """Writes of one commit, or a read, and the future of its caller."""

    __slots__ = ("done", "order", "read", "writes")

    def __init__(
        self,
        writes: tuple[AnyWrite, ...],
        read: Callable[[sqlite3.Connection], Any] | None,
        done: asyncio.Future[Any],
        order: WriteOrder | None = None,
    ) -> None:
        self.writes = writes
        self.read = read
        self.done = done
        self.order = order

    @property
    def failure(self) -> StoreFailed | None:
        """Why the writes must not be made."""
        return self.order.failure if self.order is not None else None


_Result = tuple[asyncio.Future[Any], Any, StoreFailed | None]


def _deliver(results: list[_Result]) -> None:
    for done, result, error in results:
        if done.done():
            continue  # its caller was cancelled
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)


def _open(path: Path) -> sqlite3.Connection:
    try:
        make_private(path.parent)
        create_private(path)
        connection = sqlite3.connect(
            uri(path), uri=True, timeout=_LOCK_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
    except (OSError, sqlite3.Error) as error:
        raise _failed(error, path) from error
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    (schema,) = connection.execute("PRAGMA user_version").fetchone()
    if schema > SCHEMA:
        raise StoreTooNew(
            f"{path} was written by a newer Synapse (schema {schema}; this one knows {SCHEMA})",
            hint="upgrade Synapse; the messages in it are kept until then",
        )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA temp_store = MEMORY")
    if schema == 0:
        with transaction(connection):
            for statement in _TABLES:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA}")


def _failed(error: Exception, path: Path) -> StoreFailed:
    if isinstance(error, StoreFailed):
        return error
    translated = store_error(error, path)
    failed = translated if isinstance(translated, StoreFailed) else StoreFailed(f"{path} cannot be used: {translated}")
    if isinstance(failed, StoreCorrupt):
        failed.hint = (
            f"restore it from a backup; or move it away (`mv {path} {path}.damaged`): messages to other machines that "
            "waited in it are not sent then, and the machine goes on with a new incarnation"
        )
    failed.__cause__ = error
    return failed


def _execute(connection: sqlite3.Connection, write: AnyWrite, now: float) -> None:  # noqa: C901 - one case for each kind of row
    match write:
        case OutboxRow():
            statement = f"INSERT OR REPLACE INTO outbox ({_OUTBOX_COLUMNS}) VALUES ({', '.join('?' * 20)})"  # noqa: S608 - of constants only
            connection.execute(statement, _outbox_values(write))
        case HandledRow():
            values: tuple[object, ...] = (write.machine, write.incarnation.text, write.n)
            connection.execute(
                "INSERT OR REPLACE INTO handled VALUES (?, ?, ?, ?, ?, ?)",
                (*values, write.message_id, write.kind, write.receipt),
            )
        case PeerRow():
            values = (write.machine, write.incarnation.text, write.floor, write.next_n)
            connection.execute("INSERT OR REPLACE INTO peers VALUES (?, ?, ?, ?)", values)
        case Identity():
            values = (write.incarnation.text, write.store_id, write.heard)
            connection.execute("INSERT OR REPLACE INTO identity VALUES (1, ?, ?, ?)", values)
        case TailRow():
            connection.execute("INSERT OR REPLACE INTO tail VALUES (1, ?, ?)", (write.seq, write.mark))
        case ForgetHandled():
            connection.execute(
                "DELETE FROM handled WHERE machine = ? AND (incarnation != ? OR n < ?)",
                (write.machine, write.incarnation.text, write.n),
            )
        case ChainRow(incarnation=incarnation, mark=mark):
            values = (incarnation.text, mark.seq, mark.digest, now)
            connection.execute("INSERT OR REPLACE INTO chain VALUES (?, ?, ?, ?)", values)
        case ForgetChain(incarnation=incarnation):
            connection.execute("DELETE FROM chain WHERE incarnation != ?", (incarnation.text,))
        case _:
            assert_never(write)


def _outbox_values(row: OutboxRow) -> tuple[object, ...]:
    return (
        row.message_id,
        row.to,
        row.incarnation.text,
        row.n,
        row.kind,
        row.target,
        row.task_id,
        row.body,
        row.queue,
        row.state.value,
        row.created_at,
        row.expires_at,
        row.changed_at,
        row.peer.text,
        row.why,
        row.error,
        None if row.end is None else _encode(row.end),
        row.ends,
        row.told,
        row.attempts,
    )


def _rows(connection: sqlite3.Connection) -> LinkRows:
    identity = connection.execute("SELECT incarnation, store_id, heard FROM identity").fetchone()
    tail = connection.execute("SELECT seq, mark FROM tail").fetchone()
    handled = connection.execute("SELECT machine, incarnation, n, message_id, kind, receipt FROM handled")
    peers = connection.execute("SELECT machine, incarnation, floor, next_n FROM peers")
    return LinkRows(
        identity=None
        if identity is None
        else Identity(incarnation=_incarnation(identity[0]), store_id=identity[1], heard=identity[2]),
        tail=TailRow() if tail is None else TailRow(seq=tail[0], mark=tail[1]),
        outbox=tuple(_outbox(connection, _UNFINISHED, (), -1)),
        handled=tuple(
            HandledRow(
                machine=machine,
                incarnation=_incarnation(incarnation),
                n=n,
                message_id=message_id,
                kind=kind,
                receipt=receipt,
            )
            for machine, incarnation, n, message_id, kind, receipt in handled
        ),
        peers=tuple(
            PeerRow(machine=machine, incarnation=_incarnation(incarnation), floor=floor, next_n=next_n)
            for machine, incarnation, floor, next_n in peers
        ),
    )


def count_unfinished(path: Path) -> tuple[int, int]:
    """Counts the messages that no other machine has accepted, and those that were accepted and have not ended.

    For a file that no link uses. Nothing is counted in one that is missing or cannot be read.
    """
    statement = "SELECT state, count(*) FROM outbox WHERE kind != 'ended' GROUP BY state"
    try:
        with closing(sqlite3.connect(uri(path), uri=True)) as connection:
            found = dict(connection.execute(statement).fetchall())
    except sqlite3.Error:
        return 0, 0
    return found.get(OutboxState.OPEN, 0), found.get(OutboxState.ACCEPTED, 0)


def _chain(connection: sqlite3.Connection) -> list[ChainRow]:
    rows = connection.execute("SELECT incarnation, seq, digest FROM chain ORDER BY seq")
    return [ChainRow(incarnation=_incarnation(text), mark=Mark(seq, digest)) for text, seq, digest in rows]


def _count_open(connection: sqlite3.Connection) -> list[OpenMessages]:
    statement = (
        "SELECT to_machine, count(*), min(created_at), sum(kind = 'void') FROM outbox "
        "WHERE state = 'open' AND kind != 'ended' GROUP BY to_machine ORDER BY to_machine"
    )
    return [OpenMessages(*row) for row in connection.execute(statement)]


def _receivers(connection: sqlite3.Connection) -> list[str]:
    statement = "SELECT DISTINCT to_machine FROM outbox WHERE state = 'open' ORDER BY to_machine"
    return [machine for (machine,) in connection.execute(statement)]


def _outbox(
    connection: sqlite3.Connection,
    where: str,
    values: tuple[object, ...],
    limit: int,
    columns: str = _OUTBOX_COLUMNS,
) -> list[OutboxRow]:
    statement = f"SELECT {columns} FROM outbox WHERE {where} ORDER BY created_at DESC LIMIT ?"  # noqa: S608 - of constants only
    return [_outbox_row(row) for row in connection.execute(statement, (*values, limit))]


def _outbox_row(row: Sequence[Any]) -> OutboxRow:
    return OutboxRow(
        message_id=row[0],
        to=row[1],
        incarnation=_incarnation(row[2]),
        n=row[3],
        kind=row[4],
        target=row[5],
        task_id=row[6],
        body=row[7],
        queue=bool(row[8]),
        state=OutboxState(row[9]),
        created_at=row[10],
        expires_at=row[11],
        changed_at=row[12],
        peer=_incarnation(row[13]),
        why=row[14],
        error=row[15],
        end=None if row[16] is None else _decode_end(row[16]),
        ends=row[17],
        told=bool(row[18]),
        attempts=row[19],
    )


def _incarnation(text: str) -> Incarnation:
    counter, _, nonce = text.partition(".")
    return Incarnation(int(counter), nonce) if nonce else NO_INCARNATION


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_end: Final = msgspec.msgpack.Decoder(End).decode
_NOT_KEPT: Final = encode_answer_body(
    AnswerBody(parts=part_bodies((TextPart(text="the answer is not kept on this machine any more"),)), inferred=True)
)
