"""Agents on several machines do not wait for each other: a request names the inboxes that wait behind its sender."""

from __future__ import annotations

from typing import Any

import pytest

from synapse.core.caller import Caller
from synapse.core.errors import WaitCycle
from synapse.core.message import Json, Sender
from synapse.core.requests import CreateTask, LeaveTask, SendMessage
from synapse.core.task import Task, TaskState
from synapse.tasks.waits import named_here, waiting_behind
from tests.fakes.harness import CLAUDE, ME, AgentHarness, claude, say

MYSELF = Caller(agent_id=ME.agent_id, via_socket=True)


def on_box2(inbox: str) -> tuple[Caller, Sender]:
    sender = Sender(sender_id=f"synapse-{inbox}-1", sender_type=inbox, inbox=inbox)
    return Caller(scope="machine:box2", machine="box2", remote_sender=sender.sender_id), sender


async def asks(harness: AgentHarness, inbox: str, *, waiting: tuple[str, ...] = (), **more: Any) -> Task:
    """An agent on box2 asks the harness's agent, and waits."""
    caller, sender = on_box2(inbox)
    waits: dict[str, Any] = {"response_expected": True, "sender_task_id": "t-1", **more}
    request = SendMessage(
        message=say("status?", f"m-{inbox}"),
        dialect="synapse",
        sender=sender,
        waiting=waiting,
        **waits,
    )
    return await harness.service.handle(request, caller)


async def waits_for(harness: AgentHarness, agent_id: str, inbox: str) -> Task:
    metadata: Json = {"waits_for": agent_id, "waits_for_inbox": inbox}
    request = CreateTask(message=say("review"), dialect="synapse", metadata=metadata)
    return await harness.service.handle(request, MYSELF)


async def test_a_request_behind_which_its_receiver_waits_is_refused() -> None:
    harness = AgentHarness()

    with pytest.raises(WaitCycle) as told:
        await asks(harness, "gemini", waiting=("box3!aider", ME.inbox))
    assert told.value.agents == ("gemini-1@box2", "codex-8120", "gemini-1@box2")
    again = await asks(harness, "gemini", waiting=("box3!aider", ME.inbox))
    assert (again.state, again.reason) == (TaskState.FAILED, "wait_cycle")


async def test_a_request_of_an_agent_that_the_receiver_waits_for_is_refused() -> None:
    harness = AgentHarness()
    mine = await waits_for(harness, "synapse-gemini-1@box2", "box2!gemini")

    with pytest.raises(WaitCycle) as told:
        await asks(harness, "gemini")
    assert told.value.agents == ("gemini-1@box2", "codex-8120", "gemini-1@box2")
    assert "waits for" in (await harness.task(mine.id)).attention


async def test_a_cycle_over_another_agent_here_and_one_elsewhere_is_refused() -> None:
    harness = AgentHarness()
    await waits_for(harness, "synapse-aider-1@box3", "box3!aider")

    with pytest.raises(WaitCycle) as told:
        await asks(harness, "gemini", waiting=("box3!aider",))
    assert told.value.agents == ("gemini-1@box2", "codex-8120", "aider-1@box3", "gemini-1@box2")


async def test_the_inboxes_behind_an_earlier_request_count_too() -> None:
    """Claude here waits for Gemini on box2, and Gemini for Codex here, when Codex asks Claude."""
    harness = AgentHarness()
    await asks(harness, "gemini", waiting=(CLAUDE.inbox,))
    mine = await waits_for(harness, CLAUDE.agent_id, CLAUDE.inbox)
    request = SendMessage(
        message=say("and you?"),
        dialect="synapse",
        sender=Sender(sender_id=ME.agent_id),
        response_expected=True,
        sender_task_id=mine.id,
    )
    with pytest.raises(WaitCycle) as told:
        await harness.neighbour(CLAUDE).service.handle(request, Caller())
    assert told.value.agents == ("codex-8120", "claude-8100", "gemini-1@box2", "codex-8120")


@pytest.mark.parametrize(
    "more", [{}, {"waiting": (ME.inbox,), "sender_task_id": ""}, {"waiting": (ME.inbox,), "response_expected": False}]
)
async def test_a_request_that_closes_no_cycle_is_accepted(more: dict[str, Any]) -> None:
    harness = AgentHarness()
    await waits_for(harness, "synapse-other-1@box2", "box2!other")

    assert (await asks(harness, "gemini", **more)).state is TaskState.SUBMITTED


async def test_a_waiter_that_has_left_closes_no_cycle_over_machines() -> None:
    harness = AgentHarness()
    mine = await waits_for(harness, "synapse-gemini-1@box2", "box2!gemini")
    await harness.service.handle(LeaveTask(mine.id), MYSELF)

    assert (await asks(harness, "gemini")).state is TaskState.SUBMITTED


async def test_a_caller_here_cannot_say_who_waits_behind_it() -> None:
    harness = AgentHarness()
    request = SendMessage(
        message=say("hello"),
        dialect="synapse",
        sender=claude(),
        response_expected=True,
        sender_task_id="t-1",
        waiting=(ME.inbox,),
        metadata={"waiting_behind": [ME.inbox]},
    )

    task = await harness.service.handle(request, Caller())
    assert (task.state, task.metadata.get("waiting_behind")) == (TaskState.SUBMITTED, None)


async def test_a_request_to_another_machine_names_all_that_wait_behind_its_sender() -> None:
    """Gemini on box2, behind which Aider on box3 waits, waits for Codex, and Codex waits for Claude, who asks box4."""
    harness = AgentHarness()
    await asks(harness, "gemini", waiting=("box3!aider",))
    mine = await waits_for(harness, CLAUDE.agent_id, CLAUDE.inbox)
    asked = SendMessage(
        message=say("and you?"),
        dialect="synapse",
        sender=Sender(sender_id=ME.agent_id),
        response_expected=True,
        sender_task_id=mine.id,
    )
    await harness.neighbour(CLAUDE).service.handle(asked, Caller())

    assert await waiting_behind(harness.store, CLAUDE.inbox, "laptop") == (
        "box2!gemini",
        "box3!aider",
        f"laptop!{ME.inbox}",
    )
    assert await waiting_behind(harness.store, ME.inbox, "laptop") == ("box2!gemini", "box3!aider")
    assert await waiting_behind(harness.store, "nobody", "laptop") == ()


def test_the_machine_that_gets_a_request_knows_its_own_inboxes_by_their_names() -> None:
    assert named_here(("box2!gemini", f"laptop!{ME.inbox}"), "laptop") == ("box2!gemini", ME.inbox)
