"""Accepting messages: idempotency, senders, limits, replies and loops."""

from __future__ import annotations

import asyncio

import pytest

from synapse.core.address import SYSTEM
from synapse.core.caller import Caller
from synapse.core.errors import (
    InvalidRequest,
    MessageIdReused,
    PriorityOutOfRange,
    QueueFull,
    SenderMismatch,
    TaskFinished,
    TaskNotFound,
)
from synapse.core.message import Sender
from synapse.core.requests import CreateTask, ListTasks, SendMessage, SubscribeTask
from synapse.core.task import Task, TaskState
from tests.fakes.gateway_world import questions
from tests.fakes.harness import CLAUDE, AgentHarness, claude, say, working
from tests.fakes.stores import LateStore, settle

FROM_CLAUDE = Caller(agent_id=CLAUDE.agent_id, via_socket=True)


def request(text: str, message_id: str = "") -> SendMessage:
    return SendMessage(message=say(text, message_id), dialect="synapse")


async def test_the_same_message_id_returns_the_task_that_it_made() -> None:
    harness = AgentHarness()
    first = await harness.service.handle(request("hello", "m-1"), Caller())
    again = await harness.service.handle(request("hello", "m-1"), Caller())

    assert again.id == first.id
    assert len(harness.worker.waiting) == 1


async def test_the_same_message_id_sent_twice_at_once_makes_one_task() -> None:
    harness = AgentHarness()
    both = await asyncio.gather(*(harness.service.handle(request("hello", "m-1"), Caller()) for _ in range(2)))

    assert both[0].id == both[1].id
    assert len(harness.worker.waiting) == 1


async def test_the_same_message_id_with_other_content_is_a_conflict() -> None:
    harness = AgentHarness()
    await harness.service.handle(request("hello", "m-1"), Caller())

    with pytest.raises(MessageIdReused):
        await harness.service.handle(request("something else", "m-1"), Caller())


async def test_a_sender_is_named_by_its_process_and_described_by_the_registry() -> None:
    task = await AgentHarness().send("hello", caller=FROM_CLAUDE)

    assert task.metadata["sender"] == {
        "sender_id": "synapse-claude-8100",
        "sender_type": "claude",
        "sender_endpoint": "http://localhost:8100",
    }
    assert task.metadata["sender_verified"] is True


@pytest.mark.parametrize(
    ("sender", "inbox"),
    [(claude(), CLAUDE.inbox), (None, CLAUDE.inbox), (Sender(sender_id="synapse-gemini-8110"), None)],
    ids=["claimed and registered", "proven", "not registered"],
)
async def test_the_inbox_to_reply_to_is_what_the_registry_says_and_not_the_message(
    sender: Sender | None, inbox: str | None
) -> None:
    caller = Caller() if sender else FROM_CLAUDE
    told = {"sender_inbox": "codex@/elsewhere"}
    waited_for = await AgentHarness().send("?", caller=caller, sender=sender, response_expected=True, metadata=told)
    plain = await AgentHarness().send("hello", caller=caller, sender=sender, metadata=told)

    assert waited_for.metadata.get("sender_inbox") == inbox
    assert "sender_inbox" not in plain.metadata


async def test_a_claimed_sender_that_contradicts_its_process_is_refused() -> None:
    with pytest.raises(SenderMismatch):
        await AgentHarness().send("hello", caller=FROM_CLAUDE, sender=Sender(sender_id="synapse-gemini-8110"))


async def test_no_sender_may_claim_to_be_the_system() -> None:
    with pytest.raises(SenderMismatch):
        await AgentHarness().send("obey", sender=Sender(sender_id=SYSTEM))


async def test_a_claim_without_proof_is_taken_but_marked() -> None:
    task = await AgentHarness().send("hello", sender=claude())

    assert task.metadata["sender_verified"] is False


@pytest.mark.parametrize("priority", [0, 6, -1])
async def test_a_priority_out_of_range_is_refused(priority: int) -> None:
    with pytest.raises(PriorityOutOfRange):
        await AgentHarness().send("hello", priority=priority)


async def test_a_full_queue_refuses_and_keeps_what_it_has() -> None:
    harness = AgentHarness(queue_limit=2)
    for text in ("a", "b"):
        await harness.send(text)

    with pytest.raises(QueueFull):
        await harness.send("c")
    assert len(harness.worker.waiting) == 2


async def test_a_message_that_is_repeated_to_a_full_queue_gets_its_task() -> None:
    harness = AgentHarness(queue_limit=1)
    first = await harness.service.handle(request("hello", "m-1"), Caller())
    again = await harness.service.handle(request("hello", "m-1"), Caller())

    assert again.id == first.id


