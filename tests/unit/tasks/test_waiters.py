"""Those who wait are told: by a restart, by an agent that exits, and by the absence of one that was killed."""

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
from synapse.tasks.waits import GRACE_SECONDS, LostAgents
from tests.fakes.courier import Carried
from tests.fakes.desk import CLAUDE, ME, Desk, FixedRegistry, claude, say, working


async def test_a_restart_tells_the_waiters_of_what_ran() -> None:
    before = Desk()
    before.driver.go_on.clear()
    async with working(before):
        task = await before.send("status?", sender=claude(), response_expected=True, sender_task_id="t-1")
        await before.reached(task, "submitted")
    async with working(Desk(store=before.store)) as after:
        await after.recover()
        await asyncio.wait_for(after.courier.something.wait(), 5)

    assert [(one.sender_task_id, one.failed) for one in after.courier.carried] == [("t-1", True)]


async def test_an_agent_that_exits_tells_the_waiters_of_what_it_never_took_and_keeps_it_queued() -> None:
    desk = Desk()
    desk.driver.ready.clear()
    async with working(desk):
        task = await desk.send("status?", sender=claude(), response_expected=True, sender_task_id="t-1")
        desk.replies.leave("codex ended")
        await asyncio.wait_for(desk.courier.something.wait(), 5)

    assert desk.courier.carried == [Carried(CLAUDE.agent_id, "t-1", "codex ended", True, True)]
    assert (await desk.task(task.id)).state is TaskState.SUBMITTED


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
    desk = Desk()
    gone, there = [
        await desk.service.handle(CreateTask(message=say("review"), dialect="synapse", metadata=metadata), Caller())
        for metadata in (away, present)
    ]
    absences = LostAgents(desk.journal, FixedRegistry(), desk.clock)
    await absences.give_up()
    assert (await desk.task(gone.id)).state is TaskState.SUBMITTED
    desk.clock.advance(30)
    await absences.give_up()

    ended = await desk.task(gone.id)
    assert (ended.state, ended.reason) == (TaskState.FAILED, "agent_exited")
    assert (await desk.task(there.id)).state is TaskState.SUBMITTED


class ComingAndGoing(FixedRegistry):
    """Claude is here only now and then."""

    is_here = False

    @override
    def entries(self) -> Sequence[AgentEntry]:
        return super().entries() if self.is_here else (ME,)


async def test_an_agent_that_was_back_meanwhile_may_be_away_as_long_again() -> None:
    desk, registry = Desk(), ComingAndGoing()
    asked = CreateTask(message=say("review"), dialect="synapse", metadata={"waits_for": CLAUDE.agent_id})
    task = await desk.service.handle(asked, Caller())
    absences = LostAgents(desk.journal, registry, desk.clock)
    for is_here in (False, True, False):
        registry.is_here = is_here
        await absences.give_up()
        desk.clock.advance(GRACE_SECONDS - 1)
    await absences.give_up()
    assert (await desk.task(task.id)).state is TaskState.SUBMITTED

    desk.clock.advance(1)
    await absences.give_up()
    assert (await desk.task(task.id)).state is TaskState.FAILED
