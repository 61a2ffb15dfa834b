"""The store's log in the link: ends of relayed tasks reach the relay once, and the log is shipped as it is."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from synapse.core.caller import MACHINE_SCOPE
from synapse.core.events import TaskEvent
from synapse.core.lifecycle import replay
from synapse.core.message import Sender
from synapse.core.task import ReplyTo, Task, TaskId, TaskState
from synapse.core.task_metadata import opening_metadata
from synapse.core.waiting import pause
from synapse.fleet.asks import decode_send_body
from synapse.fleet.log import (
    PIECE,
    START,
    Batch,
    Mark,
    PieceAnswer,
    PieceRequest,
    RangeAnswer,
    RangeRequest,
    decode_batch,
    decode_log,
    encode_batch,
)
from synapse.fleet.names import log_subject
from synapse.fleet.relay import Relay
from synapse.fleet.relay_io import Event, Identity, LinkRows, Outdated, Tailed, TailRow
from synapse.fleet.wire import Incarnation
from synapse.link import link
from synapse.link.database import LinkDatabase
from synapse.link.shipping import LogShipping
from synapse.link.store_log import LogTail, StoreLog
from synapse.tasks.journal import Journal
from tests.fakes.clock import FakeClock
from tests.fakes.facts import handed, message, moved, numbered, opened, said
from tests.fakes.leased_store import LeasedStore
from tests.fakes.leases import ANY_LEASE
from tests.fakes.memory_engine import MemoryEngine

FIRST = Incarnation(1, "a1")
BOUND = 20


class FakeShell:
    """The relay's shell as the tail uses it: keeps what it is given."""

    def __init__(self) -> None:
        self.loaded = asyncio.Event()
        self.loaded.set()
        self.tail_seq = 0
        self.given: list[Tailed] = []

    async def store(self, event: Event) -> None:
        assert isinstance(event, Tailed)
        self.given.append(event)
        self.tail_seq = event.seq


@dataclass
class World:
    store: LeasedStore
    log: StoreLog
    shell: FakeShell
    tailed: list[int]

    async def record(self, *events: Any) -> None:
        await Journal(self.store, ANY_LEASE).record(*events)

    async def tailed_to_end(self) -> None:
        """Wait until the relay has all of the log."""
        async with asyncio.timeout(BOUND):
            while self.shell.tail_seq < await self.store.last_seq():
                await pause(0.01)


@asynccontextmanager
async def world(home: Path) -> AsyncGenerator[World]:
    store = await LeasedStore.open(home / "store.db")
    log = StoreLog(home / "store.db")
    shell, tailed = FakeShell(), list[int]()
    tail = LogTail(store, log, shell, tailed.append)  # type: ignore[arg-type]  # a fake of what the tail uses
    running = asyncio.create_task(tail.run())
    try:
        yield World(store, log, shell, tailed)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await log.close()
        await store.close()


