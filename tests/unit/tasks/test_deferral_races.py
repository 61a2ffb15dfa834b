"""Requests that wait, when several things happen to them: more answers, interrupts, replies, cancellations."""

from __future__ import annotations

import asyncio

import pytest

from synapse.core.errors import InvalidField
from synapse.core.requests import CancelTask, LeaveTask, Reply, SubscribeTask
from synapse.core.task import TaskState
from synapse.tasks.deferral import WAITING_FOR_REPLY
from tests.fakes.agent_at_work import CODEX, PERSON, STILL_WAITING, AgentAtWork
from tests.fakes.harness import claude, say, working


async def test_of_two_waits_one_may_be_answered_before_the_turn_ends() -> None:
    agent = AgentAtWork()
    async with working(agent.harness) as harness:
        request = await agent.request("t-1")
        waits = [await agent.asks(), await agent.asks()]
        first = await agent.answered(waits[0], "one")
        # It is a turn of its own, behind that of the request.
        assert (harness.worker.current, harness.worker.waiting) == (request.id, (first.id,))
        agent.driver.go_on.set()
        await harness.finished(first)
        await agent.until(request, lambda now: waits[1].short_id in now.note)
        assert harness.host_client.delivered == []

        await agent.answered(waits[1], "two")
        asked = await harness.finished(request)
        await asyncio.wait_for(harness.host_client.called.wait(), 5)

    assert asked.artifacts[0].text == "it says: two"
    assert [one.text for one in harness.host_client.delivered] == ["it says: two"]


async def test_a_wait_that_the_agent_cancels_in_the_turn_of_another_answer_needs_no_turn() -> None:
    agent = AgentAtWork()
    async with working(agent.harness) as harness:
        request = await agent.request()
        waits = [await agent.asks(), await agent.asks()]
        await agent.goes_on(request)
        agent.driver.go_on.clear()
        await agent.takes(await agent.answered(waits[0], "all that I need"))
        await harness.service.handle(CancelTask(waits[1].id), CODEX)
        agent.driver.go_on.set()

        assert (await harness.finished(request)).artifacts[0].text == "it says: all that I need"
        assert (harness.worker.waiting, len(agent.driver.turns)) == ((), 2)


@pytest.mark.parametrize("end", ["reads the answer", "takes the answer along", "is killed after a cancellation"])
async def test_a_request_ends_as_its_turn_did_when_the_waiter_comes_back_and(end: str) -> None:
    agent = AgentAtWork()
    async with working(agent.harness) as harness:
        request = await agent.request()
        wait = await agent.asks(leaves=False)
        broken = await harness.service.handle(SubscribeTask(task_id=wait.id), CODEX)
        await anext(broken)
        await broken.aclose()
        await agent.goes_on(request)
        stream = await harness.service.handle(SubscribeTask(task_id=wait.id), CODEX)
        await anext(stream)
        if end == "is killed after a cancellation":
            await harness.service.handle(CancelTask(wait.id), PERSON)
        else:
            await harness.send("yes", in_reply_to=wait.id, sender=claude())
        if end == "reads the answer":
            assert [update.task.state async for update in stream][-1] is TaskState.COMPLETED
        elif end == "takes the answer along":
            await harness.service.handle(LeaveTask(wait.id), CODEX)
        await stream.aclose()

        # What the program does now is no turn of ours, and no message will begin one.
        assert (await harness.finished(request)).artifacts[0].text == STILL_WAITING
        assert harness.worker.waiting == ()


async def test_a_waiter_that_comes_back_and_leaves_again_gets_a_message() -> None:
    agent = AgentAtWork()
    async with working(agent.harness) as harness:
        request = await agent.request()
        wait = await agent.asks(leaves=False)
        for _ in range(2):
            stream = await harness.service.handle(SubscribeTask(task_id=wait.id), CODEX)
            await anext(stream)
            await stream.aclose()
            await agent.goes_on(request)
        await agent.answered(wait)

        assert (await harness.finished(request)).artifacts[0].text == "it says: yes"


async def test_an_urgent_message_does_not_interrupt_a_request_whose_turn_is_over() -> None:
    agent = AgentAtWork()
    async with working(agent.harness) as harness:
        request = await agent.request()
        wait = await agent.asks()
        await agent.goes_on(request)
        await harness.finished(await harness.send("stop", priority=5))
        assert (await harness.task(request.id)).reason == WAITING_FOR_REPLY

        await agent.answered(wait)
        assert (await harness.finished(request)).artifacts[0].text == "it says: yes"


