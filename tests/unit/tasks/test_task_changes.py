"""What a caller may change about a task: its own metadata, an end, and that it is gone from all views."""

from __future__ import annotations

from typing import Any

import pytest

from synapse.core.caller import Caller
from synapse.core.errors import IllegalTransition, InvalidField, TaskNotFound
from synapse.core.events import TaskHidden
from synapse.core.requests import ChangeTask, DeleteTask, GetTask, ListTasks, SubscribeTask
from synapse.core.task import ReceiptStep, Task, TaskState
from synapse.tasks.changes import OUR_KEYS
from tests.fakes.desk import Desk, working
from tests.fakes.questions import PERMISSION, asked, asks

LAPTOP = Caller(scope="key:laptop", name="laptop")


async def change(desk: Desk, task: Task, caller: Caller | None = None, **what: Any) -> Task:
    changed = await desk.service.handle(ChangeTask(task_id=task.id, **what), caller or Caller())
    assert isinstance(changed, Task)
    return changed


async def test_metadata_is_changed_also_when_the_task_has_ended() -> None:
    async with working(Desk()) as desk:
        task = await desk.finished(await desk.send("work"))

        changed = await change(desk, task, metadata={"request": {"colour": "red"}})

        assert changed.metadata["request"] == {"colour": "red"}
        assert changed.state is TaskState.COMPLETED


@pytest.mark.parametrize("key", sorted(OUR_KEYS))
async def test_what_synapse_keeps_itself_is_not_reworded_by_a_caller(key: str) -> None:
    async with working(Desk()) as desk:
        task = await desk.finished(await desk.send("work"))

        with pytest.raises(InvalidField, match="kept by Synapse"):
            await change(desk, task, metadata={"request": {}, key: "something else"})

        assert (await desk.task(task.id)).metadata == task.metadata


@pytest.mark.parametrize("end", [TaskState.COMPLETED, TaskState.FAILED])
async def test_a_task_that_a_caller_ends_stops_the_agent(end: TaskState) -> None:
    desk = Desk()
    desk.driver.go_on.clear()
    async with working(desk):
        task = await desk.send("work")
        await desk.reached(task, "submitted")

        ended = await change(desk, task, state=end)

        assert (ended.state, ended.reason, ended.note) == (end, "by_request", f"{end.value} by request")
        assert ended.receipt is not None
        assert ended.receipt.step.is_final
        assert desk.driver.interrupts == 1
        await desk.finished(await desk.send("next"))


async def test_a_task_that_waits_can_be_taken_up_and_ended_without_ever_being_typed() -> None:
    desk = Desk()
    desk.driver.ready.clear()
    async with working(desk):
        task = await desk.send("work")

        assert (await change(desk, task, state=TaskState.WORKING)).state is TaskState.WORKING
        ended = await change(desk, task, state=TaskState.COMPLETED)
        desk.driver.ready.set()
        await desk.finished(await desk.send("next"))

    assert ended.receipt is not None
    assert ended.receipt.step is ReceiptStep.CANCELED
    assert [turn.message.text for turn in desk.driver.turns] == ["next"]


async def test_a_state_that_the_lifecycle_does_not_allow_is_refused() -> None:
    desk = Desk()
    desk.driver.go_on.clear()
    async with working(desk):
        task = await desk.send("work")
        await desk.reached(task, "submitted")
        with pytest.raises(IllegalTransition, match="cannot be made submitted"):
            await change(desk, task, state=TaskState.SUBMITTED)
        desk.driver.go_on.set()
        done = await desk.finished(task)
        for state in (TaskState.SUBMITTED, TaskState.WORKING, TaskState.FAILED):
            with pytest.raises(IllegalTransition, match="is completed"):
                await change(desk, done, metadata={"request": {"a": 1}}, state=state)

        assert (await desk.task(task.id)).version == done.version


async def test_putting_back_the_state_that_was_shown_changes_nothing() -> None:
    async with working(Desk(asks(PERMISSION))) as desk:
        task = await asked(desk)

        same = await change(desk, task, state=TaskState.WORKING)
        canceled = await desk.service.handle(DeleteTask(task_id=task.id), Caller())

        assert (same.state, same.version) == (TaskState.INPUT_REQUIRED, task.version)
        assert canceled.state is TaskState.CANCELED


async def test_a_deleted_task_is_canceled_and_gone_from_all_views_but_not_from_the_log() -> None:
    desk = Desk()
    desk.driver.go_on.clear()
    async with working(desk):
        task = await desk.send("work")
        await desk.reached(task, "submitted")

        deleted = await desk.service.handle(DeleteTask(task_id=task.id), Caller())

        assert (deleted.state, deleted.note, deleted.hidden) == (TaskState.CANCELED, "deleted by request", True)
        assert desk.driver.interrupts == 1
        for request in (GetTask(task.id), GetTask(task.id, exact=True), SubscribeTask(task_id=task.id)):
            with pytest.raises(TaskNotFound):
                await desk.service.handle(request, Caller())
        with pytest.raises(TaskNotFound):
            await desk.service.handle(DeleteTask(task_id=task.id), Caller())
        assert (await desk.service.handle(ListTasks(), Caller())).tasks == ()
        kept = [update.event async for update in desk.journal.updates(task.id)]
        assert isinstance(kept[-1], TaskHidden)


async def test_a_task_that_has_ended_is_deleted_as_it_is() -> None:
    async with working(Desk()) as desk:
        task = await desk.finished(await desk.send("work"))

        deleted = await desk.service.handle(DeleteTask(task_id=task.id), Caller())

        assert (deleted.state, deleted.hidden, desk.driver.interrupts) == (TaskState.COMPLETED, True, 0)


async def test_a_task_that_ends_while_it_is_deleted_keeps_its_end() -> None:
    async with working(Desk()) as desk:
        running = await desk.send("work")
        await desk.finished(running)

        deleted = await desk.service._changes.delete(running)  # pyright: ignore[reportPrivateUsage]  # as it was

        assert (deleted.state, deleted.hidden) == (TaskState.COMPLETED, True)


async def test_a_foreign_task_is_missing_for_who_wants_to_change_or_delete_it() -> None:
    async with working(Desk()) as desk:
        task = await desk.finished(await desk.send("work"))

        with pytest.raises(TaskNotFound):
            await change(desk, task, LAPTOP, metadata={"request": {}})
        with pytest.raises(TaskNotFound):
            await desk.service.handle(DeleteTask(task_id=task.id), LAPTOP)
