"""The contract of TaskStore, for every implementation."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from synapse.core.errors import LeaseLost, TaskNotFound, VersionConflict
from synapse.core.events import TaskEvent
from synapse.core.lifecycle import replay
from synapse.core.message import Artifact, DataPart, FilePart, TextPart
from synapse.core.store import KnownMessage, Lease, TaskQuery
from synapse.core.task import ReceiptStep, TaskId, TaskState
from tests.fakes.facts import TASK, after, handed, hidden, message, moved, numbered, opened, said, stepped
from tests.unit.store.stories import AnyStore, keep


async def test_an_appended_task_can_be_loaded(store: AnyStore) -> None:
    log: list[TaskEvent] = [
        opened(),
        stepped(ReceiptStep.QUEUED),
        moved(TaskState.WORKING),
        handed("a"),
        handed("b", append=True),
    ]

    await keep(store, *log[:2])
    await keep(store, log[2], before=log[:2])
    task = await keep(store, *log[3:], before=log[:3])

    assert await store.load(TASK) == task == replay(log)


async def test_every_kind_of_part_is_read_as_it_was_written(store: AnyStore) -> None:
    parts = (
        TextPart(text="日本語 \ud800 \x00", name="n", media_type="text/plain", metadata={"a": [1, None, 0.1]}),
        FilePart(content=bytes(range(256)), name="f.bin", media_type="application/octet-stream"),
        FilePart(url="https://example.org/f"),
        FilePart(content=b""),
        DataPart(data={"deep": [{"x": 2**70}, True]}),
        DataPart(data=None),
    )
    first = opened(message=replace(message(), parts=parts, extensions=("e",), reference_task_ids=("t",)))
    artifact = Artifact(artifact_id="a", parts=parts, name="n", description="d", metadata={"m": 1}, extensions=("x",))

    task = await keep(store, first, replace(handed(""), artifact=artifact), moved(TaskState.COMPLETED))

    assert await store.load(TASK) == task


async def test_an_unknown_task_is_not_found(store: AnyStore) -> None:
    with pytest.raises(TaskNotFound):
        await store.load(TASK)
    assert await store.find("1") == []
    assert await store.read_after(0, task_id=TASK) in ([], ())


async def test_seqs_rise_in_the_order_of_the_calls(store: AnyStore) -> None:
    order: list[int] = []

    async def write(number: int) -> int:
        log: list[TaskEvent] = [opened(numbered(number)), stepped(ReceiptStep.QUEUED, numbered(number))]
        first = await store.append(replay(log), log)
        order.append(number)
        return first

    firsts = await asyncio.gather(*(write(number) for number in range(50)))

    assert firsts == sorted(firsts)
    seqs = [seq for first in firsts for seq in (first, first + 1)]
    assert order == list(range(50))
    assert [one.seq for one in await store.read_after(0)] == seqs


async def test_an_append_takes_its_place_when_it_is_called(store: AnyStore) -> None:
    second: list[TaskEvent] = [opened(), moved(TaskState.WORKING)]
    first_done, second_done = store.append(replay(second[:1]), second[:1]), store.append(replay(second), second[1:])

    later = await second_done
    earlier = await first_done

    assert earlier < later
    assert (await store.load(TASK)).state is TaskState.WORKING


async def test_a_stale_version_is_a_conflict_and_changes_nothing(store: AnyStore) -> None:
    task = await keep(store, opened(), moved(TaskState.COMPLETED))

    with pytest.raises(VersionConflict):
        await keep(store, moved(TaskState.CANCELED), before=[opened()])
    with pytest.raises(VersionConflict):
        await keep(store, opened())

    assert await store.load(TASK) == task
    assert len(await store.read_after(0)) == 2


async def test_a_skipped_version_is_a_conflict(store: AnyStore) -> None:
    with pytest.raises(VersionConflict):
        await keep(store, moved(TaskState.WORKING), before=[opened()])
    assert await store.read_after(0) == []

    await keep(store, opened())
    with pytest.raises(VersionConflict):
        await keep(store, handed("x"), before=[opened(), moved(TaskState.WORKING)])


async def test_a_failing_append_does_not_fail_its_neighbours(store: AnyStore) -> None:
    await keep(store, opened())
    events = [opened(numbered(number)) for number in range(5)]

    results = await asyncio.gather(
        *(keep(store, event) for event in (*events[:2], opened(), *events[2:])), return_exceptions=True
    )

    assert [isinstance(result, VersionConflict) for result in results] == [False, False, True, False, False, False]
    for event in events:
        assert (await store.load(event.task_id)).version == 1


async def test_a_digest_claims_the_message_id_for_inbox_and_scope(store: AnyStore) -> None:
    said_once = message(message_id="m")
    await keep(store, opened(message=said_once), digest="d")

    with pytest.raises(VersionConflict):
        await keep(store, opened(numbered(2), message=said_once), digest="d")
    await keep(store, opened(numbered(3), message=said_once, scope="other"), digest="d")
    await keep(store, opened(numbered(4), message=said_once, inbox="other"), digest="d")
    await keep(store, opened(numbered(5), message=said_once))

    assert await store.find_message("codex@/proj", "local", "m") == KnownMessage(TASK, "d")
    assert await store.find_message("codex@/proj", "local", "n") is None
    with pytest.raises(TaskNotFound):
        await store.load(numbered(2))


async def test_a_message_is_found_in_any_inbox_of_a_scope(store: AnyStore) -> None:
    await keep(store, opened(numbered(1), inbox="a", scope="one", message=message(message_id="m")), digest="d")
    await keep(store, opened(numbered(2), inbox="b", scope="two", message=message(message_id="m")), digest="d")
    await keep(store, opened(numbered(3), inbox="b", scope="one", message=message(message_id="n")), digest="d")

    assert await store.find_message("", "one", "m") == KnownMessage(numbered(1), "d")
    assert await store.find_message("", "two", "m") == KnownMessage(numbered(2), "d")
    assert await store.find_message("", "two", "n") is None
    assert await store.find_message("b", "", "n") == KnownMessage(numbered(3), "d")
    assert await store.find_message("", "", "n") == KnownMessage(numbered(3), "d")
    assert await store.find_message("a", "", "n") is None


async def test_a_follow_up_can_claim_its_message_id_too(store: AnyStore) -> None:
    await keep(store, opened())
    await keep(store, said("more"), stepped(ReceiptStep.QUEUED), before=[opened()], digest="d")

    assert await store.find_message("codex@/proj", "local", "m-more") == KnownMessage(TASK, "d")


async def test_find_matches_a_prefix_newest_first(store: AnyStore) -> None:
    ids = [TaskId(name) for name in ("abc-1", "abd-2", "abc-3", "ab%-4")]
    for task_id in ids:
        await keep(store, opened(task_id))
    await keep(store, opened("abc-5", inbox="other"))
    await keep(store, opened("abc-6"), hidden("abc-6"))

    assert await store.find("abc", inbox="codex@/proj") == ["abc-3", "abc-1"]
    assert await store.find("abc") == ["abc-5", "abc-3", "abc-1"]
    assert await store.find("ab", limit=2) == ["abc-5", "ab%-4"]
    assert await store.find("ab%") == ["ab%-4"]
    assert await store.find("abc-1-longer") == []


async def test_read_after_continues_after_the_last_seq(store: AnyStore) -> None:
    for number in (1, 2):
        await keep(store, opened(numbered(number)))
    log: list[TaskEvent] = [opened(numbered(1)), handed("a", numbered(1)), handed("b", numbered(1))]
    await keep(store, *log[1:], before=log[:1])

    everything = await store.read_after(0)
    assert [one.event for one in everything] == [opened(numbered(1)), opened(numbered(2)), *log[1:]]
    assert await store.read_after(everything[1].seq) == everything[2:]
    assert await store.read_after(0, limit=2) == everything[:2]
    assert [one.event for one in await store.read_after(0, task_id=numbered(1))] == log
    assert await store.read_after(everything[2].seq, task_id=numbered(1), limit=1) == everything[3:]
    assert list(await store.read_after(2**80)) == []


async def test_pages_of_any_size_give_the_same_events(store: AnyStore) -> None:
    one: list[TaskEvent] = [opened(), stepped(ReceiptStep.TYPED), moved(TaskState.WORKING), handed("a")]
    two: list[TaskEvent] = [opened(numbered(2)), moved(TaskState.COMPLETED, numbered(2))]
    await keep(store, *one[:3])
    await keep(store, *two)
    await keep(store, one[3], before=one[:3])
    whole = await store.read_after(0)
    assert [recorded.event for recorded in whole] == [*one[:3], *two, one[3]]

    for after_seq in range(len(whole) + 1):
        for limit in range(1, len(whole) + 1):
            assert list(await store.read_after(after_seq, limit=limit)) == list(whole)[after_seq:][:limit]
            mine = [recorded for recorded in whole[after_seq:] if recorded.event.task_id == TASK]
            assert list(await store.read_after(after_seq, task_id=TASK, limit=limit)) == mine[:limit]


async def test_open_tasks_are_the_unfinished_ones_oldest_first(store: AnyStore) -> None:
    await keep(store, opened("late", at=5))
    await keep(store, opened("early", at=1), moved(TaskState.INPUT_REQUIRED, "early", at=9))
    await keep(store, opened("done", at=2), moved(TaskState.COMPLETED, "done", at=3))
    await keep(store, opened("elsewhere", at=3, inbox="other"))

    assert [task.id for task in await store.open_tasks("codex@/proj")] == ["early", "late"]


async def test_an_inbox_has_one_holder_until_it_dies_or_releases_the_lease(store: AnyStore) -> None:
    living = {"one"}

    def is_alive(holder: str, /) -> bool:
        return holder in living

    assert await store.acquire("codex", "one", is_alive) == Lease("codex", "one", 1)
    assert await store.acquire("codex", "one", is_alive) == Lease("codex", "one", 2)
    assert await store.acquire("codex", "two", is_alive) is None
    await store.release(Lease("codex", "two", 2))
    assert await store.acquire("codex", "two", is_alive) is None
    living.clear()
    lease = await store.acquire("codex", "two", is_alive)
    assert lease == Lease("codex", "two", 3)
    await store.release(Lease("codex", "two", 3))
    living.add("two")
    assert await store.acquire("codex", "three", is_alive) == Lease("codex", "three", 4)


async def test_nothing_is_appended_with_a_lost_lease(store: AnyStore) -> None:
    inbox = opened().inbox
    first = await store.acquire(inbox, "one", lambda _: False)
    assert first is not None
    await store.append(replay([opened()]), [opened()], lease=first)
    second = await store.acquire(inbox, "two", lambda _: False)
    assert second is not None

    with pytest.raises(LeaseLost, match="no longer holds the inbox"):
        await store.verify(first)
    with pytest.raises(LeaseLost):
        await store.append(replay([opened(), moved(TaskState.WORKING)]), [moved(TaskState.WORKING)], lease=first)
    await store.release(first)
    await store.verify(second)
    await store.append(replay([opened(), moved(TaskState.FAILED)]), [moved(TaskState.FAILED)], lease=second)

    assert [one.event for one in await store.read_after(0)] == [opened(), moved(TaskState.FAILED)]


async def test_a_holder_that_acquires_again_loses_its_earlier_lease(store: AnyStore) -> None:
    earlier = await store.acquire(opened().inbox, "one", lambda _: True)
    again = await store.acquire(opened().inbox, "one", lambda _: True)
    assert earlier is not None
    assert again is not None

    with pytest.raises(LeaseLost):
        await store.append(replay([opened()]), [opened()], lease=earlier)
    await store.append(replay([opened()]), [opened()], lease=again)


async def test_a_lease_is_valid_for_its_own_inbox_until_it_is_released(store: AnyStore) -> None:
    other = await store.acquire("other", "one", lambda _: True)
    own = await store.acquire(opened().inbox, "one", lambda _: True)
    assert other is not None
    assert own is not None
    await store.release(own)

    for lease in (other, own):
        with pytest.raises(LeaseLost):
            await store.append(replay([opened()]), [opened()], lease=lease)
    assert await store.read_after(0) == []


async def test_a_lost_lease_fails_no_other_append_of_its_batch(store: AnyStore) -> None:
    lost = await store.acquire("lost", "one", lambda _: False)
    await store.acquire("lost", "two", lambda _: False)
    kept = await store.acquire(opened().inbox, "one", lambda _: False)
    assert lost is not None
    assert kept is not None
    late, good = opened(numbered(2), inbox="lost"), opened()

    refused, done = await asyncio.gather(
        store.append(replay([late]), [late], lease=lost),
        store.append(replay([good]), [good], lease=kept),
        return_exceptions=True,
    )

    assert isinstance(refused, LeaseLost)
    assert isinstance(done, int)


async def test_stored_bytes_are_counted_for_each_inbox_and_scope(store: AnyStore) -> None:
    assert await store.stored_bytes() == 0
    await keep(store, opened("t"), moved(TaskState.WORKING, "t"))
    first = await store.stored_bytes()
    await keep(store, replace(opened("key"), scope="key:1"))
    both = await store.stored_bytes()

    assert 0 < first < both
    assert await store.stored_bytes(scope="local") == await store.stored_bytes(inbox="codex@/proj") - both + first
    assert await store.stored_bytes(inbox="codex@/proj", scope="key:1") == both - first
    assert await store.stored_bytes(inbox="nobody") == await store.stored_bytes(scope="key:2") == 0


async def test_pruned_tasks_no_longer_count_as_stored_bytes(store: AnyStore) -> None:
    await keep(store, opened("new"), moved(TaskState.FAILED, "new", at=60))
    kept = await store.stored_bytes()
    await keep(store, opened("old"), moved(TaskState.COMPLETED, "old"))

    await store.prune(after(30))

    assert await store.stored_bytes() == kept


async def test_prune_deletes_old_finished_tasks_only(store: AnyStore) -> None:
    old = [numbered(number) for number in range(250)]
    for task_id in old:
        await keep(store, opened(task_id), moved(TaskState.COMPLETED, task_id), digest="d")
    await keep(store, opened("open", at=0), digest="d")
    await keep(store, opened("new"), moved(TaskState.FAILED, "new", at=60))
    last = (await store.read_after(0))[-1].seq

    assert await store.prune(after(30)) == 250
    assert await store.prune(after(30)) == 0

    assert {task.id for task in (await store.list(TaskQuery())).tasks} == {"open", "new"}
    assert {one.event.task_id for one in await store.read_after(0)} == {"open", "new"}
    with pytest.raises(TaskNotFound):
        await store.load(old[0])
    assert await store.find_message("codex@/proj", "local", f"message of {old[0]}") is None
    assert await store.find_message("codex@/proj", "local", "message of open") is not None
    again = opened(old[0])
    assert await store.append(replay([again]), [again], digest="d") > last


async def test_the_next_event_wakes_a_waiter(store: AnyStore) -> None:
    assert await store.wait_after(0, 0) == 0
    waiting = [asyncio.ensure_future(store.wait_after(0, 60)) for _ in range(3)]
    await keep(store, opened())
    assert await asyncio.gather(*waiting) == [1, 1, 1]

    assert await store.wait_after(0, 60) == 1
    assert await store.wait_after(1, 0.01) == 1
    later = asyncio.ensure_future(store.wait_after(1, 60))
    await keep(store, moved(TaskState.WORKING), moved(TaskState.COMPLETED), before=[opened()])
    assert await later == 3


async def test_tasks_that_other_machines_sent_may_be_kept_longer(store: AnyStore) -> None:
    for number, (scope, at) in enumerate((("local", 5), ("machine:laptop", 5), ("machine:laptop", 15))):
        task_id = numbered(number)
        sent = opened(task_id, at=at, scope=scope, message=message(message_id=f"m{number}"))
        await keep(store, sent, moved(TaskState.COMPLETED, task_id, at=at), digest="d")

    assert await store.prune(after(30), relayed_before=after(10)) == 2
    assert [task.id for task in (await store.list(TaskQuery())).tasks] == [numbered(2)]
    assert await store.find_message("", "machine:laptop", "m2") is not None
    # Never longer than asked for, if that is shorter.
    assert await store.prune(after(12), relayed_before=after(30)) == 0


async def test_a_store_has_an_id_of_its_own(store: AnyStore) -> None:
    assert await store.store_id() == await store.store_id() != ""
