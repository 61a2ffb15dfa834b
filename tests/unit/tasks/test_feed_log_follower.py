"""LogFollower: all readers get the events of other processes, once and in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

import pytest

from synapse.core.errors import StoreLocked
from synapse.core.events import Recorded, Update
from synapse.core.override import override
from synapse.core.task import TaskId, TaskState
from synapse.tasks import feed
from synapse.tasks.feed import Feed, LogFollower
from synapse.tasks.journal import Journal
from tests.fakes.facts import TASK, handed, moved, noted, numbered, opened
from tests.fakes.leases import ANY_LEASE
from tests.fakes.memory_store import MemoryStore

BOUND = 5.0


class WatchedStore(MemoryStore):
    """Counts how often its log is looked at, and is locked when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self.is_locked = False
        self.before_look: Callable[[object], None] = lambda _seq: None
        self._looked = asyncio.Event()
        self._waits_after = 0
        self._waits = asyncio.Event()

    @override
    async def read_after(self, seq: int, *, task_id: TaskId | None = None, limit: int = 500) -> Sequence[Recorded]:
        if task_id is None:
            self.looks += 1
            self._looked.set()
            self.before_look(seq)
            if self.is_locked:
                raise StoreLocked
        return await super().read_after(seq, task_id=task_id, limit=limit)

    @override
    async def wait_after(self, seq: int, seconds: float) -> int:
        self._waits_after = seq
        self._waits.set()
        return await super().wait_after(seq, seconds)

    async def read_up_to(self, seq: int) -> None:
        """Wait until the log is read up to `seq`, and its reader waits for more."""
        async with asyncio.timeout(BOUND):
            while self._waits_after < seq:
                self._waits.clear()
                await self._waits.wait()

    async def next_look(self) -> None:
        """Wait until the next read of the log has begun."""
        self._looked.clear()
        async with asyncio.timeout(BOUND):
            await self._looked.wait()


class Gateway:
    """A feed over a LogFollower, and the journal of another process over the same store."""

    def __init__(self) -> None:
        self.store = WatchedStore()
        self.elsewhere = Journal(self.store, ANY_LEASE)
        self.recorded: list[Update] = []
        self.elsewhere.listen(self.recorded.append)
        own = Journal(self.store)
        self.follower = LogFollower(self.store, own, gather_seconds=0.001)
        self.feed = Feed(own, self.store, source=self.follower)
        self.follower.only(self.feed.has_readers_of)

    async def follow(self, task_id: TaskId = TASK, after: int | None = None) -> AsyncGenerator[Update, None]:
        async with self.follower.running(), aclosing(self.feed.follow(task_id, after)) as updates:
            async for update in updates:
                yield update

    async def follow_all(self) -> AsyncGenerator[Update, None]:
        async with self.follower.running(), aclosing(self.feed.follow_all()) as updates:
            async for update in updates:
                yield update


async def rest(updates: AsyncGenerator[Update, None]) -> list[Update]:
    async with asyncio.timeout(BOUND):
        return [update async for update in updates]


async def test_all_readers_get_the_events_of_another_process_in_order() -> None:
    gateway = Gateway()
    await gateway.elsewhere.record(opened())
    readers = [gateway.follow() for _ in range(3)]
    firsts = [await anext(reader) for reader in readers]
    assert {first.seq for first in firsts} == {1}

    reading = [asyncio.ensure_future(rest(reader)) for reader in readers]
    await gateway.elsewhere.record(moved(TaskState.WORKING))
    for number in range(20):
        await gateway.elsewhere.record(handed(f"{number}", append=number > 0))
    await gateway.elsewhere.record(noted({"a": 1}), moved(TaskState.COMPLETED))

    for one in reading:
        assert await one == gateway.recorded[1:]


async def test_a_reader_resumes_after_a_seq_that_was_recorded_without_readers() -> None:
    gateway = Gateway()
    await gateway.elsewhere.record(opened(), moved(TaskState.WORKING))
    first = gateway.follow(after=1)
    assert await anext(first) == gateway.recorded[1]
    await first.aclose()
    await gateway.elsewhere.record(handed("a"))

    second = gateway.follow(after=2)
    assert await anext(second) == gateway.recorded[2]
    await gateway.elsewhere.record(moved(TaskState.COMPLETED))

    assert await rest(second) == gateway.recorded[3:]


