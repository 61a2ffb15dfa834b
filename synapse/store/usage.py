"""What requests cost, in a file of its own beside the store: `usage.db` in the state folder.

    UsageRecorder.record ─► queue ─► thread of the agent's host ─► one row for each request ─► sums, when asked

One row per request, under the names of the CLI: reading a transcript again changes nothing, because a row only grows.
The task of a turn is a row of its own, so that the two may come in any order. All hosts write the same file, each the
rows of its inbox. No task depends on it: a file that cannot be written costs numbers, never a message, and one that is
damaged is moved aside. Rows have no texts; they are kept for `KEPT`, longer than the tasks they belong to.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from threading import Condition, Thread
from typing import Any, Final

from synapse.config.private_files import make_folders
from synapse.core.agent import AgentEntry
from synapse.core.errors import StoreTooNew
from synapse.core.task import TaskId
from synapse.core.types import Clock
from synapse.core.usage import (
    TOKEN_KINDS,
    AgentUsage,
    TokenCounts,
    UsageGroup,
    UsageReport,
    UsageRow,
    UsageTotal,
)
from synapse.store.file import store_error, uri
from synapse.store.side_file import create_private, identity_at, transaction

log = logging.getLogger(__name__)

SCHEMA: Final = 1
KEPT: Final = timedelta(days=400)
"""How long rows are kept: a year can be compared with the one before."""
_APPLICATION_ID: Final = 0x53594E55
"""Spells SYNU in the file's header."""
_TABLES: Final = (
    """CREATE TABLE requests (
        inbox TEXT NOT NULL, session TEXT NOT NULL, request TEXT NOT NULL, turn TEXT NOT NULL, model TEXT NOT NULL,
        at INTEGER NOT NULL,
        input INTEGER NOT NULL, output INTEGER NOT NULL, cache_read INTEGER NOT NULL, cache_write INTEGER NOT NULL,
        reasoning INTEGER NOT NULL, cost INTEGER,
        PRIMARY KEY (inbox, session, request)
    ) WITHOUT ROWID""",
    "CREATE INDEX requests_at ON requests (at)",
    "CREATE INDEX requests_turn ON requests (inbox, turn)",
    "CREATE INDEX requests_session_cost ON requests (inbox, session) WHERE request = ''",
    """CREATE TABLE turns (
        inbox TEXT NOT NULL, turn TEXT NOT NULL, task TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (inbox, turn)
    ) WITHOUT ROWID""",
    "CREATE INDEX turns_task ON turns (task)",
    """CREATE TABLE agents (
        inbox TEXT PRIMARY KEY, agent_id TEXT NOT NULL, agent_type TEXT NOT NULL, name TEXT NOT NULL
    ) WITHOUT ROWID""",
)
_RECORD: Final = """
INSERT INTO requests VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (inbox, session, request) DO UPDATE SET
    turn = iif(turn = '', excluded.turn, turn),
    model = iif(excluded.model = '', model, excluded.model),
    at = iif(request = '', excluded.at, at),
    input = max(input, excluded.input), output = max(output, excluded.output),
    cache_read = max(cache_read, excluded.cache_read), cache_write = max(cache_write, excluded.cache_write),
    reasoning = max(reasoning, excluded.reasoning),
    cost = max(coalesce(cost, excluded.cost), coalesce(excluded.cost, cost))
"""
_NAME_TURN: Final = "INSERT INTO turns VALUES (?, ?, ?, ?) ON CONFLICT (inbox, turn) DO NOTHING"
_NAME_AGENT: Final = "INSERT OR REPLACE INTO agents VALUES (?, ?, ?, ?)"
# A request counts as priced if its session is, and the cost of a session counts only where whole sessions are summed.
_SUMS: Final = """
    sum(r.input), sum(r.output), sum(r.cache_read), sum(r.cache_write), sum(r.reasoning),
    sum(r.request != ''), sum(r.cost),
    sum(r.request != '' AND r.cost IS NULL AND NOT (:sessions AND EXISTS (
        SELECT 1 FROM requests s WHERE s.inbox = r.inbox AND s.session = r.session AND s.request = ''))),
    max(r.at)
"""
_KEYS: Final = {
    UsageGroup.TURN: (
        "r.inbox",
        "iif(min(r.session) = max(r.session), r.session, '')",
        "r.turn",
        "coalesce(t.task, '')",
        "max(r.model)",
    ),
    UsageGroup.TASK: ("r.inbox", "''", "''", "coalesce(t.task, '')", "max(r.model)"),
    UsageGroup.AGENT: ("r.inbox", "''", "''", "''", "''"),
    UsageGroup.DAY: ("''", "''", "''", "''", "''"),
    UsageGroup.MODEL: ("''", "''", "''", "''", "r.model"),
}
_GROUPED_BY: Final = {
    UsageGroup.TURN: "r.inbox, r.turn, t.task",
    UsageGroup.TASK: "r.inbox, t.task",
    UsageGroup.AGENT: "r.inbox",
    UsageGroup.DAY: "day",
    UsageGroup.MODEL: "r.model",
}
_OF_SESSIONS: Final = (UsageGroup.AGENT, UsageGroup.DAY)
"""The groups that hold whole sessions, and so their cost."""
_NANO: Final = Decimal(1_000_000_000)
"""Costs are kept as whole numbers, in nano-dollars: sums stay exact."""
_LOCK_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 5.0
_MOST_WAITING: Final = 10_000
_PAUSE_PER_SUM: Final = 20.0
"""How many times as long as making the sums took is waited before they are made again."""
_PRUNE_SECONDS: Final = 24 * 3600.0
_PRIMARY_CODE: Final = 0xFF
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def usage_path(home: Path) -> Path:
    """Returns the path of the usage file of a state folder."""
    return home / "usage.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageQuery:
    """Which requests to add up, and by what; empty fields select all."""

    by: UsageGroup = UsageGroup.AGENT
    inboxes: tuple[str, ...] | None = None
    """Only these agents; None for all."""
    task: str = ""
    since: datetime | None = None


