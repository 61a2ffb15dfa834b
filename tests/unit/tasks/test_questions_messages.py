"""A message to a task with an open question answers it, and is never typed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from synapse.core.driver import DeliveryUncertain, InputRequested, QuestionRaised, Resumed, Turn, TurnEvent, Typing
from synapse.core.errors import InvalidChoice, MessageIdReused
from synapse.core.events import MessageAdded
from synapse.core.message import TextPart
from synapse.core.question import Choice
from synapse.core.requests import (
    ResolveTask,
    SendAndFollow,
    SendMessage,
)
from synapse.core.task import Task, TaskState
from synapse.tasks.recovery import ANSWERS
from tests.fakes.driver import FakeDriver
from tests.fakes.harness import AgentHarness, say, working
from tests.fakes.questions import DONE, PERMISSION, PERSON, TAKEN, asked, asks, is_asked


def follow_up(task: Task, text: str, message_id: str = "") -> SendMessage:
    return SendMessage(message=say(text, message_id), dialect="a2a_v1", task_id=task.id)


async def test_a_message_to_the_task_answers_it_and_is_never_typed() -> None:
    async with working(AgentHarness(asks(PERMISSION))) as harness:
        task = await asked(harness)
        going_on: Task = await harness.service.handle(follow_up(task, "yes"), PERSON)
        await harness.finished(task)

        assert going_on.state is not TaskState.INPUT_REQUIRED
        assert [message.text for message in going_on.history] == ["work", "yes"]
        assert going_on.history[-1].metadata == {"answers_question": "q-1"}
        assert harness.driver.typed == ["work"]
        assert harness.driver.choices == [Choice(option="1")]


async def test_a_message_answers_a_question_that_the_status_shows_before_the_task_does() -> None:
    driver = asks(PERMISSION)
    driver.holds_before = QuestionRaised
    driver.go_on.clear()
    async with working(AgentHarness(driver)) as harness:
        task = await harness.reached(await harness.send("work"), "submitted")
        driver.question = PERMISSION
        answering = asyncio.ensure_future(harness.service.handle(follow_up(task, "yes"), PERSON))
        done, _ = await asyncio.wait({answering}, timeout=0.05)
        driver.go_on.set()
        going_on: Task = await answering
        await harness.finished(task)

        assert not done
        assert [message.text for message in going_on.history] == ["work", "yes"]
        assert driver.choices == [Choice(option="1")]


async def test_a_message_that_is_no_answer_changes_nothing() -> None:
    async with working(AgentHarness(asks(PERMISSION))) as harness:
        task = await asked(harness)
        with pytest.raises(InvalidChoice, match="does not accept free text"):
            await harness.service.handle(follow_up(task, "hmm", "m-1"), PERSON)

        assert await harness.task(task.id) == task


async def test_the_same_message_answers_once() -> None:
    next_one = replace(PERMISSION, id="q-2", title="And this?")

    async with working(AgentHarness(asks(PERMISSION, next_one))) as harness:
        task = await asked(harness)
        twice = follow_up(task, "yes", "m-1")
        first, second = await asyncio.gather(*(harness.service.handle(twice, PERSON) for _ in range(2)))
        await is_asked(harness, task)
        third: Task = await harness.service.handle(twice, PERSON)

        assert first.id == second.id == third.id == task.id
        assert harness.driver.choices == [Choice(option="1")]
        assert third.metadata["question"]["id"] == "q-2"
        with pytest.raises(MessageIdReused):
            await harness.service.handle(follow_up(task, "no", "m-1"), PERSON)


async def test_a_waiting_caller_gets_the_question_and_then_the_next_state() -> None:
    async with working(AgentHarness(asks(PERMISSION))) as harness, asyncio.timeout(5):
        opening = SendMessage(message=say("work"), dialect="a2a_v1")
        question = await harness.settled(opening, PERSON)
        done = await harness.settled(follow_up(question, "yes"), PERSON)

        assert (question.state, done.state) == (TaskState.INPUT_REQUIRED, TaskState.COMPLETED)


async def test_a_stream_ends_at_the_question_and_the_next_one_goes_on_to_the_end() -> None:
    async with working(AgentHarness(asks(PERMISSION))) as harness, asyncio.timeout(5):
        opening = SendMessage(message=say("work"), dialect="a2a_v1")
        first = [update async for update in await harness.service.handle(SendAndFollow(opening), PERSON)]
        task = first[-1].task
        second = [update async for update in await harness.service.handle(SendAndFollow(follow_up(task, "no")), PERSON)]

        assert task.state is TaskState.INPUT_REQUIRED
        assert second[-1].task.state is TaskState.COMPLETED
        assert harness.driver.choices == [Choice(option="2")]


async def test_a_retry_types_the_message_and_not_the_answer_that_came_after_it() -> None:
    attempts: list[Turn] = []

    def plot(turn: Turn) -> list[TurnEvent]:
        attempts.append(turn)
        if len(attempts) > 1:
            return [Typing(), TAKEN, DONE]
        return [Typing(), DeliveryUncertain("was it taken?"), QuestionRaised(PERMISSION), Resumed("keys"), DONE]

    driver = FakeDriver(plot)
    driver.go_on.clear()
    async with working(AgentHarness(driver)) as harness:
        task = await asked(harness)
        await harness.service.handle(follow_up(task, "yes"), PERSON)
        await harness.service.handle(ResolveTask(task_id=task.id, verdict="retry"), PERSON)
        driver.go_on.set()
        await harness.finished(task)

        assert driver.typed == ["work", "work"]
        assert [turn.first for turn in attempts] == [True, True]


async def test_a_message_is_recorded_before_its_answer_is_given() -> None:
    async with working(AgentHarness(asks(PERMISSION))) as harness:
        task = await asked(harness)
        recorded: list[bool] = []
        harness.journal.listen(
            lambda update: (
                recorded.append(bool(harness.driver.choices)) if isinstance(update.event, MessageAdded) else None
            )
        )
        await harness.service.handle(follow_up(task, "yes"), PERSON)

        assert recorded == [False]


async def test_a_caller_cannot_mark_a_message_so_that_it_is_not_typed_after_a_restart() -> None:
    def plot(turn: Turn) -> list[TurnEvent]:
        return [Typing(), TAKEN, InputRequested((TextPart(text="where?"),)) if turn.first else DONE]

    harness = AgentHarness(FakeDriver(plot))
    async with working(harness):
        task = await is_asked(harness, await harness.send("deploy"))
        harness.driver.ready.clear()
        marked = replace(say("here"), metadata={ANSWERS: "q-1", "theirs": 1})
        await harness.service.handle(SendMessage(message=marked, dialect="a2a_v1", task_id=task.id), PERSON)
    again = AgentHarness(FakeDriver(plot), store=harness.store)
    async with working(again):
        await again.recover()
        await again.finished(task)

    assert again.driver.typed == ["here"]
    assert (await again.task(task.id)).history[-1].metadata == {"theirs": 1, "typed_from": "user"}