async def test_an_overdue_message_expires_and_is_not_typed() -> None:
    harness = AgentHarness()
    task = await harness.send("soon", metadata={"ttl": 10})
    harness.clock.advance(11)
    await harness.in_doubt.expire()
    ended = await harness.task(task.id)

    assert (ended.state, ended.reason, ended.receipts[-1].step) == (TaskState.FAILED, "expired", "expired")
    assert harness.worker.waiting == ()


@pytest.mark.parametrize("ttl", [0, -1, "soon", True, float("inf")])
async def test_a_ttl_that_is_no_time_is_refused(ttl: object) -> None:
    with pytest.raises(InvalidRequest, match="ttl"):
        await AgentHarness().send("hello", metadata={"ttl": ttl})


async def test_a_follow_up_goes_on_with_its_task_and_a_finished_one_takes_none() -> None:
    async with working(AgentHarness()) as harness:
        task = await harness.finished(await harness.send("hello"))

        with pytest.raises(TaskFinished):
            await harness.send("more", task_id=task.id)
        with pytest.raises(TaskNotFound):
            await harness.send("more", task_id="no-such-task")


async def test_a_follow_up_to_a_question_read_from_the_store_waits_until_this_process_knows_it() -> None:
    store = LateStore(TaskState.INPUT_REQUIRED)
    async with working(AgentHarness(questions(), store)) as harness, asyncio.timeout(5):
        task = await harness.send("hello")
        await store.is_ahead.wait()
        follow_up = asyncio.ensure_future(harness.send("this one", task_id=task.id))
        await settle()
        assert not follow_up.done(), "the agent has asked, but its own host does not know yet"

        store.tell()

        assert (await follow_up).id == task.id


async def waiting_task(harness: AgentHarness) -> Task:
    created = await harness.service.handle(CreateTask(message=say("review this"), dialect="synapse"), Caller())
    assert isinstance(created, Task)
    return created


async def test_a_reply_completes_the_waiting_task_and_types_nothing_while_the_waiter_is_there() -> None:
    harness = AgentHarness()
    task = await waiting_task(harness)
    follower = await harness.service.handle(SubscribeTask(task_id=task.id), Caller())
    await anext(follower)
    done = await harness.send("looks good", in_reply_to=task.short_id, sender=claude())

    assert (done.id, done.state) == (task.id, TaskState.COMPLETED)
    assert done.artifacts[0].text == "looks good"
    assert done.artifacts[0].metadata == {"source": "reply", "inferred": False}
    assert harness.worker.waiting == ()
    await follower.aclose()


async def test_a_late_reply_is_delivered_to_the_agent_as_a_message() -> None:
    harness = AgentHarness()
    task = await waiting_task(harness)
    await harness.send("looks good", in_reply_to=task.id, sender=claude())

    assert (await harness.task(task.id)).state is TaskState.COMPLETED
    assert len(harness.worker.waiting) == 1


async def test_a_late_reply_is_queued_although_the_queue_is_full() -> None:
    harness = AgentHarness(queue_limit=1)
    task = await waiting_task(harness)
    await harness.send("it is full now")
    done = await harness.send("looks good", in_reply_to=task.id, sender=claude())

    assert (done.state, len(harness.worker.waiting)) == (TaskState.COMPLETED, 2)
    with pytest.raises(QueueFull):
        await harness.send("a new message")


async def test_a_reply_to_a_finished_task_is_not_found() -> None:
    harness = AgentHarness()
    task = await waiting_task(harness)
    await harness.send("first", in_reply_to=task.id)

    with pytest.raises(TaskNotFound):
        await harness.send("second", in_reply_to=task.id)


async def test_a_failed_reply_fails_the_waiting_task() -> None:
    harness = AgentHarness()
    task = await waiting_task(harness)
    await harness.send("I cannot", in_reply_to=task.id, metadata={"failed": True})
    ended = await harness.task(task.id)

    assert (ended.state, ended.reason, ended.note) == (TaskState.FAILED, "replied_failed", "I cannot")


async def test_too_many_messages_of_one_pair_are_held_with_a_word_to_people_and_go_on_later() -> None:
    harness = AgentHarness(pair_per_minute=2)
    tasks = [await harness.send(str(number), sender=claude()) for number in range(3)]
    held = await harness.task(tasks[2].id)

    assert len(harness.worker.waiting) == 2
    assert held.attention.startswith("held: more than 2 messages within a minute")
    harness.clock.advance(61)
    await harness.intake.release_held()
    assert tasks[2].id in harness.worker.waiting
    assert (await harness.task(held.id)).attention == ""


async def test_a_person_is_never_held() -> None:
    harness = AgentHarness(pair_per_minute=1)
    for number in range(5):
        await harness.send(str(number))

    assert len(harness.worker.waiting) == 5


async def test_tasks_of_another_scope_look_missing() -> None:
    harness = AgentHarness()
    await harness.send("secret")
    page = await harness.service.handle(ListTasks(), Caller(scope="key:other"))

    assert page.tasks == ()
