"""The shipped log: batches in a chain, what a replica takes, what a machine ships again, and what proves a backup."""

from __future__ import annotations

from typing import TypeVar

import pytest

from synapse.fleet.log import (
    MOST_ROWS,
    START,
    AnswerRange,
    Batch,
    BatchKept,
    ChainRow,
    ChainStored,
    EngineLost,
    EngineRead,
    ForgetChain,
    Forked,
    IncarnationTaken,
    KeepBatch,
    LogEffect,
    LogEvent,
    LogGrew,
    LogRow,
    Mark,
    Missing,
    RangeAnswer,
    RangeAsked,
    RangeRequest,
    ReadEngine,
    ReadRows,
    Replica,
    ReplicaHead,
    ReportOutdated,
    RowsRead,
    Shipper,
    StoreChain,
    Taken,
    chained,
    decode_batch,
    encode_batch,
)
from synapse.fleet.wire import Incarnation

FIRST = Incarnation(1, "first")
SECOND = Incarnation(2, "second")
E = TypeVar("E")


def batch(prev: Mark, *rows: LogRow, incarnation: Incarnation = FIRST, thinned: bool = False) -> Batch:
    last = Mark(rows[-1].seq, chained(prev.digest, rows))
    return Batch(machine="box2", incarnation=incarnation, schema=8, prev=prev, last=last, rows=rows, thinned=thinned)


ONE = batch(START, LogRow(1, b"one"))
TWO = batch(ONE.last, LogRow(2, b"two"), LogRow(5, b"five"))


def taken(replica: Replica, *batches: Batch) -> Taken:
    results = [replica.take(one) for one in batches]
    assert isinstance(results[-1], Taken)
    return results[-1]


def test_a_replica_takes_batches_in_their_order() -> None:
    result = taken(Replica(), ONE, TWO)

    assert result.rows == TWO.rows
    assert result.head == ReplicaHead(machine="box2", incarnation=FIRST, mark=TWO.last)


def test_a_batch_that_a_replica_has_changes_nothing() -> None:
    assert taken(Replica(), ONE, TWO, ONE).rows == ()


def test_a_batch_after_a_hole_asks_for_the_range_between() -> None:
    replica = Replica()
    taken(replica, ONE)

    result = replica.take(batch(TWO.last, LogRow(6, b"six")))

    assert result == Missing(request=RangeRequest(machine="box2", incarnation=FIRST, after=ONE.last))


def test_a_batch_that_follows_another_history_is_a_fork() -> None:
    replica = Replica()
    taken(replica, ONE)

    result = replica.take(batch(batch(START, LogRow(1, b"other")).last, LogRow(2, b"two")))

    assert isinstance(result, Forked)


def test_another_row_at_the_head_is_a_fork() -> None:
    replica = Replica()
    taken(replica, ONE)

    assert isinstance(replica.take(batch(START, LogRow(1, b"other"))), Forked)


def test_a_batch_whose_rows_were_changed_on_the_way_is_a_fork() -> None:
    changed = Batch(
        machine="box2", incarnation=FIRST, schema=8, prev=START, last=ONE.last, rows=(LogRow(1, b"changed"),)
    )

    assert isinstance(Replica().take(changed), Forked)


def test_a_thinned_batch_is_taken_at_its_word() -> None:
    thinned = Batch(
        machine="box2",
        incarnation=FIRST,
        schema=8,
        prev=ONE.last,
        last=TWO.last,
        rows=(LogRow(5, b"five"),),
        thinned=True,
    )

    assert taken(Replica(), ONE, thinned).head.mark == TWO.last


def test_a_new_incarnation_closes_the_one_before() -> None:
    result = taken(Replica(), ONE, batch(START, LogRow(1, b"anew"), incarnation=SECOND))

    assert result.closes == FIRST


def test_a_new_incarnation_closes_the_one_before_also_without_a_row() -> None:
    replica = Replica()
    taken(replica, ONE)

    heard = replica.hear("box2", SECOND)

    assert heard is not None
    assert heard.closes == FIRST
    assert replica.hear("box2", SECOND) is None


def test_batches_of_an_incarnation_that_is_over_are_ignored() -> None:
    anew = batch(START, LogRow(1, b"anew"), incarnation=SECOND)

    assert taken(Replica(), ONE, anew, TWO).rows == ()


