"""A message to a task whose program asks something answers it, and is never typed."""

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
from tests.fakes.desk import Desk, say, working
from tests.fakes.driver import FakeDriver
from tests.fakes.questions import DONE, PERMISSION, PERSON, TAKEN, asked, asks, is_asked


def follow_up(task: Task, text: str, message_id: str = "") -> SendMessage:
    return SendMessage(message=say(text, message_id), dialect="a2a_v1", task_id=task.id)


async def test_a_message_to_the_task_answers_it_and_is_never_typed() -> None:
    async with working(Desk(asks(PERMISSION))) as desk:
        task = await asked(desk)
        going_on: Task = await desk.service.handle(follow_up(task, "yes"), PERSON)
        await desk.finished(task)

        assert going_on.state is not TaskState.INPUT_REQUIRED
        assert [message.text for message in going_on.history] == ["work", "yes"]
        assert going_on.history[-1].metadata == {"answers_question": "q-1"}
        assert desk.driver.typed == ["work"]
        assert desk.driver.choices == [Choice(option="1")]


async def test_a_message_that_is_no_answer_changes_nothing() -> None:
    async with working(Desk(asks(PERMISSION))) as desk:
        task = await asked(desk)
        with pytest.raises(InvalidChoice, match="cannot be given"):
            await desk.service.handle(follow_up(task, "hmm", "m-1"), PERSON)

        assert await desk.task(task.id) == task


async def test_the_same_message_answers_once() -> None:
    next_one = replace(PERMISSION, id="q-2", title="And this?")

    async with working(Desk(asks(PERMISSION, next_one))) as desk:
        task = await asked(desk)
        twice = follow_up(task, "yes", "m-1")
        first, second = await asyncio.gather(*(desk.service.handle(twice, PERSON) for _ in range(2)))
        await is_asked(desk, task)
        third: Task = await desk.service.handle(twice, PERSON)

        assert first.id == second.id == third.id == task.id
        assert desk.driver.choices == [Choice(option="1")]
        assert third.metadata["question"]["id"] == "q-2"
        with pytest.raises(MessageIdReused):
            await desk.service.handle(follow_up(task, "no", "m-1"), PERSON)


async def test_whoever_waits_is_given_the_question_and_then_the_next_state() -> None:
    async with working(Desk(asks(PERMISSION))) as desk, asyncio.timeout(5):
        opening = SendMessage(message=say("work"), dialect="a2a_v1")
        question = await desk.settled(opening, PERSON)
        done = await desk.settled(follow_up(question, "yes"), PERSON)

        assert (question.state, done.state) == (TaskState.INPUT_REQUIRED, TaskState.COMPLETED)


async def test_a_stream_ends_at_the_question_and_the_next_one_goes_on_to_the_end() -> None:
    async with working(Desk(asks(PERMISSION))) as desk, asyncio.timeout(5):
        opening = SendMessage(message=say("work"), dialect="a2a_v1")
        first = [update async for update in await desk.service.handle(SendAndFollow(opening), PERSON)]
        task = first[-1].task
        second = [update async for update in await desk.service.handle(SendAndFollow(follow_up(task, "no")), PERSON)]

        assert task.state is TaskState.INPUT_REQUIRED
        assert second[-1].task.state is TaskState.COMPLETED
        assert desk.driver.choices == [Choice(option="2")]


async def test_a_retry_types_the_message_and_not_the_answer_that_came_after_it() -> None:
    attempts: list[Turn] = []

    def plot(turn: Turn) -> list[TurnEvent]:
        attempts.append(turn)
        if len(attempts) > 1:
            return [Typing(), TAKEN, DONE]
        return [Typing(), DeliveryUncertain("was it taken?"), QuestionRaised(PERMISSION), Resumed("keys"), DONE]

    driver = FakeDriver(plot)
    driver.go_on.clear()
    async with working(Desk(driver)) as desk:
        task = await asked(desk)
        await desk.service.handle(follow_up(task, "yes"), PERSON)
        await desk.service.handle(ResolveTask(task_id=task.id, verdict="retry"), PERSON)
        driver.go_on.set()
        await desk.finished(task)

        assert driver.typed == ["work", "work"]
        assert [turn.first for turn in attempts] == [True, True]


async def test_a_message_is_recorded_before_its_answer_is_given() -> None:
    async with working(Desk(asks(PERMISSION))) as desk:
        task = await asked(desk)
        recorded: list[bool] = []
        desk.journal.listen(
            lambda update: (
                recorded.append(bool(desk.driver.choices)) if isinstance(update.event, MessageAdded) else None
            )
        )
        await desk.service.handle(follow_up(task, "yes"), PERSON)

        assert recorded == [False]


async def test_a_caller_cannot_mark_a_message_so_that_it_is_not_typed_after_a_restart() -> None:
    def plot(turn: Turn) -> list[TurnEvent]:
        return [Typing(), TAKEN, InputRequested((TextPart(text="where?"),)) if turn.first else DONE]

    desk = Desk(FakeDriver(plot))
    async with working(desk):
        task = await is_asked(desk, await desk.send("deploy"))
        desk.driver.ready.clear()
        marked = replace(say("here"), metadata={ANSWERS: "q-1", "theirs": 1})
        await desk.service.handle(SendMessage(message=marked, dialect="a2a_v1", task_id=task.id), PERSON)
    again = Desk(FakeDriver(plot), store=desk.store)
    async with working(again):
        await again.recover()
        await again.finished(task)

    assert again.driver.typed == ["here"]
    assert (await again.task(task.id)).history[-1].metadata == {"theirs": 1, "typed_from": "user"}