def read_usage(path: Path, wanted: UsageQuery) -> list[UsageRow]:
    """Returns the groups, the latest first; none if there is no file.

    Raises StoreFailed.
    """
    where = ["r.at >= :since", "(:sessions OR r.request != '')"]
    if wanted.inboxes is not None:
        where.append("r.inbox IN (SELECT value FROM json_each(:inboxes))")
    if wanted.task:
        where.append("t.task = :task")
    statement = f"""
        SELECT {", ".join(_KEYS[wanted.by])},
            date(r.at, 'unixepoch', 'localtime') AS day, coalesce(a.name, ''), coalesce(a.agent_id, ''),
            coalesce(a.agent_type, ''), {_SUMS}
        FROM requests r
        LEFT JOIN turns t ON t.inbox = r.inbox AND t.turn = r.turn AND r.turn != ''
        LEFT JOIN agents a ON a.inbox = r.inbox
        WHERE {" AND ".join(where)}
        GROUP BY {_GROUPED_BY[wanted.by]} ORDER BY max(r.at) DESC
    """  # noqa: S608 - columns and conditions are constants
    values = {
        "inboxes": json.dumps(wanted.inboxes),
        "task": wanted.task,
        "since": 0 if wanted.since is None else int(wanted.since.timestamp()),
        "sessions": wanted.by in _OF_SESSIONS and not wanted.task,
    }
    with _reading(path) as connection:
        rows = connection.execute(statement, values).fetchall() if connection else []
    return [_row(wanted.by, row) for row in rows]


def totals_by_inbox(path: Path) -> dict[str, UsageTotal]:
    """Returns what all requests of each agent cost, by its inbox. Raises StoreFailed."""
    return {row.key["inbox"]: row.total for row in read_usage(path, UsageQuery(by=UsageGroup.AGENT))}


def known_agents(path: Path) -> list[AgentEntry]:
    """Returns the agents that have rows, running or not; an entry has the inbox and the names. Raises StoreFailed."""
    with _reading(path) as connection:
        rows = connection.execute("SELECT inbox, agent_id, agent_type, name FROM agents") if connection else ()
        return [
            AgentEntry(agent_id, agent_type, name=name, inbox=inbox, port=_port_in(agent_id))
            for inbox, agent_id, agent_type, name in rows
        ]


def tasks_beginning(path: Path, prefix: str) -> list[TaskId]:
    """Returns the tasks with rows whose ids begin so. Raises StoreFailed."""
    statement = "SELECT DISTINCT task FROM turns WHERE task >= ? AND substr(task, 1, ?) = ? ORDER BY task LIMIT 10"
    with _reading(path) as connection:
        rows = connection.execute(statement, (prefix, len(prefix), prefix)) if connection else ()
        return [TaskId(task) for (task,) in rows]