def test_the_same_counter_with_another_nonce_is_a_fork() -> None:
    replica = Replica()
    taken(replica, ONE)

    assert isinstance(replica.take(batch(START, LogRow(1, b"x"), incarnation=Incarnation(1, "twin"))), Forked)


class Ship:
    """A shipper, its log, and what it has published. Stores and reads are done at once."""

    def __init__(self, rows: list[LogRow], chain: tuple[ChainRow, ...] = (), incarnation: Incarnation = FIRST) -> None:
        self.shipper = Shipper("box2", incarnation, 8, chain)
        self.rows = rows
        self.chain: list[ChainRow] = list(chain)
        self.published: list[Batch] = []
        self.others: list[LogEffect] = []
        self.keeps = True

    def give(self, event: LogEvent) -> None:
        for effect in self.shipper.step(event):
            match effect:
                case ReadRows():
                    rows = tuple(row for row in self.rows if effect.after < row.seq <= effect.up_to)
                    some = rows[: effect.most_rows]
                    self.give(RowsRead(token=effect.token, rows=some, complete=some == rows))
                case StoreChain():
                    self.chain += [write for write in effect.writes if isinstance(write, ChainRow)]
                    self.others += [effect] if any(isinstance(one, ForgetChain) for one in effect.writes) else []
                    self.give(ChainStored(token=effect.token))
                case KeepBatch():
                    if self.keeps:
                        self.published.append(decode_batch(effect.body))
                    self.give(BatchKept(token=effect.token, kept=self.keeps))
                case _:
                    self.others.append(effect)

    def take(self, kind: type[E]) -> E:
        """Returns the only effect of a kind since the last call."""
        (found,) = [effect for effect in self.others if isinstance(effect, kind)]
        self.others = [effect for effect in self.others if not isinstance(effect, kind)]
        return found


ROWS = [LogRow(1, b"one"), LogRow(2, b"two"), LogRow(5, b"five")]


def shipped(ship: Ship, seq: int, last: bytes | None = None) -> Ship:
    ship.give(LogGrew(seq=seq))
    ship.give(EngineRead(last=last))
    return ship


def test_a_shipper_publishes_only_what_the_relay_has_read() -> None:
    ship = shipped(Ship(ROWS), 2)

    assert [row.seq for one in ship.published for row in one.rows] == [1, 2]


def test_a_shipper_goes_on_with_new_rows() -> None:
    ship = shipped(Ship(ROWS), 2)

    ship.give(LogGrew(seq=5))

    first, second = ship.published
    assert second.prev == first.last
    assert [row.mark for row in ship.chain] == [first.last, second.last]


def test_what_the_engine_lost_is_shipped_again_with_the_same_marks() -> None:
    ship = shipped(Ship(ROWS), 2)
    ship.give(LogGrew(seq=5))
    before = list(ship.published)

    ship.give(EngineLost())
    ship.give(EngineRead(last=None))

    assert ship.published == before + before


def test_a_batch_from_which_rows_were_pruned_is_shipped_again_as_thinned() -> None:
    ship = shipped(Ship(list(ROWS)), 5)
    del ship.rows[1]

    ship.give(EngineLost())
    ship.give(EngineRead(last=None))

    first, again = ship.published
    assert (again.last, again.thinned) == (first.last, True)


def test_an_engine_that_knows_more_than_the_machine_proves_a_backup() -> None:
    ship = shipped(Ship(ROWS), 5, encode_batch(batch(TWO.last, LogRow(9, b"nine"))))

    assert ship.published == []
    assert ship.take(ReportOutdated).counter == 1


def test_a_refused_batch_reads_the_engine_again() -> None:
    ship = Ship(ROWS)
    ship.keeps = False

    shipped(ship, 5)

    assert ship.take(ReadEngine) == ReadEngine()


def test_a_new_incarnation_ships_everything_from_the_start() -> None:
    ship = shipped(Ship(ROWS), 5)

    ship.give(IncarnationTaken(incarnation=SECOND))

    assert ship.take(StoreChain).writes == (ForgetChain(incarnation=SECOND),)
    assert (ship.published[-1].prev, ship.published[-1].incarnation) == (START, SECOND)


def test_marks_of_an_earlier_incarnation_do_not_count() -> None:
    ship = Ship(ROWS, (ChainRow(incarnation=FIRST, mark=TWO.last),), incarnation=SECOND)

    assert ship.shipper.shipped == START


