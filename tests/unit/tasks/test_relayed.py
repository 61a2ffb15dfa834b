"""Messages that the link relays for agents on other machines may come twice, late, or after they were taken back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from synapse.core.caller import GATEWAY_SCOPE, Caller
from synapse.core.errors import InvalidField
from synapse.core.message import Sender
from synapse.core.requests import OnBehalfOf, SendMessage, VoidMessage
from synapse.core.task import ReceiptStep, TaskState
from tests.fakes.harness import AgentHarness, say, working
from tests.fakes.stores import SlowStore, settle

OPENS = "0190a6c2-7d1e-7c3a-8f00-1234567890ab"
ON_LAPTOP = Caller(scope="machine:laptop", machine="laptop", remote_sender="synapse-claude-8100")
RECALLED = VoidMessage(message_id="m-1", opens=OPENS)
EXPIRED = VoidMessage(message_id="m-1", opens=OPENS, expired=True)


def relayed(text: str = "hello", **more: Any) -> SendMessage:
    sender = Sender(sender_id="synapse-claude-8100", sender_type="claude", inbox="claude")
    return SendMessage(message=say(text, "m-1"), dialect="synapse", sender=sender, opens=OPENS, **more)


async def test_a_message_that_was_taken_back_before_it_arrived_opens_nothing() -> None:
    async with working(AgentHarness()) as harness:
        claimed = await harness.service.handle(RECALLED, ON_LAPTOP)
        late = await harness.service.handle(relayed(), ON_LAPTOP)
        await settle()

        assert (claimed.id, claimed.state, claimed.sender_name) == (
            OPENS,
            TaskState.CANCELED,
            "synapse-claude-8100@laptop",
        )
        assert late == claimed
        assert harness.driver.turns == []


async def test_the_task_of_a_message_that_was_taken_back_is_of_its_sender_in_its_context() -> None:
    recalled = replace(
        RECALLED, sender=Sender(sender_id="any", inbox="claude"), context_id="c-1", gateway_scope="key:4"
    )
    claimed = await AgentHarness().service.handle(recalled, ON_LAPTOP)

    assert (claimed.context_id, claimed.metadata[GATEWAY_SCOPE], claimed.scope) == ("c-1", "key:4", ON_LAPTOP.scope)
    assert (claimed.sender_name, claimed.sender.inbox) == ("synapse-claude-8100@laptop", "laptop!claude")


async def test_a_message_that_waits_is_taken_back_and_never_typed() -> None:
    async with working(AgentHarness()) as harness:
        harness.driver.ready.clear()
        await harness.service.handle(relayed(), ON_LAPTOP)
        ended = await harness.service.handle(RECALLED, ON_LAPTOP)
        harness.driver.ready.set()
        await settle()

        assert (ended.id, ended.state, ended.reason) == (OPENS, TaskState.CANCELED, "canceled")
        assert harness.driver.turns == []


async def test_work_on_a_message_stops_when_it_is_taken_back() -> None:
    async with working(AgentHarness()) as harness:
        harness.driver.go_on.clear()
        task = await harness.service.handle(relayed(), ON_LAPTOP)
        await harness.reached(task, ReceiptStep.SUBMITTED)
        ended = await harness.service.handle(EXPIRED, ON_LAPTOP)

        assert (ended.state, ended.note) == (TaskState.CANCELED, "it expired before its sender heard of it")
        assert harness.driver.interrupts == 1


@pytest.mark.parametrize("arrives", [True, False])
async def test_a_message_that_expired_on_its_way_fails_as_expired(arrives: bool) -> None:
    harness = AgentHarness()
    if arrives:
        await harness.service.handle(relayed(), ON_LAPTOP)
    ended = await harness.service.handle(EXPIRED, ON_LAPTOP)

    assert (ended.state, ended.reason) == (TaskState.FAILED, "expired")


@pytest.mark.parametrize("first", [relayed(), RECALLED])
async def test_a_message_can_be_taken_back_again(first: SendMessage | VoidMessage) -> None:
    harness = AgentHarness()
    await harness.service.handle(first, ON_LAPTOP)
    ended = await harness.service.handle(RECALLED, ON_LAPTOP)

    assert await harness.service.handle(EXPIRED, ON_LAPTOP) == ended


async def test_a_message_whose_task_has_ended_cannot_be_taken_back() -> None:
    async with working(AgentHarness()) as harness:
        task = await harness.finished(await harness.service.handle(relayed(), ON_LAPTOP))

        assert task.state is TaskState.COMPLETED
        assert await harness.service.handle(RECALLED, ON_LAPTOP) == task


async def test_of_a_message_and_its_recall_at_the_same_time_nothing_is_typed() -> None:
    store = SlowStore()
    async with working(AgentHarness(store=store)) as harness:
        harness.driver.ready.clear()
        sending = asyncio.ensure_future(harness.service.handle(relayed(), ON_LAPTOP))
        recalling = asyncio.ensure_future(harness.service.handle(RECALLED, ON_LAPTOP))
        for _ in range(10):
            await settle()
            store.commit()

        assert (await asyncio.wait_for(sending, 20)).id == OPENS
        assert (await asyncio.wait_for(recalling, 20)).state is TaskState.CANCELED
        harness.driver.ready.set()
        await settle()
        assert harness.driver.turns == []


async def test_no_machine_takes_back_the_message_of_another() -> None:
    harness = AgentHarness()
    theirs = await harness.service.handle(relayed(), ON_LAPTOP)
    other = Caller(scope="machine:box3", machine="box3", remote_sender="user")
    recalled = VoidMessage(message_id="m-1", opens="0190a6c2-7d1e-7c3a-8f00-000000000000")

    assert (await harness.service.handle(recalled, other)).id != theirs.id
    assert (await harness.task(theirs.id)).state is TaskState.SUBMITTED


async def test_only_the_link_takes_messages_back() -> None:
    with pytest.raises(InvalidField):
        await AgentHarness().service.handle(RECALLED, Caller(via_socket=True))


async def test_the_link_is_told_the_state_after_its_command() -> None:
    harness = AgentHarness()
    done = await harness.service.handle(OnBehalfOf(ON_LAPTOP, RECALLED), Caller(via_socket=True))

    assert (done.task_id, done.state) == (OPENS, "canceled")


@pytest.mark.parametrize(("sender", "held"), [("user", 0), ("synapse-claude-8100", 1)])
async def test_the_limit_between_two_agents_is_none_for_people_on_other_machines(sender: str, held: int) -> None:
    harness = AgentHarness(pair_per_minute=1)
    caller = Caller(scope="machine:laptop", machine="laptop", remote_sender=sender)
    tasks = [await harness.send("hello", caller=caller) for _ in range(2)]

    assert sum(bool(task.attention) for task in tasks) == held
