"""The feed: no gap, no repeat, the same order for all, and a slow reader is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from synapse.core.errors import FeedLagged, TaskNotFound
from synapse.core.events import StateChanged, Update
from synapse.core.task import TaskState
from synapse.tasks.feed import Feed
from synapse.tasks.journal import Journal
from tests.fakes.facts import TASK, handed, moved, noted, numbered, opened, said
from tests.fakes.leases import ANY_LEASE
from tests.fakes.memory_store import MemoryStore

BOUND = 5.0


class Host:
    """A journal and a feed over one store."""

    def __init__(self, store: MemoryStore | None = None, buffer: int = 1024) -> None:
        self.store = store or MemoryStore()
        self.journal = Journal(self.store, ANY_LEASE)
        self.feed = Feed(self.journal, self.store, buffer=buffer)
        self.recorded: list[Update] = []
        self.journal.listen(self.recorded.append)


async def take(updates: AsyncGenerator[Update, None], count: int) -> list[Update]:
    async with asyncio.timeout(BOUND):
        return [await anext(updates) for _ in range(count)]


async def rest(updates: AsyncGenerator[Update, None]) -> list[Update]:
    async with asyncio.timeout(BOUND):
        return [update async for update in updates]


async def test_a_follower_gets_the_task_as_it_is_then_each_event_until_it_ends() -> None:
    host = Host()
    task = await host.journal.record(opened(), noted({"a": 1}))
    updates = host.feed.follow(TASK)
    assert await take(updates, 1) == [Update(2, None, task)]

    await host.journal.record(moved(TaskState.WORKING))
    await host.journal.record(handed("a"), moved(TaskState.COMPLETED))
    await host.journal.record(noted({"later": 1}))

    assert await rest(updates) == host.recorded[2:5]


async def test_a_finished_task_is_one_snapshot() -> None:
    host = Host()
    task = await host.journal.record(opened(), moved(TaskState.COMPLETED))

    assert await rest(host.feed.follow(TASK)) == [Update(2, None, task)]


async def test_a_reader_resumes_after_a_seq() -> None:
    host = Host()
    await host.journal.record(opened(), moved(TaskState.WORKING))
    updates = host.feed.follow(TASK, after=1)
    assert await take(updates, 1) == host.recorded[1:2]

    await host.journal.record(handed("a"), moved(TaskState.COMPLETED))

    assert await rest(updates) == host.recorded[2:]
    assert await rest(host.feed.follow(TASK, after=0)) == host.recorded


@pytest.mark.parametrize("after", [3, 4, 99])
async def test_resuming_after_the_end_ends_at_once(after: int) -> None:
    host = Host()
    await host.journal.record(opened(), handed("a"), moved(TaskState.FAILED), noted({"later": 1}))

    assert await rest(host.feed.follow(TASK, after=after)) == []


async def test_a_seq_that_never_was_still_ends_with_the_task() -> None:
    host = Host()
    await host.journal.record(opened())
    following = asyncio.ensure_future(rest(host.feed.follow(TASK, after=99)))
    while not host.feed.is_followed(TASK):
        await host.journal.record(noted({}))

    await host.journal.record(moved(TaskState.COMPLETED))

    assert await following == []


async def test_an_unknown_task_is_not_found() -> None:
    host = Host()
    for after in (None, 0, 7):
        with pytest.raises(TaskNotFound):
            await rest(host.feed.follow(TASK, after))
    assert not host.feed.is_followed(TASK)


async def test_nothing_is_lost_or_repeated_while_a_reader_joins() -> None:
    host = Host()
    await host.journal.record(opened())
    readers = [asyncio.ensure_future(rest(host.feed.follow(TASK, after=0)))]
    for number in range(50):
        host.journal.record_nowait(handed(str(number), append=True))
        await host.journal.record(noted({"n": number}))
        readers.append(asyncio.ensure_future(rest(host.feed.follow(TASK, after=0))))
    await host.journal.record(moved(TaskState.COMPLETED))

    for reader in readers:
        assert await reader == host.recorded


async def test_many_followers_see_the_same_order() -> None:
    host = Host()
    await host.journal.record(opened())
    readers = [host.feed.follow(TASK) for _ in range(20)]
    for reader in readers:
        await take(reader, 1)
    following = [asyncio.ensure_future(rest(reader)) for reader in readers]
    for number in range(30):
        await host.journal.record(handed(str(number)))
    await host.journal.record(moved(TaskState.COMPLETED))

    for seen in await asyncio.gather(*following):
        assert seen == host.recorded[1:]


async def test_a_slow_reader_is_told_and_resumes() -> None:
    host = Host(buffer=5)
    await host.journal.record(opened())
    updates = host.feed.follow(TASK)
    first = (await take(updates, 1))[0]
    await host.journal.record(handed("read"))
    assert await take(updates, 1) == host.recorded[1:]
    for number in range(20):
        await host.journal.record(handed(str(number)))

    with pytest.raises(FeedLagged) as lagged:
        await take(updates, 30)
    assert lagged.value.last_seq == host.recorded[1].seq > first.seq
    resumed = host.feed.follow(TASK, after=lagged.value.last_seq)
    await host.journal.record(moved(TaskState.COMPLETED))

    assert await rest(resumed) == host.recorded[2:]


async def test_a_reader_that_is_slow_with_the_log_reads_on_in_the_log() -> None:
    host = Host(buffer=3)
    await host.journal.record(opened(), handed("a"))
    updates = host.feed.follow(TASK, after=0)
    seen = await take(updates, 1)
    for number in range(20):
        await host.journal.record(handed(str(number)))
    seen += await take(updates, len(host.recorded) - 1)
    await host.journal.record(moved(TaskState.COMPLETED))

    assert seen + await rest(updates) == host.recorded


async def test_what_another_process_wrote_is_not_missing() -> None:
    store = MemoryStore()
    host, other = Host(store), Host(store)
    await host.journal.record(opened())
    updates = host.feed.follow(TASK)
    await take(updates, 1)

    await other.journal.record(moved(TaskState.WORKING))
    await host.journal.record(handed("a"))
    await other.journal.record(said("b"), moved(TaskState.INPUT_REQUIRED))
    await host.journal.record(moved(TaskState.COMPLETED))

    log = [update async for update in host.journal.updates(TASK)]
    assert await rest(updates) == log[1:]


async def test_a_task_is_followed_until_its_last_reader_leaves() -> None:
    host = Host()
    await host.journal.record(opened())
    one, two = host.feed.follow(TASK), host.feed.follow(TASK)
    assert not host.feed.is_followed(TASK)
    await take(one, 1)
    await take(two, 1)

    await one.aclose()
    assert host.feed.is_followed(TASK)
    await two.aclose()
    assert not host.feed.is_followed(TASK)


async def test_following_everything_goes_through_the_log_then_live() -> None:
    host = Host()
    for number in range(3):
        await host.journal.record(opened(numbered(number)))
    await host.journal.record(moved(TaskState.WORKING, numbered(1)))

    async with aclosing(host.feed.follow_all(after=1)) as updates:
        assert await take(updates, 3) == host.recorded[1:]
        await host.journal.record(moved(TaskState.COMPLETED, numbered(1)))
        await host.journal.record(opened(numbered(7)))
        assert await take(updates, 2) == host.recorded[4:]


async def test_following_everything_from_now_begins_with_the_next_event() -> None:
    host = Host()
    await host.journal.record(opened())
    updates = host.feed.follow_all()
    coming = asyncio.ensure_future(anext(updates))
    await host.journal.record(opened(numbered(2)))

    assert await coming == host.recorded[1]
    await updates.aclose()


async def test_following_one_inbox_leaves_the_others_out() -> None:
    host = Host()
    await host.journal.record(opened(numbered(1)))
    await host.journal.record(opened(numbered(2), inbox="other"))

    async with aclosing(host.feed.follow_all(after=0, inbox="other")) as updates:
        assert await take(updates, 1) == host.recorded[1:]
        await host.journal.record(noted({}, numbered(1)))
        await host.journal.record(noted({}, numbered(2)))
        assert await take(updates, 1) == host.recorded[3:]


async def test_a_slow_reader_of_everything_is_told() -> None:
    host = Host(buffer=2)
    async with aclosing(host.feed.follow_all()) as updates:
        coming = asyncio.ensure_future(anext(updates))
        await host.journal.record(opened())
        await coming
        for number in range(5):
            await host.journal.record(noted({"n": number}))

        with pytest.raises(FeedLagged) as lagged:
            await take(updates, 5)
    assert lagged.value.last_seq == 1


async def test_updates_of_many_tasks_are_folded_each_on_its_own() -> None:
    host = Host()
    for number in range(600):
        await host.journal.record(opened(numbered(number)))
    for number in range(600):
        await host.journal.record(handed("a", numbered(number)), moved(TaskState.COMPLETED, numbered(number)))

    async with aclosing(host.feed.follow_all(after=0)) as updates:
        assert await take(updates, 1800) == host.recorded
    async with aclosing(host.feed.follow_all(after=900)) as updates:
        seen = await take(updates, 900)
    assert seen == host.recorded[900:]
    assert isinstance(seen[-1].event, StateChanged)
