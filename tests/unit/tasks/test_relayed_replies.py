"""Replies between machines: the link brings them, once, and only from the machine that was asked."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from synapse.config.settings import load_settings
from synapse.core.caller import Caller
from synapse.core.errors import SenderMismatch, TaskNotFound
from synapse.core.message import Json, Sender
from synapse.core.requests import CancelTask, CreateTask, Reply, SendMessage, VoidMessage
from synapse.core.task import Task, TaskState
from synapse.host.stopped import stopped_tasks
from synapse.tasks.waits import GRACE_SECONDS, UNSENT_SECONDS, LostAgents, remote_waits
from tests.fakes.harness import CLAUDE, ME, AgentHarness, FixedRegistry, say, working

OPENS = "0190a6c2-7d1e-7c3a-8f00-1234567890ab"
ON_BOX2 = Caller(scope="machine:box2", machine="box2", remote_sender="synapse-gemini-8110")
ON_BOX3 = replace(ON_BOX2, scope="machine:box3", machine="box3")
GEMINI = Sender(sender_id="synapse-gemini-8110", sender_type="gemini", inbox="gemini")
MYSELF = Caller(agent_id=ME.agent_id, via_socket=True)
WAITS: Json = {"waits_for": "synapse-gemini-8110@box2", "waits_for_inbox": "box2!gemini"}
REFUSED: Json = {"failed": True, "inferred": True}


async def asked(harness: AgentHarness) -> Task:
    """A task of an agent on box2 that waits for its answer."""
    request = SendMessage(
        message=say("status?", "m-1"),
        dialect="synapse",
        sender=GEMINI,
        response_expected=True,
        sender_task_id="t-1",
        opens=OPENS,
    )
    return await harness.service.handle(request, ON_BOX2)


async def test_the_reply_to_a_sender_on_another_machine_is_recorded_and_left_to_the_link() -> None:
    async with working(AgentHarness()) as harness:
        harness.driver.go_on.clear()
        task = await asked(harness)
        await harness.reached(task, "submitted")
        replied = await harness.service.handle(Reply(message=say("all green")), MYSELF)
        ended = await harness.task(task.id)

        assert replied.to == "synapse-gemini-8110@box2"
        assert (ended.state, ended.replied, ended.artifacts[-1].text) == (TaskState.COMPLETED, "explicit", "all green")
        assert harness.host_client.delivered == []


async def test_an_inferred_reply_to_another_machine_is_recorded_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG, logger="synapse.tasks.replies"):
        async with working(AgentHarness()) as harness:
            task = await harness.finished(await asked(harness))
            await harness.replies.drain(5)

            assert (await harness.task(task.id)).replied == "inferred"
    assert (harness.host_client.delivered, caplog.records) == ([], [])


async def test_a_sender_on_another_machine_goes_on_waiting_when_the_agent_exits_before_its_message() -> None:
    harness = AgentHarness()
    harness.driver.ready.clear()
    async with working(harness):
        task = await asked(harness)
        harness.replies.agent_exits("codex ended")
        await harness.replies.drain(5)

    assert ((await harness.task(task.id)).replied, harness.host_client.delivered) == ("", [])


async def waiting(harness: AgentHarness, metadata: Json = WAITS) -> Task:
    """A task of this agent that waits for an answer."""
    request = CreateTask(message=say("review"), dialect="synapse", metadata=metadata)
    return await harness.service.handle(request, MYSELF)


def answer(task: Task, text: str = "looks good", message_id: str = "r-1", **more: Any) -> SendMessage:
    return SendMessage(
        message=say(text, message_id), dialect="synapse", sender=GEMINI, in_reply_to=task.id, opens=OPENS, **more
    )


@pytest.mark.parametrize(
    ("metadata", "state", "reason", "source"),
    [
        ({}, TaskState.COMPLETED, "", "reply"),
        ({"inferred": True}, TaskState.COMPLETED, "", "inferred"),
        ({"failed": True}, TaskState.FAILED, "replied_failed", ""),
        (REFUSED, TaskState.FAILED, "replied_failed", ""),
        ({**REFUSED, "end_reason": "agent_exited"}, TaskState.FAILED, "agent_exited", ""),
        ({"failed": True, "end_reason": "agent_exited"}, TaskState.FAILED, "replied_failed", ""),
    ],
)
async def test_a_reply_of_another_machine_ends_the_task_that_waits_for_it(
    metadata: Json, state: TaskState, reason: str, source: str
) -> None:
    harness = AgentHarness()
    task = await waiting(harness)
    ended = await harness.service.handle(answer(task, metadata=metadata), ON_BOX2)

    assert (ended.id, ended.state, ended.reason) == (task.id, state, reason)
    assert [one.metadata["source"] for one in ended.artifacts] == [source][: bool(source)]
    assert ended.note == ("looks good" if state is TaskState.FAILED else "")


@pytest.mark.parametrize("caller", [ON_BOX3, replace(ON_BOX3, remote_sender="user")])
async def test_a_machine_that_was_not_asked_cannot_answer(caller: Caller) -> None:
    harness = AgentHarness()
    task = await waiting(harness)

    with pytest.raises(SenderMismatch, match="no agent of box3 can answer"):
        await harness.service.handle(answer(task), caller)


@pytest.mark.parametrize(
    "metadata", [{}, {"waits_for": CLAUDE.agent_id, "waits_for_inbox": CLAUDE.inbox}, {"waits_for": CLAUDE.agent_id}]
)
async def test_a_machine_cannot_answer_what_an_agent_here_was_asked(metadata: Json) -> None:
    harness = AgentHarness()
    task = await waiting(harness, metadata)

    with pytest.raises(SenderMismatch):
        await harness.service.handle(answer(task), ON_BOX2)


async def test_a_machine_cannot_end_a_message_by_a_reply() -> None:
    harness = AgentHarness()
    task = await harness.send("hello", metadata=WAITS)

    with pytest.raises(SenderMismatch):
        await harness.service.handle(answer(task), ON_BOX2)


async def test_a_copy_of_a_reply_changes_nothing_and_another_reply_finds_no_task() -> None:
    harness = AgentHarness()
    task = await waiting(harness)
    ended = await harness.service.handle(answer(task), ON_BOX2)
    again = await harness.service.handle(answer(task), ON_BOX2)

    assert (again.artifacts, again.state) == (ended.artifacts, TaskState.COMPLETED)
    assert len(harness.worker.waiting) == 1
    with pytest.raises(TaskNotFound):
        await harness.service.handle(answer(task, message_id="r-2"), ON_BOX2)
    with pytest.raises(SenderMismatch):
        await harness.service.handle(answer(task), ON_BOX3)


async def test_a_canceled_wait_takes_no_reply() -> None:
    harness = AgentHarness()
    task = await waiting(harness)
    await harness.service.handle(CancelTask(task.id), MYSELF)

    with pytest.raises(TaskNotFound):
        await harness.service.handle(answer(task), ON_BOX2)


RECALLED = VoidMessage(message_id="r-1", opens=OPENS)


async def test_a_reply_that_was_taken_back_before_it_arrived_ends_nothing() -> None:
    harness = AgentHarness()
    task = await waiting(harness)
    claimed = await harness.service.handle(RECALLED, ON_BOX2)

    assert await harness.service.handle(answer(task), ON_BOX2) == claimed
    assert (claimed.state, (await harness.task(task.id)).state) == (TaskState.CANCELED, TaskState.SUBMITTED)


async def test_a_reply_that_has_arrived_cannot_be_taken_back() -> None:
    harness = AgentHarness()
    task = await waiting(harness)
    await harness.service.handle(answer(task), ON_BOX2)
    told = await harness.service.handle(RECALLED, ON_BOX2)

    assert (told.id, told.state) == (task.id, TaskState.COMPLETED)
    assert (await harness.service.handle(RECALLED, ON_BOX3)).id != task.id


async def late_message(harness: AgentHarness) -> Task:
    (delivered,) = harness.worker.waiting
    return await harness.task(delivered)


async def test_the_reply_to_a_waiter_that_left_is_a_message_of_the_agent_that_was_asked() -> None:
    harness = AgentHarness()
    task = await waiting(harness)
    await harness.service.handle(answer(task), ON_BOX2)
    late = await late_message(harness)

    assert (late.message.text, late.sender_name) == ("looks good", "synapse-gemini-8110@box2")
    # Else the machine could cancel it, or take it for a message that it relayed.
    assert (late.scope, late.delivers, late.id != OPENS) == ("local", task.id, True)


async def test_a_waiter_that_left_is_told_by_synapse_what_became_of_a_message_that_was_not_answered() -> None:
    harness = AgentHarness()
    task = await waiting(harness)
    await harness.service.handle(answer(task, "box2 refused it: no such agent", metadata=REFUSED), ON_BOX2)
    late = await late_message(harness)

    assert late.sender_name == "synapse-system"
    assert 'was not answered: "box2 refused it: no such agent"' in late.message.text


async def test_a_wait_for_another_machine_outlives_the_host_and_its_answer_is_a_message() -> None:
    before = AgentHarness()
    task = await waiting(before)
    after = AgentHarness(store=before.store)
    await after.recover()
    assert (await after.task(task.id)).state is TaskState.SUBMITTED

    await after.service.handle(answer(task), ON_BOX2)
    assert (await late_message(after)).sender_name == "synapse-gemini-8110@box2"


async def test_waits_for_other_machines_are_left_to_the_link() -> None:
    harness = AgentHarness()
    task = await waiting(harness)
    await waiting(harness, {"waits_for": CLAUDE.agent_id, "waits_for_inbox": CLAUDE.inbox})
    lost_agents = LostAgents(harness.journal, FixedRegistry(), harness.store, harness.clock)
    for _ in range(3):
        await lost_agents.fail_lost()
        await lost_agents.fail_unsent()
        harness.clock.advance(GRACE_SECONDS + UNSENT_SECONDS)

    assert await remote_waits(harness.store) == (task,)


async def test_the_reply_to_an_agent_that_is_not_running_is_a_message_at_its_next_start(tmp_path: Path) -> None:
    before = AgentHarness()
    task = await waiting(before)
    stopped = stopped_tasks(before.store, load_settings(environ={"SYNAPSE_HOME": str(tmp_path)}))
    mine = stopped.of(ME.inbox, ME.agent_id)
    ended = await mine.send(answer(task), ON_BOX2)

    assert (ended.id, ended.state) == (task.id, TaskState.COMPLETED)
    assert await mine.send(answer(task), ON_BOX2) == ended == await mine.void(RECALLED, ON_BOX2)
    with pytest.raises(SenderMismatch):
        await mine.send(answer(task), ON_BOX3)
    after = AgentHarness(store=before.store)
    await after.recover()
    late = await late_message(after)
    assert (late.message.text, late.sender_name) == ("looks good", "synapse-gemini-8110@box2")


async def test_a_reply_to_a_stopped_agent_that_was_taken_back_ends_nothing(tmp_path: Path) -> None:
    before = AgentHarness()
    task = await waiting(before)
    stopped = stopped_tasks(before.store, load_settings(environ={"SYNAPSE_HOME": str(tmp_path)}))
    mine = stopped.of(ME.inbox, ME.agent_id)
    claimed = await mine.void(RECALLED, ON_BOX2)

    assert await mine.send(answer(task), ON_BOX2) == claimed
    assert (await before.store.load(task.id)).state is TaskState.SUBMITTED
