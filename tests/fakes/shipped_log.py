"""A machine of a fleet whose log a test ships: its store, and the batches that its link would publish."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from synapse.core.events import TaskEvent
from synapse.core.lifecycle import replay
from synapse.core.task import Task, TaskId
from synapse.fleet.log import (
    PIECE,
    START,
    Batch,
    LogRequest,
    LogRow,
    Mark,
    PieceAnswer,
    PieceRequest,
    RangeAnswer,
    Replica,
    ReplicaHead,
    Taken,
    batches_after,
    chained,
    encode_batch,
    encode_log,
    shown,
)
from synapse.fleet.wire import Incarnation
from synapse.store.file import migrations
from synapse.store.log_rows import read_rows
from synapse.store.replica import ReplicaFile
from tests.fakes.leased_store import LeasedStore

NOW = datetime(2026, 1, 16, 10, 0, tzinfo=UTC)
SCHEMA = migrations()[-1][0]
_ALL = 1 << 30


class ShippedMachine:
    """One machine: appends events to its store, and cuts its log into batches."""

    def __init__(self, name: str, path: Path, store: LeasedStore, counter: int = 1) -> None:
        self.name = name
        self.store = store
        self._path = path
        self.incarnation = Incarnation(counter, f"{counter:016x}")
        self._marks: list[Mark] = []
        self._head = START
        self._histories: dict[TaskId, list[TaskEvent]] = {}
        self.ranges_asked = 0

    @classmethod
    async def open(cls, name: str, folder: Path, counter: int = 1) -> ShippedMachine:
        path = folder / f"{name}-{counter}" / "store.db"
        return cls(name, path, await LeasedStore.open(path), counter)

    async def keep(self, *events: TaskEvent, digest: str = "") -> Task:
        """Appends events of one task, after those that were appended before."""
        history = self._histories.setdefault(events[0].task_id, [])
        task = replay([*history, *events])
        await self.store.append(task, events, digest=digest)
        history += events
        return task

    def renew(self) -> None:
        """Begins a new incarnation: everything is shipped again."""
        counter = self.incarnation.counter + 1
        self.incarnation = Incarnation(counter, f"{counter:016x}")
        self._head, self._marks = START, []

    def rows(self) -> list[LogRow]:
        """The whole log, as it is on the machine."""
        with closing(sqlite3.connect(self._path)) as connection:
            return read_rows(connection, 0, most_rows=_ALL, most_bytes=_ALL)[0]

    def batches(self, most_rows: int = 200, *, schema: int = SCHEMA) -> list[Batch]:
        """The batches of what was appended since the last call."""
        new = [row for row in self.rows() if row.seq > self._head.seq]
        head = ReplicaHead(machine=self.name, incarnation=self.incarnation, mark=self._head)
        digest, marks = self._head.digest, list[Mark]()
        for begin in range(0, len(new), most_rows):
            cut = new[begin : begin + most_rows]
            digest = chained(digest, map(shown, cut))
            marks.append(Mark(cut[-1].seq, digest))
        if marks:
            self._head = marks[-1]
            self._marks += marks
        return batches_after(head, schema, marks, new, complete=True)

    def answer(self, request: LogRequest) -> bytes:
        """Answers as the machine's link does: with the batches after a mark, or a piece of a large row."""
        if isinstance(request, PieceRequest):
            data = next(row.data for row in self.rows() if row.seq == request.seq)
            return encode_log(PieceAnswer(data=data[request.offset : request.offset + PIECE]))
        after = request.after if request.incarnation == self.incarnation else START
        head = ReplicaHead(machine=self.name, incarnation=self.incarnation, mark=after)
        marks = [mark for mark in self._marks if mark.seq > after.seq][:3]
        rows = [row for row in self.rows() if marks and after.seq < row.seq <= marks[-1].seq]
        batches = batches_after(head, SCHEMA, marks, rows, complete=True)
        more = bool(marks) and marks[-1] != self._head
        self.ranges_asked += 1
        whole = not more and all(row.seq <= self._head.seq for row in self.rows())
        answered = tuple(map(encode_batch, batches))
        return encode_log(RangeAnswer(incarnation=self.incarnation, batches=answered, more=more, whole=whole))


def take_all(file: ReplicaFile, batches: Sequence[Batch], now: datetime = NOW) -> int:
    """Takes batches as the link does, and returns how many events were new. All of them must fit."""
    replica = Replica(file.heads())
    count = 0
    for batch in batches:
        taken = replica.take(batch)
        assert isinstance(taken, Taken)
        count += file.take(taken, now)
    return count


def rows_in(file: ReplicaFile, machine: ShippedMachine) -> list[LogRow]:
    """The rows of a machine's log that a replica has, as it would give them to another."""
    head = ReplicaHead(machine=machine.name, incarnation=machine.incarnation)
    return file.read_log(head, most_marks=_ALL, most_rows=_ALL, most_bytes=_ALL)[1]
