"""After a restart the outbox continues where the earlier process stopped."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from synapse.core.push import Delivery, DeliveryState
from synapse.core.task import TaskState
from synapse.push.outbox import PostResult
from tests.fakes.facts import TASK, handed, moved, numbered, opened
from tests.fakes.stores import settle
from tests.fakes.webhooks import OK, FakeWebhooks
from tests.unit.push.outbox_world import INBOX, URL, World, config, running


async def test_a_restarted_outbox_continues_and_repeats_what_was_not_recorded() -> None:
    async with asyncio.timeout(20):
        world = World(lambda call: OK if b"Opened" in call.body else PostResult(status=500))
        await world.journal.record(opened())
        await world.watched()
        async with running(world):
            await world.quiet()
            world.hooks.held = {URL}
            await world.journal.record(moved(TaskState.WORKING), handed("a"), moved(TaskState.COMPLETED))
            await world.quiet()
        assert world.posted() == ["1 TaskOpened", "2 StateChanged"]

        world.hooks = FakeWebhooks()
        world.outbox = world.new_outbox()
        async with running(world):
            await world.quiet()
            assert world.posted() == ["2 StateChanged", "3 ArtifactAdded", "4 StateChanged"]
        assert list(await world.store.pushes.open_after(INBOX, 0)) == []


async def test_a_restart_waits_for_the_next_attempt_and_keeps_the_count() -> None:
    async with asyncio.timeout(20):
        world = World()
        push = await world.store.pushes.save(TASK, INBOX, config(), 0)
        await world.journal.record(opened(), moved(TaskState.COMPLETED))
        (first, _) = await world.store.read_after(0)
        tried = Delivery(
            number=push.number,
            seq=first.seq,
            state=DeliveryState.PENDING,
            attempts=3,
            at=world.clock.now(),
            next_try=world.clock.now() + timedelta(seconds=40),
        )
        await world.store.pushes.record(tried)
        async with running(world):
            await world.quiet()

        assert world.pauses == [40.0]
        assert [(one.seq, one.attempts) for one in await world.deliveries()] == [(first.seq, 4), (first.seq + 1, 1)]


async def test_a_clock_that_was_set_back_does_not_make_a_webhook_wait_for_days() -> None:
    async with asyncio.timeout(20):
        world = World()
        push = await world.store.pushes.save(TASK, INBOX, config(), 0)
        await world.journal.record(opened())
        later = world.clock.now() + timedelta(days=30)
        pending = Delivery(number=push.number, seq=1, state=DeliveryState.PENDING, attempts=1, at=later, next_try=later)
        await world.store.pushes.record(pending)
        world.outbox.add(push)
        await world.quiet()

        assert world.pauses == [300.0]


async def test_webhooks_that_another_process_configured_are_found() -> None:
    async with asyncio.timeout(20):
        world = World()
        async with running(world):
            await world.journal.record(opened(), moved(TaskState.COMPLETED))
            await world.store.pushes.save(TASK, INBOX, config(), 0)
            await world.quiet()
            assert world.posted() == []
            await world.outbox.find_new()
            await world.quiet()
            assert world.posted() == ["1 TaskOpened", "2 StateChanged"]


async def test_draining_waits_for_deliveries_in_progress_and_not_for_retries() -> None:
    async with asyncio.timeout(20):
        never = asyncio.Event()
        world = World(lambda call: OK if call.url == URL else PostResult(status=500))

        async def for_ever(_seconds: float) -> None:
            await never.wait()

        world.while_waiting = for_ever
        async with running(world):
            await world.journal.record(opened(numbered(1)))
            await world.watched("https://down.example", numbered(1))
            await world.quiet()
            await world.outbox.drain(10)

            world.hooks.held = {URL}
            await world.journal.record(opened(numbered(2)))
            await world.watched(URL, numbered(2))
            await world.quiet()
            draining = asyncio.ensure_future(world.outbox.drain(10))
            await settle()
            assert not draining.done()
            world.hooks.let_go()
            await draining
            assert [one.state for one in await world.deliveries()][-1] is DeliveryState.DELIVERED
