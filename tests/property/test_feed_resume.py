"""Any cut of a feed, resumed after the last seq that was seen, loses and repeats nothing: here, and at a gateway."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

from hypothesis import given, settings
from hypothesis import strategies as st

from synapse.core.errors import FeedLagged
from synapse.core.events import StateChanged, TaskEvent, Update
from synapse.core.task import TaskId
from synapse.store.memory import MemoryStore
from synapse.tasks.feed import Feed, LogFollower
from synapse.tasks.journal import Journal
from tests.property.histories import histories


class Follow(Protocol):
    """Something that lets tasks be followed."""

    def follow(self, task_id: TaskId, after: int | None = None) -> AsyncGenerator[Update, None]: ...

    def is_followed(self, task_id: TaskId) -> bool: ...


class TailedFeed:
    """The feed of a gateway: it hears of what others record by reading the end of the log."""

    def __init__(self, store: MemoryStore, buffer: int) -> None:
        own = Journal(store)
        self._tail = LogFollower(store, own, look_seconds=0)
        self._feed = Feed(own, store, source=self._tail, buffer=buffer)
        self._tail.only(self._feed.has_readers_of)

    async def follow(self, task_id: TaskId, after: int | None = None) -> AsyncGenerator[Update, None]:
        async with self._tail.running(), aclosing(self._feed.follow(task_id, after)) as updates:
            async for update in updates:
                yield update

    def is_followed(self, task_id: TaskId) -> bool:
        return self._feed.is_followed(task_id)


class Reader:
    """Follows a task, is cut off, and resumes after what it saw last."""

    def __init__(self, feed: Follow, task_id: TaskId, after: int | None) -> None:
        self._feed = feed
        self._task_id = task_id
        self._after = after
        self._updates: AsyncGenerator[Update, None] | None = None
        self._next: asyncio.Future[Update] | None = None
        self.seen: list[Update] = []
        self.has_ended = False

    async def read(self, most: int) -> None:
        """Take up to `most` updates, but wait for none."""
        while most > 0 and not self.has_ended:
            if self._updates is None:
                self._updates = self._feed.follow(self._task_id, self._after)
            if self._next is None:
                self._next = asyncio.ensure_future(anext(self._updates))
            await turn_the_loop()
            if not self._next.done():
                return
            self._take()
            most -= 1

    async def cut(self) -> None:
        """Drop the connection."""
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait([self._next])
            self._next = None
        if self._updates is not None:
            await self._updates.aclose()
            self._updates = None

    def _take(self) -> None:
        assert self._next is not None
        done, self._next = self._next, None
        error = done.exception()
        if isinstance(error, FeedLagged):
            assert self._after is None or error.last_seq == self._after
            self._after = error.last_seq
            self._updates = None
        elif isinstance(error, StopAsyncIteration):
            self.has_ended = True
        else:
            self.seen.append(done.result())
            self._after = self.seen[-1].seq


async def turn_the_loop() -> None:
    for _ in range(20):
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(ready.set_result, None)
        await ready


def expected_of(updates: list[Update], first: Update) -> list[Update]:
    """What an uninterrupted reader sees: up to the state that ends the task."""
    following = [update for update in updates if update.seq > first.seq]
    ends = [n for n, one in enumerate(following) if isinstance(one.event, StateChanged) and one.task.state.is_terminal]
    return following[: ends[0] + 1] if ends else following


async def play(reader: Reader, moves: list[str]) -> None:
    for move in moves:
        match move:
            case "cut":
                await reader.cut()
            case "wait":
                await turn_the_loop()
            case "read one":
                await reader.read(1)
            case _:
                await reader.read(100)


async def follow(
    log: list[TaskEvent], moves: list[list[str]], after: int | None, buffer: int, *, tailed: bool
) -> tuple[Reader, list[Update]]:
    """Record the log one by one, with some moves of the reader in between; return what it saw and what there was."""
    store = MemoryStore()
    journal = Journal(store)
    feed: Follow = TailedFeed(store, buffer) if tailed else Feed(journal, store, buffer=buffer)
    heard: list[Update] = []
    journal.listen(heard.append)
    reader = Reader(feed, log[0].task_id, after)
    await journal.record(log[0])
    for event, some in itertools.zip_longest(log[1:], moves, fillvalue=None):
        await play(reader, some or [])
        if event is not None:
            journal.record_nowait(event)
    for _ in range(len(log) + 2):
        await reader.read(len(log))
    await reader.cut()
    assert not feed.is_followed(log[0].task_id)
    return reader, heard


@settings(deadline=None, max_examples=80)
@given(
    log=histories(most=20),
    moves=st.lists(st.lists(st.sampled_from(["read", "read one", "cut", "wait"]), max_size=3), max_size=20),
    after=st.sampled_from([None, 0]),
    buffer=st.integers(1, 6),
    tailed=st.booleans(),
)
async def test_any_cut_and_resume_loses_and_repeats_nothing(
    log: list[TaskEvent], moves: list[list[str]], after: int | None, buffer: int, tailed: bool
) -> None:
    reader, heard = await asyncio.wait_for(follow(log, moves, after, buffer, tailed=tailed), 20)

    assert [update.event for update in heard] == log
    if after is None:
        snapshot, *following = reader.seen
        assert snapshot == Update(snapshot.seq, None, heard[snapshot.seq - 1].task)
        assert following == ([] if snapshot.task.state.is_terminal else expected_of(heard, snapshot))
    else:
        assert reader.seen == expected_of(heard, Update(0, None, heard[0].task))
