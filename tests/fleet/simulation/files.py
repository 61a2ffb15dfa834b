"""The files of simulated machines: link.db, the hosts' store, replica.db. Each can be copied and restored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from synapse.fleet.log import START, ChainRow, ForgetChain, LogRow, Mark, ReplicaHead, Taken
from synapse.fleet.relay_io import (
    EndedTask,
    ForgetHandled,
    HandledRow,
    Identity,
    LinkRows,
    OutboxRow,
    PeerRow,
    StoreMark,
    TailRow,
    Write,
)
from synapse.fleet.wire import End, Incarnation

Key = tuple[str, str]
"""The machine that sent a message, and the message's id."""


@dataclass(slots=True)
class LinkDb:
    """link.db."""

    identity: Identity | None = None
    tail: TailRow = field(default_factory=TailRow)
    outbox: dict[str, OutboxRow] = field(default_factory=dict[str, OutboxRow])
    handled: dict[tuple[str, Incarnation, int], HandledRow] = field(
        default_factory=dict[tuple[str, Incarnation, int], HandledRow]
    )
    peers: dict[str, PeerRow] = field(default_factory=dict[str, PeerRow])
    chain: list[ChainRow] = field(default_factory=list[ChainRow])

    def copy(self) -> LinkDb:
        return LinkDb(
            self.identity, self.tail, dict(self.outbox), dict(self.handled), dict(self.peers), list(self.chain)
        )

    def rows(self) -> LinkRows:
        return LinkRows(
            identity=self.identity,
            tail=self.tail,
            outbox=tuple(row for row in self.outbox.values() if not row.is_finished),
            handled=tuple(self.handled.values()),
            peers=tuple(self.peers.values()),
        )

    def commit(self, writes: tuple[Write, ...]) -> None:
        for write in writes:
            match write:
                case OutboxRow():
                    self.outbox[write.message_id] = write
                case HandledRow():
                    self.handled[write.machine, write.incarnation, write.n] = write
                case PeerRow():
                    self.peers[write.machine] = write
                case Identity():
                    self.identity = write
                case TailRow():
                    self.tail = write
                case ForgetHandled():
                    self._forget(write)

    def commit_chain(self, writes: tuple[ChainRow | ForgetChain, ...]) -> None:
        for write in writes:
            if isinstance(write, ChainRow):
                self.chain.append(write)
            else:
                self.chain = [row for row in self.chain if row.incarnation == write.incarnation]

    def _forget(self, forget: ForgetHandled) -> None:
        self.handled = {
            key: row
            for key, row in self.handled.items()
            if key[0] != forget.machine or (key[1] == forget.incarnation and key[2] >= forget.n)
        }


class SimTask(NamedTuple):
    """A task of a host. States: queued, typed, then completed, failed or canceled."""

    task_id: str
    key: Key
    inbox: str
    state: str
    ended_at: float = 0.0
    is_claim: bool = False
    """A cancel has claimed the message id; no message opened the task."""

    @property
    def end(self) -> End | None:
        return End(state=self.state) if self.state in ("completed", "failed", "canceled") else None


class Row(NamedTuple):
    """A row of the log, and the task that it ends, if any."""

    data: bytes
    task_id: str
    ends: bool
    salt: str
    """Makes the row unlike those of other histories, as its time does, for the link's mark but not for the chain."""


