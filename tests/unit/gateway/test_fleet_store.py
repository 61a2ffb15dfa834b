"""The store of a gateway in a fleet: its own tasks and those of other machines, as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from synapse.core.errors import InvalidRequest, TaskNotFound
from synapse.core.events import Update
from synapse.core.store import TaskQuery
from synapse.core.task import Task, TaskState
from synapse.store.replica import ReplicaFile
from synapse.tasks.admission import message_digest
from synapse.tasks.feed import Feed, LogFollower
from synapse.tasks.journal import Journal, rebuild
from tests.fakes.facts import handed, moved, numbered, opened
from tests.fakes.leased_fleet_store import LeasedFleetStore
from tests.fakes.shipped_log import ShippedMachine, take_all
from tests.unit.store.stories import keep


@dataclass
class Fleet:
    """A gateway's machine with its store and replica, and two others."""

    store: LeasedFleetStore
    file: ReplicaFile
    box2: ShippedMachine
    box3: ShippedMachine

    def ship(self) -> None:
        for machine in (self.box2, self.box3):
            take_all(self.file, machine.batches())


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncGenerator[Fleet]:
    store = await LeasedFleetStore.open(tmp_path / "gateway")
    box2, box3 = await ShippedMachine.open("box2", tmp_path), await ShippedMachine.open("box3", tmp_path)
    with closing(ReplicaFile.open(tmp_path / "gateway" / "fleet" / "replica.db")) as file:
        yield Fleet(store, file, box2, box3)
    for machine in (box2, box3):
        await machine.store.close()
    await store.close()


async def test_a_task_is_read_where_it_is(fleet: Fleet) -> None:
    own = await keep(fleet.store, opened(numbered(1)))
    remote = await fleet.box2.keep(opened(numbered(2), inbox="codex"), digest="d")
    fleet.ship()

    assert await fleet.store.load(own.id) == own
    assert await fleet.store.load(remote.id) == replace(remote, inbox="box2!codex")
    assert list(await fleet.store.find("0000000")) == [own.id, remote.id]
    known = await fleet.store.find_message("", "local", f"message of {remote.id}")
    assert known is not None
    assert known.task_id == remote.id
    assert [task.id for task in await fleet.store.open_tasks("box2!codex")] == [remote.id]
    with pytest.raises(TaskNotFound):
        await fleet.store.load(numbered(3))


async def test_a_message_that_was_taken_back_stays_a_task_of_its_caller(fleet: Fleet) -> None:
    expected = rebuild(None, (opened(numbered(1), scope="key:1", inbox="box2!codex"),))
    fleet.store.expect(expected)
    await fleet.box2.keep(opened(numbered(1), scope="machine:gate"), moved(TaskState.CANCELED, numbered(1)))
    fleet.ship()

    for _ in range(2):
        task = await fleet.store.load(expected.id)
        assert (task.scope, task.state) == ("key:1", TaskState.CANCELED)


@pytest.mark.parametrize("is_same", [True, False])
async def test_an_expected_task_is_the_one_that_an_earlier_copy_of_its_message_opened(
    fleet: Fleet, is_same: bool
) -> None:
    before = opened(numbered(1), scope="key:1", inbox="codex")
    digest = message_digest(before.message) if is_same else "of another message"
    await fleet.box2.keep(before, digest=digest)
    fleet.ship()
    expected = rebuild(None, (replace(before, task_id=numbered(2), inbox="box2!codex"),))
    fleet.store.expect(expected)

    assert (await fleet.store.load(numbered(2))).id == numbered(1 if is_same else 2)


async def test_no_machine_replaces_a_task_of_this_one(fleet: Fleet) -> None:
    own = await keep(fleet.store, opened(numbered(1)))
    await fleet.box2.keep(opened(numbered(1), inbox="mine"), moved(TaskState.CANCELED, numbered(1)))
    fleet.ship()

    assert await fleet.store.load(own.id) == own
    assert [one.seq for one in await fleet.store.read_after(0, task_id=own.id)] == [1]
    assert not await fleet.store.read_after(1, task_id=own.id)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 50])
async def test_pages_of_all_machines_are_in_the_order_of_changes(fleet: Fleet, limit: int) -> None:
    for number, at in enumerate([9, 3, 3, 7, 1]):
        await keep(fleet.store, opened(numbered(number), at))
    for number, at in enumerate([8, 3, 2, 6, 5, 4], 10):
        await (fleet.box2 if number % 2 else fleet.box3).keep(opened(numbered(number), at))
    fleet.ship()

    seen, cursor = list[Task](), ""
    while True:
        page = await fleet.store.list(TaskQuery(limit=limit, cursor=cursor))
        assert page.total == 11
        seen += page.tasks
        if not (cursor := page.next_cursor):
            break

    assert len({task.id for task in seen}) == len(seen) == 11
    assert [task.updated_at for task in seen] == sorted((task.updated_at for task in seen), reverse=True)


async def test_a_cursor_of_another_list_is_refused(fleet: Fleet) -> None:
    with pytest.raises(InvalidRequest):
        await fleet.store.list(TaskQuery(cursor="5.1"))


