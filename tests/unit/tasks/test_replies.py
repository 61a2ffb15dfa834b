"""Answers find their way back: explicit, inferred, failed, and not needed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from synapse.core.caller import Caller
from synapse.core.errors import SenderMismatch, TaskNotFound
from synapse.core.message import FilePart
from synapse.core.requests import CreateTask, Reply, Sender, SendMessage
from synapse.core.store import TaskQuery
from synapse.core.task import TaskState
from synapse.tasks.admission import TEXT, Acceptance
from tests.fakes.courier import Carried
from tests.fakes.desk import CLAUDE, ME, Desk, claude, say, working


async def test_a_turn_without_a_reply_answers_its_sender_with_its_final_text() -> None:
    async with working(Desk()) as desk:
        await desk.finished(await desk.send("status?", sender=claude(), response_expected=True, sender_task_id="t-1"))
        await asyncio.wait_for(desk.courier.something.wait(), 5)

        assert desk.courier.carried == [Carried(CLAUDE.agent_id, "t-1", "echo: status?", False, True)]


async def test_a_sender_that_does_not_wait_is_not_answered() -> None:
    async with working(Desk()) as desk:
        await desk.finished(await desk.send("run the tests", sender=claude()))
        await desk.replies.drain(5)

        assert desk.courier.carried == []


async def test_an_explicit_reply_is_carried_at_once_and_is_the_answer() -> None:
    async with working(Desk()) as desk:
        desk.driver.go_on.clear()
        task = await desk.send("status?", sender=claude(), response_expected=True, sender_task_id="t-1")
        await desk.reached(task, "submitted")
        await desk.service.handle(Reply(message=say("all green")), Caller(via_socket=True))
        desk.driver.go_on.set()
        ended = await desk.finished(task)
        await desk.finished(await desk.send("next"))
        await desk.replies.drain(5)

        assert [artifact.text for artifact in ended.artifacts] == ["all green"]
        assert ended.artifacts[0].metadata["inferred"] is False
        assert desk.courier.carried == [Carried(CLAUDE.agent_id, "t-1", "all green", False, False)]


async def test_a_reply_may_name_the_senders_task_by_its_short_id() -> None:
    async with working(Desk()) as desk:
        desk.driver.go_on.clear()
        for waiting in ("aaaa1111-x", "bbbb2222-x"):
            task = await desk.send("?", sender=claude(), response_expected=True, sender_task_id=waiting)
        replied = await desk.service.handle(Reply(message=say("yes"), task_id="bbbb2222"), Caller(via_socket=True))

        assert replied.task_id == task.id
        assert desk.courier.carried[0].sender_task_id == "bbbb2222-x"


async def test_a_reply_without_a_request_is_not_found() -> None:
    with pytest.raises(TaskNotFound):
        await Desk().service.handle(Reply(message=say("yes")), Caller(via_socket=True))


async def test_a_person_at_a_shell_is_answered_on_the_task_itself() -> None:
    async with working(Desk()) as desk:
        desk.driver.go_on.clear()
        task = await desk.send("status?", response_expected=True)
        await desk.reached(task, "submitted")
        await desk.service.handle(Reply(message=say("fine"), task_id=task.short_id), Caller(via_socket=True))

        assert (await desk.finished(task)).artifacts[0].text == "fine"
        assert desk.courier.carried == []


@pytest.mark.parametrize("is_proven", [True, False])
async def test_who_is_not_proven_is_answered_on_the_task_though_nobody_waits_at_the_claimed_agent(
    is_proven: bool,
) -> None:
    async with working(Desk()) as desk:
        desk.driver.go_on.clear()
        desk.courier.nobody_waits = True
        caller = Caller(via_socket=True, agent_id=CLAUDE.agent_id) if is_proven else Caller()
        task = await desk.send("?", sender=claude(), response_expected=True, sender_task_id="t-1", caller=caller)
        await desk.reached(task, "submitted")
        reply = desk.service.handle(Reply(message=say("fine")), Caller(via_socket=True))
        if is_proven:
            with pytest.raises(TaskNotFound):
                await reply
        else:
            assert (await reply).to == f"unverified.{CLAUDE.agent_id}"

        assert (await desk.finished(task)).artifacts[0].text == "fine"


async def test_a_reply_may_say_that_it_failed() -> None:
    async with working(Desk()) as desk:
        desk.driver.go_on.clear()
        task = await desk.send("status?", sender=claude(), response_expected=True, sender_task_id="t-1")
        await desk.reached(task, "submitted")
        await desk.service.handle(Reply(message=say("no access"), failed=True), Caller(via_socket=True))
        ended = await desk.finished(task)

        assert (ended.state, ended.reason, ended.note) == (TaskState.FAILED, "replied_failed", "no access")
        assert desk.courier.carried[0].failed


async def test_an_agent_that_exits_tells_its_waiters() -> None:
    async with working(Desk()) as desk:
        desk.driver.go_on.clear()
        task = await desk.send("status?", sender=claude(), response_expected=True, sender_task_id="t-1")
        await desk.reached(task, "submitted")
        desk.driver.exited = True
        desk.driver.go_on.set()
        await asyncio.wait_for(desk.courier.something.wait(), 5)

        assert desk.courier.carried == [Carried(CLAUDE.agent_id, "t-1", "the program ended", True, True)]


async def test_a_reply_that_an_earlier_host_still_owed_is_carried_once() -> None:
    before = Desk()
    before.courier.nobody_answers = True
    async with working(before):
        request = await before.send("status?", sender=claude(), response_expected=True, sender_task_id="t-1")
        await before.finished(request)
        await before.replies.drain(5)
    for carried in (1, 0):
        async with working(Desk(store=before.store)) as after:
            await after.recover()
            await after.replies.drain(5)

            assert len(after.courier.carried) == carried


@pytest.mark.parametrize(("asker", "inbox"), [(claude(), CLAUDE.inbox), (Sender(sender_id="synapse-gemini-8110"), "")])
async def test_a_reply_goes_to_the_inbox_of_who_asked_where_it_is_known(asker: Sender, inbox: str) -> None:
    async with working(Desk()) as desk:
        await desk.send("status?", sender=asker, response_expected=True, sender_task_id="t-1")
        async with asyncio.timeout(5):
            await desk.courier.something.wait()

        assert desk.courier.inboxes == [inbox]


async def test_another_agent_cannot_answer_in_the_name_of_the_one_that_was_asked() -> None:
    desk = Desk()
    asked = CreateTask(message=say("review"), dialect="synapse", metadata={"waits_for": CLAUDE.agent_id})
    task = await desk.service.handle(asked, Caller())

    with pytest.raises(SenderMismatch):
        await desk.send("forged", in_reply_to=task.id, caller=Caller(agent_id="synapse-gemini-8110"))
    done = await desk.send("mine", in_reply_to=task.id, caller=Caller(agent_id=CLAUDE.agent_id))
    assert done.artifacts[0].text == "mine"


async def test_an_agent_that_was_started_again_at_another_port_can_still_answer() -> None:
    desk = Desk()
    metadata = {"waits_for": "synapse-claude-8109", "waits_for_inbox": CLAUDE.inbox}
    task = await desk.service.handle(CreateTask(message=say("review"), dialect="synapse", metadata=metadata), Caller())

    for other in (ME.agent_id, "synapse-claude-8109"):
        with pytest.raises(SenderMismatch):
            await desk.send("forged", in_reply_to=task.id, caller=Caller(agent_id=other))
    done = await desk.send("mine", in_reply_to=task.id, caller=Caller(agent_id=CLAUDE.agent_id))
    assert done.artifacts[0].text == "mine"


async def test_another_agent_that_has_the_port_now_cannot_answer() -> None:
    desk = Desk()
    metadata = {"waits_for": CLAUDE.agent_id, "waits_for_inbox": "claude@/elsewhere"}
    task = await desk.service.handle(CreateTask(message=say("review"), dialect="synapse", metadata=metadata), Caller())

    with pytest.raises(SenderMismatch):
        await desk.send("not mine", in_reply_to=task.id, caller=Caller(agent_id=CLAUDE.agent_id))


async def test_an_agent_that_takes_only_texts_gets_the_reply_that_it_waits_for_whatever_that_is() -> None:
    async with working(Desk(acceptance=Acceptance(media_types=TEXT))) as desk:
        asked = CreateTask(message=say("draw it"), dialect="synapse", metadata={"waits_for": CLAUDE.agent_id})
        task = await desk.service.handle(asked, Caller())
        drawn = replace(say("here"), parts=(FilePart(content=b"png", media_type="image/png"),))
        reply = SendMessage(message=drawn, dialect="synapse", in_reply_to=task.id)
        done = await desk.service.handle(reply, Caller(agent_id=CLAUDE.agent_id))

        assert (done.state, done.artifacts[0].parts) == (TaskState.COMPLETED, drawn.parts)
        # Nobody follows the task, so a reply that the agent takes would come as a message, too.
        assert [one.id for one in (await desk.store.list(TaskQuery())).tasks] == [task.id]
