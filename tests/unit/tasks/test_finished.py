"""The tasks of an agent that ended last, as its status shows them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from synapse.core.caller import Caller
from synapse.core.driver import Answered, Failed, Submitted, Turn, TurnEvent, Typing
from synapse.core.errors import StoreFailed
from synapse.core.message import Artifact, FilePart, Message, MessageId, Part, Role, TextPart
from synapse.core.override import override
from synapse.core.requests import CancelTask, DeleteTask, GetStatus, SendMessage
from synapse.core.store import TaskPage, TaskQuery
from synapse.core.task import Task, TaskState
from synapse.tasks.finished import KEPT_FOR, LONGEST_TEXT, in_brief
from tests.fakes.agent_at_work import AgentAtWork
from tests.fakes.driver import FakeDriver
from tests.fakes.harness import AgentHarness, say, working
from tests.fakes.memory_store import MemoryStore


class CountingStore(MemoryStore):
    """Counts the lists that it reads, and fails to while `is_broken`."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = 0
        self.is_broken = False

    @override
    async def list(self, query: TaskQuery) -> TaskPage:
        self.lists += 1
        if self.is_broken:
            raise StoreFailed("the disk is gone")
        return await super().list(query)


async def finished(harness: AgentHarness, count: int = 20) -> list[str]:
    status = await harness.service.status(GetStatus(count), Caller())
    assert status.finished is not None
    return [task.message.text for task in status.finished]


async def done(harness: AgentHarness, text: str) -> Task:
    harness.clock.advance(1)
    return await harness.finished(await harness.send(text))


async def test_the_tasks_that_ended_last_come_newest_first_and_no_more_than_asked_for() -> None:
    async with working(AgentHarness()) as harness:
        for text in ("one", "two", "three"):
            await done(harness, text)

        assert await finished(harness) == ["three", "two", "one"]
        assert await finished(harness, 2) == ["three", "two"]


async def test_the_store_is_read_once_and_later_ends_come_from_the_journal() -> None:
    store = CountingStore()
    async with working(AgentHarness(store=store)) as harness:
        await done(harness, "before")
        read_for_other_reasons = store.lists
        await harness.service.status(GetStatus(), Caller())
        assert store.lists == read_for_other_reasons

        assert await finished(harness) == ["before"]
        await done(harness, "after")
        assert await finished(harness) == ["after", "before"]
        assert store.lists == read_for_other_reasons + 1


async def test_a_status_without_the_question_has_no_finished_tasks() -> None:
    async with working(AgentHarness()) as harness:
        await done(harness, "one")

        assert (await harness.service.status(GetStatus(), Caller())).finished is None


async def test_a_store_that_fails_is_asked_again() -> None:
    store = CountingStore()
    async with working(AgentHarness(store=store)) as harness:
        await done(harness, "before")
        store.is_broken = True
        assert await finished(harness) == []
        await done(harness, "meanwhile")
        assert await finished(harness) == ["meanwhile"]

        store.is_broken = False
        assert await finished(harness) == ["meanwhile", "before"]


async def test_failed_and_canceled_tasks_have_ended_too() -> None:
    def fail(turn: Turn) -> list[TurnEvent]:
        return [Typing(), Submitted("screen", "seen"), Failed("lost", "it got lost")]

    driver = FakeDriver(fail)
    async with working(AgentHarness(driver)) as harness:
        await done(harness, "fails")
        driver.go_on.clear()
        driver.ready.clear()
        canceled = await harness.send("canceled")
        await harness.service.cancel(CancelTask(canceled.id), Caller())

        status = await harness.service.status(GetStatus(20), Caller())

    assert [task.state for task in status.finished or ()] == [TaskState.CANCELED, TaskState.FAILED]


async def test_open_hidden_and_old_tasks_are_left_out() -> None:
    async with working(AgentHarness()) as harness:
        await done(harness, "old")
        harness.clock.advance(KEPT_FOR.total_seconds())
        hidden = await done(harness, "hidden")
        await done(harness, "kept")
        assert await finished(harness) == ["kept", "hidden"]

        await harness.service.delete(DeleteTask(task_id=hidden.id), Caller())
        harness.driver.ready.clear()
        await harness.send("open")
        assert await finished(harness) == ["kept"]
        harness.clock.advance(KEPT_FOR.total_seconds())
        assert await finished(harness) == []


async def test_what_the_agent_itself_waited_for_is_no_message_to_it() -> None:
    agent = AgentAtWork()
    async with working(agent.harness) as harness:
        request = await agent.request()
        wait = await agent.asks()
        await agent.goes_on(request)
        owed = await harness.service.status(GetStatus(20), Caller())
        message = await agent.answered(wait)
        await harness.finished(message)
        await harness.finished(request)

        status = await harness.service.status(GetStatus(20), Caller())

    assert [task.id for task in owed.owes] == [request.id]
    assert (owed.finished, status.owes) == ((), ())
    assert {task.id for task in status.finished or ()} == {message.id, request.id}


def sent(*parts: Part) -> SendMessage:
    message = Message(message_id=MessageId("m"), role=Role.USER, parts=parts)
    return SendMessage(message=message, dialect="synapse")


async def test_a_task_is_kept_in_brief() -> None:
    def answer(turn: Turn) -> list[TurnEvent]:
        parts = (TextPart(text="y" * 9999), FilePart(content=b"z"))
        return [Typing(), Submitted("screen", "s"), Answered(parts=parts, source="screen")]

    async with working(AgentHarness(FakeDriver(answer))) as harness:
        big = FilePart(content=b"x" * 1000, name="photo.png", media_type="image/png")
        await harness.settled(sent(TextPart(text="look"), TextPart(text="x" * 9999), big))
        status = await harness.service.status(GetStatus(20), Caller())

    assert status.finished is not None
    (task,) = status.finished
    text, file = task.message.parts
    assert task.message.text == text.text == ("look\n" + "x" * 9999)[:LONGEST_TEXT]  # type: ignore[union-attr]  # a text
    assert file == FilePart(name="photo.png", media_type="image/png")
    assert task.artifacts[0].text == "y" * LONGEST_TEXT


async def test_the_brief_task_has_the_first_message_and_the_last_word_of_the_agent() -> None:
    harness = AgentHarness()
    task = await harness.send("ask")
    told = [say(text) for text in ("ask", "more", "last")]
    spoken = [Message(message_id=MessageId(""), role=Role.AGENT, parts=(TextPart(text=text),)) for text in ("a", "b")]
    chunks = tuple(TextPart(text=str(number)) for number in range(5))
    artifact = Artifact(artifact_id="x", parts=chunks)

    talk = (told[0], spoken[0], told[1], spoken[1], told[2])
    brief = in_brief(replace(task, history=talk, artifacts=(artifact,)))

    assert [message.text for message in brief.history] == ["ask", "b"]
    assert brief.artifacts[0].parts == (TextPart(text="01234"),)


@pytest.mark.parametrize("days", [6, 8])
async def test_ends_of_the_last_days_are_read_from_the_store(days: int) -> None:
    store = MemoryStore()
    async with working(AgentHarness(store=store)) as earlier:
        await done(earlier, "earlier")
    harness = AgentHarness(store=store)
    harness.clock.advance(timedelta(days=days).total_seconds())

    assert await finished(harness) == (["earlier"] if days < 7 else [])
