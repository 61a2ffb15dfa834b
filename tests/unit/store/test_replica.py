"""The replica of other machines' logs: what it keeps of them, and what readers see."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Generator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from synapse.core.errors import TaskNotFound
from synapse.core.store import TaskQuery
from synapse.core.task import TaskState
from synapse.fleet.log import LogRow, Mark, Replica, ReplicaHead, Taken
from synapse.store.codec import encode_events
from synapse.store.log_rows import StoredAppend, encode_append
from synapse.store.replica import ReplicaFile
from synapse.store.replica_store import ReplicaStore
from tests.fakes.facts import handed, hidden, moved, numbered, opened, said
from tests.fakes.shipped_log import NOW, SCHEMA, ShippedMachine, rows_in, take_all


@pytest.fixture
async def box2(tmp_path: Path) -> AsyncGenerator[ShippedMachine]:
    machine = await ShippedMachine.open("box2", tmp_path)
    yield machine
    await machine.store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fleet" / "replica.db"


@pytest.fixture
def file(path: Path) -> Generator[ReplicaFile]:
    opened_file = ReplicaFile.open(path)
    yield opened_file
    opened_file.close()


@pytest.fixture
async def reader(file: ReplicaFile, path: Path) -> AsyncGenerator[ReplicaStore]:
    store = await ReplicaStore.open(path)
    yield store
    await store.close()


async def test_a_replica_has_the_log_byte_for_byte(box2: ShippedMachine, file: ReplicaFile) -> None:
    first = opened(numbered(1), metadata={"inbox": "mine", "text": 'a "quoted" ünïcödé'})
    await box2.keep(first, moved(TaskState.WORKING, numbered(1)), digest="d-1")
    await box2.keep(handed("all", numbered(1)), moved(TaskState.COMPLETED, numbered(1)))
    await box2.keep(opened(numbered(2), inbox='odd"box', agent_id="a\\b"))

    take_all(file, box2.batches(2))

    assert rows_in(file, box2) == box2.rows()


async def test_a_reader_sees_the_task_with_its_machine(
    box2: ShippedMachine, file: ReplicaFile, reader: ReplicaStore
) -> None:
    task = await box2.keep(opened(numbered(1), inbox="codex"), moved(TaskState.WORKING, numbered(1)))

    take_all(file, box2.batches())

    seen = await reader.load(task.id)
    assert seen == replace(task, inbox="box2!codex")
    assert (await reader.list(TaskQuery(inbox="box2!codex"))).tasks == (seen,)
    assert (await reader.list(TaskQuery(agent_id="synapse-codex-8120@box2"))).tasks == (seen,)
    assert not (await reader.list(TaskQuery(agent_id="synapse-codex-8120"))).tasks


async def test_clients_see_the_seqs_of_the_machine(
    box2: ShippedMachine, file: ReplicaFile, reader: ReplicaStore
) -> None:
    before = opened(numbered(7))
    await box2.keep(before, moved(TaskState.WORKING, numbered(7)), moved(TaskState.COMPLETED, numbered(7)))
    first = opened(numbered(1))
    await box2.keep(first, moved(TaskState.WORKING, numbered(1)))
    await box2.store.prune(NOW + timedelta(days=1))
    await box2.keep(handed("part", numbered(1)))

    take_all(file, box2.batches())

    own = await box2.store.read_after(0, task_id=numbered(1))
    assert [one.seq for one in own] == [4, 5, 6]
    seen = await reader.events_of(numbered(1), 0, 100)
    assert [one.seq for one in seen] == [4, 5, 6]
    assert [one.seq for one in await reader.events_of(numbered(1), 4, 1)] == [5]
    assert [(one.seq, one.position) for one in await reader.log_after(1, 100)] == [(5, 2), (6, 3)]


async def test_a_batch_that_comes_again_changes_nothing(box2: ShippedMachine, file: ReplicaFile) -> None:
    await box2.keep(opened(numbered(1)))
    batches = box2.batches()
    take_all(file, batches)

    assert take_all(file, batches) == 0

    assert rows_in(file, box2) == box2.rows()


async def test_a_replica_that_is_opened_again_goes_on_where_it_was(
    box2: ShippedMachine, path: Path, reader: ReplicaStore, file: ReplicaFile
) -> None:
    first = opened(numbered(1))
    await box2.keep(first)
    take_all(file, box2.batches())
    with closing(ReplicaFile.open(path)) as again:
        await box2.keep(moved(TaskState.WORKING, numbered(1)))

        assert take_all(again, box2.batches()) == 1

    assert (await reader.load(numbered(1))).state is TaskState.WORKING


async def test_a_task_that_the_new_incarnation_lacks_is_lost(
    box2: ShippedMachine, file: ReplicaFile, reader: ReplicaStore, tmp_path: Path
) -> None:
    await box2.keep(opened(numbered(1), inbox="codex"), moved(TaskState.WORKING, numbered(1)))
    await box2.keep(opened(numbered(2), inbox="codex"), moved(TaskState.WORKING, numbered(2)))
    await box2.keep(
        opened(numbered(3), inbox="codex"),
        moved(TaskState.WORKING, numbered(3)),
        moved(TaskState.COMPLETED, numbered(3)),
    )
    take_all(file, box2.batches())
    old_rows = box2.rows()
    restored = await ShippedMachine.open("box2", tmp_path, counter=2)
    await restored.keep(opened(numbered(1), inbox="codex"), moved(TaskState.WORKING, numbered(1)))
    take_all(file, restored.batches())
    (log,) = file.logs_to_close()

    assert file.close_log(log, NOW) == 1

    lost = await reader.load(numbered(2))
    assert (lost.state, lost.reason) == (TaskState.FAILED, "machine_lost")
    assert (await reader.load(numbered(1))).state is TaskState.WORKING
    assert (await reader.load(numbered(3))).state is TaskState.COMPLETED
    assert [one.seq for one in await reader.events_of(numbered(2), 0, 100)] == [3, 4, 5]
    assert rows_in(file, restored) == restored.rows()
    assert rows_in(file, box2) == old_rows[1:]  # task 1 is in the new log
    assert file.logs_to_close() == []
    totals = [
        (await reader.list(TaskQuery(inbox="box2!codex", states=frozenset({one}), limit=1))).total for one in TaskState
    ]
    assert sum(totals) == 3
    await restored.store.close()


async def test_a_log_that_is_shipped_again_in_the_same_incarnation_is_not_doubled(
    box2: ShippedMachine, file: ReplicaFile
) -> None:
    await box2.keep(opened(numbered(1)))
    batches = box2.batches()
    take_all(file, batches)
    replica = Replica(file.heads())
    file.restart(replica.restart("box2"), NOW)

    assert take_all(file, batches) == 0

    assert rows_in(file, box2) == box2.rows()
    assert file.heads()[0].mark == batches[-1].last


async def test_no_machine_replaces_the_tasks_of_another(
    box2: ShippedMachine, file: ReplicaFile, reader: ReplicaStore, tmp_path: Path
) -> None:
    await box2.keep(opened(numbered(1), inbox="codex"))
    take_all(file, box2.batches())
    thief = await ShippedMachine.open("thief", tmp_path)
    first = opened(numbered(1), inbox="mine", scope="stolen")
    await thief.keep(first)
    await thief.keep(moved(TaskState.CANCELED, numbered(1)))

    take_all(file, thief.batches(1))

    assert (await reader.load(numbered(1))).inbox == "box2!codex"
    assert (await reader.load(numbered(1))).state is TaskState.SUBMITTED
    assert file.unread() == {"thief": 2}
    assert rows_in(file, thief) == thief.rows()
    await thief.store.close()


async def test_rows_of_a_newer_version_are_kept_until_it_can_read_them(
    box2: ShippedMachine, file: ReplicaFile, reader: ReplicaStore, path: Path
) -> None:
    await box2.keep(opened(numbered(1)))
    take_all(file, box2.batches(schema=SCHEMA + 1))
    with pytest.raises(TaskNotFound):
        await reader.load(numbered(1))
    assert file.unread() == {"box2": 1}
    assert rows_in(file, box2) == box2.rows()

    ReplicaFile.open(path).close()  # as the next version would

    assert (await reader.load(numbered(1))).state is TaskState.SUBMITTED
    assert rows_in(file, box2) == box2.rows()


async def test_rows_that_no_version_can_read_do_not_hide_those_behind_them(
    box2: ShippedMachine, file: ReplicaFile, reader: ReplicaStore, path: Path
) -> None:
    await box2.keep(opened(numbered(1)))
    await box2.keep(moved(TaskState.WORKING, numbered(1)))
    damaged = encode_append(StoredAppend(numbered(2), 1, "?", None, None))
    rows = [LogRow(seq, damaged) for seq in range(1, 1501)] + [LogRow(2000 + row.seq, row.data) for row in box2.rows()]
    head = ReplicaHead(machine="box2", incarnation=box2.incarnation, mark=Mark(rows[-1].seq, b"x" * 16))
    file.take(Taken(head=head, rows=tuple(rows), schema=SCHEMA + 1), NOW)

    ReplicaFile.open(path).close()  # as the next version would

    assert (await reader.load(numbered(1))).state is TaskState.WORKING
    assert file.unread() == {"box2": 1500}


async def test_the_tasks_of_a_machine_that_comes_back_under_another_name_stay_with_the_old_name(
    box2: ShippedMachine, file: ReplicaFile, reader: ReplicaStore
) -> None:
    for n in (1, 2):
        await box2.keep(opened(numbered(n), inbox="codex"))
    await box2.keep(moved(TaskState.CANCELED, numbered(1)))
    take_all(file, box2.batches())

    box2.name = "box3"
    box2.renew()
    await box2.keep(moved(TaskState.CANCELED, numbered(2)))
    await box2.keep(opened(numbered(3), inbox="codex"))
    take_all(file, box2.batches())

    seen = [await reader.load(numbered(n)) for n in (1, 2, 3)]
    assert [(task.inbox, task.state) for task in seen] == [
        ("box2!codex", TaskState.CANCELED),
        ("box2!codex", TaskState.SUBMITTED),
        ("box3!codex", TaskState.SUBMITTED),
    ]
    assert file.unread() == {"box3": 4}


async def test_a_text_in_another_form_is_kept_as_it_came(
    box2: ShippedMachine, file: ReplicaFile, reader: ReplicaStore
) -> None:
    await box2.keep(opened(numbered(1), inbox="codex"))
    (batch,) = box2.batches()
    body = encode_events([opened(numbered(1), inbox="codex")]).replace('{"agent_id"', '{"new":1,"agent_id"')
    row = batch.rows[0]
    data = encode_append(StoredAppend(numbered(1), 1, body))
    taken = Replica().take(batch)
    assert isinstance(taken, Taken)

    file.take(replace(taken, rows=(type(row)(row.seq, data),)), NOW)

    assert (await reader.load(numbered(1))).inbox == "box2!codex"
    assert [one.data for one in rows_in(file, box2)] == [data]


async def test_a_message_that_a_gateway_kept_is_of_its_caller(
    box2: ShippedMachine, file: ReplicaFile, reader: ReplicaStore
) -> None:
    await box2.keep(opened(numbered(1), scope="machine:gate", metadata={"gateway_scope": "key:1"}))
    await box2.keep(opened(numbered(2), scope="key:2", metadata={"gateway_scope": "key:1"}))

    take_all(file, box2.batches())

    assert [task.id for task in (await reader.list(TaskQuery(scope="key:1"))).tasks] == [numbered(1)]
    assert (await reader.load(numbered(1))).scope == "key:1"
    assert rows_in(file, box2) == box2.rows()


async def test_a_machine_without_a_gateway_has_no_callers(
    box2: ShippedMachine, file: ReplicaFile, reader: ReplicaStore
) -> None:
    for number, sender in enumerate(["gate", "laptop"], 1):
        await box2.keep(opened(numbered(number), scope=f"machine:{sender}", metadata={"gateway_scope": "key:1"}))
    replica = Replica()

    for batch in box2.batches():
        taken = replica.take(batch)
        assert isinstance(taken, Taken)
        file.take(taken, NOW, {"gate"})

    assert [(await reader.load(numbered(number))).scope for number in (1, 2)] == ["key:1", "machine:laptop"]
    assert rows_in(file, box2) == box2.rows()


async def test_old_tasks_are_pruned_with_all_that_belongs_to_them(
    box2: ShippedMachine, file: ReplicaFile, reader: ReplicaStore, path: Path
) -> None:
    await box2.keep(opened(numbered(1)), moved(TaskState.CANCELED, numbered(1)))
    await box2.keep(opened(numbered(2), at=10))
    take_all(file, box2.batches())

    assert file.prune(NOW, NOW) == 1
    assert file.prune(NOW, NOW) == 0

    with pytest.raises(TaskNotFound):
        await reader.load(numbered(1))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT COUNT(*) FROM origins").fetchone() == (1,)
    assert await reader.stored_bytes() == await box2.store.stored_bytes() - (await _bytes_of(box2, 1)) + len("box2!")


async def _bytes_of(machine: ShippedMachine, number: int) -> int:
    return (
        sum(len(encode_events([one.event])) for one in await machine.store.read_after(0, task_id=numbered(number))) - 1
    )


async def test_counts_follow_hidden_tasks_and_growing_answers(
    box2: ShippedMachine, file: ReplicaFile, reader: ReplicaStore
) -> None:
    await box2.keep(opened(numbered(1)), moved(TaskState.WORKING, numbered(1)))
    for number in range(130):
        await box2.keep(handed(f"{number} ", numbered(1), append=number > 0))
    await box2.keep(moved(TaskState.COMPLETED, numbered(1)))
    await box2.keep(opened(numbered(2)), hidden(numbered(2)))

    take_all(file, box2.batches(7))

    page = await reader.list(TaskQuery(limit=1))
    assert page.total == 1
    assert page.tasks == (replace(await box2.store.load(numbered(1)), inbox="box2!codex@/proj"),)
    waiting = await reader.list(TaskQuery(states=frozenset({TaskState.SUBMITTED})))
    assert (waiting.total, waiting.tasks) == (0, ())


async def test_a_follow_up_message_is_found_by_its_id(
    box2: ShippedMachine, file: ReplicaFile, reader: ReplicaStore
) -> None:
    first = opened(numbered(1), inbox="codex")
    await box2.keep(first, digest="d-1")
    await box2.keep(said("more", numbered(1)), digest="d-2")

    take_all(file, box2.batches())

    known = await reader.find_message("box2!codex", "local", "m-more")
    assert known is not None
    assert (known.task_id, known.digest) == (numbered(1), "d-2")
