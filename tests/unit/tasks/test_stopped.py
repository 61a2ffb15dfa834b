"""Tasks of agents that are not running are read and changed in the store, within the caller's rights."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from synapse.config.settings import load_settings
from synapse.core.address import SYSTEM
from synapse.core.caller import Caller
from synapse.core.errors import (
    Conflict,
    IllegalTransition,
    InvalidField,
    MessageIdReused,
    SenderMismatch,
    StoreLocked,
    TaskNotFound,
    UnsupportedOperation,
)
from synapse.core.events import TaskEvent
from synapse.core.message import Message, MessageId, Role, Sender, TextPart
from synapse.core.requests import (
    CancelTask,
    ChangeTask,
    DeleteTask,
    GetMessage,
    GetStatus,
    GetTask,
    ListPushConfigs,
    ListTasks,
    Request,
    SendAndWait,
    SendMessage,
    SubscribeTask,
    VoidMessage,
)
from synapse.core.service import method_for
from synapse.core.store import TaskQuery
from synapse.core.task import ReplyTo, Task, TaskState
from synapse.core.task_metadata import opening_metadata
from synapse.host.stopped import stopped_tasks
from synapse.registry.files import UNKNOWN, start_time
from synapse.tasks import stopped as module
from synapse.tasks.journal import Journal, rebuild
from synapse.tasks.stopped import StoppedTasks
from tests.fakes.facts import TASK, message, numbered, opened, said
from tests.fakes.leased_store import LeasedStore, nobody_lives
from tests.fakes.leases import ANY_LEASE

ME = Caller()


@asynccontextmanager
async def left(home: Path) -> AsyncGenerator[tuple[StoppedTasks, LeasedStore, Task]]:
    """A task that its agent has left in its queue."""
    store = await LeasedStore.open(home / "store.db")
    try:
        task = await Journal(store, ANY_LEASE).record(opened())
        yield stopped_tasks(store, load_settings(environ={"SYNAPSE_HOME": str(home)})), store, task
    finally:
        await store.close()


async def test_a_task_that_was_left_is_deleted_and_its_log_stays(tmp_path: Path) -> None:
    async with left(tmp_path) as (stopped, store, _task):
        deleted = await stopped.delete(DeleteTask(task_id=TASK), ME)

        assert (deleted.state, deleted.hidden) == (TaskState.CANCELED, True)
        assert (await store.list(TaskQuery())).tasks == ()
        assert len(await store.read_after(0, task_id=TASK)) == deleted.version


async def test_a_task_that_was_left_is_changed_where_that_is_allowed(tmp_path: Path) -> None:
    async with left(tmp_path) as (stopped, _store, _task):
        noted = await stopped.change(ChangeTask(task_id=TASK, metadata={"request": {"a": 1}}), ME)
        same = await stopped.change(ChangeTask(task_id=TASK, state=TaskState.SUBMITTED), ME)
        ended = await stopped.change(ChangeTask(task_id=TASK, state=TaskState.COMPLETED), ME)

        assert (noted.metadata["request"], same.version, ended.state) == ({"a": 1}, noted.version, TaskState.COMPLETED)
        with pytest.raises(IllegalTransition):
            await stopped.change(ChangeTask(task_id=TASK, state=TaskState.WORKING), ME)


async def test_many_changes_in_one_inbox_at_once_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LEASE_TRIES", 1)

    async with left(tmp_path) as (stopped, store, task):
        others = [await Journal(store, ANY_LEASE).record(opened(numbered(number), at=number)) for number in range(2, 6)]

        ended = await asyncio.gather(*(stopped.cancel(CancelTask(one.id, exact=True), ME) for one in (task, *others)))

        assert [one.state for one in ended] == [TaskState.CANCELED] * 5


async def test_an_agent_of_the_same_process_keeps_its_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LEASE_PAUSE", 0.0)

    async with left(tmp_path) as (stopped, store, task):
        lease = await store.acquire(task.inbox, f"{os.getpid()}:{start_time(os.getpid()) or UNKNOWN}", nobody_lives)
        assert lease is not None

        with pytest.raises(Conflict, match="is running"):
            await stopped.cancel(CancelTask(task.id, exact=True), ME)
        await store.verify(lease)


async def test_an_agent_that_runs_after_all_changes_its_tasks_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LEASE_PAUSE", 0.0)
    init = f"1:{start_time(1) or UNKNOWN}"

    async with left(tmp_path) as (stopped, store, task):
        assert await store.acquire(task.inbox, init, nobody_lives)

        with pytest.raises(Conflict, match="is running"):
            await stopped.delete(DeleteTask(task_id=TASK), ME)


async def test_everything_that_waits_is_found_however_much_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAGE", 2)

    async with left(tmp_path) as (stopped, store, task):
        more = [await Journal(store, ANY_LEASE).record(opened(numbered(number), at=number)) for number in range(1, 5)]
        system = {"sender": {"sender_id": "synapse-system"}}
        await Journal(store, ANY_LEASE).record(opened(numbered(9), at=9, metadata=system))
        # The system's notice that a request was not answered waits as any message does.
        told = {**system, "delivers": numbered(1)}
        notice = await Journal(store, ANY_LEASE).record(opened(numbered(10), at=10, metadata=told))

        assert [found.id for found in await stopped.waiting(ME)] == [one.id for one in (task, *more, notice)]


async def test_the_last_tasks_come_with_the_latest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAGE", 2)

    async with left(tmp_path) as (stopped, store, _task):
        for number in range(1, 5):
            agent = "synapse-claude-8100" if number == 4 else "synapse-codex-8120"
            await Journal(store, ANY_LEASE).record(opened(numbered(number), at=number, agent_id=agent))

        def is_codex(found: Task) -> bool:
            return found.agent_id == "synapse-codex-8120"

        assert [found.id for found in await stopped.recent(2, is_codex, ME)] == [numbered(3), numbered(2)]
        assert len(await stopped.recent(50, is_codex, ME)) == 4


async def test_a_message_that_claims_to_be_from_the_system_is_not_queued(tmp_path: Path) -> None:
    async with left(tmp_path) as (stopped, store, _task):
        metadata = opening_metadata({}, Sender(sender_id=SYSTEM), verified=False)
        with pytest.raises(SenderMismatch):
            await stopped.of("ghost", "ghost").send(
                SendMessage(message=message(), dialect="synapse", metadata=metadata), ME
            )

        assert await store.open_tasks("ghost") == []


def queued(text: str = "hello", message_id: str = "m-9", **more: Any) -> SendMessage:
    said = Message(message_id=MessageId(message_id), role=Role.USER, parts=(TextPart(text=text),))
    return SendMessage(message=said, dialect="synapse", **more)


async def test_a_queued_message_cannot_fake_what_only_synapse_writes(tmp_path: Path) -> None:
    claims = {"user": "admin", "question": {"id": "q"}, "replied": "explicit", "reason": "expired", "plan": 1}
    async with left(tmp_path) as (stopped, _store, _task):
        task = await stopped.of("ghost", "ghost").send(queued(metadata=claims), ME)

        assert task.metadata == {"plan": 1, "sender_verified": False}
        assert task.sender_name == "unverified.user"


async def test_a_message_that_is_queued_again_makes_no_second_task_and_its_id_no_other_message(tmp_path: Path) -> None:
    async with left(tmp_path) as (stopped, store, _task):
        ghost = stopped.of("ghost", "ghost")
        first = await ghost.send(queued(), ME)

        assert (await ghost.send(queued(), ME)).id == first.id
        with pytest.raises(MessageIdReused):
            await ghost.send(queued("something else"), ME)
        assert [task.id for task in await store.open_tasks("ghost")] == [first.id]
        assert (await ghost.get_message(GetMessage("m-9"), ME)).id == first.id


OPENS = "0190a6c2-7d1e-7c3a-8f00-1234567890ab"
ON_LAPTOP = Caller(scope="machine:laptop", machine="laptop", remote_sender="synapse-claude-8100")
RECALLED = VoidMessage(message_id="m-9", opens=OPENS)


async def test_a_message_of_another_machine_is_queued_with_its_sender_and_task(tmp_path: Path) -> None:
    async with left(tmp_path) as (stopped, _store, _task):
        sender = Sender(sender_id="synapse-claude-8100", sender_type="claude", inbox="claude")
        asked = queued(opens=OPENS, sender=sender, response_expected=True, sender_task_id="t-1")
        task = await stopped.of("ghost", "ghost").send(asked, ON_LAPTOP)

        assert (task.id, task.scope, task.sender_name) == (OPENS, "machine:laptop", "synapse-claude-8100@laptop")
        assert (task.sender.inbox, task.reply_to) == ("laptop!claude", ReplyTo(task_id="t-1"))
        assert await stopped.of("ghost", "ghost").send(asked, ON_LAPTOP) == task


async def test_a_message_for_an_agent_that_nobody_has_can_be_taken_back(tmp_path: Path) -> None:
    async with left(tmp_path) as (stopped, store, _task):
        ghost = stopped.of("ghost", "ghost")
        claimed = await ghost.void(RECALLED, ON_LAPTOP)
        late = await ghost.send(queued(opens=OPENS), ON_LAPTOP)

        assert (claimed.id, claimed.state, claimed.inbox) == (OPENS, TaskState.CANCELED, "ghost")
        assert late == claimed == await ghost.void(RECALLED, ON_LAPTOP)
        assert await store.open_tasks("ghost") == []


async def test_a_queued_message_is_taken_back_in_whichever_inbox_it_waits(tmp_path: Path) -> None:
    async with left(tmp_path) as (stopped, _store, _task):
        task = await stopped.of("ghost", "ghost").send(queued(opens=OPENS), ON_LAPTOP)

        for other in (stopped, stopped.of("another", "another")):
            ended = await other.void(RECALLED, ON_LAPTOP)
            assert (ended.id, ended.inbox, ended.state) == (task.id, "ghost", TaskState.CANCELED)


async def test_a_message_that_expired_on_its_way_to_a_stopped_agent_fails_as_expired(tmp_path: Path) -> None:
    async with left(tmp_path) as (stopped, _store, _task):
        expired = VoidMessage(message_id="m-9", opens=OPENS, expired=True)
        ended = await stopped.of("ghost", "ghost").void(expired, ON_LAPTOP)

        assert (ended.state, ended.reason) == (TaskState.FAILED, "expired")


async def test_a_message_for_a_running_agent_is_taken_back_by_its_host(tmp_path: Path) -> None:
    async with left(tmp_path) as (stopped, store, task):
        assert await store.acquire(task.inbox, f"1:{start_time(1)}", nobody_lives)

        with pytest.raises(Conflict, match="is running"):
            await stopped.of(task.inbox, "").void(RECALLED, ON_LAPTOP)


@pytest.mark.parametrize("request_", [RECALLED, queued(opens=OPENS)])
async def test_only_the_link_chooses_the_id_of_a_queued_task(tmp_path: Path, request_: Request[Task]) -> None:
    async with left(tmp_path) as (stopped, _store, _task):
        act = method_for(stopped.of("ghost", "ghost"), request_)
        assert act is not None
        with pytest.raises(InvalidField, match="opens"):
            await act(request_, ME)


async def test_a_service_for_one_inbox_has_no_tasks_of_others_nor_of_another_scope(
    tmp_path: Path,
) -> None:
    async with left(tmp_path) as (stopped, _store, task):
        ghost = await stopped.of("ghost", "ghost").send(queued(), ME)
        stranger = Caller(scope="key:other")

        assert (await stopped.get(GetTask(task.id[:8]), ME)).id == task.id
        assert [one.id for one in (await stopped.of("ghost", "").list(ListTasks(), ME)).tasks] == [ghost.id]
        for wanted in (
            stopped.of("ghost", "").get(GetTask(task.id, exact=True), ME),
            stopped.get(GetTask(task.id, exact=True), stranger),
            stopped.cancel(CancelTask(task.id, exact=True), stranger),
            stopped.delete(DeleteTask(task_id=task.id), stranger),
        ):
            with pytest.raises(TaskNotFound):
                await wanted
        assert (await stopped.list(ListTasks(), stranger)).tasks == ()


async def test_what_needs_a_running_agent_is_refused(tmp_path: Path) -> None:
    async with left(tmp_path) as (stopped, _store, task):
        asked: tuple[Request[object], ...] = (
            SendAndWait(queued()),
            SubscribeTask(task_id=task.id),
            GetStatus(),
            ListPushConfigs(task_id=task.id),
        )
        for request in asked:
            method = method_for(stopped, request)
            assert method is not None
            with pytest.raises(UnsupportedOperation, match=f"is not running does not support {type(request).__name__}"):
                await method(request, ME)
        for send in (queued(), queued(task_id=task.id)):
            with pytest.raises(UnsupportedOperation, match="only a new message"):
                await stopped.send(send, ME)


async def test_a_search_ends_when_another_process_holds_the_index_and_does_not_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_STUCK_SECONDS", 0.0)
    monkeypatch.setattr(module, "_SEARCH_SECONDS", 0.0)
    seen: list[int] = []
    async with left(tmp_path) as (stopped, store, task):
        await store.update_search(1)
        await store.append(*_followed_up(task))
        with (tmp_path / "search.db.lock").open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            with pytest.raises(StoreLocked, match="holds the search index"):
                await stopped.update_search(lambda progress: seen.append(progress.seq))

        await stopped.update_search(lambda progress: seen.append(progress.seq))
        assert [one.id for one in await stopped.recent(5, lambda _: True, ME, text="later")] == [task.id]
    assert seen[:2] == [1, 1]


def _followed_up(task: Task) -> tuple[Task, list[TaskEvent]]:
    later = said("later words", task.id)
    return rebuild(task, [later]), [later]
