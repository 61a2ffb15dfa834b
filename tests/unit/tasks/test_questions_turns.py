"""What a question does to the turn and the task that it is asked in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from synapse.core.driver import Deferred, DeliveryUncertain, Progress, QuestionRaised, Resumed, Turn, TurnEvent, Typing
from synapse.core.errors import InvalidChoice
from synapse.core.events import StateChanged
from synapse.core.override import override
from synapse.core.question import Choice
from synapse.core.requests import (
    CancelTask,
    GetStatus,
    HostStatus,
)
from synapse.core.task import Task, TaskState
from synapse.tasks.recovery import TYPED_BEFORE_RESTART
from tests.fakes.driver import FakeDriver
from tests.fakes.harness import AgentHarness, working
from tests.fakes.questions import CHOICE, DONE, PERMISSION, PERSON, TAKEN, answer, asked, asks, is_asked


async def test_what_is_asked_is_kept_in_the_task_which_waits_for_input() -> None:
    async with working(AgentHarness(asks(PERMISSION))) as harness:
        task = await asked(harness)

        assert (task.state, task.reason) == (TaskState.INPUT_REQUIRED, "waiting_for_person")
        assert task.note == "Run the command?\nrm -r build\n1. Yes\n2. No"
        assert task.metadata["question"]["options"][1] == {"key": "2", "label": "No", "leaning": "deny"}
        assert task.metadata["question"]["asked_at"].endswith("Z")
        assert harness.worker.current == task.id


async def test_no_reader_sees_a_task_that_waits_for_a_person_without_a_question() -> None:
    async with working(AgentHarness(asks(PERMISSION, replace(PERMISSION, id="q-2")))) as harness:
        seen: list[tuple[bool, bool]] = []
        harness.journal.listen(
            lambda update: seen.append((update.task.reason == "waiting_for_person", update.task.question is not None))
        )
        task = await asked(harness)
        await answer(harness, task_id=task.id, verdict="allow")
        await is_asked(harness, task)
        await harness.service.handle(CancelTask(task.id), PERSON)

        assert {waits for waits, _ in seen} == {True, False}
        assert all(waits == asks for waits, asks in seen)


async def test_the_status_names_the_task_that_asks() -> None:
    async with working(AgentHarness(asks(PERMISSION))) as harness:
        task = await asked(harness)
        status: HostStatus = await harness.service.handle(GetStatus(), PERSON)

        assert status.asking is not None
        assert status.asking.id == task.id


async def test_proof_and_progress_that_come_late_leave_the_question_open() -> None:
    plot: list[TurnEvent] = [Typing(), QuestionRaised(PERMISSION), TAKEN, Progress("…"), Resumed("keys"), DONE]

    async with working(AgentHarness(FakeDriver(lambda _: plot))) as harness:
        task = await harness.reached(await asked(harness), "submitted")

        assert (await harness.task(task.id)).state is TaskState.INPUT_REQUIRED
        await answer(harness, task_id=task.id, verdict="allow")
        assert (await harness.finished(task)).state is TaskState.COMPLETED


@pytest.mark.parametrize("end", [DONE, Deferred("a dialog opened")], ids=["an answer", "not now"])
async def test_the_end_of_the_turn_is_the_end_of_its_question(end: TurnEvent) -> None:
    attempts: list[Turn] = []

    def plot(turn: Turn) -> list[TurnEvent]:
        attempts.append(turn)
        return [Typing(), QuestionRaised(PERMISSION), end] if len(attempts) == 1 else [Typing(), TAKEN, DONE]

    driver = FakeDriver(plot)
    driver.go_on.clear()
    async with working(AgentHarness(driver)) as harness:
        task = await asked(harness)
        states: list[TaskState] = []
        harness.journal.listen(
            lambda update: states.append(update.event.state) if isinstance(update.event, StateChanged) else None
        )
        driver.go_on.set()
        done = await harness.finished(task)

        assert "question" not in done.metadata
        between = [TaskState.WORKING] if end is DONE else [TaskState.SUBMITTED, TaskState.WORKING]
        assert states == [*between, TaskState.COMPLETED]


async def test_what_was_asked_when_the_host_ended_has_failed_with_its_program() -> None:
    harness = AgentHarness(asks(PERMISSION))
    async with working(harness):
        task = await asked(harness)
    again = AgentHarness(store=harness.store)
    await again.recover()
    ended = await again.task(task.id)

    assert (ended.state, ended.reason) == (TaskState.FAILED, "agent_exited")
    assert "question" not in ended.metadata


async def test_a_message_in_doubt_stays_in_doubt_over_a_restart_without_its_question() -> None:
    plot: list[TurnEvent] = [
        Typing(),
        DeliveryUncertain("was it taken?"),
        QuestionRaised(PERMISSION),
        Resumed("keys"),
        DONE,
    ]

    harness = AgentHarness(FakeDriver(lambda _: plot))
    async with working(harness):
        task = await asked(harness)
    again = AgentHarness(store=harness.store)
    await again.recover()
    left = await again.task(task.id)

    assert (left.state, left.attention) == (TaskState.SUBMITTED, TYPED_BEFORE_RESTART)
    assert "question" not in left.metadata


async def test_a_cancel_denies_the_open_question_and_then_interrupts() -> None:
    async with working(AgentHarness(asks(PERMISSION))) as harness:
        task = await asked(harness)
        harness.driver.go_on.clear()
        canceled: Task = await harness.service.handle(CancelTask(task.id), PERSON)

        assert canceled.state is TaskState.CANCELED
        assert "question" not in canceled.metadata
        assert harness.driver.choices == [Choice(option="2")]
        assert harness.driver.interrupts == 1


async def test_a_cancel_leaves_a_question_that_cannot_be_denied_for_a_person_to_see() -> None:
    async with working(AgentHarness(asks(CHOICE))) as harness:
        task = await asked(harness)
        await harness.service.handle(CancelTask(task.id), PERSON)
        status: HostStatus = await harness.service.handle(GetStatus(), PERSON)

        assert (status.view.question, status.asking) == (CHOICE, None)
        assert (harness.driver.choices, harness.driver.interrupts) == ([], 0)
        assert await answer(harness, option="1") is None


async def test_a_cancel_is_done_though_the_program_cannot_be_told_no_from_here() -> None:
    class Deaf(FakeDriver):
        @override
        async def answer(self, question_id: str, choice: Choice) -> str:
            raise InvalidChoice(f"{question_id} cannot be answered by keys: {choice.option}", ())

    plot: list[TurnEvent] = [Typing(), TAKEN, QuestionRaised(PERMISSION), Resumed("keys"), DONE]
    async with working(AgentHarness(Deaf(lambda _: plot))) as harness:
        task = await asked(harness)
        canceled: Task = await harness.service.handle(CancelTask(task.id), PERSON)
        status: HostStatus = await harness.service.handle(GetStatus(), PERSON)

        assert canceled.state is TaskState.CANCELED
        assert status.view.question == PERMISSION
        assert harness.driver.interrupts == 0


async def test_priority_5_waits_for_the_answer_and_interrupts_behind_it() -> None:
    async with working(AgentHarness(asks(PERMISSION))) as harness:
        task = await asked(harness)
        harness.driver.go_on.clear()
        urgent = await harness.send("stop!", priority=5)
        assert harness.driver.typed == ["work"]

        await answer(harness, task_id=task.id, verdict="allow")
        ended = await harness.finished(task)
        await is_asked(harness, urgent)

        assert (ended.state, ended.reason) == (TaskState.CANCELED, "interrupted")
        assert harness.driver.typed == ["work", "stop!"]
