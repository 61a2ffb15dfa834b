"""Replies that meet an end: the sender's, the task's, or that of the host."""

from __future__ import annotations

import asyncio

import pytest

from synapse.core.caller import Caller
from synapse.core.driver import InputRequested, Submitted, Turn, TurnEvent, Typing
from synapse.core.errors import AgentNotResponding, TaskNotFound
from synapse.core.message import TextPart
from synapse.core.requests import Reply, SendMessage
from synapse.core.task import Task, TaskState
from synapse.tasks import outcomes
from tests.fakes.driver import FakeDriver, echo
from tests.fakes.facts import after
from tests.fakes.harness import CLAUDE, AgentHarness, claude, say, working
from tests.fakes.host_client import DeliveredReply

SOCKET = Caller(via_socket=True)
FROM_CLAUDE = Caller(via_socket=True, agent_id=CLAUDE.agent_id)


async def asked(harness: AgentHarness, text: str, waiting: str) -> Task:
    return await harness.send(text, sender=claude(), response_expected=True, sender_task_id=waiting, caller=FROM_CLAUDE)


async def test_an_answer_to_a_sender_that_is_gone_is_kept_on_the_task() -> None:
    async with working(AgentHarness()) as harness:
        harness.driver.go_on.clear()
        harness.host_client.is_unreachable = True
        task = await asked(harness, "status?", "t-1")
        await harness.reached(task, "submitted")
        with pytest.raises(AgentNotResponding):
            await harness.service.handle(Reply(message=say("all green")), SOCKET)

        ended = await harness.finished(task)
        assert (ended.state, ended.artifacts[0].text) == (TaskState.COMPLETED, "all green")


async def test_an_answer_to_a_task_that_has_ended_elsewhere_still_reaches_who_waits() -> None:
    async with working(AgentHarness()) as harness:
        harness.driver.go_on.clear()
        task = await asked(harness, "status?", "t-1")
        await harness.reached(task, "submitted")
        now = await harness.task(task.id)
        await harness.journal.record(*outcomes.ended(now, after(9), TaskState.CANCELED, "canceled", "elsewhere"))
        await harness.service.handle(Reply(message=say("all green")), SOCKET)

        assert harness.host_client.delivered == [DeliveredReply(CLAUDE.agent_id, "t-1", "all green", False, False)]
        assert (await harness.task(task.id)).state is TaskState.CANCELED


async def test_a_reply_without_a_name_answers_the_turn_that_runs_and_not_what_came_later() -> None:
    async with working(AgentHarness()) as harness:
        harness.driver.go_on.clear()
        running = await asked(harness, "first?", "t-1")
        await harness.reached(running, "submitted")
        await asked(harness, "second?", "t-2")
        replied = await harness.service.handle(Reply(message=say("yes")), SOCKET)

        assert replied.task_id == running.id
        assert harness.host_client.delivered == [DeliveredReply(CLAUDE.agent_id, "t-1", "yes", False, False)]


async def test_a_message_that_is_to_be_typed_cannot_be_replied_to_in_its_place() -> None:
    harness = AgentHarness()
    task = await harness.send("do this")

    with pytest.raises(TaskNotFound):
        await harness.send("done, believe me", in_reply_to=task.id)
    assert (await harness.task(task.id)).state is TaskState.SUBMITTED


async def test_draining_replies_takes_no_longer_than_the_replies() -> None:
    async with working(AgentHarness()) as harness:
        for number in range(3):
            await harness.finished(await asked(harness, "status?", f"t-{number}"))
        async with asyncio.timeout(5):
            await harness.replies.drain(3600)

        assert len(harness.host_client.delivered) == 3


async def test_a_sender_that_waits_for_an_agent_that_types_nothing_is_answered() -> None:
    def plot(turn: Turn) -> list[TurnEvent]:
        return echo(turn)[1:]  # without the intent: its end is recorded behind the turn

    async with working(AgentHarness(FakeDriver(plot))) as harness:
        await asked(harness, "status?", "t-1")
        await asyncio.wait_for(harness.host_client.called.wait(), 5)

    assert harness.host_client.delivered == [DeliveredReply(CLAUDE.agent_id, "t-1", "echo: status?", False, True)]


async def test_a_sender_that_waits_for_a_task_that_asked_before_a_restart_gets_its_answer() -> None:
    def plot(turn: Turn) -> list[TurnEvent]:
        question = InputRequested(parts=(TextPart(text="where?"),))
        return [Typing(), Submitted("screen", "seen"), question] if turn.first else echo(turn)

    async with working(AgentHarness(FakeDriver(plot))) as earlier:
        request = SendMessage(
            message=say("deploy"),
            dialect="synapse",
            sender=claude(),
            response_expected=True,
            sender_task_id="t-1",
        )
        task = await earlier.settled(request)
        assert task.state is TaskState.INPUT_REQUIRED
    harness = AgentHarness(FakeDriver(plot), earlier.store)
    await harness.recover()
    async with working(harness):
        await harness.send("staging", task_id=task.id)
        await asyncio.wait_for(harness.host_client.called.wait(), 5)

    assert harness.host_client.delivered == [DeliveredReply(CLAUDE.agent_id, "t-1", "echo: staging", False, True)]
