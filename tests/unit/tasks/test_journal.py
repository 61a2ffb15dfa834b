"""The journal: applies events, makes them durable and notifies listeners; in that order, and once."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from synapse.core.errors import (
    AmbiguousTask,
    TaskNotFound,
)
from synapse.core.events import Update
from synapse.core.task import ReceiptStep, Task, TaskState
from synapse.tasks.journal import Journal
from tests.fakes.facts import TASK, handed, hidden, moved, noted, numbered, opened, raised, stepped
from tests.fakes.leases import ANY_LEASE
from tests.fakes.memory_store import MemoryStore
from tests.fakes.stores import ForgetfulStore, SlowStore, settle


def heard_by(journal: Journal) -> list[Update]:
    updates: list[Update] = []
    journal.listen(updates.append)
    return updates


async def test_a_record_is_durable_and_announced_before_the_caller_goes_on() -> None:
    store = SlowStore()
    journal = Journal(store, ANY_LEASE)
    updates = heard_by(journal)
    recording = asyncio.ensure_future(journal.record(opened(), stepped(ReceiptStep.TYPED)))
    await settle()
    assert not recording.done()
    assert updates == []
    with pytest.raises(TaskNotFound):
        await journal.load(TASK)

    store.commit()
    task = await recording

    assert [update.event for update in updates] == [opened(), stepped(ReceiptStep.TYPED)]
    assert [update.task.version for update in updates] == [1, 2]
    assert await journal.load(TASK) == task == updates[-1].task


async def test_events_that_come_while_others_are_on_their_way_go_together_next() -> None:
    store = SlowStore()
    journal = Journal(store, ANY_LEASE)
    updates = heard_by(journal)

    done = [
        journal.record_nowait(opened()),
        journal.record_nowait(moved(TaskState.WORKING)),
        journal.record_nowait(handed("a"), handed("b", append=True)),
    ]
    assert store.waiting == 1
    store.commit()
    await settle()
    assert store.waiting == 1
    store.commit()
    tasks = await asyncio.gather(*done)

    assert [task.version for task in tasks] == [1, 2, 4]
    assert [update.seq for update in updates] == [1, 2, 3, 4]


async def test_readers_see_only_what_is_durable() -> None:
    store = SlowStore()
    journal = Journal(store, ANY_LEASE)
    first = journal.record_nowait(opened())
    store.commit()
    await first

    journal.record_nowait(moved(TaskState.WORKING))
    await settle()
    assert (await journal.load(TASK)).state is TaskState.SUBMITTED
    assert [task.state for task in journal.open_tasks()] == [TaskState.SUBMITTED]

    store.commit()
    await settle()
    assert (await journal.load(TASK)).state is TaskState.WORKING


async def test_updates_of_all_tasks_are_announced_in_the_order_of_their_seqs() -> None:
    journal = Journal(MemoryStore(), ANY_LEASE)
    updates = heard_by(journal)

    async def live(number: int) -> None:
        task_id = numbered(number)
        await journal.record(opened(task_id))
        journal.record_nowait(moved(TaskState.WORKING, task_id))
        await journal.record(moved(TaskState.COMPLETED, task_id), noted({"n": number}, task_id))

    await asyncio.gather(*(live(number) for number in range(20)))

    assert [update.seq for update in updates] == list(range(1, 81))


async def test_a_task_of_an_earlier_process_is_read_first() -> None:
    store = MemoryStore()
    await Journal(store, ANY_LEASE).record(opened())
    journal = Journal(store, ANY_LEASE)
    updates = heard_by(journal)

    done = [journal.record_nowait(moved(TaskState.WORKING)), journal.record_nowait(handed("a"))]

    assert [task.version for task in await asyncio.gather(*done)] == [2, 3]
    assert [update.seq for update in updates] == [2, 3]


async def test_one_record_is_about_one_task() -> None:
    with pytest.raises(ValueError, match="one task"):
        Journal(MemoryStore(), ANY_LEASE).record_nowait(opened(), opened(numbered(2)))


async def test_a_listener_that_left_hears_nothing_more() -> None:
    journal = Journal(MemoryStore(), ANY_LEASE)
    updates: list[Update] = []
    leave = journal.listen(updates.append)
    await journal.record(opened())
    leave()
    await journal.record(handed("a"))

    assert len(updates) == 1


async def test_a_listener_may_record() -> None:
    journal = Journal(MemoryStore(), ANY_LEASE)
    done: list[asyncio.Future[Any]] = []

    def look(update: Update) -> None:
        if update.event == opened():
            done.append(journal.record_nowait(raised("decide")))

    journal.listen(look)
    await journal.record(opened())

    assert (await done[0]).attention == "decide"


async def test_finished_tasks_leave_memory_and_are_read_from_the_store() -> None:
    store = SlowStore()
    journal = Journal(store, ANY_LEASE, keep_finished=2)
    for number in range(4):
        journal.record_nowait(opened(numbered(number)), moved(TaskState.COMPLETED, numbered(number)))
    store.commit()
    await settle()
    assert journal.open_tasks() == []

    for number in (2, 3):
        assert (await journal.load(numbered(number))).version == 2
    assert store.loads == 0
    assert (await journal.load(numbered(0))).version == 2
    assert store.loads == 1


def tasks_in_memory() -> int:
    gc.collect()
    return sum(isinstance(thing, Task) for thing in gc.get_objects())


async def test_memory_does_not_grow_with_finished_tasks() -> None:
    # Other tests keep samples of their own.
    before = tasks_in_memory()
    journal = Journal(ForgetfulStore(), ANY_LEASE, keep_finished=8)
    for number in range(500):
        await journal.record(opened(numbered(number)))
        await journal.record(moved(TaskState.COMPLETED, numbered(number)))

    assert tasks_in_memory() - before < 20


async def test_a_finished_task_can_still_be_noted_and_hidden() -> None:
    journal = Journal(MemoryStore(), ANY_LEASE)
    await journal.record(opened(), moved(TaskState.COMPLETED))

    await journal.record(noted({"seen": True}))
    await journal.record(hidden())

    assert (await journal.load(TASK)).hidden


async def test_a_new_holder_adopts_the_open_tasks() -> None:
    store = MemoryStore()
    before = Journal(store, ANY_LEASE)
    await before.record(opened(numbered(1)), raised("decide", numbered(1)))
    await before.record(opened(numbered(2)), moved(TaskState.COMPLETED, numbered(2)))
    journal = Journal(store, ANY_LEASE)

    taken = await journal.adopt("codex@/proj")

    assert [task.id for task in taken] == [numbered(1)]
    assert journal.open_tasks() == taken
    await journal.record(raised("", numbered(1)))
    assert [task.attention for task in journal.open_tasks()] == [""]


async def test_a_short_id_is_resolved_and_an_ambiguous_one_lists_the_candidates() -> None:
    journal = Journal(MemoryStore(), ANY_LEASE)
    for task_id in ("abc-1", "abd-2", "abd"):
        await journal.record(opened(task_id))
    await journal.record(opened("abc-3"), hidden("abc-3"))

    assert await journal.resolve_id("abc", "codex@/proj") == "abc-1"
    assert await journal.resolve_id("abd", "codex@/proj") == "abd"
    assert await journal.resolve_id("abd-2") == "abd-2"
    with pytest.raises(AmbiguousTask) as ambiguous:
        await journal.resolve_id("ab", "codex@/proj")
    assert sorted(ambiguous.value.candidates) == ["abc-1", "abd", "abd-2"]
    for missing in ("abc-3", "x", ""):
        with pytest.raises(TaskNotFound):
            await journal.resolve_id(missing, "codex@/proj")
    with pytest.raises(TaskNotFound):
        await journal.resolve_id("abc-1", "other")


async def test_the_whole_log_is_folded_event_by_event() -> None:
    journal = Journal(MemoryStore(), ANY_LEASE)
    heard = heard_by(journal)
    await journal.record(opened(), stepped(ReceiptStep.TYPED))
    for number in range(600):
        journal.record_nowait(handed(str(number)))
    await journal.record(moved(TaskState.COMPLETED))

    assert [update async for update in journal.updates(TASK)] == heard


async def test_a_snapshot_carries_the_seq_of_the_last_event() -> None:
    store = MemoryStore()
    journal = Journal(store, ANY_LEASE)
    await journal.record(opened(numbered(1)))
    await journal.record(opened(), handed("a"))

    assert await journal.snapshot(TASK) == Update(3, None, await journal.load(TASK))
    assert await Journal(store, ANY_LEASE).snapshot(TASK) == await journal.snapshot(TASK)
    with pytest.raises(TaskNotFound):
        await journal.snapshot(numbered(9))