async def test_following_all_tasks_starts_from_now() -> None:
    gateway = Gateway()
    await gateway.elsewhere.record(opened(numbered(1)))
    updates = gateway.follow_all()
    nothing_yet = asyncio.ensure_future(anext(updates))
    await gateway.store.next_look()

    await gateway.elsewhere.record(opened(numbered(2)))
    # Its beginning was not heard, so the task is read from the log.
    await gateway.elsewhere.record(moved(TaskState.WORKING, numbered(1)))
    await gateway.elsewhere.record(moved(TaskState.WORKING, numbered(2)))

    async with asyncio.timeout(BOUND):
        heard = [await nothing_yet, await anext(updates), await anext(updates)]
    assert heard == gateway.recorded[1:]
    await updates.aclose()


async def test_the_log_is_not_read_without_readers() -> None:
    gateway = Gateway()
    await gateway.elsewhere.record(opened())
    async with asyncio.timeout(BOUND):
        reader = gateway.follow()
        await anext(reader)
        await reader.aclose()
    looks = gateway.store.looks

    await gateway.elsewhere.record(moved(TaskState.WORKING))
    await asyncio.wait({asyncio.ensure_future(asyncio.Event().wait())}, timeout=0.02)

    assert gateway.store.looks == looks


async def test_unwanted_tasks_are_skipped_and_joined_later_without_a_gap() -> None:
    gateway = Gateway()
    await gateway.elsewhere.record(opened(numbered(1)), moved(TaskState.WORKING, numbered(1)))
    await gateway.elsewhere.record(opened(numbered(2)))
    async with gateway.follower.running():
        await gateway.elsewhere.record(handed("a", numbered(1)))
        await gateway.store.read_up_to(4)
        updates = gateway.follow(numbered(1))
        now = await anext(updates)
        assert (now.seq, now.task) == (4, gateway.recorded[3].task)
        await gateway.elsewhere.record(moved(TaskState.COMPLETED, numbered(1)))
        assert await rest(updates) == gateway.recorded[4:]


async def test_readers_miss_nothing_while_the_store_is_locked() -> None:
    assert feed.RECOVERY_SECONDS < BOUND
    gateway = Gateway()
    await gateway.elsewhere.record(opened())
    updates = gateway.follow()
    await anext(updates)
    gateway.store.is_locked = True
    looked = asyncio.ensure_future(gateway.store.next_look())
    await gateway.elsewhere.record(moved(TaskState.COMPLETED))
    await looked
    gateway.store.is_locked = False

    assert await rest(updates) == gateway.recorded[1:]


@pytest.mark.parametrize("place", ["the store", "a listener"])
async def test_a_defect_is_logged_and_ends_no_stream(
    place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(feed, "RECOVERY_SECONDS", 0.01)
    gateway = Gateway()
    await gateway.elsewhere.record(opened())
    defects = [RuntimeError("a defect")]

    def fail_once(_: object) -> None:
        if defects:
            raise defects.pop()

    if place == "the store":
        gateway.store.before_look = fail_once
    else:
        gateway.follower.listen(fail_once)
    watcher = asyncio.ensure_future(rest(gateway.follow()))
    await gateway.store.next_look()
    await gateway.elsewhere.record(moved(TaskState.WORKING))
    await gateway.elsewhere.record(moved(TaskState.COMPLETED))

    assert [update.task.state for update in await watcher][-1] is TaskState.COMPLETED
    assert defects == []
    assert "log_not_read" in caplog.messages


async def test_the_log_is_not_read_while_nothing_is_recorded() -> None:
    gateway = Gateway()
    await gateway.elsewhere.record(opened())
    updates = gateway.follow()
    await anext(updates)
    await gateway.store.read_up_to(1)
    looks = gateway.store.looks

    await asyncio.wait({asyncio.ensure_future(asyncio.Event().wait())}, timeout=0.05)

    assert gateway.store.looks == looks
    await updates.aclose()


async def test_events_that_were_pruned_before_they_were_read_are_not_waited_for() -> None:
    class PrunedStore(WatchedStore):
        """Its newest event is gone."""

        @override
        async def wait_after(self, seq: int, seconds: float) -> int:
            await super().wait_after(seq, 0)
            return 7 if seq < 7 else await super().wait_after(seq, seconds)

    store = PrunedStore()
    follower = LogFollower(store, Journal(store), gather_seconds=0)
    async with follower.running():
        await store.read_up_to(7)
