"""What a caller may change about a task: its own metadata, an end, and that it is gone from all views."""

from __future__ import annotations

from typing import Any

import pytest

from synapse.core.caller import Caller
from synapse.core.errors import IllegalTransition, InvalidField, TaskNotFound
from synapse.core.events import TaskHidden
from synapse.core.requests import ChangeTask, DeleteTask, GetTask, ListTasks, SubscribeTask
from synapse.core.task import ReceiptStep, Task, TaskState
from synapse.core.task_metadata import RESERVED_KEYS
from tests.fakes.harness import AgentHarness, working
from tests.fakes.questions import PERMISSION, asked, asks

LAPTOP = Caller(scope="key:laptop", name="laptop")


async def change(harness: AgentHarness, task: Task, caller: Caller | None = None, **what: Any) -> Task:
    changed = await harness.service.handle(ChangeTask(task_id=task.id, **what), caller or Caller())
    assert isinstance(changed, Task)
    return changed


async def test_metadata_is_changed_also_when_the_task_has_ended() -> None:
    async with working(AgentHarness()) as harness:
        task = await harness.finished(await harness.send("work"))

        changed = await change(harness, task, metadata={"request": {"colour": "red"}})

        assert changed.metadata["request"] == {"colour": "red"}
        assert changed.state is TaskState.COMPLETED


@pytest.mark.parametrize("key", sorted(RESERVED_KEYS))
async def test_a_caller_cannot_change_reserved_keys(key: str) -> None:
    async with working(AgentHarness()) as harness:
        task = await harness.finished(await harness.send("work"))

        with pytest.raises(InvalidField, match="reserved for Synapse"):
            await change(harness, task, metadata={"request": {}, key: "something else"})

        assert (await harness.task(task.id)).metadata == task.metadata


@pytest.mark.parametrize("end", [TaskState.COMPLETED, TaskState.FAILED])
async def test_a_task_that_a_caller_ends_stops_the_agent(end: TaskState) -> None:
    harness = AgentHarness()
    harness.driver.go_on.clear()
    async with working(harness):
        task = await harness.send("work")
        await harness.reached(task, "submitted")

        ended = await change(harness, task, state=end)

        assert (ended.state, ended.reason, ended.note) == (end, "by_request", f"{end.value} by request")
        assert ended.receipt is not None
        assert ended.receipt.step.is_final
        assert harness.driver.interrupts == 1
        await harness.finished(await harness.send("next"))


async def test_a_task_that_waits_can_be_taken_up_and_ended_without_ever_being_typed() -> None:
    harness = AgentHarness()
    harness.driver.ready.clear()
    async with working(harness):
        task = await harness.send("work")

        assert (await change(harness, task, state=TaskState.WORKING)).state is TaskState.WORKING
        ended = await change(harness, task, state=TaskState.COMPLETED)
        harness.driver.ready.set()
        await harness.finished(await harness.send("next"))

    assert ended.receipt is not None
    assert ended.receipt.step is ReceiptStep.CANCELED
    assert [turn.message.text for turn in harness.driver.turns] == ["next"]


async def test_a_state_that_the_lifecycle_does_not_allow_is_refused() -> None:
    harness = AgentHarness()
    harness.driver.go_on.clear()
    async with working(harness):
        task = await harness.send("work")
        await harness.reached(task, "submitted")
        with pytest.raises(IllegalTransition, match="cannot be made submitted"):
            await change(harness, task, state=TaskState.SUBMITTED)
        harness.driver.go_on.set()
        done = await harness.finished(task)
        for state in (TaskState.SUBMITTED, TaskState.WORKING, TaskState.FAILED):
            with pytest.raises(IllegalTransition, match="is completed"):
                await change(harness, done, metadata={"request": {"a": 1}}, state=state)

        assert (await harness.task(task.id)).version == done.version


async def test_putting_back_the_state_that_was_shown_changes_nothing() -> None:
    async with working(AgentHarness(asks(PERMISSION))) as harness:
        task = await asked(harness)

        same = await change(harness, task, state=TaskState.WORKING)
        canceled = await harness.service.handle(DeleteTask(task_id=task.id), Caller())

        assert (same.state, same.version) == (TaskState.INPUT_REQUIRED, task.version)
        assert canceled.state is TaskState.CANCELED


async def test_a_deleted_task_is_canceled_and_gone_from_all_views_but_not_from_the_log() -> None:
    harness = AgentHarness()
    harness.driver.go_on.clear()
    async with working(harness):
        task = await harness.send("work")
        await harness.reached(task, "submitted")

        deleted = await harness.service.handle(DeleteTask(task_id=task.id), Caller())

        assert (deleted.state, deleted.note, deleted.hidden) == (TaskState.CANCELED, "deleted by request", True)
        assert harness.driver.interrupts == 1
        for request in (GetTask(task.id), GetTask(task.id, exact=True), SubscribeTask(task_id=task.id)):
            with pytest.raises(TaskNotFound):
                await harness.service.handle(request, Caller())
        with pytest.raises(TaskNotFound):
            await harness.service.handle(DeleteTask(task_id=task.id), Caller())
        assert (await harness.service.handle(ListTasks(), Caller())).tasks == ()
        kept = [update.event async for update in harness.journal.updates(task.id)]
        assert isinstance(kept[-1], TaskHidden)


async def test_a_task_that_has_ended_is_deleted_as_it_is() -> None:
    async with working(AgentHarness()) as harness:
        task = await harness.finished(await harness.send("work"))

        deleted = await harness.service.handle(DeleteTask(task_id=task.id), Caller())

        assert (deleted.state, deleted.hidden, harness.driver.interrupts) == (TaskState.COMPLETED, True, 0)


async def test_a_task_that_ends_while_it_is_deleted_keeps_its_end() -> None:
    async with working(AgentHarness()) as harness:
        running = await harness.send("work")
        await harness.finished(running)

        deleted = await harness.service._changes.delete(running)  # pyright: ignore[reportPrivateUsage]  # as it was

        assert (deleted.state, deleted.hidden) == (TaskState.COMPLETED, True)


async def test_a_foreign_task_is_missing_for_who_wants_to_change_or_delete_it() -> None:
    async with working(AgentHarness()) as harness:
        task = await harness.finished(await harness.send("work"))

        with pytest.raises(TaskNotFound):
            await change(harness, task, LAPTOP, metadata={"request": {}})
        with pytest.raises(TaskNotFound):
            await harness.service.handle(DeleteTask(task_id=task.id), LAPTOP)
