"""Quotas of agents and of a gateway's keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from synapse.core.caller import Caller
from synapse.core.errors import QuotaExceeded
from synapse.core.message import DataPart, FilePart, TextPart
from synapse.core.requests import ChangeTask, CreateTask, ForAgent, GetTask, SendAndWait, SendMessage
from synapse.core.task import TaskState
from synapse.tasks.quota import REMEMBERED_SECONDS, Quota, size_of
from tests.fakes.clock import FakeClock
from tests.fakes.gateway_world import BOB_NAME, LAPTOP, PHONE, message, world
from tests.fakes.harness import CLAUDE, ME, AgentHarness, say, working
from tests.fakes.memory_store import MemoryStore

LONG = "x" * 3000


class Store:
    """Says how much is kept, and counts how often it was asked."""

    def __init__(self) -> None:
        self.kept = 0
        self.asked = 0

    async def measure(self) -> int:
        self.asked += 1
        return self.kept


def quota(limit: int, store: Store, clock: FakeClock) -> Quota:
    return Quota(limit, store.measure, clock, whose="ada", setting="agent_quota_bytes")


async def test_a_message_over_the_quota_is_refused_with_a_hint() -> None:
    store = Store()
    store.kept = 1_500_000
    with pytest.raises(QuotaExceeded) as refused:
        await quota(2_000_000, store, FakeClock()).take(600_000)

    assert str(refused.value) == ("ada may keep 1.9 MB of messages and files, has 1.4 MB, and this takes 586 KB more")
    assert "agent_quota_bytes" in refused.value.hint
    assert "keep_days" in refused.value.hint


async def test_the_store_is_asked_now_and_then_and_each_time_near_the_limit() -> None:
    store, clock = Store(), FakeClock()
    ours = quota(1000, store, clock)
    for _ in range(8):
        await ours.take(100)
    assert store.asked == 1
    clock.advance(REMEMBERED_SECONDS + 1)
    store.kept = 800
    await ours.take(50)
    assert store.asked == 2
    for _ in range(2):
        await ours.take(100)
    assert store.asked == 4
    store.kept = 1000
    with pytest.raises(QuotaExceeded):
        await ours.take(1)


async def test_without_a_limit_the_store_is_not_asked() -> None:
    store = Store()
    await quota(0, store, FakeClock()).take(10**12)

    assert store.asked == 0


@pytest.mark.parametrize(
    ("part", "least"),
    [
        (TextPart(text=LONG), 3000),
        (TextPart(text="あ" * 1000), 3000),
        (FilePart(content=bytes(3000)), 4000),
        (FilePart(url="http://a/" + LONG), 3000),
        (DataPart(data={"a": [LONG]}), 3000),
        (TextPart(text="", metadata={"a": LONG}), 3000),
    ],
)
def test_all_of_a_message_counts(part: Any, least: int) -> None:
    assert least <= size_of(replace(say(""), parts=(part,)), {}) <= least + 100
    assert 3000 <= size_of(say(""), {"a": LONG}) <= 3100


async def test_an_agent_takes_no_more_than_its_quota_and_again_after_old_tasks_are_forgotten() -> None:
    harness = AgentHarness(quota_bytes=10_000)
    async with working(harness):
        for number in range(2):
            await harness.finished(await harness.send(f"{number}{LONG}"))
        with pytest.raises(QuotaExceeded, match=f"{ME.agent_id} may keep"):
            await harness.send("one more" + LONG + LONG)
        refused = CreateTask(message=say(LONG * 3), dialect="synapse")
        with pytest.raises(QuotaExceeded):
            await harness.service.handle(refused, Caller())
        again = AgentHarness(store=harness.store, quota_bytes=10_000)
        with pytest.raises(QuotaExceeded):
            await again.send("one more" + LONG + LONG)
        harness.clock.advance(3600)
        await harness.store.prune(harness.clock.now())
        assert (await harness.send("one more" + LONG + LONG)).state is TaskState.SUBMITTED


async def test_a_message_that_is_sent_again_is_known_though_nothing_more_fits() -> None:
    harness = AgentHarness(quota_bytes=5000)
    said = SendMessage(message=say(LONG, "m-1"), dialect="synapse")
    task = await harness.service.handle(said, Caller())

    assert (await harness.service.handle(said, Caller())).id == task.id


async def test_an_answer_is_kept_though_the_quota_is_full() -> None:
    harness = AgentHarness(quota_bytes=4000)
    asked = CreateTask(message=say("?"), dialect="synapse")
    task = await harness.service.handle(asked, Caller())
    done = await harness.send(LONG * 2, in_reply_to=task.id, caller=Caller(via_socket=True, agent_id=CLAUDE.agent_id))

    assert done.artifacts[0].text == LONG * 2


async def test_each_key_has_a_quota_of_its_own_over_all_agents() -> None:
    async with world(key_bytes=10_000) as here:
        first = await here.sent("1" + LONG, agent="ada")
        await here.sent("2" + LONG, agent=BOB_NAME)
        with pytest.raises(QuotaExceeded, match="the key 'laptop' may keep"):
            await here.ask(ForAgent("ada", SendAndWait(message("3" + LONG * 2))))
        with pytest.raises(QuotaExceeded):
            await here.ask(ChangeTask(task_id=first.id, metadata={"request": {"a": LONG * 3}}))
        assert await here.ask(GetTask(first.id))
        await here.sent("4" + LONG, PHONE)
        await here.sent("5" + LONG * 5, Caller(is_owner=True))
        await here.sent("6" + LONG * 5, Caller(name="helper", actions=frozenset({"send"})))


async def test_a_key_that_sends_a_message_again_gets_its_task() -> None:
    assert LAPTOP.scope != PHONE.scope
    async with world(key_bytes=5000, store=MemoryStore()) as here:
        first = await here.sent(LONG, message_id="m-1")
        assert (await here.sent(LONG, message_id="m-1")).id == first.id
        with pytest.raises(QuotaExceeded):
            await here.sent(LONG, message_id="m-2")
