"""Reads the log of this machine's store for the link: ends of tasks, rows to ship, and whether it is the same store.

StoreLog     reads the file, in a thread of its own
LogTail      tells the relay which tasks of other machines have ended, and how far the log was read
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from synapse.core.address import split_inbox
from synapse.core.caller import MACHINE_SCOPE
from synapse.core.errors import StoreFailed, TaskNotFound, WaitCycle
from synapse.core.message import Role
from synapse.core.store import TaskStore
from synapse.core.task import Task, TaskId
from synapse.core.waiting import pause
from synapse.fleet.asks import SendBody, encode_send_body
from synapse.fleet.log import PIECE, LogRow, PieceAnswer, data_digest
from synapse.fleet.relay_io import EndedTask, StoreMark, Tailed
from synapse.link.deliveries import end_of
from synapse.link.shell import RelayShell
from synapse.store.codec import from_json
from synapse.store.log_rows import read_append, read_rows
from synapse.store.reader import last_seq
from synapse.store.threads import ReadThread

log = logging.getLogger(__name__)

GATHER_SECONDS: Final = 0.02
"""The least time between two looks at the log: each look is a commit of link.db."""
WAIT_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 1.0
_LOCK_SECONDS: Final = 10.0
_ENDED: Final = """
SELECT DISTINCT tasks.id FROM appends CROSS JOIN tasks ON tasks.number = appends.task
WHERE appends.seq > ? AND appends.seq <= ? AND tasks.scope >= ? AND tasks.scope < ?
    AND tasks.state IN ('completed', 'failed', 'canceled', 'rejected')
ORDER BY tasks.number
"""
_SPANNED: Final = "spanned"
"""The mark at a seq over which an append lies: no history of this machine has ended there."""
_LAST_SCOPE: Final = MACHINE_SCOPE[:-1] + chr(ord(MACHINE_SCOPE[-1]) + 1)
"""The first text after all that begin with MACHINE_SCOPE."""


class LogLook(NamedTuple):
    """What the log has after a seq: its last seq, the mark there, and the tasks of other machines that have ended."""

    seq: int
    mark: str
    ended: tuple[TaskId, ...]


class StoreLog:
    """Reads the file of this machine's store. Every read raises StoreFailed."""

    def __init__(self, path: Path) -> None:
        self._thread = ReadThread(path, lock_timeout=_LOCK_SECONDS)

    async def mark(self, store_id: str, seq: int) -> StoreMark:
        """Returns what the store is now; see StoreMark."""

        def read(connection: sqlite3.Connection) -> StoreMark:
            return StoreMark(store_id=store_id, last_seq=last_seq(connection), mark=_mark_at(connection, seq))

        return await self._thread.read(read)

    async def last_seq(self) -> int:
        """Returns the seq of the last row."""
        return await self._thread.read(last_seq)

    async def look(self, after: int) -> LogLook:
        """Returns what is new after a seq."""

        def read(connection: sqlite3.Connection) -> LogLook:
            connection.execute("BEGIN")
            try:
                last = last_seq(connection)
                found = connection.execute(_ENDED, (after, last, MACHINE_SCOPE, _LAST_SCOPE)).fetchall()
                return LogLook(last, _mark_at(connection, last), tuple(TaskId(one) for (one,) in found))
            finally:
                connection.execute("COMMIT")

        return await self._thread.read(read)

    async def rows(self, after: int, up_to: int, *, most_rows: int, most_bytes: int) -> tuple[tuple[LogRow, ...], bool]:
        """Returns rows to ship; see `fleet.log.ReadRows`."""

        def read(connection: sqlite3.Connection) -> tuple[tuple[LogRow, ...], bool]:
            rows, complete = read_rows(connection, after, up_to=up_to, most_rows=most_rows, most_bytes=most_bytes)
            return tuple(rows), complete

        return await self._thread.read(read)

    async def piece(self, seq: int, offset: int) -> PieceAnswer:
        """Returns a piece of a large row."""

        def read(connection: sqlite3.Connection) -> PieceAnswer:
            rows, _ = read_rows(connection, seq - 1, up_to=seq, most_rows=1, most_bytes=0)
            return PieceAnswer(data=rows[0].data[offset : offset + PIECE]) if rows else PieceAnswer(gone=True)

        return await self._thread.read(read)

    async def close(self) -> None:
        await self._thread.close()