async def test_remote_tasks_are_found_by_their_text(fleet: Fleet) -> None:
    remote = await fleet.box2.keep(opened(numbered(2), metadata={}), handed("the quick brown fox", numbered(2)))
    fleet.ship()

    page = await fleet.store.list(TaskQuery(text="brown"))

    assert [task.id for task in page.tasks] == [remote.id]


async def test_the_whole_log_is_read_by_cursors(fleet: Fleet) -> None:
    await fleet.box2.keep(opened(numbered(1)), moved(TaskState.WORKING, numbered(1)))
    await keep(fleet.store, opened(numbered(2)), moved(TaskState.WORKING, numbered(2)))
    await fleet.box3.keep(opened(numbered(3)))
    fleet.ship()

    for limit in (1, 2, 3, 100):
        seen, cursor = list[tuple[str, int]](), 0
        while page := await fleet.store.read_after(cursor, limit=limit):
            assert [one.cursor for one in page] == sorted({one.cursor for one in page})
            cursor = page[-1].cursor
            seen += [(one.event.task_id, one.seq) for one in page]
        assert sorted(seen) == [
            (numbered(1), 1),
            (numbered(1), 2),
            (numbered(2), 1),
            (numbered(2), 2),
            (numbered(3), 1),
        ]
        assert cursor == await fleet.store.last_seq()


async def test_a_wait_ends_with_an_event_of_any_machine(fleet: Fleet) -> None:
    at = await fleet.store.last_seq()
    waiting = asyncio.ensure_future(fleet.store.wait_after(at, 30))
    await fleet.box2.keep(opened(numbered(1)))
    fleet.ship()
    after_remote = await waiting
    assert after_remote > at

    waiting = asyncio.ensure_future(fleet.store.wait_after(after_remote, 30))
    await keep(fleet.store, opened(numbered(2)))

    assert await waiting > after_remote
    assert await fleet.store.wait_after(await fleet.store.last_seq(), 0) == await fleet.store.last_seq()


async def test_a_stream_goes_on_by_the_seqs_of_the_task_s_machine(fleet: Fleet) -> None:
    """Begun at the machine's own gateway, resumed at another, whose replica has other events before."""
    await fleet.box3.keep(opened(numbered(30)), moved(TaskState.WORKING, numbered(30)))
    fleet.ship()
    await fleet.box2.keep(opened(numbered(9)))
    for _ in range(3):
        await keep(fleet.store, opened(numbered(int(_) + 20)))
    await fleet.box2.keep(opened(numbered(1)), moved(TaskState.WORKING, numbered(1)), handed("a", numbered(1)))
    own_journal = Journal(fleet.box2.store)
    first = (await own_journal.snapshot(numbered(1))).seq
    fleet.ship()
    journal = Journal(fleet.store)
    tail = LogFollower(fleet.store, journal)
    feed = Feed(journal, fleet.store, source=tail)
    tail.only(feed.has_readers_of)
    seen: list[Update] = []

    async with tail.running(), aclosing(feed.follow(numbered(1), first - 1)) as updates:
        seen.append(await anext(updates))
        await fleet.box2.keep(handed("b", numbered(1), append=True))
        fleet.ship()
        seen.append(await anext(updates))
        await fleet.box2.keep(moved(TaskState.COMPLETED, numbered(1)))
        fleet.ship()
        seen += [update async for update in updates]

    own = [one.seq for one in await fleet.box2.store.read_after(first - 1, task_id=numbered(1))]
    assert [update.seq for update in seen] == own
    assert seen[-1].task.state is TaskState.COMPLETED


async def test_readers_of_all_tasks_miss_nothing_and_get_nothing_twice(fleet: Fleet) -> None:
    journal = Journal(fleet.store)
    tail = LogFollower(fleet.store, journal)
    feed = Feed(journal, fleet.store, source=tail)
    await fleet.box2.keep(opened(numbered(1)))
    await keep(fleet.store, opened(numbered(2)))
    fleet.ship()
    seen: list[tuple[str, int]] = []

    async with tail.running(), aclosing(feed.follow_all(0)) as updates:
        async for update in updates:
            seen.append((update.task.id, update.seq))
            if len(seen) == 2:
                await fleet.box3.keep(opened(numbered(3)))
                fleet.ship()
            if len(seen) == 3:
                await keep(fleet.store, opened(numbered(4)))
            if len(seen) == 4:
                break

    assert sorted(seen) == [(numbered(1), 1), (numbered(2), 1), (numbered(3), 1), (numbered(4), 2)]


async def test_bytes_of_a_key_count_on_all_machines(fleet: Fleet) -> None:
    await keep(fleet.store, opened(numbered(1), scope="key:1"))
    await fleet.box2.keep(opened(numbered(2), scope="key:1"))
    fleet.ship()

    both = await fleet.store.stored_bytes(scope="key:1")

    assert both > await fleet.store.own.stored_bytes(scope="key:1") > 0
