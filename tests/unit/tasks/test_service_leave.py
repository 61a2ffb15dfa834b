"""A waiter that leaves: the answer is read by it or delivered as a message, never both and never neither."""

from __future__ import annotations

import pytest

from synapse.core.caller import Caller
from synapse.core.errors import Conflict, PersonRequired, TaskNotFound
from synapse.core.message import FilePart, Message, MessageId, Role
from synapse.core.requests import CancelTask, CreateTask, LeaveTask, SendMessage, SubscribeTask
from synapse.core.task import Task, TaskState
from synapse.tasks.admission import Acceptance
from tests.fakes.agent_at_work import CODEX, WAITS, StoreKilledBetween
from tests.fakes.harness import CLAUDE, AgentHarness, claude, say


async def waiting_task(harness: AgentHarness) -> Task:
    return await harness.service.handle(CreateTask(message=say("review"), dialect="synapse", metadata=WAITS), CODEX)


async def leave(harness: AgentHarness, task: Task, caller: Caller = CODEX) -> Task:
    return await harness.service.handle(LeaveTask(task.short_id), caller)


async def reply(harness: AgentHarness, task: Task, text: str = "looks good") -> Task:
    return await harness.send(text, in_reply_to=task.id, sender=claude())


async def typed(harness: AgentHarness) -> list[Task]:
    return [await harness.task(task_id) for task_id in harness.worker.waiting]


async def test_the_answer_to_a_waiter_that_left_is_a_message_although_its_stream_is_open() -> None:
    harness = AgentHarness()
    waiting = await waiting_task(harness)
    stream = await harness.service.handle(SubscribeTask(task_id=waiting.id), CODEX)
    await anext(stream)

    left = await leave(harness, waiting)
    assert (left.state, left.waiter_left, left.waiter_released) == (TaskState.SUBMITTED, True, True)

    answered = await reply(harness, waiting)
    (message,) = await typed(harness)
    assert (answered.state, answered.waiter_left) == (TaskState.COMPLETED, True)
    assert (answered.delivered_as, message.delivers) == (message.id, waiting.id)
    assert (message.message.text, message.sender_name) == ("looks good", "unverified.synapse-claude-8100")
    await stream.aclose()
    assert len(harness.worker.waiting) == 1


async def test_a_waiter_that_leaves_after_the_answer_gets_it_and_nothing_is_typed() -> None:
    harness = AgentHarness()
    waiting = await waiting_task(harness)
    stream = await harness.service.handle(SubscribeTask(task_id=waiting.id), CODEX)
    await anext(stream)
    await reply(harness, waiting)

    left = await leave(harness, waiting)

    assert (left.artifacts[0].text, left.waiter_left, left.delivered_as) == ("looks good", False, "")
    assert [update.task.state async for update in stream][-1] is TaskState.COMPLETED
    assert harness.worker.waiting == ()


async def test_leaving_twice_changes_nothing() -> None:
    harness = AgentHarness()
    waiting = await waiting_task(harness)

    assert await leave(harness, waiting) == await leave(harness, waiting)
    await reply(harness, waiting)
    assert (await leave(harness, waiting)).waiter_left
    assert len(harness.worker.waiting) == 1


async def test_a_reader_that_comes_after_the_waiter_left_is_no_waiter() -> None:
    harness = AgentHarness()
    waiting = await waiting_task(harness)
    await leave(harness, waiting)
    stream = await harness.service.handle(SubscribeTask(task_id=waiting.id), CODEX)
    await anext(stream)

    await reply(harness, waiting)

    assert len(harness.worker.waiting) == 1
    await stream.aclose()


async def test_a_person_who_watches_the_task_is_no_waiter() -> None:
    harness = AgentHarness()
    waiting = await waiting_task(harness)
    stream = await harness.service.handle(SubscribeTask(task_id=waiting.id), Caller(via_socket=True))
    await anext(stream)

    await reply(harness, waiting)

    assert len(harness.worker.waiting) == 1
    assert [update.task.state async for update in stream][-1] is TaskState.COMPLETED