class LogTail:
    """Gives the relay the ends of tasks that messages of other machines have opened."""

    def __init__(self, store: TaskStore, log: StoreLog, shell: RelayShell, on_tailed: Callable[[int], None]) -> None:
        """`on_tailed` is called with each position that is durable."""
        self._store = store
        self._log = log
        self._shell = shell
        self._on_tailed = on_tailed

    async def run(self) -> None:
        """Reads the log as it grows, until it is cancelled."""
        while True:
            try:
                await self._read()
            except StoreFailed as error:
                log.debug("log_not_read", extra={"error": str(error)})
                await pause(RETRY_SECONDS)

    async def _read(self) -> None:
        """Reads what is new, then waits for more. Raises StoreFailed, also while the relay does not run."""
        await self._shell.loaded.wait()
        after = self._shell.tail_seq
        look = await self._log.look(after)
        if look.seq != after:
            ended = [one for task_id in look.ended for one in await self._ended(task_id)]
            if self._shell.tail_seq != after:
                return  # the relay was loaded again meanwhile, and has forgotten what was not durable
            await self._shell.store(Tailed(seq=look.seq, mark=look.mark, ended=tuple(ended)))
            self._on_tailed(look.seq)
        await pause(GATHER_SECONDS)
        await self._store.wait_after(look.seq, WAIT_SECONDS)

    async def _ended(self, task_id: TaskId) -> list[EndedTask]:
        """Returns the end of a task for each message of the other machine that it has: one may continue the task."""
        with suppress(TaskNotFound):
            task = await self._store.load(task_id)
            # A request that closes a cycle of waits has a task, but its sender was told that it is refused.
            if task.state.is_terminal and task.reason != WaitCycle.code:
                machine, end, waiter = task.scope.removeprefix(MACHINE_SCOPE), end_of(task), _waiter_of(task)
                return [
                    EndedTask(machine=machine, message_id=message_id, task_id=task.id, end=end, waiter=waiter)
                    for message_id in await self._claimed_by(task)
                ]
        return []

    async def _claimed_by(self, task: Task) -> list[str]:
        """Returns the ids of the messages that the machine of the task sent: others may have added some to it."""
        later = [message.message_id for message in task.history[1:] if message.role is Role.USER]
        claims = {one: await self._store.find_message(task.inbox, task.scope, one) for one in later if one}
        mine = (one for one, known in claims.items() if known is not None and known.task_id == task.id)
        return [task.message.message_id, *mine]


def _waiter_of(task: Task) -> bytes:
    """Returns who waits for a task, as its message said it; empty if nobody does."""
    waiting = task.reply_to.task_id if task.reply_to is not None else ""
    inbox, _ = split_inbox(task.sender.inbox)
    if not waiting or not inbox:
        return b""
    return encode_send_body(SendBody(parts=(), sender_inbox=inbox, sender_task_id=waiting, response_expected=True))


def _mark_at(connection: sqlite3.Connection, seq: int) -> str:
    """Returns the digest of the row at a seq; empty if it was pruned."""
    if seq <= 0:
        return ""
    rows, _ = read_rows(connection, seq - 1, up_to=seq, most_rows=1, most_bytes=0)
    if rows:
        return data_digest(rows[0].data).hex()
    following, _ = read_rows(connection, seq, most_rows=1, most_bytes=0)
    # The seq of a row is that of its last event. A store from a backup has gone on with an append over this seq.
    if following and following[0].seq - len(from_json(read_append(following[0]).body)) < seq:
        return _SPANNED
    return ""