@dataclass(slots=True)
class HostStore:
    """The store that the hosts of a machine share. Every method is one transaction."""

    store_id: str
    last_seq: int = 0
    log: dict[int, Row] = field(default_factory=dict[int, Row])
    tasks: dict[str, SimTask] = field(default_factory=dict[str, SimTask])
    claims: dict[tuple[str, Key], str] = field(default_factory=dict[tuple[str, Key], str])
    """By inbox and message: the claim of a message id, as the hosts' store has it."""
    told: dict[str, str] = field(default_factory=dict[str, str])
    """What the waiters of this machine's own messages were told."""

    def copy(self) -> HostStore:
        return HostStore(
            self.store_id, self.last_seq, dict(self.log), dict(self.tasks), dict(self.claims), dict(self.told)
        )

    def find(self, key: Key, inbox: str = "") -> SimTask | None:
        for claim, task_id in self.claims.items():
            if claim[1] == key and inbox in ("", claim[0]):
                return self.tasks.get(task_id)
        return None

    def append(self, data: str, salt: str, task: SimTask | None = None) -> None:
        self.last_seq += 1
        is_end = task is not None and task.end is not None
        self.log[self.last_seq] = Row(data.encode(), task.task_id if task is not None else "", is_end, salt)
        if task is not None:
            self.tasks[task.task_id] = task

    def open(self, task: SimTask, salt: str, *, claim: bool = True) -> None:
        self.append(f"opened {task.task_id}", salt, task)
        if claim:
            self.claims[task.inbox, task.key] = task.task_id

    def change(self, task: SimTask, state: str, now: float, salt: str) -> SimTask:
        changed = task._replace(state=state, ended_at=now)
        self.append(f"{state} {task.task_id}", salt, changed)
        return changed

    def prune(self, before: float) -> set[Row]:
        """Deletes the tasks that ended before that time; returns their rows."""
        old = {task.task_id for task in self.tasks.values() if task.end is not None and task.ended_at < before}
        self.tasks = {task_id: task for task_id, task in self.tasks.items() if task_id not in old}
        self.claims = {claim: task_id for claim, task_id in self.claims.items() if task_id not in old}
        gone = {row for row in self.log.values() if row.task_id in old}
        self.log = {seq: row for seq, row in self.log.items() if row not in gone}
        return gone

    def mark(self, seq: int) -> str:
        row = self.log.get(seq)
        return f"{row.data.decode()} {row.salt}" if row is not None else ""

    def look(self, tail: TailRow) -> StoreMark:
        return StoreMark(store_id=self.store_id, last_seq=self.last_seq, mark=self.mark(tail.seq))

    def ended(self, after: int, up_to: int) -> tuple[EndedTask, ...]:
        found: list[EndedTask] = []
        for seq, row in self.log.items():
            task = self.tasks.get(row.task_id) if row.ends and after < seq <= up_to else None
            if task is not None and task.end is not None and task.key[0]:
                found.append(EndedTask(machine=task.key[0], message_id=task.key[1], task_id=task.task_id, end=task.end))
        return tuple(found)

    def rows(self, after: int, up_to: int, most: int) -> tuple[tuple[LogRow, ...], bool]:
        found = [LogRow(seq, row.data) for seq, row in self.log.items() if after < seq <= up_to]
        return tuple(found[:most]), len(found) <= most


@dataclass(slots=True)
class ReplicaDb:
    """replica.db: the rows of each incarnation of other machines, and the marks of the current one."""

    heads: dict[str, ReplicaHead] = field(default_factory=dict[str, ReplicaHead])
    rows: dict[tuple[str, Incarnation], dict[int, bytes]] = field(
        default_factory=dict[tuple[str, Incarnation], dict[int, bytes]]
    )
    marks: dict[tuple[str, Incarnation], list[Mark]] = field(default_factory=dict[tuple[str, Incarnation], list[Mark]])
    closed: set[tuple[str, Incarnation]] = field(default_factory=set[tuple[str, Incarnation]])

    def copy(self) -> ReplicaDb:
        return ReplicaDb(
            dict(self.heads),
            {key: dict(rows) for key, rows in self.rows.items()},
            {key: list(marks) for key, marks in self.marks.items()},
            set(self.closed),
        )

    def commit(self, taken: Taken) -> None:
        head = taken.head
        key = (head.machine, head.incarnation)
        if taken.closes is not None:
            self.closed.add((head.machine, taken.closes))
        if head != self.heads.get(head.machine) and head.mark != START:
            self.marks.setdefault(key, []).append(head.mark)
        self.heads[head.machine] = head
        rows = self.rows.setdefault(key, {})
        for row in taken.rows:
            rows[row.seq] = row.data

    def restart(self, head: ReplicaHead) -> None:
        key = (head.machine, head.incarnation)
        self.heads[head.machine] = head
        self.rows[key], self.marks[key] = {}, []


@dataclass(slots=True)
class Files:
    """All files of a machine."""

    link: LinkDb
    store: HostStore
    replica: ReplicaDb

    def copy(self) -> Files:
        return Files(self.link.copy(), self.store.copy(), self.replica.copy())
