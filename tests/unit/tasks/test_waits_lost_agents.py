"""Waiting senders are notified: after a restart, when an agent exits, and when one was killed and stays away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.message import Json
from synapse.core.override import override
from synapse.core.requests import CreateTask
from synapse.core.task import TaskState
from synapse.tasks.waits import GRACE_SECONDS, UNSENT_SECONDS, LostAgents
from tests.fakes.harness import CLAUDE, ME, AgentHarness, FixedRegistry, claude, say, working
from tests.fakes.host_client import DeliveredReply


async def test_a_restart_tells_the_waiters_of_what_ran() -> None:
    before = AgentHarness()
    before.driver.go_on.clear()
    async with working(before):
        task = await before.send("status?", sender=claude(), response_expected=True, sender_task_id="t-1")
        await before.reached(task, "submitted")
    async with working(AgentHarness(store=before.store)) as after:
        await after.recover()
        await asyncio.wait_for(after.host_client.called.wait(), 5)

    assert [(one.sender_task_id, one.failed) for one in after.host_client.delivered] == [("t-1", True)]


async def test_an_agent_that_exits_tells_the_waiters_of_what_it_never_took_and_keeps_it_queued() -> None:
    harness = AgentHarness()
    harness.driver.ready.clear()
    async with working(harness):
        task = await harness.send("status?", sender=claude(), response_expected=True, sender_task_id="t-1")
        harness.replies.agent_exits("codex ended")
        await asyncio.wait_for(harness.host_client.called.wait(), 5)

    assert harness.host_client.delivered == [DeliveredReply(CLAUDE.agent_id, "t-1", "codex ended", True, True)]
    assert (await harness.task(task.id)).state is TaskState.SUBMITTED


GONE = {
    "its id": {"waits_for": "synapse-gemini-8110"},
    "its inbox, and another has its port": {"waits_for": CLAUDE.agent_id, "waits_for_inbox": "claude@/elsewhere"},
    "what is no id": {"waits_for": ["synapse-gemini-8110"]},
}
HERE = {
    "its id": {"waits_for": CLAUDE.agent_id},
    "its inbox, at another port": {"waits_for": "synapse-claude-8109", "waits_for_inbox": CLAUDE.inbox},
}


@pytest.mark.parametrize("away", GONE.values(), ids=GONE)
@pytest.mark.parametrize("present", HERE.values(), ids=HERE)
async def test_a_waiter_is_told_when_the_agent_that_it_waits_for_is_gone(away: Json, present: Json) -> None:
    harness = AgentHarness()
    gone, there = [
        await harness.service.handle(CreateTask(message=say("review"), dialect="synapse", metadata=metadata), Caller())
        for metadata in (away, present)
    ]
    lost_agents = LostAgents(harness.journal, FixedRegistry(), harness.store, harness.clock)
    await lost_agents.fail_lost()
    assert (await harness.task(gone.id)).state is TaskState.SUBMITTED
    harness.clock.advance(30)
    await lost_agents.fail_lost()

    ended = await harness.task(gone.id)
    assert (ended.state, ended.reason) == (TaskState.FAILED, "agent_exited")
    assert (await harness.task(there.id)).state is TaskState.SUBMITTED


class ComingAndGoing(FixedRegistry):
    """Claude is here only now and then."""

    is_here = False

    @override
    async def agents(self) -> Sequence[AgentEntry]:
        return await super().agents() if self.is_here else (ME,)


async def test_an_agent_that_was_back_meanwhile_may_be_away_as_long_again() -> None:
    harness, registry = AgentHarness(), ComingAndGoing()
    asked = CreateTask(message=say("review"), dialect="synapse", metadata={"waits_for": CLAUDE.agent_id})
    task = await harness.service.handle(asked, Caller())
    lost_agents = LostAgents(harness.journal, registry, harness.store, harness.clock)
    for is_here in (False, True, False):
        registry.is_here = is_here
        await lost_agents.fail_lost()
        harness.clock.advance(GRACE_SECONDS - 1)
    await lost_agents.fail_lost()
    assert (await harness.task(task.id)).state is TaskState.SUBMITTED

    harness.clock.advance(1)
    await lost_agents.fail_lost()
    assert (await harness.task(task.id)).state is TaskState.FAILED


@pytest.mark.parametrize("is_followed", [False, True])
async def test_a_wait_ends_whose_waiter_was_killed_before_it_followed_or_sent_anything(is_followed: bool) -> None:
    harness = AgentHarness()
    metadata: Json = {"waits_for": CLAUDE.agent_id, "waits_for_inbox": CLAUDE.inbox}
    request = CreateTask(message=say("review"), dialect="synapse", metadata=metadata)
    waiting = await harness.service.handle(request, Caller(agent_id=ME.agent_id, via_socket=True))
    lost_agents = LostAgents(
        harness.journal, FixedRegistry(), harness.store, harness.clock, lambda task: is_followed and task == waiting.id
    )
    await lost_agents.fail_unsent()
    harness.clock.advance(UNSENT_SECONDS)
    await lost_agents.fail_unsent()

    expected = (TaskState.SUBMITTED, "") if is_followed else (TaskState.FAILED, "not_sent")
    ended = await harness.task(waiting.id)
    assert (ended.state, ended.reason) == expected


@pytest.mark.parametrize("is_followed", [False, True])
async def test_a_wait_for_another_machine_that_nobody_follows_says_that_its_waiter_has_left(is_followed: bool) -> None:
    harness = AgentHarness()
    metadata: Json = {"waits_for": "synapse-gemini-1@box2", "waits_for_inbox": "box2!gemini"}
    request = CreateTask(message=say("review"), dialect="synapse", metadata=metadata)
    waiting = await harness.service.handle(request, Caller(agent_id=ME.agent_id, via_socket=True))
    lost_agents = LostAgents(
        harness.journal, FixedRegistry(), harness.store, harness.clock, lambda task: is_followed and task == waiting.id
    )
    await lost_agents.note_left()
    harness.clock.advance(UNSENT_SECONDS - 1)
    await lost_agents.note_left()
    assert not (await harness.task(waiting.id)).waiter_left
    harness.clock.advance(1)
    await lost_agents.note_left()

    noted = await harness.task(waiting.id)
    assert (noted.state, noted.waiter_left) == (TaskState.SUBMITTED, not is_followed)
