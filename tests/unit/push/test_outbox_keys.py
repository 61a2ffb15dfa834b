"""A webhook gets notifications while the key that configured it is valid; later ones are given up."""

from __future__ import annotations

import asyncio

from synapse.core.caller import LOCAL_SCOPE, Caller
from synapse.core.errors import StoreFailed
from synapse.core.push import DeliveryState, PushConfig
from synapse.core.requests import ForAgent, SetPushConfig
from synapse.core.task import TaskState
from synapse.push.outbox import KEY_IS_GONE, PostResult
from tests.fakes.facts import TASK, handed, moved, opened
from tests.fakes.gateway_world import world as gateway_world
from tests.unit.push.outbox_world import INBOX, World, config

LAPTOP_KEY = Caller(scope="key:laptop-id", name="laptop", key_id="laptop-id")
KEY_OF = {"https://gone.example": "gone", "https://here.example": "laptop", "https://nobody.example": ""}


async def test_notifications_after_a_key_is_revoked_are_given_up_with_the_reason() -> None:
    async with asyncio.timeout(20):
        world = World()
        await world.journal.record(opened())
        await world.watched(set_by="laptop")
        await world.quiet()
        world.keys.clear()
        await world.journal.record(moved(TaskState.WORKING))
        await world.journal.record(moved(TaskState.COMPLETED))
        await world.quiet()

        assert world.posted() == ["1 TaskOpened"]
        told, *given_up = await world.deliveries()
        assert told.state is DeliveryState.DELIVERED
        assert [(one.state, one.attempts, one.error) for one in given_up] == [
            (DeliveryState.GIVEN_UP, 0, KEY_IS_GONE)
        ] * 2


async def test_a_pending_retry_is_not_made_after_a_key_is_revoked() -> None:
    async with asyncio.timeout(20):
        world = World(lambda _call: PostResult(status=503))

        async def revoke(seconds: float) -> None:
            world.keys.clear()
            await world.pause(seconds)

        world.while_waiting = revoke
        await world.journal.record(opened(), moved(TaskState.COMPLETED))
        await world.watched(set_by="laptop")
        await world.quiet()

        assert world.posted() == ["1 TaskOpened"]
        assert {one.error for one in await world.deliveries()} == {KEY_IS_GONE}


async def test_other_webhooks_of_the_task_still_get_notifications() -> None:
    async with asyncio.timeout(20):
        world = World()
        await world.journal.record(opened())
        for url, key in KEY_OF.items():
            world.outbox.add(await world.store.pushes.save(TASK, INBOX, config(url, url, key), 0))
        await world.journal.record(handed("a"), moved(TaskState.COMPLETED))
        await world.quiet()

        assert [len(world.posted(url)) for url in KEY_OF] == [0, 3, 3]


async def test_unreadable_keys_delay_deliveries_and_give_none_up() -> None:
    async with asyncio.timeout(20):
        world = World()
        failures = [StoreFailed("no keys now")]

        def holds(_key_id: str) -> bool:
            if failures:
                raise failures.pop()
            return True

        world.is_key_valid = holds
        await world.journal.record(opened(), moved(TaskState.COMPLETED))
        await world.watched(set_by="laptop")
        await world.quiet()

        assert world.posted() == ["1 TaskOpened", "2 StateChanged"]


async def test_a_gateway_records_the_key_itself_and_ignores_what_callers_send() -> None:
    async with asyncio.timeout(20):
        async with gateway_world() as world:
            asked = PushConfig(url="https://h.example", set_by="somebody-else")
            task = await world.sent(caller=LAPTOP_KEY, push=asked)
            await world.ask(ForAgent("ada", SetPushConfig(task_id=task.id, config=asked)), LAPTOP_KEY)
            other = await world.sent(caller=Caller(), push=asked)

            kept = [push.config.set_by for push in world.desks["ada"].saved]
            assert kept == ["laptop-id", "laptop-id", ""]
            assert other.scope == LOCAL_SCOPE