async def test_a_waiter_whose_stream_broke_comes_back_and_reads_the_answer() -> None:
    harness = AgentHarness()
    waiting = await waiting_task(harness)
    first = await harness.service.handle(SubscribeTask(task_id=waiting.id), CODEX)
    await anext(first)
    await first.aclose()
    assert (await harness.task(waiting.id)).waiter_left
    second = await harness.service.handle(SubscribeTask(task_id=waiting.id), CODEX)
    await anext(second)

    answered = await reply(harness, waiting)

    assert (answered.waiter_left, harness.worker.waiting) == (False, ())
    assert [update.task.state async for update in second][-1] is TaskState.COMPLETED
    assert harness.worker.waiting == ()


async def test_an_answer_that_the_waiter_has_not_read_when_its_stream_ends_is_a_message() -> None:
    harness = AgentHarness()
    waiting = await waiting_task(harness)
    stream = await harness.service.handle(SubscribeTask(task_id=waiting.id), CODEX)
    await anext(stream)
    await reply(harness, waiting)
    assert harness.worker.waiting == ()

    await stream.aclose()

    (message,) = await typed(harness)
    assert (message.message.text, message.sender_name) == ("looks good", CLAUDE.agent_id)
    assert (await leave(harness, waiting)).delivered_as == message.id
    assert len(harness.worker.waiting) == 1


async def test_a_canceled_wait_that_nobody_read_is_no_message() -> None:
    harness = AgentHarness()
    waiting = await waiting_task(harness)
    stream = await harness.service.handle(SubscribeTask(task_id=waiting.id), CODEX)
    await anext(stream)
    await harness.service.handle(CancelTask(waiting.id), CODEX)
    await stream.aclose()

    assert harness.worker.waiting == ()


async def test_an_answer_that_cannot_be_typed_stays_in_its_task() -> None:
    harness = AgentHarness(acceptance=Acceptance(media_types=("text/plain",)))
    waiting = await waiting_task(harness)
    await leave(harness, waiting)
    picture = Message(
        message_id=MessageId(""), role=Role.AGENT, parts=(FilePart(content=b"png", media_type="image/png"),)
    )

    await harness.service.handle(SendMessage(message=picture, dialect="synapse", in_reply_to=waiting.id), Caller())

    ended = await harness.task(waiting.id)
    assert (ended.artifacts[0].parts, ended.delivered_as, harness.worker.waiting) == (picture.parts, "", ())


async def test_a_message_that_was_not_opened_before_a_crash_is_opened_at_the_next_start() -> None:
    store = StoreKilledBetween()
    before = AgentHarness(store=store)
    waiting = await waiting_task(before)
    await leave(before, waiting)
    with pytest.raises(RuntimeError):
        await reply(before, waiting)
    store.is_killed = False

    for _ in range(2):
        after = AgentHarness(store=before.store)
        await after.recover()
        (message,) = await typed(after)
        assert (message.message.text, message.delivers) == ("looks good", waiting.id)


@pytest.mark.parametrize(
    "caller", [Caller(agent_id=CLAUDE.agent_id, via_socket=True), Caller(), Caller(via_socket=True, doubt="it exited")]
)
async def test_only_the_agent_or_a_person_may_leave(caller: Caller) -> None:
    harness = AgentHarness()
    waiting = await waiting_task(harness)

    with pytest.raises(PersonRequired):
        await leave(harness, waiting, caller)
    assert not (await harness.task(waiting.id)).waiter_left
    assert (await leave(harness, waiting, Caller(via_socket=True))).waiter_left


async def test_a_message_has_no_waiter_to_leave() -> None:
    harness = AgentHarness()
    message = await harness.send("hello")

    with pytest.raises(Conflict, match="waits for no reply"):
        await leave(harness, message)
    with pytest.raises(TaskNotFound):
        await harness.service.handle(LeaveTask("beef"), CODEX)
