"""An agent that asked and restarted gets the reply: a later one, or one that came while it was away."""

from __future__ import annotations

import pytest

from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.message import Sender
from synapse.core.requests import CreateTask, Reply
from synapse.core.task import Task, TaskState
from tests.fakes.harness import CLAUDE, ME, AgentHarness, say, working

WAITS = {"waits_for": CLAUDE.agent_id, "waits_for_inbox": CLAUDE.inbox}
GEMINI = AgentEntry("synapse-gemini-8110", "gemini", port=8110, inbox="gemini@/proj")
CODEX = Sender(sender_id=ME.agent_id)


async def waiting_task(harness: AgentHarness) -> Task:
    waiting: Task = await harness.service.handle(
        CreateTask(message=say("review"), dialect="synapse", metadata=WAITS), Caller()
    )
    return waiting


async def ask(harness: AgentHarness, waiting: Task, sender: Sender = CODEX) -> Task:
    return await harness.send("review", sender=sender, response_expected=True, sender_task_id=waiting.id)


async def started_again(harness: AgentHarness) -> AgentHarness:
    again = AgentHarness(store=harness.store)
    await again.recover()
    return again


async def test_a_reply_that_comes_later_is_a_message_to_the_program_that_was_started_again() -> None:
    before = AgentHarness()
    waiting = await waiting_task(before)
    await ask(before.neighbour(CLAUDE), waiting)
    after = await started_again(before)
    left = await after.task(waiting.id)
    assert (left.state, left.metadata["waiter_left"], after.worker.waiting) == (TaskState.SUBMITTED, True, ())

    await after.send("looks good", in_reply_to=waiting.id, caller=Caller(agent_id=CLAUDE.agent_id))
    assert (await after.task(waiting.id)).artifacts[0].text == "looks good"
    assert len(after.worker.waiting) == 1


async def test_a_reply_that_came_while_the_asker_was_away_is_taken_at_its_start() -> None:
    before = AgentHarness()
    waiting = await waiting_task(before)
    async with working(before.neighbour(CLAUDE)) as claudes:
        claudes.host_client.is_unreachable = True
        await claudes.finished(await ask(claudes, waiting))

    after = await started_again(before)
    answered = await after.task(waiting.id)
    assert (answered.state, answered.artifacts[0].text) == (TaskState.COMPLETED, "echo: review")
    assert answered.artifacts[0].metadata["inferred"] is True
    (delivered,) = after.worker.waiting
    # The agent's own inbox has the answer, so it is proven whose it is.
    assert (await after.task(delivered)).sender_name == CLAUDE.agent_id


@pytest.mark.parametrize(("failed", "state"), [(False, TaskState.COMPLETED), (True, TaskState.FAILED)])
async def test_what_the_agent_itself_replied_meanwhile_counts_as_that(failed: bool, state: TaskState) -> None:
    before = AgentHarness()
    waiting = await waiting_task(before)
    claudes = before.neighbour(CLAUDE)
    await ask(claudes, waiting)
    await claudes.service.handle(Reply(message=say("mine"), failed=failed), Caller(agent_id=CLAUDE.agent_id))

    answered = await (await started_again(before)).task(waiting.id)
    assert answered.state is state
    if failed:
        assert answered.note == "mine"
    else:
        assert (answered.artifacts[0].text, answered.artifacts[0].metadata["inferred"]) == ("mine", False)


@pytest.mark.parametrize(
    ("answering", "asker"),
    [(CLAUDE, Sender(sender_id="synapse-gemini-8110")), (GEMINI, CODEX)],
    ids=["to somebody else", "of somebody else"],
)
async def test_an_answer_that_only_names_the_task_is_not_taken(answering: AgentEntry, asker: Sender) -> None:
    before = AgentHarness()
    waiting = await waiting_task(before)
    async with working(before.neighbour(answering)) as others:
        await others.finished(await ask(others, waiting, asker))

    after = await started_again(before)
    ended = await after.task(waiting.id)
    assert (ended.reason, ended.note) == ("agent_exited", "the program that waited for it is gone")
