"""The contract of PushStore, for every implementation."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from synapse.core.events import TaskEvent
from synapse.core.lifecycle import replay
from synapse.core.push import Delivery, DeliveryState, PushConfig
from synapse.core.task import TaskState
from tests.fakes.facts import TASK, after, moved, numbered, opened
from tests.fakes.leased_store import LeasedStore
from tests.fakes.memory_store import MemoryStore

INBOX = "codex@/proj"
CONFIG = PushConfig(
    id="c",
    url="https://example.com/h",
    token="t",
    scheme="bearer",
    credentials="secret",
    dialect="a2a_v1",
    set_by="0a1b2c3d4e5f",
)


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[MemoryStore | LeasedStore]:
    """Yields each implementation in turn."""
    opened_store = MemoryStore() if request.param == "memory" else await LeasedStore.open(tmp_path / "store.db")
    yield opened_store
    await opened_store.close()


def delivery(number: int, seq: int, state: DeliveryState = DeliveryState.DELIVERED, **fields: Any) -> Delivery:
    return Delivery(number=number, seq=seq, state=state, attempts=1, at=after(seq), **fields)


async def test_a_configuration_is_read_as_it_was_saved(store: MemoryStore | LeasedStore) -> None:
    saved = await store.pushes.save(TASK, INBOX, CONFIG, 7)

    assert saved.config == CONFIG
    assert (saved.task_id, saved.inbox, saved.told) == (TASK, INBOX, 7)
    assert await store.pushes.load(saved.number) == saved
    assert list(await store.pushes.of_task(TASK)) == [saved]
    assert await store.pushes.load(saved.number + 1) is None
    assert list(await store.pushes.of_task(numbered(2))) == []


async def test_saving_an_id_again_replaces_the_configuration_and_keeps_its_position(
    store: MemoryStore | LeasedStore,
) -> None:
    first = await store.pushes.save(TASK, INBOX, CONFIG, 3)
    again = await store.pushes.save(TASK, INBOX, replace(CONFIG, url="https://example.com/new"), 9)
    other = await store.pushes.save(TASK, INBOX, replace(CONFIG, id="d"), 9)

    assert again.number == first.number
    assert again.told == 3
    assert again.config.url == "https://example.com/new"
    assert list(await store.pushes.of_task(TASK)) == [again, other]


async def test_a_settled_delivery_moves_the_position_and_a_pending_one_does_not(
    store: MemoryStore | LeasedStore,
) -> None:
    number = (await store.pushes.save(TASK, INBOX, CONFIG, 0)).number
    failed = delivery(number, 4, DeliveryState.PENDING, status=500, error="no", next_try=after(90))

    assert await store.pushes.record(delivery(number, 2))
    assert await store.pushes.record(failed)
    push = await store.pushes.load(number)
    assert push is not None
    assert (push.told, push.pending) == (2, failed)

    assert await store.pushes.record(delivery(number, 4, DeliveryState.GIVEN_UP))
    push = await store.pushes.load(number)
    assert push is not None
    assert (push.told, push.pending) == (4, None)


async def test_open_pushes_are_those_of_the_inbox_that_are_not_finished(store: MemoryStore | LeasedStore) -> None:
    one, two, three = [await store.pushes.save(numbered(n), INBOX, CONFIG, 0) for n in range(3)]
    await store.pushes.save(numbered(9), "other", CONFIG, 0)
    await store.pushes.finish(two.number, 12)

    assert [push.number for push in await store.pushes.open_after(INBOX, 0)] == [one.number, three.number]
    assert [push.number for push in await store.pushes.open_after(INBOX, one.number)] == [three.number]
    finished = await store.pushes.load(two.number)
    assert finished is not None
    assert finished.told == 12

    await store.pushes.save(numbered(1), INBOX, CONFIG, 0)
    assert two.number in [push.number for push in await store.pushes.open_after(INBOX, 0)]


async def test_a_deleted_configuration_is_gone_with_its_deliveries_and_its_number_is_not_used_again(
    store: MemoryStore | LeasedStore,
) -> None:
    number = (await store.pushes.save(TASK, INBOX, CONFIG, 0)).number
    await store.pushes.record(delivery(number, 2))

    await store.pushes.delete(TASK, "c")
    await store.pushes.delete(TASK, "c")

    assert await store.pushes.load(number) is None
    assert await store.pushes.record(delivery(number, 3)) is False
    assert list(await store.pushes.deliveries(10)) == []
    assert (await store.pushes.save(TASK, INBOX, CONFIG, 0)).number > number


async def test_deliveries_are_listed_latest_first_and_silent_webhooks_before_them(
    store: MemoryStore | LeasedStore,
) -> None:
    told = await store.pushes.save(numbered(1), INBOX, CONFIG, 0)
    new = await store.pushes.save(numbered(2), INBOX, CONFIG, 0)
    done = await store.pushes.save(numbered(3), INBOX, CONFIG, 0)
    await store.pushes.finish(done.number, 1)
    for seq in (2, 5, 3):
        await store.pushes.record(delivery(told.number, seq))

    seen = [(push.number, one.seq if one else None) for push, one in await store.pushes.deliveries(10)]

    assert seen == [(new.number, None), (told.number, 5), (told.number, 3), (told.number, 2)]
    assert len(await store.pushes.deliveries(2)) == 2


async def test_notifications_are_counted_by_state(store: MemoryStore | LeasedStore) -> None:
    assert await store.pushes.counts() == {}
    push = await store.pushes.save(TASK, INBOX, CONFIG, 0)
    for seq, state in ((1, DeliveryState.DELIVERED), (2, DeliveryState.GIVEN_UP), (3, DeliveryState.DELIVERED)):
        await store.pushes.record(delivery(push.number, seq, state))

    assert await store.pushes.counts() == {DeliveryState.DELIVERED: 2, DeliveryState.GIVEN_UP: 1}


async def test_pruning_a_task_deletes_its_pushes_and_deliveries(store: MemoryStore | LeasedStore) -> None:
    for task_id, at in ((numbered(1), 1.0), (numbered(2), 60.0)):
        log: list[TaskEvent] = [opened(task_id, at=at), moved(TaskState.COMPLETED, task_id, at=at)]
        await store.append(replay(log), log)
    old = await store.pushes.save(numbered(1), INBOX, CONFIG, 0)
    new = await store.pushes.save(numbered(2), INBOX, CONFIG, 0)
    await store.pushes.record(delivery(old.number, 2))
    await store.pushes.record(delivery(new.number, 4))

    assert await store.prune(after(30)) == 1

    assert await store.pushes.load(old.number) is None
    assert [push.number for push, _ in await store.pushes.deliveries(10)] == [new.number]