class UsageWriter:
    """Implements UsageRecorder for the agent of one inbox, by a thread of its own; any thread may call it."""

    def __init__(self, path: Path, me: AgentEntry, clock: Clock) -> None:
        self._path = path
        self._agent = (me.inbox, me.agent_id, me.agent_type, me.name)
        self._clock = clock
        self._changed = Condition()
        self._waiting: list[tuple[str, Sequence[Any]]] = []
        """Statements with their values, in order."""
        self._is_closing = False
        self._connection: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None
        """Which file is open: another one may be put in its place."""
        self._has_named_agent = False
        self._is_failing = False
        self._pruned_at = float("-inf")
        self._sums_pause = 0.0
        self._sums_due: float | None = None
        """When to make the sums anew; None while they are right."""
        self._usage: tuple[str, AgentUsage] | None = None
        """The day, and the sums of that day and of all."""
        self._thread = Thread(target=self._serve, name="synapse-usage", daemon=True)
        self._thread.start()

    def record(self, report: UsageReport, /) -> None:
        """See core.usage.UsageRecorder."""
        at = int((report.at or self._clock.now()).timestamp())
        cost = None if report.cost is None else int(report.cost * _NANO)
        tokens = [getattr(report.tokens, kind) for kind in TOKEN_KINDS]
        names = (report.session, report.request, report.turn, report.model)
        self._add(_RECORD, (self._agent[0], *map(_storable, names), at, *tokens, cost))

    def name_turn(self, turn: str, task: TaskId, /) -> None:
        """See core.usage.UsageRecorder."""
        self._add(_NAME_TURN, (self._agent[0], _storable(turn), task, int(self._clock.now().timestamp())))

    def usage(self) -> AgentUsage | None:
        """Returns the agent's sums of today and of all; None while they are not known. Does not read the file."""
        known = self._usage
        if known is None:
            return None
        day, usage = known
        return usage if day == self._today().date().isoformat() else AgentUsage(overall=usage.overall)

    def close(self, seconds: float) -> None:
        """Writes what waits, for at most `seconds`, and ends the thread."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join(seconds)

    def _add(self, statement: str, values: Sequence[Any]) -> None:
        with self._changed:
            if len(self._waiting) < _MOST_WAITING:
                self._waiting.append((statement, values))
            self._changed.notify_all()

    def _serve(self) -> None:
        if self._path.exists():
            # Before the first request: an agent that is started again has sums already.
            self._sum_up()
        while True:
            with self._changed:
                pause = None if self._sums_due is None else max(0.0, self._sums_due - self._clock.monotonic())
                self._changed.wait_for(lambda: self._waiting or self._is_closing, pause)
                batch = tuple(self._waiting)
            if self._sums_due is not None and self._clock.monotonic() >= self._sums_due:
                self._sum_up()
            if batch and self._write(batch):
                with self._changed:
                    del self._waiting[: len(batch)]
            elif batch and not self._is_closing:
                with self._changed:
                    self._changed.wait_for(lambda: self._is_closing, _RETRY_SECONDS)
                continue
            if self._is_closing and (not batch or self._is_failing):
                self._close_connection()
                return

    def _write(self, batch: Sequence[tuple[str, Sequence[Any]]]) -> bool:
        """Writes statements in one transaction; returns whether they are done with."""
        try:
            connection = self._connected()
            with transaction(connection):
                if not self._has_named_agent:
                    connection.execute(_NAME_AGENT, self._agent)
                for statement, values in batch:
                    connection.execute(statement, values)
                self._prune(connection)
            self._has_named_agent = True
            self._sums_due = self._sums_due or self._clock.monotonic() + self._sums_pause
        except (OSError, sqlite3.Error, StoreTooNew) as error:
            self._close_connection()
            if getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE in _DAMAGED:
                self._move_aside(error)
            elif not self._is_failing:
                log.warning("usage_not_recorded", extra={"path": str(self._path), "error": str(error)})
            self._is_failing = True
            return False
        self._is_failing = False
        return True

    def _sum_up(self) -> None:
        """Makes the sums for the status, which must not wait for a file; seldom enough if that takes long."""
        today, began = self._today(), self._clock.monotonic()
        self._sums_due = None
        with suppress(OSError, sqlite3.Error, StoreTooNew):
            overall = _sum(self._connected(), self._agent[0], 0)
            of_day = _sum(self._connected(), self._agent[0], int(today.timestamp()))
            self._usage = (today.date().isoformat(), AgentUsage(today=of_day, overall=overall))
        self._sums_pause = _PAUSE_PER_SUM * (self._clock.monotonic() - began)

    def _today(self) -> datetime:
        """Returns when this day began, where this machine is."""
        return self._clock.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0)

    def _prune(self, connection: sqlite3.Connection) -> None:
        if self._clock.monotonic() - self._pruned_at < _PRUNE_SECONDS:
            return
        self._pruned_at = self._clock.monotonic()
        before = int((self._clock.now() - KEPT).timestamp())
        connection.execute("DELETE FROM requests WHERE at < ?", (before,))
        connection.execute("DELETE FROM turns WHERE at < ?", (before,))

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None or self._opened != identity_at(self._path):
            self._close_connection()
            self._connection = _open(self._path)
            self._opened = identity_at(self._path)
            self._has_named_agent = False
        return self._connection

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _move_aside(self, error: Exception) -> None:
        aside = self._path.with_name(f"{self._path.name}.damaged")
        log.warning("usage_file_damaged", extra={"path": str(self._path), "kept_as": str(aside), "error": str(error)})
        with suppress(OSError):
            self._path.replace(aside)
            for suffix in ("-wal", "-shm"):
                # They belong to the damaged file, and SQLite would take them for those of the next one.
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)


def _open(path: Path) -> sqlite3.Connection:
    """Opens the file, which is made if it is missing. Raises OSError, sqlite3.Error or StoreTooNew."""
    if not path.exists():
        make_folders(path.parent)
        create_private(path)
    connection = _connect(path)
    try:
        if _schema_of(connection, path) < SCHEMA:
            connection.execute("PRAGMA journal_mode = WAL")
            with transaction(connection):
                # Another process may have made the tables meanwhile.
                if _schema_of(connection, path) < SCHEMA:
                    for statement in _TABLES:
                        connection.execute(statement)
                    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                    connection.execute(f"PRAGMA user_version = {SCHEMA}")
        # What is lost with the power is a few numbers, but what is there has to be whole.
        connection.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _reading(path: Path) -> Generator[sqlite3.Connection | None]:
    """Opens the file for reading; None if there is none yet. Raises StoreFailed."""
    try:
        if not path.exists():
            yield None
            return
        with closing(_connect(path)) as connection:
            yield connection if _schema_of(connection, path) else None
    except (OSError, sqlite3.Error) as error:
        raise store_error(error, path) from error


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(uri(path), uri=True, timeout=_LOCK_SECONDS, isolation_level=None, check_same_thread=False)


def _schema_of(connection: sqlite3.Connection, path: Path) -> int:
    """Returns the schema of the file; 0 for a new one. Raises StoreTooNew."""
    (schema,) = connection.execute("PRAGMA user_version").fetchone()
    if schema > SCHEMA:
        raise StoreTooNew(
            f"{path} was written by a newer Synapse (schema {schema}; this one knows {SCHEMA})",
            hint="upgrade Synapse; messages and tasks are not affected",
        )
    return int(schema)


def _sum(connection: sqlite3.Connection, inbox: str, since: int) -> UsageTotal:
    statement = f"SELECT {_SUMS} FROM requests r WHERE r.inbox = :inbox AND r.at >= :since"  # noqa: S608 - the columns are constants
    row = connection.execute(statement, {"inbox": inbox, "since": since, "sessions": True}).fetchone()
    return _total(row)


def _row(by: UsageGroup, row: Sequence[Any]) -> UsageRow:
    inbox, session, turn, task, model, day, name, agent_id, agent_type, *sums = row
    of_agent = (
        {}
        if by in (UsageGroup.DAY, UsageGroup.MODEL)
        else {
            "agent": name or agent_id.removeprefix("synapse-"),
            "agent_id": agent_id,
            "agent_type": agent_type,
            "inbox": inbox,
        }
    )
    known = {
        **of_agent,
        **({"day": day} if by is UsageGroup.DAY else {}),
        **({"task": task} if by in (UsageGroup.TURN, UsageGroup.TASK) else {}),
        **({"session": session, "turn": turn} if by is UsageGroup.TURN else {}),
        **({"model": model} if by in (UsageGroup.TURN, UsageGroup.TASK, UsageGroup.MODEL) else {}),
    }
    return UsageRow(key=known, total=_total(sums), last=datetime.fromtimestamp(sums[-1], UTC))


def _total(sums: Sequence[Any]) -> UsageTotal:
    *tokens, requests, cost, unpriced, _ = sums
    return UsageTotal(
        tokens=TokenCounts(**{kind: count or 0 for kind, count in zip(TOKEN_KINDS, tokens, strict=True)}),
        requests=requests or 0,
        cost=None if cost is None else Decimal(cost) / _NANO,
        unpriced=unpriced or 0,
    )


def _port_in(agent_id: str) -> int:
    end = agent_id.rpartition("-")[2]
    return int(end) if end.isascii() and end.isdigit() else 0


def _storable(text: str) -> str:
    # SQLite cannot hold a lone surrogate, which a CLI may have written as an escape.
    return text.encode("utf-8", "replace").decode("utf-8")[:500]
