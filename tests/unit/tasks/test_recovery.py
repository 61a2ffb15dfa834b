"""What becomes of the tasks that an earlier host left."""

from __future__ import annotations

from datetime import timedelta

import pytest

from synapse.core.caller import Caller
from synapse.core.driver import Answered, Submitted, Turn, TurnEvent, Typing
from synapse.core.errors import Conflict, PersonRequired
from synapse.core.message import Json, MessageId, TextPart
from synapse.core.requests import CreateTask, ResolveTask
from synapse.core.task import Task, TaskState
from synapse.tasks import recovery
from tests.fakes.driver import FakeDriver
from tests.fakes.harness import CLAUDE, ME, AgentHarness, say, working


def only_typed(_turn: Turn) -> list[TurnEvent]:
    return [Typing(), Typing()]


def followed_to_its_end(turn: Turn) -> list[TurnEvent]:
    answered = Answered(parts=(TextPart(text="done"),), source="a2a")
    if turn.resumed:
        return [Submitted("a2a", "looked up again"), answered]
    return [Typing(), Submitted("a2a", "taken"), answered]


async def left_by(harness: AgentHarness) -> Task:
    """A task whose intent to type was recorded when the host ended."""
    harness.driver.go_on.clear()
    async with working(harness):
        return await harness.reached(await harness.send("hello"), "typed")


async def test_a_queued_task_goes_on_after_a_restart() -> None:
    before = AgentHarness()
    task = await before.send("hello")
    after = AgentHarness(store=before.store)
    await after.recover()

    assert after.worker.waiting == (task.id,)


async def test_instructions_for_an_agent_that_is_gone_are_not_told_to_the_next_one() -> None:
    before = AgentHarness()
    task = await before.intake.instruct("you are codex-8120", MessageId("i-1"))
    after = AgentHarness(store=before.store)
    await after.recover()
    ended = await after.task(task.id)

    assert after.worker.waiting == ()
    assert (ended.state, ended.reason) == (TaskState.FAILED, "agent_exited")


async def test_a_task_that_ran_has_failed_because_its_program_is_gone() -> None:
    before = AgentHarness()
    before.driver.go_on.clear()
    async with working(before):
        task = await before.reached(await before.send("hello"), "submitted")
    after = AgentHarness(store=before.store)
    await after.recover()
    ended = await after.task(task.id)

    assert (ended.state, ended.reason) == (TaskState.FAILED, "agent_exited")


@pytest.mark.parametrize("step", ["typed", "submitted"])
async def test_a_task_that_the_agent_still_has_is_followed_again_before_all_that_waits(step: str) -> None:
    before = AgentHarness(FakeDriver(only_typed) if step == "typed" else None)
    before.driver.go_on.clear()
    async with working(before):
        task = await before.reached(await before.send("hello"), step)
        urgent = await before.send("urgent", priority=4)
    driver = FakeDriver(followed_to_its_end)
    async with working(AgentHarness(driver, store=before.store)) as after:
        await after.recover(lambda left: left.id == task.id)
        done = await after.finished(task)
        await after.finished(urgent)

    assert done.state is TaskState.COMPLETED
    assert sum(receipt.step == "typed" for receipt in done.receipts) == 1
    assert [(turn.task_id, turn.resumed) for turn in driver.turns] == [(task.id, True), (urgent.id, False)]


async def test_a_typed_but_unproven_task_is_never_typed_again_by_itself() -> None:
    before = AgentHarness(FakeDriver(only_typed))
    task = await left_by(before)
    after = AgentHarness(store=before.store)
    await after.recover()

    assert after.worker.waiting == ()
    assert (await after.task(task.id)).attention == recovery.TYPED_BEFORE_RESTART


@pytest.mark.parametrize(
    ("verdict", "state", "step"),
    [("delivered", TaskState.COMPLETED, "answered"), ("fail", TaskState.FAILED, "failed")],
)
async def test_a_person_ends_the_doubt(verdict: str, state: TaskState, step: str) -> None:
    before = AgentHarness(FakeDriver(only_typed))
    task = await left_by(before)
    after = AgentHarness(store=before.store)
    await after.recover()
    ended = await after.service.handle(ResolveTask(task_id=task.short_id, verdict=verdict), Caller(via_socket=True))

    assert (ended.state, ended.receipts[-1].step, ended.attention) == (state, step, "")


async def test_a_retry_after_a_restart_types_the_message_to_the_new_program() -> None:
    before = AgentHarness(FakeDriver(only_typed))
    task = await left_by(before)
    async with working(AgentHarness(store=before.store)) as after:
        await after.recover()
        await after.service.handle(ResolveTask(task_id=task.id, verdict="retry"), Caller(via_socket=True))

        assert (await after.finished(task)).state is TaskState.COMPLETED


async def test_a_decision_about_an_earlier_try_is_refused_and_types_nothing() -> None:
    before = AgentHarness(FakeDriver(only_typed))
    task = await left_by(before)
    after = AgentHarness(store=before.store)
    await after.recover()
    typed = task.receipts[-1]
    assert typed.step == "typed"

    earlier = ResolveTask(task_id=task.id, verdict="retry", asked_at=typed.at - timedelta(milliseconds=1))
    with pytest.raises(Conflict, match="typed again meanwhile"):
        await after.service.handle(earlier, Caller(via_socket=True))
    assert ((await after.task(task.id)).receipts[-1], after.worker.waiting) == (typed, ())

    # As the wire has it, without microseconds.
    shown = typed.at.replace(microsecond=typed.at.microsecond // 1000 * 1000)
    now = ResolveTask(task_id=task.id, verdict="retry", asked_at=shown)
    assert (await after.service.handle(now, Caller(via_socket=True))).receipts[-1].step == "queued"


async def test_an_agent_may_not_decide_about_doubt() -> None:
    before = AgentHarness(FakeDriver(only_typed))
    task = await left_by(before)

    with pytest.raises(PersonRequired):
        await before.service.handle(ResolveTask(task_id=task.id, verdict="retry"), Caller(agent_id=CLAUDE.agent_id))


async def test_a_task_that_is_not_in_doubt_cannot_be_resolved() -> None:
    harness = AgentHarness()
    task = await harness.send("hello")

    with pytest.raises(Conflict):
        await harness.service.handle(ResolveTask(task_id=task.id, verdict="retry"), Caller(via_socket=True))


@pytest.mark.parametrize(
    "metadata", [{}, {"waits_for": "synapse-claude-8100"}, {"waits_for": "a", "waits_for_inbox": ""}], ids=str
)
async def test_a_task_that_waited_for_an_agent_that_cannot_be_found_again_fails(metadata: Json) -> None:
    before = AgentHarness()
    create = CreateTask(message=say("review"), dialect="synapse", metadata=metadata)
    task = await before.service.handle(create, Caller())
    after = AgentHarness(store=before.store)
    await after.recover()

    ended = await after.task(task.id)
    assert (ended.reason, ended.note) == ("agent_exited", "the program that worked on it is gone")
    assert task.inbox == ME.inbox
