"""The shipped log: a machine publishes the rows of its log in batches, and replicas on other machines take them.

A batch names the position that it follows and the one that it leads to. A position (Mark) is a seq and a digest; the
digest chains all batches of the incarnation: `blake2b(digest of the previous batch + rows)`. Seqs have holes, because
finished tasks are pruned, so only the chain tells whether something is missing. Each mark is stored, by the machine
before it publishes the batch and by a replica with the rows. So both can cut the log again at the same positions, and a
position that the machine does not know proves that its files are a backup.

A row that was pruned after its batch was shipped is missing when the batch is made again. Such a batch is `thinned`:
its digest is taken from the stored mark, and a replica does not compute it.

    shipper (one per machine)                                     replica (any machine)
    connect: last batch in the engine ─→ go on after it           take(batch) ─→ Taken    rows and mark, in one commit
    new rows ─→ mark stored ─→ batch published                                   Missing  ask the machine for a range,
    range asked ─→ batches since a mark, or all of them                                   then other replicas
                                                                                 Forked   the same; the machine notices
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from hashlib import blake2b
from typing import Final

import msgspec

from synapse.core.types import frozen
from synapse.fleet.wire import NO_INCARNATION, Incarnation, Number, UnreadableBody

MOST_ROWS: Final = 200
MOST_BYTES: Final = 256 * 1024
"""Of the rows in one batch before compression. One row may be larger, up to LARGE."""
LARGE: Final = 512 * 1024
"""A row with more bytes goes as its size and hash; a replica fetches it in pieces."""
PIECE: Final = 256 * 1024
"""The bytes of one piece of a large row."""
DIGEST_SIZE: Final = 16
MOST_MARKS: Final = 50_000
"""How many marks of its own log a machine keeps in memory, with about 150 bytes each."""


class LogRow(msgspec.Struct, frozen=True, array_like=True):
    """One row of a machine's log. The content is opaque here: the shell encodes a row of its store."""

    seq: Number
    data: bytes
    size: Number = 0
    """For a large row, whose `data` is empty: its size in bytes."""
    digest: bytes = b""
    """For a large row: the hash of its data."""

    @property
    def is_large(self) -> bool:
        return self.size > 0


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """A position of an incarnation's log: all rows up to `seq`. The digest chains everything before it."""

    seq: Number = 0
    digest: bytes = b""


START: Final = Mark()
"""The position before the first row."""


class Batch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="batch"):
    """Rows that follow `prev` and lead to `last`."""

    machine: str
    incarnation: Incarnation
    schema: Number
    """The schema of the machine's store. A replica that does not know it keeps the rows as they are."""
    prev: Mark
    last: Mark
    rows: tuple[LogRow, ...]
    thinned: bool = False
    """Rows of the batch were pruned since it was first made, so its digest cannot be computed from the rest."""


class RangeRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="range"):
    """Asks a machine, or another replica, for the batches of `machine` after a mark."""

    machine: str
    incarnation: Incarnation = NO_INCARNATION
    """The one that the replica holds; another incarnation is answered from its start."""
    after: Mark = START


class RangeAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="batches"):
    """The next batches after the mark of a RangeRequest, each encoded. Empty: there are none."""

    incarnation: Incarnation = NO_INCARNATION
    """The one that the answerer has; see `Replica.hear`."""
    batches: tuple[bytes, ...] = ()
    more: bool = False
    """There are further batches: ask again after the last one."""
    restart: bool = False
    """The mark is not known any more: throw the rows of this incarnation away and ask from the start."""
    whole: bool = False
    """The batches lead to the end of the log as the machine's files have it. Only the machine itself can know."""


class PieceRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="piece_of"):
    """Asks for PIECE bytes of a large row, from `offset`."""

    machine: str
    incarnation: Incarnation
    seq: Number
    offset: Number


class PieceAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="piece"):
    """A piece of a large row; `gone` if the row was pruned or is not there."""

    data: bytes = b""
    gone: bool = False


LogRequest = RangeRequest | PieceRequest


# What a shell stores


@frozen
class ChainRow:
    """A mark of this machine's own log, stored before its batch is published. Table `chain` of link.db, by `seq`.

    Those older than eight days may be deleted, except the newest; a replica that still stands there starts again. The
    rows before the oldest mark are shipped in batches that are cut anew (`cut_batch`).
    """

    incarnation: Incarnation
    mark: Mark


