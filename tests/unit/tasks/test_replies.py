"""Replies to waiting senders: explicit, inferred, failed, and not needed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from synapse.core.caller import Caller
from synapse.core.errors import SenderMismatch, TaskNotFound
from synapse.core.message import FilePart, Sender
from synapse.core.override import override
from synapse.core.registry import AgentReply
from synapse.core.requests import CreateTask, Reply, SendMessage
from synapse.core.store import TaskQuery
from synapse.core.task import TaskState
from synapse.net.hosts import UnixHostClient
from synapse.registry.local import open_local_registry
from synapse.tasks.admission import TEXT, Acceptance
from synapse.tasks.replies import Replies
from tests.fakes.harness import CLAUDE, ME, AgentHarness, claude, say, working
from tests.fakes.host_client import DeliveredReply, FakeHostClient


async def test_a_turn_without_a_reply_answers_its_sender_with_its_final_text() -> None:
    async with working(AgentHarness()) as harness:
        await harness.finished(
            await harness.send("status?", sender=claude(), response_expected=True, sender_task_id="t-1")
        )
        await asyncio.wait_for(harness.host_client.called.wait(), 5)

        assert harness.host_client.delivered == [DeliveredReply(CLAUDE.agent_id, "t-1", "echo: status?", False, True)]


async def test_a_sender_that_does_not_wait_is_not_answered() -> None:
    async with working(AgentHarness()) as harness:
        await harness.finished(await harness.send("run the tests", sender=claude()))
        await harness.replies.drain(5)

        assert harness.host_client.delivered == []


async def test_a_registry_that_cannot_be_read_delays_a_reply_and_ends_nothing(tmp_path: Path) -> None:
    harness = AgentHarness()
    (tmp_path / "registry").write_text("not a folder", encoding="utf-8")
    hosts = UnixHostClient(open_local_registry(tmp_path / "registry", harness.clock.monotonic), harness.clock)
    replies = Replies(ME, harness.journal, hosts, harness.clock)
    running = asyncio.ensure_future(replies.run())
    task = await harness.send("status?", sender=claude(), response_expected=True, sender_task_id="t-1")
    replies.resume(replace(task, state=TaskState.COMPLETED))

    await replies.drain(5)
    await asyncio.wait({running}, timeout=0.05)

    assert not running.done()
    running.cancel()


class DefectiveHostClient(FakeHostClient):
    """Fails in a way that no caller expects."""

    @override
    async def deliver_reply(self, to: Sender, reply: AgentReply) -> None:
        raise ZeroDivisionError


async def test_a_defect_in_one_reply_ends_nothing() -> None:
    harness = AgentHarness()
    replies = Replies(ME, harness.journal, DefectiveHostClient(), harness.clock)
    running = asyncio.ensure_future(replies.run())
    task = await harness.send("status?", sender=claude(), response_expected=True, sender_task_id="t-1")
    replies.resume(replace(task, state=TaskState.COMPLETED))

    await replies.drain(5)
    await asyncio.wait({running}, timeout=0.05)

    assert not running.done()
    running.cancel()


async def test_an_explicit_reply_is_delivered_at_once_and_is_the_answer() -> None:
    async with working(AgentHarness()) as harness:
        harness.driver.go_on.clear()
        task = await harness.send("status?", sender=claude(), response_expected=True, sender_task_id="t-1")
        await harness.reached(task, "submitted")
        await harness.service.handle(Reply(message=say("all green")), Caller(via_socket=True))
        harness.driver.go_on.set()
        ended = await harness.finished(task)
        await harness.finished(await harness.send("next"))
        await harness.replies.drain(5)

        assert [artifact.text for artifact in ended.artifacts] == ["all green"]
        assert ended.artifacts[0].metadata["inferred"] is False
        assert harness.host_client.delivered == [DeliveredReply(CLAUDE.agent_id, "t-1", "all green", False, False)]


async def test_a_reply_may_name_the_senders_task_by_its_short_id() -> None:
    async with working(AgentHarness()) as harness:
        harness.driver.go_on.clear()
        for waiting in ("aaaa1111-x", "bbbb2222-x"):
            task = await harness.send("?", sender=claude(), response_expected=True, sender_task_id=waiting)
        replied = await harness.service.handle(Reply(message=say("yes"), task_id="bbbb2222"), Caller(via_socket=True))

        assert replied.task_id == task.id
        assert harness.host_client.delivered[0].sender_task_id == "bbbb2222-x"


async def test_a_reply_without_a_request_is_not_found() -> None:
    with pytest.raises(TaskNotFound):
        await AgentHarness().service.handle(Reply(message=say("yes")), Caller(via_socket=True))


async def test_a_person_at_a_shell_is_answered_on_the_task_itself() -> None:
    async with working(AgentHarness()) as harness:
        harness.driver.go_on.clear()
        task = await harness.send("status?", response_expected=True)
        await harness.reached(task, "submitted")
        await harness.service.handle(Reply(message=say("fine"), task_id=task.short_id), Caller(via_socket=True))

        assert (await harness.finished(task)).artifacts[0].text == "fine"
        assert harness.host_client.delivered == []


@pytest.mark.parametrize("is_proven", [True, False])
async def test_an_unproven_sender_is_answered_on_the_task_though_the_claimed_agent_does_not_wait(
    is_proven: bool,
) -> None:
    async with working(AgentHarness()) as harness:
        harness.driver.go_on.clear()
        harness.host_client.has_no_waiter = True
        caller = Caller(via_socket=True, agent_id=CLAUDE.agent_id) if is_proven else Caller()
        task = await harness.send("?", sender=claude(), response_expected=True, sender_task_id="t-1", caller=caller)
        await harness.reached(task, "submitted")
        reply = harness.service.handle(Reply(message=say("fine")), Caller(via_socket=True))
        if is_proven:
            with pytest.raises(TaskNotFound):
                await reply
        else:
            assert (await reply).to == f"unverified.{CLAUDE.agent_id}"

        assert (await harness.finished(task)).artifacts[0].text == "fine"


async def test_a_reply_may_say_that_it_failed() -> None:
    async with working(AgentHarness()) as harness:
        harness.driver.go_on.clear()
        task = await harness.send("status?", sender=claude(), response_expected=True, sender_task_id="t-1")
        await harness.reached(task, "submitted")
        await harness.service.handle(Reply(message=say("no access"), failed=True), Caller(via_socket=True))
        ended = await harness.finished(task)

        assert (ended.state, ended.reason, ended.note) == (TaskState.FAILED, "replied_failed", "no access")
        assert harness.host_client.delivered[0].failed


async def test_an_agent_that_exits_tells_its_waiters() -> None:
    async with working(AgentHarness()) as harness:
        harness.driver.go_on.clear()
        task = await harness.send("status?", sender=claude(), response_expected=True, sender_task_id="t-1")
        await harness.reached(task, "submitted")
        harness.driver.exited = True
        harness.driver.go_on.set()
        await asyncio.wait_for(harness.host_client.called.wait(), 5)

        assert harness.host_client.delivered == [
            DeliveredReply(CLAUDE.agent_id, "t-1", "the program ended", True, True)
        ]


async def test_a_reply_that_an_earlier_host_still_owed_is_delivered_once() -> None:
    before = AgentHarness()
    before.host_client.is_unreachable = True
    async with working(before):
        request = await before.send("status?", sender=claude(), response_expected=True, sender_task_id="t-1")
        await before.finished(request)
        await before.replies.drain(5)
    for count in (1, 0):
        async with working(AgentHarness(store=before.store)) as after:
            await after.recover()
            await after.replies.drain(5)

            assert len(after.host_client.delivered) == count


@pytest.mark.parametrize(("asker", "inbox"), [(claude(), CLAUDE.inbox), (Sender(sender_id="synapse-gemini-8110"), "")])
async def test_a_reply_goes_to_the_inbox_of_who_asked_where_it_is_known(asker: Sender, inbox: str) -> None:
    async with working(AgentHarness()) as harness:
        await harness.send("status?", sender=asker, response_expected=True, sender_task_id="t-1")
        async with asyncio.timeout(5):
            await harness.host_client.called.wait()

        assert harness.host_client.inboxes == [inbox]


async def test_another_agent_cannot_answer_in_the_name_of_the_one_that_was_asked() -> None:
    harness = AgentHarness()
    asked = CreateTask(message=say("review"), dialect="synapse", metadata={"waits_for": CLAUDE.agent_id})
    task = await harness.service.handle(asked, Caller())

    with pytest.raises(SenderMismatch):
        await harness.send("forged", in_reply_to=task.id, caller=Caller(agent_id="synapse-gemini-8110"))
    done = await harness.send("mine", in_reply_to=task.id, caller=Caller(agent_id=CLAUDE.agent_id))
    assert done.artifacts[0].text == "mine"


async def test_an_agent_that_was_started_again_at_another_port_can_still_answer() -> None:
    harness = AgentHarness()
    metadata = {"waits_for": "synapse-claude-8109", "waits_for_inbox": CLAUDE.inbox}
    task = await harness.service.handle(
        CreateTask(message=say("review"), dialect="synapse", metadata=metadata), Caller()
    )

    for other in (ME.agent_id, "synapse-claude-8109"):
        with pytest.raises(SenderMismatch):
            await harness.send("forged", in_reply_to=task.id, caller=Caller(agent_id=other))
    done = await harness.send("mine", in_reply_to=task.id, caller=Caller(agent_id=CLAUDE.agent_id))
    assert done.artifacts[0].text == "mine"


async def test_another_agent_that_has_the_port_now_cannot_answer() -> None:
    harness = AgentHarness()
    metadata = {"waits_for": CLAUDE.agent_id, "waits_for_inbox": "claude@/elsewhere"}
    task = await harness.service.handle(
        CreateTask(message=say("review"), dialect="synapse", metadata=metadata), Caller()
    )

    with pytest.raises(SenderMismatch):
        await harness.send("not mine", in_reply_to=task.id, caller=Caller(agent_id=CLAUDE.agent_id))


async def test_an_agent_that_takes_only_texts_gets_the_reply_that_it_waits_for_whatever_that_is() -> None:
    async with working(AgentHarness(acceptance=Acceptance(media_types=TEXT))) as harness:
        asked = CreateTask(message=say("draw it"), dialect="synapse", metadata={"waits_for": CLAUDE.agent_id})
        task = await harness.service.handle(asked, Caller())
        drawn = replace(say("here"), parts=(FilePart(content=b"png", media_type="image/png"),))
        reply = SendMessage(message=drawn, dialect="synapse", in_reply_to=task.id)
        done = await harness.service.handle(reply, Caller(agent_id=CLAUDE.agent_id))

        assert (done.state, done.artifacts[0].parts) == (TaskState.COMPLETED, drawn.parts)
        # Nobody follows the task, so a reply that the agent takes would come as a message, too.
        assert [one.id for one in (await harness.store.list(TaskQuery())).tasks] == [task.id]