async def test_the_end_of_a_task_of_another_machine_reaches_the_relay(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.record(opened(numbered(1), scope=MACHINE_SCOPE + "laptop"))
        await here.record(handed("42", numbered(1)), moved(TaskState.COMPLETED, numbered(1)))
        await here.tailed_to_end()

        [ended] = [one for event in here.shell.given for one in event.ended]
        assert (ended.machine, ended.task_id, ended.end.state) == ("laptop", numbered(1), "completed")
        assert ended.message_id == f"message of {numbered(1)}"


async def test_the_end_of_a_task_says_who_waits_for_it_on_the_other_machine(tmp_path: Path) -> None:
    sender = Sender(sender_id="synapse-claude-8100@laptop", inbox="laptop!claude@/proj")
    metadata = opening_metadata({}, sender, verified=True, reply_to=ReplyTo(task_id=numbered(9)))
    async with world(tmp_path) as here:
        await here.record(opened(numbered(1), scope=MACHINE_SCOPE + "laptop", metadata=metadata))
        await here.record(opened(numbered(2), scope=MACHINE_SCOPE + "laptop"))
        for number in (1, 2):
            await here.record(moved(TaskState.COMPLETED, numbered(number)))
        await here.tailed_to_end()

        one, other = [one for event in here.shell.given for one in event.ended]
        waiter = decode_send_body(one.waiter)
        assert (waiter.sender_inbox, waiter.sender_task_id) == ("claude@/proj", numbered(9))
        assert other.waiter == b""


async def test_the_end_of_a_task_that_was_continued_is_told_for_each_message_of_its_machine(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.record(opened(numbered(1), scope=MACHINE_SCOPE + "laptop"))
        await Journal(here.store, ANY_LEASE).record(said("more", numbered(1)), digest="d")
        await here.record(said("added here", numbered(1)), moved(TaskState.COMPLETED, numbered(1)))
        await here.tailed_to_end()

        ended = [one for event in here.shell.given for one in event.ended]
        assert [(one.task_id, one.message_id) for one in ended] == [
            (numbered(1), f"message of {numbered(1)}"),
            (numbered(1), "m-more"),
        ]


async def test_the_tasks_of_this_machine_are_nobodys_business(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.record(opened(numbered(1)), moved(TaskState.COMPLETED, numbered(1)))
        await here.record(opened(numbered(2), scope="machines"), moved(TaskState.COMPLETED, numbered(2)))
        await here.tailed_to_end()

        assert [event.ended for event in here.shell.given] == [()] * len(here.shell.given)


async def test_an_end_from_before_the_start_is_read_when_the_relay_stands_before_it(tmp_path: Path) -> None:
    store = await LeasedStore.open(tmp_path / "store.db")
    ended = opened(numbered(1), scope=MACHINE_SCOPE + "laptop"), moved(TaskState.FAILED, numbered(1))
    await Journal(store, ANY_LEASE).record(*ended)
    await store.close()

    async with world(tmp_path) as here:
        await here.tailed_to_end()

        assert [one.task_id for event in here.shell.given for one in event.ended] == [numbered(1)]


async def test_no_end_is_left_out_when_the_relay_is_loaded_again_while_the_log_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path) as here:
        await here.record(opened(numbered(1), scope=MACHINE_SCOPE + "laptop"), moved(TaskState.FAILED, numbered(1)))
        await here.tailed_to_end()
        load = here.store.load

        async def reload_first(task_id: TaskId) -> Task:
            monkeypatch.undo()
            here.shell.tail_seq = 0  # its last commit has failed
            here.shell.given.clear()
            return await load(task_id)

        monkeypatch.setattr(here.store, "load", reload_first)
        await here.record(opened(numbered(2), scope=MACHINE_SCOPE + "laptop"), moved(TaskState.FAILED, numbered(2)))
        await here.tailed_to_end()

        assert [one.task_id for event in here.shell.given for one in event.ended] == [numbered(1), numbered(2)]


async def test_the_mark_tells_a_restored_log_from_the_real_one(tmp_path: Path) -> None:
    marks = list[str]()
    for folder, text in (("a", "one"), ("b", "one"), ("c", "other")):
        (tmp_path / folder).mkdir()
        async with world(tmp_path / folder) as here:
            await here.record(opened(numbered(1), message=message(text)))
            marks.append((await here.log.mark("id", 1)).mark)
            assert (await here.log.mark("id", 99)).mark == ""

    assert marks[0] == marks[1] != marks[2]


class LatePublications:
    """Lets the jobs that publish batches begin only when the test says so; for the running loop."""

    def __init__(self) -> None:
        self.made, self.begin, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        asyncio.get_running_loop().set_task_factory(self._new_task)

    def _new_task(self, loop: asyncio.AbstractEventLoop, job: Any, /, **more: Any) -> asyncio.Task[Any]:
        return asyncio.Task(self._late(job) if job.__qualname__ == "LogShipping._keep" else job, loop=loop, **more)

    async def _late(self, job: Coroutine[Any, Any, None]) -> None:
        self.made.set()
        await self.begin.wait()
        await job
        self.ended.set()


@asynccontextmanager
async def shipping(
    here: World, home: Path, note: Callable[[str], None] = lambda _: None
) -> AsyncGenerator[tuple[LogShipping, MemoryEngine, list[Outdated]]]:
    engine = MemoryEngine()
    database = LinkDatabase(home / "link.db", FakeClock())
    outdated = list[Outdated]()
    ships = LogShipping(
        "box2",
        8,
        bus=engine.bus("box2"),
        database=database,
        store_log=here.log,
        on_outdated=outdated.append,
    )
    ships.loaded(FIRST)
    running = asyncio.create_task(link.keep_running(ships.run, note))
    connected = asyncio.create_task(ships.read_engine())
    try:
        yield ships, engine, outdated
    finally:
        for task in (connected, running):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await database.close()


async def batches(engine: MemoryEngine, last: int) -> list[Batch]:
    """Return the shipped batches, once they lead to the seq `last`."""
    async with asyncio.timeout(BOUND):
        while True:
            shipped = [decode_batch(body) for _, subject, body in engine.kept if subject == log_subject("box2")]
            if shipped and shipped[-1].last.seq == last:
                return shipped
            await pause(0.01)


async def test_the_log_is_shipped_in_a_chain_up_to_where_the_relay_stands(tmp_path: Path) -> None:
    async with world(tmp_path) as here, shipping(here, tmp_path) as (ships, engine, _):
        for number in (1, 2, 3):
            await here.record(opened(numbered(number)))
            ships.grew(number)
            await batches(engine, number)

        chain = await batches(engine, 3)

        assert [batch.prev for batch in chain] == [START, chain[0].last, chain[1].last]
        assert {batch.incarnation for batch in chain} == {FIRST}
        assert ships.lag == 0


async def test_a_job_with_a_defect_ends_the_shipping_which_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "RESTART_SECONDS", 0.0)
    notes: list[str] = []
    async with world(tmp_path) as here, shipping(here, tmp_path, notes.append) as (ships, engine, _):
        bus = engine.buses[0]
        keep = bus.keep

        async def fail_once(*_: object, **__: object) -> int:
            monkeypatch.setattr(bus, "keep", keep)
            raise AttributeError("a defect")

        monkeypatch.setattr(bus, "keep", fail_once)
        await here.record(opened(numbered(1)))
        ships.grew(1)

        assert len(await batches(engine, 1)) == 1

    assert "a defect" in notes[0]


async def test_an_engine_that_was_wiped_gets_the_log_again(tmp_path: Path) -> None:
    async with world(tmp_path) as here, shipping(here, tmp_path) as (ships, engine, _):
        await here.record(opened(numbered(1)))
        ships.grew(1)
        first = await batches(engine, 1)
        engine.kept.clear()
        await here.record(opened(numbered(2)))
        ships.grew(2)

        again = await batches(engine, 2)

        assert again[0] == first[0]


async def test_another_writer_of_our_log_is_reported(tmp_path: Path) -> None:
    async with world(tmp_path) as here, shipping(here, tmp_path) as (ships, engine, outdated):
        await here.record(opened(numbered(1)))
        ships.grew(1)
        [batch] = await batches(engine, 1)
        twin = encode_batch(msgspec.structs.replace(batch, prev=batch.last, last=Mark(7, b"other")))
        await engine.bus("box2").keep(log_subject("box2"), twin, once="twin")
        await here.record(opened(numbered(2)))
        ships.grew(2)

        async with asyncio.timeout(BOUND):
            while not outdated:
                await pause(0.01)

        assert outdated[0].counter == FIRST.counter


async def test_a_batch_from_before_a_loss_of_the_engine_is_not_published_over_what_came_meanwhile(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as here, shipping(here, tmp_path) as (ships, engine, outdated):
        await here.record(opened(numbered(1)))
        ships.grew(1)
        [first] = await batches(engine, 1)
        late = LatePublications()
        await here.record(opened(numbered(2)))
        ships.grew(2)
        async with asyncio.timeout(BOUND):
            await late.made.wait()
        ships.lose_engine()
        twin = encode_batch(msgspec.structs.replace(first, prev=first.last, last=Mark(7, b"other")))
        await engine.bus("box2").keep(log_subject("box2"), twin, once="twin")
        async with asyncio.timeout(BOUND):
            await ships.read_engine()
        assert outdated

        late.begin.set()
        async with asyncio.timeout(BOUND):
            await late.ended.wait()

        assert [body for _, _, body in engine.kept][1:] == [twin]


async def test_a_replica_gets_the_range_that_it_lacks(tmp_path: Path) -> None:
    async with world(tmp_path) as here, shipping(here, tmp_path) as (ships, engine, _):
        await here.record(opened(numbered(1)))
        ships.grew(1)
        await batches(engine, 1)

        answer = decode_log(await ships.answer(RangeRequest(machine="box2")))

        assert isinstance(answer, RangeAnswer)
        assert [decode_batch(one).last.seq for one in answer.batches] == [1]


async def test_a_large_row_is_fetched_in_pieces(tmp_path: Path) -> None:
    async with world(tmp_path) as here, shipping(here, tmp_path) as (ships, engine, _):
        await here.record(opened(numbered(1), message=message("x" * (3 * PIECE))))
        ships.grew(1)
        [batch] = await batches(engine, 1)
        [row] = batch.rows
        pieces = bytearray()
        while len(pieces) < row.size:
            request = PieceRequest(machine="box2", incarnation=FIRST, seq=row.seq, offset=len(pieces))
            piece = decode_log(await ships.answer(request))
            assert isinstance(piece, PieceAnswer)
            pieces += piece.data

        assert (row.data, len(pieces)) == (b"", row.size)
        gone = decode_log(await ships.answer(PieceRequest(machine="box2", incarnation=FIRST, seq=99, offset=0)))
        assert gone == PieceAnswer(gone=True)


async def test_a_store_from_a_backup_that_has_gone_on_beyond_the_log_makes_a_new_incarnation(tmp_path: Path) -> None:
    path, backup = tmp_path / "store.db", tmp_path / "backup.db"
    store = await LeasedStore.open(path)
    for number in (1, 2):
        await store.append(replay([opened(numbered(number))]), [opened(numbered(number))])
    copy_store(path, backup)
    for number in (3, 4):
        await store.append(replay([opened(numbered(number))]), [opened(numbered(number))])
    log, store_id = StoreLog(path), await store.store_id()
    look = await log.look(0)
    identity = Identity(incarnation=FIRST, store_id=store_id, heard=1)
    await log.close()
    await store.close()
    for file in tmp_path.glob("store.db*"):
        file.unlink()
    copy_store(backup, path)

    store = await LeasedStore.open(path)
    # An append of one event, then one of two: no row has the seq at which the log ended.
    await store.append(replay([opened(numbered(5))]), [opened(numbered(5))])
    events: list[TaskEvent] = [opened(numbered(6)), moved(TaskState.CANCELED, numbered(6))]
    await store.append(replay(events), events)
    log = StoreLog(path)
    mark = await log.mark(await store.store_id(), look.seq)
    await log.close()
    await store.close()

    rows = LinkRows(identity=identity, tail=TailRow(seq=look.seq, mark=look.mark))
    relay, _ = Relay.load(1.0, "box2", rows, mark, lambda: "b" * 16)
    assert relay.incarnation.counter == FIRST.counter + 1


def copy_store(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target)) as other:
        one.backup(other)