@frozen
class ForgetChain:
    """Delete the rows of the table `chain` that are of another incarnation: it ships the log from its start."""

    incarnation: Incarnation


@frozen
class ReplicaHead:
    """How far the replica of a machine is. Table `heads` of replica.db, by `machine`; written with the rows."""

    machine: str
    incarnation: Incarnation = NO_INCARNATION
    mark: Mark = field(default=START)


# What Replica.take returns


@frozen
class Taken:
    """Write the rows, the mark and the head in one transaction. No rows: the replica had the batch already."""

    head: ReplicaHead
    schema: int = 0
    rows: tuple[LogRow, ...] = ()
    closes: Incarnation | None = None
    """An earlier incarnation that ends here: its tasks that were open read `failed`, reason MACHINE_LOST."""

    @property
    def large(self) -> tuple[LogRow, ...]:
        """The rows whose data must be fetched in pieces."""
        return tuple(row for row in self.rows if row.is_large)


@frozen
class Missing:
    """The batch does not follow the replica's head: ask for the range between, of the machine or another replica."""

    request: RangeRequest


@frozen
class Forked:
    """The batch contradicts the replica. Ask the machine for the range: it finds out that its files are a backup."""

    request: RangeRequest
    why: str


MACHINE_LOST: Final = "machine_lost"
"""The reason of a task that was open in an incarnation which has ended."""


# Events and effects of the shipper


@frozen
class EngineRead:
    """The engine is reachable; `last` is the last message of our log's subject, or None if it has none.

    Give it after the relay was told about our own incarnation in SYN_INCARNATION, so that ours is current.
    """

    last: bytes | None


@frozen
class EngineLost:
    """The engine is not reachable any more."""


@frozen
class LogGrew:
    """The relay has read the store's log up to `seq` (`Tailed`), and that is committed.

    The shipper never goes further than the relay: by the relay's position a restored store is recognised, and rows
    beyond it could be shipped twice with different content.
    """

    seq: int


@frozen
class RowsRead:
    """A ReadRows has ended: the rows in order, with their whole data."""

    token: int
    rows: tuple[LogRow, ...]
    complete: bool
    """No further row up to `up_to` was left out because of a limit."""


@frozen
class ChainStored:
    """A StoreChain is committed."""

    token: int


@frozen
class BatchKept:
    """A KeepBatch has ended. `kept` is False when the engine refused it or nobody knows."""

    token: int
    kept: bool


@frozen
class RangeAsked:
    """A replica asks for batches of this machine's log."""

    token: int
    request: RangeRequest
    end: int
    """The seq of the last row in the machine's store."""


@frozen
class IncarnationTaken:
    """The relay has announced a new incarnation (`Announce`), and it is durable. Everything is shipped again."""

    incarnation: Incarnation


LogEvent = EngineRead | EngineLost | LogGrew | RowsRead | ChainStored | BatchKept | RangeAsked | IncarnationTaken


@frozen
class ReadRows:
    """Read rows of the store's log after `after`, then give RowsRead.

    At least one row if there is any; then as many as fit in both limits. `up_to` 0 means no end.
    """

    token: int
    after: int
    up_to: int
    most_rows: int
    most_bytes: int


@frozen
class StoreChain:
    """Commit the writes to link.db in one transaction, then give ChainStored."""

    token: int
    writes: tuple[ChainRow | ForgetChain, ...]


@frozen
class KeepBatch:
    """Publish the batch on our log's subject, then give BatchKept.

    With `expected_last`: the number of the last message that EngineRead showed, or of the last batch kept since. One
    that was returned before an EngineLost must not be published after it.
    """

    token: int
    body: bytes


@frozen
class ReadEngine:
    """Read the last message of our log's subject after a second, then give EngineRead, unless the engine is lost."""


@frozen
class AnswerRange:
    """Answer the replica."""

    token: int
    answer: RangeAnswer


@frozen
class ReportOutdated:
    """Give the relay an Outdated: the engine or a replica knows more about our log than we do."""

    why: str
    counter: int = 0


LogEffect = ReadRows | StoreChain | KeepBatch | ReadEngine | AnswerRange | ReportOutdated


# Functions


def encode_batch(batch: Batch) -> bytes:
    """Returns the compressed bytes of a batch."""
    return zlib.compress(_encoder.encode(batch), 1)


