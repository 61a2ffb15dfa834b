"""Tasks of agents that do not run are changed and deleted straight in the store, by whoever may."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from synapse.config.settings import load_settings
from synapse.core.address import SYSTEM
from synapse.core.errors import Conflict, IllegalTransition, SenderMismatch
from synapse.core.requests import ChangeTask, DeleteTask, Sender
from synapse.core.store import TaskQuery
from synapse.core.task import Task, TaskState
from synapse.host import stopped as module
from synapse.host.stopped import StoppedTasks
from synapse.registry.files import UNKNOWN, start_time
from synapse.store.sqlite import SqliteStore
from synapse.tasks.admission import origin_metadata
from synapse.tasks.journal import Journal
from tests.fakes.facts import TASK, message, numbered, opened


@asynccontextmanager
async def left(home: Path) -> AsyncGenerator[tuple[StoppedTasks, SqliteStore, Task]]:
    """A task that its agent has left in its queue."""
    store = await SqliteStore.open(home / "store.db")
    try:
        task = await Journal(store).record(opened())
        yield StoppedTasks(store, load_settings(environ={"SYNAPSE_HOME": str(home)})), store, task
    finally:
        await store.close()


async def test_a_task_that_was_left_is_deleted_and_its_log_stays(tmp_path: Path) -> None:
    async with left(tmp_path) as (unowned, store, task):
        deleted = await unowned.change(task, DeleteTask(task_id=TASK))

        assert (deleted.state, deleted.hidden) == (TaskState.CANCELED, True)
        assert (await store.list(TaskQuery())).tasks == ()
        assert len(await store.read_after(0, task_id=TASK)) == deleted.version


async def test_a_task_that_was_left_is_changed_where_that_is_allowed(tmp_path: Path) -> None:
    async with left(tmp_path) as (unowned, _store, task):
        noted = await unowned.change(task, ChangeTask(task_id=TASK, metadata={"request": {"a": 1}}))
        same = await unowned.change(noted, ChangeTask(task_id=TASK, state=TaskState.SUBMITTED))
        ended = await unowned.change(same, ChangeTask(task_id=TASK, state=TaskState.COMPLETED))

        assert (noted.metadata["request"], same.version, ended.state) == ({"a": 1}, noted.version, TaskState.COMPLETED)
        with pytest.raises(IllegalTransition):
            await unowned.change(ended, ChangeTask(task_id=TASK, state=TaskState.WORKING))


async def test_an_agent_that_runs_after_all_changes_its_tasks_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LEASE_PAUSE", 0.0)
    init = f"1:{start_time(1) or UNKNOWN}"

    async with left(tmp_path) as (unowned, store, task):
        assert await store.claim_inbox(task.inbox, init, lambda _: True)

        with pytest.raises(Conflict, match="runs"):
            await unowned.change(task, DeleteTask(task_id=TASK))


async def test_everything_that_waits_is_found_however_much_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAGE", 2)

    async with left(tmp_path) as (unowned, store, task):
        more = [await Journal(store).record(opened(numbered(number), at=number)) for number in range(1, 5)]
        system = {"sender": {"sender_id": "synapse-system"}}
        await Journal(store).record(opened(numbered(9), at=9, metadata=system))

        assert [found.id for found in await unowned.waiting()] == [one.id for one in (task, *more)]


async def test_the_last_tasks_come_with_the_latest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAGE", 2)

    async with left(tmp_path) as (unowned, store, _task):
        for number in range(1, 5):
            agent = "synapse-claude-8100" if number == 4 else "synapse-codex-8120"
            await Journal(store).record(opened(numbered(number), at=number, agent_id=agent))

        def is_codex(found: Task) -> bool:
            return found.agent_id == "synapse-codex-8120"

        assert [found.id for found in await unowned.recent(2, is_codex)] == [numbered(3), numbered(2)]
        assert len(await unowned.recent(50, is_codex)) == 4


async def test_a_message_that_says_it_is_from_the_system_itself_is_not_left(tmp_path: Path) -> None:
    async with left(tmp_path) as (unowned, store, _task):
        metadata = origin_metadata(Sender(sender_id=SYSTEM), verified=False)
        with pytest.raises(SenderMismatch):
            await unowned.leave("ghost", message(), agent_id="ghost", priority=3, ttl=None, metadata=metadata)

        assert await store.open_tasks("ghost") == []