async def test_an_interrupted_turn_is_not_deferred_and_the_answer_still_arrives() -> None:
    agent = AgentAtWork()
    async with working(agent.harness) as harness:
        request = await agent.request()
        wait = await agent.asks()
        await harness.send("stop", priority=5)
        ended = await harness.finished(request)
        message = await harness.finished(await agent.answered(wait))

    assert (ended.state, ended.reason) == (TaskState.CANCELED, "interrupted")
    assert message.artifacts[0].text == "it says: yes"


async def test_a_request_whose_answer_is_interrupted_is_canceled_with_it() -> None:
    agent = AgentAtWork()
    async with working(agent.harness) as harness:
        request = await agent.request()
        wait = await agent.asks()
        await agent.goes_on(request)
        agent.driver.go_on.clear()
        message = await agent.takes(await agent.answered(wait))
        await harness.send("stop", priority=5)
        told, ended = await harness.finished(message), await harness.finished(request)

    assert (told.state, told.reason) == (TaskState.CANCELED, "interrupted")
    assert (ended.state, ended.reason) == (TaskState.CANCELED, "interrupted")


async def test_a_request_that_is_canceled_while_the_answer_is_queued_is_ended_by_nothing_else() -> None:
    agent = AgentAtWork()
    async with working(agent.harness) as harness:
        request = await agent.request("t-1")
        wait = await agent.asks()
        await agent.goes_on(request)
        agent.driver.ready.clear()
        message = await agent.answered(wait)
        canceled = await harness.service.handle(CancelTask(request.id), PERSON)
        agent.driver.ready.set()
        told = await harness.finished(message)
        # What comes after it is behind all that its end could have recorded.
        await harness.finished(await harness.send("next"))

    assert (told.state, told.artifacts[0].text) == (TaskState.COMPLETED, "it says: yes")
    ended = await harness.task(request.id)
    assert (ended.state, ended.artifacts) == (canceled.state, ())
    assert [(one.sender_task_id, one.failed) for one in harness.host_client.delivered] == [("t-1", True)]


async def test_a_deferred_request_is_answered_by_a_reply_that_names_it() -> None:
    agent = AgentAtWork()
    async with working(agent.harness) as harness:
        request = await agent.request("t-1")
        wait = await agent.asks()
        await agent.goes_on(request)
        other = await harness.send("another", sender=claude(), response_expected=True, sender_task_id="t-2")
        await harness.finished(other)
        replied = await harness.service.handle(Reply(message=say("mine"), task_id=request.short_id), CODEX)
        message = await harness.finished(await agent.answered(wait))
        await harness.finished(await harness.send("next"))

    asked = await harness.task(request.id)
    assert (replied.task_id, asked.artifacts[0].text, asked.replied) == (request.id, "mine", "explicit")
    assert message.artifacts[0].text == "it says: yes"
    texts = [(one.sender_task_id, one.text) for one in harness.host_client.delivered]
    assert sorted(texts) == [("t-1", "mine"), ("t-2", "it says: another")]


async def test_an_answer_waits_while_a_person_types_in_the_terminal() -> None:
    agent = AgentAtWork()
    async with working(agent.harness) as harness:
        request = await agent.request()
        wait = await agent.asks()
        await agent.goes_on(request)
        agent.driver.ready.clear()
        message = await agent.answered(wait)
        # What the agent asks in a turn of the person's belongs to no request.
        own = await agent.asks()
        assert (own.asked_in, harness.worker.waiting) == ("", (message.id,))
        agent.driver.ready.set()

        assert (await harness.finished(request)).artifacts[0].text == "it says: yes"
        assert not (await harness.task(own.id)).state.is_terminal


async def test_a_reply_that_could_not_be_queued_as_a_message_is_refused_before_it_is_recorded() -> None:
    agent = AgentAtWork()
    async with working(agent.harness) as harness:
        request = await agent.request()
        wait = await agent.asks()
        await agent.goes_on(request)
        with pytest.raises(InvalidField):
            await harness.send("yes", in_reply_to=wait.id, sender=claude(), parent_id="nowhere")
        await agent.answered(wait, "now")

        assert (await harness.finished(request)).artifacts[0].text == "it says: now"


async def test_a_reply_without_an_id_answers_a_deferred_request_and_none_that_is_still_queued() -> None:
    agent = AgentAtWork()
    async with working(agent.harness) as harness:
        request = await agent.request("t-1")
        await agent.asks()
        await agent.goes_on(request)
        agent.driver.ready.clear()
        queued = await harness.send("later", sender=claude(), response_expected=True, sender_task_id="t-2")
        replied = await harness.service.handle(Reply(message=say("mine")), CODEX)

        assert (replied.task_id, harness.worker.waiting) == (request.id, (queued.id,))
        assert [one.sender_task_id for one in harness.host_client.delivered] == ["t-1"]