def test_a_range_is_cut_at_the_marks_of_the_first_shipping() -> None:
    ship = shipped(Ship(ROWS), 2)
    ship.give(LogGrew(seq=5))

    ship.give(RangeAsked(token=7, request=RangeRequest(machine="box2"), end=5))

    answer = ship.take(AnswerRange).answer
    assert [decode_batch(body) for body in answer.batches] == ship.published
    assert not answer.more


MANY = [LogRow(seq, b"%d" % seq) for seq in range(1, 5 * MOST_ROWS + 1)]
END = MANY[-1].seq


def old_machine() -> Ship:
    """A machine that has shipped its log for long: only the newest of its marks is left."""
    first = Ship(MANY)
    first.give(LogGrew(seq=END))
    first.give(EngineRead(last=None))
    return Ship(MANY, tuple(first.chain[-1:]))


def test_the_log_before_the_oldest_mark_is_shipped_again_in_batches_that_fit() -> None:
    ship, replica = old_machine(), Replica()
    ship.give(LogGrew(seq=END))

    ship.give(EngineRead(last=None))

    assert all(len(one.rows) <= MOST_ROWS for one in ship.published)
    taken(replica, *ship.published)
    assert [row for one in ship.published for row in one.rows] == MANY
    assert replica.head("box2").mark == ship.shipper.shipped


def test_a_link_that_restarts_goes_on_in_the_log_before_its_oldest_mark() -> None:
    ship = old_machine()
    ship.give(LogGrew(seq=END))
    ship.give(EngineRead(last=None))
    cut = ship.published[0]

    again = Ship(MANY, tuple(ship.chain))
    again.give(LogGrew(seq=END))
    again.give(EngineRead(last=encode_batch(cut)))

    assert not [effect for effect in again.others if isinstance(effect, ReportOutdated)]
    assert [row for one in again.published for row in one.rows] == MANY[len(cut.rows) :]


def test_a_new_replica_gets_the_whole_log_of_a_machine_whose_old_marks_were_deleted() -> None:
    ship, replica = old_machine(), Replica()
    ship.give(LogGrew(seq=END))
    rows: list[LogRow] = []
    answer = RangeAnswer(more=True)

    while answer.more:
        ship.give(RangeAsked(token=7, request=replica.ask("box2"), end=END))
        answer = ship.take(AnswerRange).answer
        replica.hear("box2", answer.incarnation)
        for body in answer.batches:
            rows += taken(replica, decode_batch(body)).rows

    assert rows == MANY
    assert answer.whole


def test_a_machine_that_has_rows_it_has_not_shipped_says_so() -> None:
    ship = shipped(Ship(ROWS), 5)

    ship.give(RangeAsked(token=7, request=RangeRequest(machine="box2"), end=5))
    assert ship.take(AnswerRange).answer.whole

    ship.give(RangeAsked(token=8, request=RangeRequest(machine="box2"), end=6))
    assert not ship.take(AnswerRange).answer.whole


def test_a_machine_with_a_new_incarnation_that_has_shipped_nothing_is_not_whole() -> None:
    ship = Ship(ROWS, incarnation=SECOND)

    ship.give(RangeAsked(token=7, request=RangeRequest(machine="box2", incarnation=FIRST), end=5))

    answer = ship.take(AnswerRange).answer
    assert (answer.batches, answer.whole) == ((), False)


def test_a_range_after_a_mark_that_was_deleted_by_age_starts_again() -> None:
    ship = Ship(ROWS, (ChainRow(incarnation=FIRST, mark=TWO.last),))

    ship.give(RangeAsked(token=7, request=RangeRequest(machine="box2", incarnation=FIRST, after=ONE.last), end=5))

    assert ship.take(AnswerRange).answer.restart


@pytest.mark.parametrize(
    "request_",
    [
        RangeRequest(machine="box2", incarnation=FIRST, after=Mark(9, b"unknown")),
        RangeRequest(machine="box2", incarnation=Incarnation(1, "twin")),
        RangeRequest(machine="box2", incarnation=SECOND),
    ],
)
def test_a_replica_that_knows_more_than_the_machine_proves_a_backup(request_: RangeRequest) -> None:
    ship = shipped(Ship(ROWS), 5)

    ship.give(RangeAsked(token=7, request=request_, end=5))

    assert ship.take(ReportOutdated).why
