"""Canceling: the sender that waits is notified, and a cancel that comes too late is refused."""

from __future__ import annotations

import asyncio

import pytest

from synapse.core.caller import Caller
from synapse.core.errors import TaskNotCancelable
from synapse.core.requests import CancelTask
from synapse.core.task import TaskState
from synapse.tasks import outcomes
from tests.fakes.facts import after
from tests.fakes.harness import CLAUDE, AgentHarness, claude, working
from tests.fakes.host_client import DeliveredReply
from tests.fakes.stores import SlowStore, settle


async def test_the_sender_that_waits_is_notified_when_its_message_is_canceled_before_its_turn() -> None:
    async with working(AgentHarness()) as harness:
        harness.driver.ready.clear()
        task = await harness.send("status?", sender=claude(), response_expected=True, sender_task_id="t-1")
        await harness.service.handle(CancelTask(task.id), Caller())
        await asyncio.wait_for(harness.host_client.called.wait(), 5)
        await settle()

        assert harness.host_client.delivered == [
            DeliveredReply(CLAUDE.agent_id, "t-1", "canceled by request", True, True)
        ]
        assert harness.driver.turns == []


async def test_a_cancel_after_the_end_is_refused() -> None:
    store = SlowStore()
    harness = AgentHarness(store=store)
    sending = asyncio.ensure_future(harness.send("one"))
    await settle()
    store.commit()
    task = await sending
    ended = outcomes.ended(task, after(5), TaskState.COMPLETED, "by_request", "completed by request")
    ending = harness.journal.record_nowait(*ended)
    canceling = asyncio.ensure_future(harness.service.handle(CancelTask(task.id), Caller()))
    await settle()
    store.commit()
    await settle()
    store.commit()

    with pytest.raises(TaskNotCancelable):
        await asyncio.wait_for(canceling, 5)
    assert (await ending).state is TaskState.COMPLETED
