"""Sending a message and waiting until its task settles."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from synapse.core.caller import Caller
from synapse.core.driver import Answered, ArtifactProduced, InputRequested, Submitted, TurnEvent
from synapse.core.errors import InvalidRequest, NotFound, TaskFinished, TaskNotFound, UnsupportedOperation
from synapse.core.events import ArtifactAdded, StateChanged, TaskHidden, Update
from synapse.core.message import Artifact, Message, MessageId, Role, TextPart
from synapse.core.override import override
from synapse.core.requests import CancelTask, FollowTask, GetMessage, GetTask, SendAndFollow, SendAndWait, SendMessage
from synapse.core.task import INTERRUPT_PRIORITY, Task, TaskState
from synapse.tasks.rules import is_settled
from synapse.tasks.service import TaskWaiter
from tests.fakes.driver import FakeDriver
from tests.fakes.harness import CLAUDE, AgentHarness, working

ME = Caller()
QUESTION = InputRequested((TextPart(text="which one?"),))
ANSWER = Answered(parts=(TextPart(text="done"),), source="script")


def turns(*plots: list[TurnEvent]) -> FakeDriver:
    """A driver whose turns are these, one after the other."""
    left = list(plots)
    return FakeDriver(lambda _: [Submitted("script", "taken"), *left.pop(0)])


def message(text: str = "hello", message_id: str = "", **more: Any) -> SendMessage:
    said = Message(message_id=MessageId(message_id), role=Role.USER, parts=(TextPart(text=text),))
    return SendMessage(message=said, dialect="a2a_v1", exact=True, **more)


async def wait(harness: AgentHarness, send: SendMessage) -> Task:
    return await harness.settled(send, ME)


async def follow(harness: AgentHarness, send: SendMessage) -> list[Update]:
    async with asyncio.timeout(5):
        updates = await harness.service.handle(SendAndFollow(send), ME)
        return [update async for update in updates]


def states(updates: list[Update]) -> list[str]:
    return [
        update.task.state.value for update in updates if update.event is None or isinstance(update.event, StateChanged)
    ]


@pytest.mark.parametrize("state", TaskState)
def test_a_task_that_ended_or_waits_has_settled(state: TaskState) -> None:
    assert is_settled(state) == (state not in (TaskState.SUBMITTED, TaskState.WORKING))


async def test_the_wait_ends_with_the_answer() -> None:
    async with working(AgentHarness(turns([ANSWER]))) as harness:
        task = await wait(harness, message())

    assert task.state is TaskState.COMPLETED
    assert [artifact.text for artifact in task.artifacts] == ["done"]


async def test_the_wait_ends_with_a_question_and_the_next_one_with_the_answer() -> None:
    async with working(AgentHarness(turns([QUESTION], [ANSWER]))) as harness:
        asked = await wait(harness, message())
        done = await wait(harness, message("this one", task_id=asked.id, context_id=asked.context_id))

    assert asked.state is TaskState.INPUT_REQUIRED
    assert asked.history[-1].text == "which one?"
    assert (done.id, done.state) == (asked.id, TaskState.COMPLETED)


async def test_the_same_follow_up_twice_at_once_is_one() -> None:
    driver = turns([QUESTION], [ANSWER])
    async with working(AgentHarness(driver)) as harness:
        asked = await wait(harness, message())
        again = message("this one", "m-2", task_id=asked.id)
        tasks, taken = await asyncio.gather(*[wait(harness, again) for _ in range(3)]), len(driver.turns)

    assert {task.state for task in tasks} == {TaskState.COMPLETED}
    assert taken == 2


async def test_the_same_message_again_waits_for_nothing_more() -> None:
    async with working(AgentHarness(turns([ANSWER]))) as harness:
        first, second = await wait(harness, message(message_id="m-1")), await wait(harness, message(message_id="m-1"))

    assert first == second


async def test_several_wait_for_the_same_task() -> None:
    harness = AgentHarness(turns([ANSWER]))
    async with asyncio.timeout(5):
        waits = [await harness.service.handle(SendAndWait(message(message_id="m-1")), ME) for _ in range(3)]
        async with working(harness):
            tasks = list(await asyncio.gather(*(wait.settled() for wait in waits)))

    assert {task.state for task in tasks} == {TaskState.COMPLETED}
    assert len({task.id for task in tasks}) == 1


async def test_what_was_sent_is_known_at_once_and_found_by_its_message() -> None:
    harness = AgentHarness(turns([ANSWER]))
    pending = await harness.service.send_and_wait(SendAndWait(message(message_id="m-1")), ME)

    assert (pending.task.state, pending.is_settled) == (TaskState.SUBMITTED, False)
    assert await harness.service.get_message(GetMessage("m-1"), ME) == pending.task
    with pytest.raises(NotFound):
        await harness.service.get_message(GetMessage("m-1"), Caller(scope="key:other"))


async def test_a_caller_that_stops_waiting_affects_neither_the_task_nor_other_callers() -> None:
    harness = AgentHarness(turns([ANSWER]))
    async with asyncio.timeout(5):
        leaving, staying = [await harness.service.handle(SendAndWait(message(message_id="m-1")), ME) for _ in range(2)]
        asyncio.ensure_future(leaving.settled()).cancel()
        async with working(harness):
            task = await staying.settled()

    assert task.state is TaskState.COMPLETED


async def test_a_cancel_ends_the_wait() -> None:
    harness = AgentHarness()
    pending = await harness.service.handle(SendAndWait(message(message_id="m-1")), ME)
    task = await harness.service.handle(message(message_id="m-1"), ME)
    await harness.service.handle(CancelTask(task.id, exact=True), ME)
    task = await asyncio.wait_for(pending.settled(), 5)

    assert task.state is TaskState.CANCELED


async def test_a_cancel_before_the_message_is_queued_ends_the_wait_too() -> None:
    class Slow(FakeDriver):
        """Takes its time to be interrupted: so long an urgent message is recorded, and not queued."""

        def __init__(self) -> None:
            super().__init__()
            self.asked, self.done = asyncio.Event(), asyncio.Event()

        @override
        async def interrupt(self) -> bool:
            self.asked.set()
            await self.done.wait()
            return await super().interrupt()

    driver = Slow()
    harness = AgentHarness(driver)
    urgent = message(message_id="m-1", priority=INTERRUPT_PRIORITY)
    sending = asyncio.ensure_future(harness.settled(urgent))
    async with asyncio.timeout(5):
        await driver.asked.wait()
        [task] = harness.journal.open_tasks()
        await harness.service.handle(CancelTask(task.id, exact=True), ME)
        driver.done.set()
        task = await sending

    assert task.state is TaskState.CANCELED


async def test_a_follower_sees_everything_from_the_first_state_to_the_last() -> None:
    artifact = Artifact(artifact_id="log", parts=(TextPart(text="…"),))

    async with working(AgentHarness(turns([ArtifactProduced(artifact=artifact), ANSWER]))) as harness:
        updates = await follow(harness, message())

    assert updates[0].event is None
    assert states(updates) == ["submitted", "working", "completed"]
    handed = [update.event.artifact.artifact_id for update in updates if isinstance(update.event, ArtifactAdded)]
    assert handed[0] == "log"
    assert [update.seq for update in updates] == sorted({update.seq for update in updates})


async def test_a_question_ends_the_stream_and_the_follow_up_begins_with_the_task() -> None:
    async with working(AgentHarness(turns([QUESTION], [ANSWER]))) as harness:
        first = await follow(harness, message())
        second = await follow(harness, message("this one", task_id=first[-1].task.id))

    assert states(first) == ["submitted", "working", "input_required"]
    assert second[0].event is None
    assert states(second) == ["submitted", "working", "completed"]


async def test_following_a_message_that_was_answered_gives_its_task_and_ends() -> None:
    async with working(AgentHarness(turns([QUESTION]))) as harness:
        await follow(harness, message(message_id="m-1"))
        updates = await follow(harness, message(message_id="m-1"))

    assert states(updates) == ["input_required"]


async def test_an_agent_that_answers_with_a_message_shows_no_task_on_the_way() -> None:
    direct = Answered(parts=(TextPart(text="hi"),), source="script", direct=True)

    async with working(AgentHarness(turns([direct]))) as harness, asyncio.timeout(5):
        settling = TaskWaiter(harness.intake, harness.journal, harness.feed, lambda _: True)
        (only,) = [update async for update in await settling.follow(SendAndFollow(message()), ME)]

    assert only.event is None
    assert (only.task.state, only.task.reason) == (TaskState.COMPLETED, "direct_message")
    assert only.seq > 1


async def test_a_follow_up_must_name_its_task_whole_and_its_own_context() -> None:
    async with working(AgentHarness(turns([QUESTION]))) as harness:
        task = await wait(harness, message())
        with pytest.raises(TaskNotFound):
            await wait(harness, message(task_id=task.id[:8]))
        with pytest.raises(InvalidRequest, match="another context"):
            await wait(harness, message(task_id=task.id, context_id="other"))


async def test_an_exact_id_is_no_beginning_of_one() -> None:
    harness = AgentHarness()
    task = await harness.send("hello")
    assert (await harness.service.handle(GetTask(task.id, exact=True), ME)).id == task.id
    assert (await harness.service.handle(GetTask(task.id[:8]), ME)).id == task.id
    for wrong in (task.id[:8], "", "nothing"):
        for request in (GetTask(wrong, exact=True), CancelTask(wrong, exact=True), FollowTask(task_id=wrong)):
            with pytest.raises(TaskNotFound):
                await harness.service.handle(request, ME)


async def test_a_task_of_another_scope_or_inbox_or_that_was_hidden_is_not_there() -> None:
    harness = AgentHarness()
    task = await harness.send("hello")
    get = GetTask(task.id, exact=True)
    with pytest.raises(TaskNotFound):
        await harness.service.handle(get, Caller(scope="other"))
    with pytest.raises(TaskNotFound):
        await harness.neighbour(CLAUDE).service.handle(get, ME)
    await harness.journal.record(TaskHidden(task_id=task.id, at=harness.clock.now()))
    with pytest.raises(TaskNotFound):
        await harness.service.handle(get, ME)


async def test_a_task_that_has_ended_is_not_followed_but_can_be_resumed() -> None:
    async with working(AgentHarness(turns([ANSWER]))) as harness:
        first = await follow(harness, message())
        done = first[-1].task
        with pytest.raises(UnsupportedOperation):
            await harness.service.handle(FollowTask(task_id=done.id), ME)
        with pytest.raises(TaskFinished):
            await wait(harness, message(task_id=done.id))
        rest = await harness.service.handle(FollowTask(task_id=done.id, after=first[0].seq), ME)
        resumed = [update async for update in rest]
        assert [update.seq for update in resumed] == [update.seq for update in first[1:]]

    assert resumed[-1].task.state is TaskState.COMPLETED


async def test_a_follower_of_a_question_hears_what_comes_later() -> None:
    async with working(AgentHarness(turns([QUESTION], [ANSWER]))) as harness:
        asked = await wait(harness, message())
        updates = await harness.service.handle(FollowTask(task_id=asked.id), ME)
        first = await anext(updates)
        await wait(harness, message("this one", task_id=asked.id))
        async with asyncio.timeout(5):
            result = states([first, *[update async for update in updates]])

    assert result == ["input_required", "submitted", "working", "completed"]