def decode_batch(body: bytes) -> Batch:
    """Returns the batch. Raises UnreadableBody for damaged bytes and for types of a newer version."""
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(body, _MOST_UNPACKED)
        if not unpacking.eof:
            raise UnreadableBody("the batch is cut off or too large")
        return _batch_decoder.decode(text)
    except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableBody(str(error)) from error


def encode_log(body: LogRequest | RangeAnswer | PieceAnswer) -> bytes:
    """Returns the bytes of a request about a log, or of the answer to it."""
    return _encoder.encode(body)


def decode_log(body: bytes) -> LogRequest | RangeAnswer | PieceAnswer:
    """Returns the request or answer. Raises UnreadableBody."""
    try:
        return _log_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableBody(str(error)) from error


def shown(row: LogRow) -> LogRow:
    """Returns the row as a batch has it: a large one without its data."""
    if len(row.data) <= LARGE:
        return row
    return LogRow(row.seq, b"", len(row.data), data_digest(row.data))


def data_digest(data: bytes) -> bytes:
    """Returns the hash by which a large row is known."""
    return blake2b(data, digest_size=DIGEST_SIZE).digest()


def chained(prev: bytes, rows: Iterable[LogRow]) -> bytes:
    """Returns the digest of a batch of these rows after one with the digest `prev`."""
    chain = blake2b(prev, digest_size=DIGEST_SIZE)
    for row in rows:
        content = row.digest if row.is_large else row.data
        chain.update(b"%d:%d:%d:" % (row.seq, row.size, len(content)))
        chain.update(content)
    return chain.digest()


def whole_row(row: LogRow, pieces: Iterable[bytes]) -> LogRow | None:
    """Returns a large row with the data of its pieces; None if they are not the row's, so that they are asked again."""
    data = b"".join(pieces)
    return LogRow(row.seq, data) if len(data) == row.size and data_digest(data) == row.digest else None


def batches_after(
    head: ReplicaHead, schema: int, marks: Sequence[Mark], rows: Sequence[LogRow], *, complete: bool
) -> list[Batch]:
    """Cuts rows at stored marks: the batches that follow `head`, for a machine's own log or a replica of it.

    `rows` are those after the head, `marks` the stored positions after it. Of rows that were not read completely, the
    batches that may lack some are left out.
    """
    read = marks[-1].seq if complete and marks else rows[-1].seq if rows else 0
    batches: list[Batch] = []
    prev, begin = head.mark, 0
    for mark in marks:
        if mark.seq > read:
            break
        end = begin
        while end < len(rows) and rows[end].seq <= mark.seq:
            end += 1
        inside = tuple(shown(row) for row in rows[begin:end])
        batches.append(
            Batch(
                machine=head.machine,
                incarnation=head.incarnation,
                schema=schema,
                prev=prev,
                last=mark,
                rows=inside,
                thinned=chained(prev.digest, inside) != mark.digest,
            )
        )
        prev, begin = mark, end
    return batches


def cut_batch(head: ReplicaHead, schema: int, rows: Sequence[LogRow]) -> Batch:
    """Returns a batch that leads to the last of these rows, though no mark is stored there.

    Between two marks may be more rows than fit into a batch, once those between them were deleted. The mark of such a
    batch needs no memory: its digest says only that it was cut.
    """
    last = Mark(rows[-1].seq, _cut_digest(head.incarnation, rows[-1].seq))
    inside = tuple(shown(row) for row in rows)
    return Batch(
        machine=head.machine,
        incarnation=head.incarnation,
        schema=schema,
        prev=head.mark,
        last=last,
        rows=inside,
        thinned=True,
    )


def batches_of_range(
    head: ReplicaHead, schema: int, marks: Sequence[Mark], rows: Sequence[LogRow], *, complete: bool
) -> list[Batch]:
    """Returns the batches that follow `head`, as `batches_after` does, or a part of the first if it does not fit."""
    batches = batches_after(head, schema, marks, rows, complete=complete)
    return batches or ([cut_batch(head, schema, rows)] if marks and rows else [])


def _cut_digest(incarnation: Incarnation, seq: int) -> bytes:
    return blake2b(f"cut {incarnation.text} {seq}".encode(), digest_size=DIGEST_SIZE).digest()


