"""Refusals, conflicts and failures of the journal, and which other records they fail."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from synapse.core.errors import (
    IllegalTransition,
    InvalidRequest,
    StoreFailed,
    StoreFull,
    TaskFinished,
    TaskNotFound,
    VersionConflict,
)
from synapse.core.events import Update
from synapse.core.lifecycle import apply, replay
from synapse.core.task import TaskState
from synapse.tasks.journal import Journal
from tests.fakes.facts import TASK, handed, message, moved, noted, numbered, opened, said
from tests.fakes.leases import ANY_LEASE
from tests.fakes.memory_store import MemoryStore
from tests.fakes.stores import SlowStore, settle


def heard_by(journal: Journal) -> list[Update]:
    updates: list[Update] = []
    journal.listen(updates.append)
    return updates


async def test_what_the_lifecycle_refuses_is_not_recorded() -> None:
    store = MemoryStore()
    journal = Journal(store, ANY_LEASE)
    await journal.record(opened(), moved(TaskState.COMPLETED))

    with pytest.raises(IllegalTransition):
        await journal.record(moved(TaskState.WORKING))
    with pytest.raises(TaskFinished):
        await journal.record(noted({"x": 1}), said("more"))

    assert len(await store.read_after(0)) == 2
    assert (await journal.load(TASK)).metadata == {}


async def test_a_refusal_never_rests_on_what_is_not_durable() -> None:
    store = SlowStore()
    journal = Journal(store, ANY_LEASE)
    first = journal.record_nowait(opened())
    working = journal.record_nowait(moved(TaskState.WORKING))
    ended = journal.record_nowait(moved(TaskState.COMPLETED))
    cancel = journal.record_nowait(moved(TaskState.CANCELED))
    store.commit()
    await first
    await settle()
    assert not cancel.done()

    store.fail_next(StoreFull())

    for one in (working, ended, cancel):
        with pytest.raises(StoreFull):
            await one


async def test_the_loser_of_a_race_is_refused_once_the_winner_is_durable() -> None:
    journal = Journal(MemoryStore(), ANY_LEASE)
    journal.record_nowait(opened())
    journal.record_nowait(moved(TaskState.COMPLETED))
    cancel = journal.record_nowait(moved(TaskState.CANCELED))
    note = journal.record_nowait(noted({"after": 1}))

    with pytest.raises(IllegalTransition):
        await cancel
    assert (await note).version == 3


async def test_a_failure_fails_everything_that_was_built_on_it() -> None:
    store = SlowStore()
    journal = Journal(store, ANY_LEASE)
    updates = heard_by(journal)
    first = journal.record_nowait(opened())
    store.commit()
    await first

    broken = [journal.record_nowait(moved(TaskState.WORKING)), journal.record_nowait(handed("a"))]
    other = journal.record_nowait(opened(numbered(2)))
    store.fail_next(StoreFull())
    await settle()
    store.commit()

    for one in broken:
        with pytest.raises(StoreFull):
            await one
    assert (await other).version == 1
    assert [update.event for update in updates] == [opened(), opened(numbered(2))]
    assert (await journal.load(TASK)).version == 1


async def test_after_a_failure_the_task_goes_on_from_what_is_stored() -> None:
    store = SlowStore()
    journal = Journal(store, ANY_LEASE)
    first = journal.record_nowait(opened())
    store.commit()
    await first
    lost = journal.record_nowait(handed("lost"))
    store.fail_next(StoreFull())
    with pytest.raises(StoreFull):
        await lost

    kept = journal.record_nowait(handed("kept"))
    await settle()
    store.commit()

    assert [artifact.text for artifact in (await kept).artifacts] == ["kept"]
    assert replay([one.event for one in await store.read_after(0)]) == await journal.load(TASK)


async def test_a_version_conflict_is_read_again_and_applied_once_more() -> None:
    store = MemoryStore()
    mine, other = Journal(store, ANY_LEASE), Journal(store, ANY_LEASE)
    await mine.record(opened())
    await other.record(noted({"other": 1}))

    done = [
        mine.record_nowait(moved(TaskState.WORKING)),
        mine.record_nowait(handed("a")),
        mine.record_nowait(said("b")),
    ]

    assert [task.version for task in await asyncio.gather(*done)] == [3, 4, 5]
    assert (await mine.load(TASK)).metadata == {"other": 1}
    assert replay([one.event for one in await store.read_after(0)]) == await mine.load(TASK)


async def test_a_second_version_conflict_is_given_up() -> None:
    store = SlowStore()
    journal = Journal(store, ANY_LEASE)
    first = journal.record_nowait(opened())
    store.commit()
    await first

    mine = [journal.record_nowait(moved(TaskState.WORKING)), journal.record_nowait(handed("a"))]
    for _ in range(2):
        now = await store.load(TASK)
        await store.write_behind_the_back(apply(now, noted({})), noted({}))
        store.commit()
        await settle()

    for one in mine:
        with pytest.raises(VersionConflict):
            await one
    assert (await journal.load(TASK)).version == 3


async def test_two_processes_on_one_task_lose_and_repeat_nothing() -> None:
    store = MemoryStore()
    journals = [Journal(store, ANY_LEASE), Journal(store, ANY_LEASE)]
    heard = [heard_by(journal) for journal in journals]
    await journals[0].record(opened())

    done = [journals[number % 2].record_nowait(handed(str(number), append=True)) for number in range(40)]
    results = await asyncio.gather(*done, return_exceptions=True)

    stored = await store.read_after(0)
    assert replay([one.event for one in stored]) == await store.load(TASK)
    assert len(stored) == 1 + sum(not isinstance(result, VersionConflict) for result in results)
    assert sorted(update.seq for updates in heard for update in updates) == [one.seq for one in stored]


async def test_an_event_that_cannot_be_stored_does_not_fail_those_before_it() -> None:
    store = SlowStore()
    journal = Journal(store, ANY_LEASE)
    done = [journal.record_nowait(event) for event in (opened(), handed("a"), handed("bad"), handed("b"))]
    store.commit()
    await settle()
    store.fail_next(InvalidRequest("bad"))
    await settle()
    store.commit()
    await settle()
    store.fail_next(InvalidRequest("bad"))

    assert (await done[1]).version == 2
    for one in done[2:]:
        with pytest.raises(InvalidRequest):
            await one


async def test_an_event_that_lost_a_race_between_processes_is_judged_anew() -> None:
    store = SlowStore()
    journal = Journal(store, ANY_LEASE)
    first = journal.record_nowait(opened())
    store.commit()
    task = await first
    await store.write_behind_the_back(apply(task, moved(TaskState.COMPLETED)), moved(TaskState.COMPLETED))

    cancel = journal.record_nowait(moved(TaskState.CANCELED))
    store.commit()

    with pytest.raises(IllegalTransition):
        await cancel


async def test_a_claimed_message_id_is_a_conflict_at_once() -> None:
    journal = Journal(MemoryStore(), ANY_LEASE)
    await journal.record(opened(message=message()), digest="d")

    again = journal.record_nowait(opened(numbered(2), message=message()), digest="d")
    behind = journal.record_nowait(handed("a", numbered(2)))

    for one in (again, behind):
        with pytest.raises(VersionConflict):
            await one


async def test_an_event_of_an_unknown_task_is_refused() -> None:
    journal = Journal(MemoryStore(), ANY_LEASE)
    done = [journal.record_nowait(handed("a")), journal.record_nowait(handed("b"))]

    for one in done:
        with pytest.raises(TaskNotFound):
            await one


async def test_cancelling_the_wait_does_not_withdraw_the_event() -> None:
    store = SlowStore()
    journal = Journal(store, ANY_LEASE)
    updates = heard_by(journal)
    waiting = asyncio.ensure_future(journal.record(opened()))
    await settle()
    waiting.cancel()
    await settle()

    store.commit()
    await settle()

    assert len(updates) == 1
    assert (await journal.load(TASK)).version == 1


async def test_a_listener_may_try_what_is_refused() -> None:
    mishaps: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: mishaps.append(context))
    journal = Journal(MemoryStore(), ANY_LEASE)
    refused: list[asyncio.Future[Any]] = []
    journal.listen(lambda update: refused.append(journal.record_nowait(moved(TaskState.WORKING))))
    await journal.record(opened(), moved(TaskState.COMPLETED))

    with pytest.raises(IllegalTransition):
        await refused[-1]
    await asyncio.gather(*refused, return_exceptions=True)
    await settle()
    assert mishaps == []


async def test_a_store_that_stops_fails_those_who_wait() -> None:
    store = SlowStore()
    journal = Journal(store, ANY_LEASE)
    waiting = journal.record_nowait(opened())
    store.stop()

    with pytest.raises(StoreFailed, match="stopped"):
        await waiting
