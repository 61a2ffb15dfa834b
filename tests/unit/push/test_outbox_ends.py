"""A lane ends only when everything is delivered, including an event that arrives at that moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from synapse.core.override import override
from synapse.core.push import DeliveryState, Push
from synapse.core.task import TaskState
from synapse.push.outbox import PostResult
from tests.fakes.facts import hidden, moved, opened
from tests.fakes.memory_pushes import MemoryPushes
from tests.fakes.memory_store import MemoryStore
from tests.unit.push.outbox_world import URL, World

POSTED = ["1 TaskOpened", "2 StateChanged", "3 TaskHidden"]


async def nothing() -> None:
    """Does nothing."""


class WatchedPushes(MemoryPushes):
    """Records its calls; `before_the_end` runs just before a lane is finished."""

    def __init__(self) -> None:
        super().__init__()
        self.before_the_end: Callable[[], Awaitable[object]] = nothing
        self.finished_at: list[int] = []
        self.asked_after: list[int] = []

    @override
    async def finish(self, number: int, told: int) -> None:
        self.finished_at.append(told)
        happening, self.before_the_end = self.before_the_end, nothing
        await happening()
        await super().finish(number, told)

    @override
    async def open_after(self, inbox: str, number: int) -> Sequence[Push]:
        self.asked_after.append(number)
        return await super().open_after(inbox, number)


def a_world() -> tuple[World, WatchedPushes]:
    store, pushes = MemoryStore(), WatchedPushes()
    store.pushes = pushes
    return World(store=store), pushes


async def test_an_event_that_arrives_while_a_lane_is_finished_is_delivered() -> None:
    async with asyncio.timeout(20):
        world, pushes = a_world()
        await world.journal.record(opened(), moved(TaskState.COMPLETED))
        await world.watched()
        pushes.before_the_end = lambda: world.journal.record(hidden())
        await world.quiet()

        assert world.posted() == POSTED
        assert pushes.finished_at == [2, 3]


async def test_a_lane_that_is_behind_is_not_finished() -> None:
    async with asyncio.timeout(20):
        world, pushes = a_world()
        world.hooks.held = {URL}
        await world.journal.record(opened(), moved(TaskState.COMPLETED))
        await world.watched(told=1)
        await world.quiet()
        await world.journal.record(hidden())
        world.hooks.let_go()
        await world.quiet()

        assert world.posted() == POSTED[1:]
        assert pushes.finished_at == [3], "a crash in between would lose the last notification"


async def test_a_redirection_is_no_delivery() -> None:
    async with asyncio.timeout(20):
        world = World(lambda _call: PostResult(status=302))
        await world.journal.record(opened(), moved(TaskState.COMPLETED))
        await world.watched()
        await world.quiet()

        assert [one.state for one in await world.deliveries()] == [DeliveryState.GIVEN_UP] * 2


async def test_each_search_for_new_webhooks_continues_after_the_last() -> None:
    async with asyncio.timeout(20):
        world, pushes = a_world()
        await world.journal.record(opened())
        push = await world.watched()
        await world.quiet()
        await world.outbox.find_new()

        assert pushes.asked_after == [0, push.number]