class Replica:
    """Decides which batches the replicas of other machines take. Knows their heads; the shell keeps the rows."""

    def __init__(self, heads: Iterable[ReplicaHead] = ()) -> None:
        self._heads = {head.machine: head for head in heads}

    def head(self, machine: str) -> ReplicaHead:
        """Returns how far the replica of a machine is."""
        return self._heads.get(machine) or ReplicaHead(machine=machine)

    def take(self, batch: Batch) -> Taken | Missing | Forked:
        """Decides what to do with a batch, live or from a range. After Taken, the head is that of the batch.

        The shell commits the results in the order of the calls. If a commit fails, it loads the replica again.
        """
        head = self.head(batch.machine)
        if batch.incarnation.counter < head.incarnation.counter:
            return Taken(head=head)
        if batch.incarnation.counter > head.incarnation.counter:
            return self._begin(head, batch)
        if batch.incarnation != head.incarnation:
            return Forked(request=self.ask(batch.machine), why="two incarnations have the same counter")
        return self._go_on(head, batch)

    def hear(self, machine: str, incarnation: Incarnation) -> Taken | None:
        """Begins the replica of a new incarnation that a machine shows, also if its log is still empty."""
        head = self.head(machine)
        if incarnation.counter <= head.incarnation.counter:
            return None
        self._heads[machine] = ReplicaHead(machine=machine, incarnation=incarnation)
        closes = head.incarnation if head.incarnation != NO_INCARNATION else None
        return Taken(head=self._heads[machine], closes=closes)

    def ask(self, machine: str) -> RangeRequest:
        """Returns the request for everything that the replica of a machine does not have."""
        head = self.head(machine)
        return RangeRequest(machine=machine, incarnation=head.incarnation, after=head.mark)

    def restart(self, machine: str) -> ReplicaHead:
        """Forgets the rows of a machine's current incarnation; the shell deletes them. See RangeAnswer.restart."""
        head = ReplicaHead(machine=machine, incarnation=self.head(machine).incarnation)
        self._heads[machine] = head
        return head

    def _begin(self, head: ReplicaHead, batch: Batch) -> Taken | Missing | Forked:
        if batch.prev != START:
            return Missing(request=RangeRequest(machine=batch.machine, incarnation=batch.incarnation))
        closes = head.incarnation if head.incarnation != NO_INCARNATION else None
        return self._taken(batch, closes)

    def _go_on(self, head: ReplicaHead, batch: Batch) -> Taken | Missing | Forked:
        if batch.last.seq <= head.mark.seq:
            if batch.last.seq == head.mark.seq and batch.last != head.mark:
                return Forked(request=self.ask(batch.machine), why="the log has another row at the replica's head")
            return Taken(head=head)
        if batch.prev == head.mark:
            return self._taken(batch, None)
        if batch.prev.seq == head.mark.seq:
            return Forked(request=self.ask(batch.machine), why="the batch follows another row than the replica's head")
        return Missing(request=self.ask(batch.machine))

    def _taken(self, batch: Batch, closes: Incarnation | None) -> Taken | Forked:
        if not batch.thinned and chained(batch.prev.digest, batch.rows) != batch.last.digest:
            return Forked(request=self.ask(batch.machine), why="the digest does not match the rows")
        head = ReplicaHead(machine=batch.machine, incarnation=batch.incarnation, mark=batch.last)
        self._heads[batch.machine] = head
        return Taken(head=head, schema=batch.schema, rows=batch.rows, closes=closes)


class Shipper:
    """Publishes this machine's log. A step machine like the relay, with the same rules for tokens and Stores.

    At the start the shell gives LogGrew with the relay's position, and EngineRead when the engine is there.

    One thing at a time: it reads rows, stores the mark they lead to, publishes the batch, and goes on. Ranges are
    answered beside that.
    """

    def __init__(self, machine: str, incarnation: Incarnation, schema: int, chain: Iterable[ChainRow] = ()) -> None:
        self._machine = machine
        self._incarnation = incarnation
        self._schema = schema
        self._marks = sorted((row.mark for row in chain if row.incarnation == incarnation), key=_seq)[-MOST_MARKS:]
        self._engine: Mark | None = None
        """The last mark that the engine has; None while it is not known."""
        self._token = 0
        self._current = 0
        """The token of the read, store or publication under way; 0 if there is none."""
        self._readable = 0
        """How far the log may be read."""
        self._read_to = 0
        """How far it has been read: there may be no row up to here."""
        self._asked_to = 0
        self._storing: tuple[int, Mark] | None = None
        self._batch: Batch | None = None
        self._ranges: dict[int, tuple[RangeAsked, tuple[Mark, ...]]] = {}

    @property
    def shipped(self) -> Mark:
        """The last stored mark. The engine may lack it."""
        return self._marks[-1] if self._marks else START

    def step(self, event: LogEvent) -> list[LogEffect]:  # noqa: C901, PLR0911 - one case for each event
        """Takes an event; returns what to do."""
        match event:
            case EngineRead(last=last):
                return self._resume(last)
            case EngineLost():
                self._engine, self._current = None, 0
                return []
            case LogGrew(seq=seq):
                self._readable = max(self._readable, seq)
                return self._next()
            case RowsRead():
                return self._answer_range(event) if event.token in self._ranges else self._cut(event)
            case ChainStored():
                return self._stored(event.token)
            case BatchKept():
                return self._kept(event)
            case RangeAsked():
                return self._read_range(event)
            case IncarnationTaken(incarnation=incarnation):
                return self._start_again(incarnation)

    def _resume(self, last: bytes | None) -> list[LogEffect]:
        """Goes on after the last batch that the engine has: what it lost is shipped again."""
        if self._engine is not None:
            return []  # it was asked twice
        self._current, self._batch = 0, None
        try:
            batch = decode_batch(last) if last is not None else None
        except UnreadableBody:
            batch = None  # of a newer version, or damaged: replicas find the start of ours by its marks
        if batch is None or batch.incarnation.counter < self._incarnation.counter:
            self._engine = START
            return self._next()
        if batch.incarnation != self._incarnation or not self._knows(batch.last):
            self._engine = None
            why = "the engine holds a part of this machine's log that its own files do not know"
            return [ReportOutdated(why=why, counter=batch.incarnation.counter)]
        self._engine = batch.last
        return self._next()

    def _knows(self, mark: Mark) -> bool:
        """Decides whether a position is one of ours. Those before the oldest stored mark were deleted by their age."""
        return self._has(mark) or (bool(self._marks) and mark.seq < self._marks[0].seq)

    def _has(self, mark: Mark) -> bool:
        later = self._later(mark.seq - 1)
        if mark == START or (later < len(self._marks) and self._marks[later] == mark):
            return True
        return mark.seq < self.shipped.seq and mark.digest == _cut_digest(self._incarnation, mark.seq)

    def _later(self, seq: int) -> int:
        """Returns the index of the first stored mark after `seq`."""
        return bisect_right(self._marks, seq, key=_seq)

    def _next(self) -> list[LogEffect]:
        if self._engine is None or self._current or self._storing is not None:
            return []
        after = self._engine
        later = self._later(after.seq)
        if later < len(self._marks):
            return self._read(after.seq, self._marks[later].seq)
        if self._readable <= max(self._read_to, self.shipped.seq):
            return []
        return self._read(self.shipped.seq, self._readable)

    def _read(self, after: int, up_to: int) -> list[LogEffect]:
        self._current = self._new_token()
        self._asked_to = up_to
        return [ReadRows(token=self._current, after=after, up_to=up_to, most_rows=MOST_ROWS, most_bytes=MOST_BYTES)]

    def _cut(self, event: RowsRead) -> list[LogEffect]:
        if event.token != self._current or self._engine is None:
            return []
        self._current = 0
        head = ReplicaHead(machine=self._machine, incarnation=self._incarnation, mark=self._engine)
        known = self._later(head.mark.seq)
        if known < len(self._marks):
            marks = [self._marks[known]]
            self._batch = batches_of_range(head, self._schema, marks, event.rows, complete=event.complete)[0]
            return self._publish()
        self._read_to = self._asked_to if event.complete or not event.rows else event.rows[-1].seq
        if not event.rows:
            return []
        rows = tuple(shown(row) for row in event.rows)
        mark = Mark(rows[-1].seq, chained(head.mark.digest, rows))
        self._batch = batches_after(head, self._schema, [mark], event.rows, complete=True)[0]
        self._current = self._new_token()
        self._storing = (self._current, mark)
        return [StoreChain(token=self._current, writes=(ChainRow(incarnation=self._incarnation, mark=mark),))]

    def _stored(self, token: int) -> list[LogEffect]:
        if self._storing is None or self._storing[0] != token:
            return []  # of an incarnation that is over
        self._marks.append(self._storing[1])
        if len(self._marks) > MOST_MARKS:
            del self._marks[: MOST_MARKS // 2]
        self._storing = None
        return self._publish() if token == self._current else self._next()

    def _publish(self) -> list[LogEffect]:
        if self._batch is None:
            return []
        self._current = self._new_token()
        return [KeepBatch(token=self._current, body=encode_batch(self._batch))]

    def _kept(self, event: BatchKept) -> list[LogEffect]:
        if event.token != self._current:
            return []  # of a connection or an incarnation that is over
        batch, self._batch, self._current = self._batch, None, 0
        if not event.kept or batch is None:
            self._engine = None
            return [ReadEngine()]
        self._engine = batch.last
        return self._next()

    def _start_again(self, incarnation: Incarnation) -> list[LogEffect]:
        if incarnation.counter <= self._incarnation.counter:
            return []  # two in a row, carried out in the other order
        self._incarnation, self._marks, self._batch, self._storing = incarnation, [], None, None
        self._ranges.clear()
        self._read_to, self._current = 0, 0
        forget = ForgetChain(incarnation=incarnation)
        effects: list[LogEffect] = [StoreChain(token=self._new_token(), writes=(forget,))]
        if self._engine is None:
            return [*effects, ReadEngine()]
        self._engine = START
        return [*effects, *self._next()]

    def _read_range(self, event: RangeAsked) -> list[LogEffect]:
        request = event.request
        if request.incarnation != self._incarnation and request.incarnation.counter >= self._incarnation.counter:
            why = "a replica holds an incarnation of this machine's log that its own files do not know"
            outdated = ReportOutdated(why=why, counter=request.incarnation.counter)
            return [AnswerRange(token=event.token, answer=self._no_batches()), outdated]
        after = request.after if request.incarnation == self._incarnation else START
        if not self._has(after):
            return self._unknown_mark(event.token, after)
        later = self._later(after.seq)
        marks = tuple(self._marks[later : later + MOST_ROWS])
        if not marks:
            return [AnswerRange(token=event.token, answer=self._no_batches(whole=self._reaches(event.end)))]
        token = self._new_token()
        own = RangeRequest(machine=self._machine, incarnation=self._incarnation, after=after)
        self._ranges[token] = (replace(event, request=own), marks)
        return [
            ReadRows(
                token=token, after=after.seq, up_to=marks[-1].seq, most_rows=MOST_ROWS * 2, most_bytes=MOST_BYTES * 2
            )
        ]

    def _unknown_mark(self, token: int, mark: Mark) -> list[LogEffect]:
        if self._knows(mark):
            return [AnswerRange(token=token, answer=self._no_batches(restart=True))]
        why = "a replica holds a part of this machine's log that its own files do not know"
        outdated = ReportOutdated(why=why, counter=self._incarnation.counter)
        return [AnswerRange(token=token, answer=self._no_batches()), outdated]

    def _answer_range(self, event: RowsRead) -> list[LogEffect]:
        asked, marks = self._ranges.pop(event.token)
        head = ReplicaHead(machine=self._machine, incarnation=asked.request.incarnation, mark=asked.request.after)
        batches = batches_of_range(head, self._schema, marks, event.rows, complete=event.complete)
        more = bool(batches) and batches[-1].last != self.shipped
        bodies = tuple(encode_batch(batch) for batch in batches)
        whole = not more and self._reaches(asked.end)
        answer = RangeAnswer(incarnation=self._incarnation, batches=bodies, more=more, whole=whole)
        return [AnswerRange(token=asked.token, answer=answer)]

    def _reaches(self, end: int) -> bool:
        """Decides whether all rows up to `end` are in batches; while the engine is away, new ones are not."""
        return end <= max(self._read_to, self.shipped.seq)

    def _no_batches(self, *, restart: bool = False, whole: bool = False) -> RangeAnswer:
        return RangeAnswer(incarnation=self._incarnation, restart=restart, whole=whole)

    def _new_token(self) -> int:
        self._token += 1
        return self._token


def _seq(mark: Mark) -> int:
    return mark.seq


_MOST_UNPACKED: Final = 16 * 1024 * 1024
_encoder: Final = msgspec.msgpack.Encoder()
_batch_decoder: Final[msgspec.msgpack.Decoder[Batch]] = msgspec.msgpack.Decoder(Batch)
_log_decoder: Final[msgspec.msgpack.Decoder[LogRequest | RangeAnswer | PieceAnswer]] = msgspec.msgpack.Decoder(
    RangeRequest | RangeAnswer | PieceRequest | PieceAnswer
)
