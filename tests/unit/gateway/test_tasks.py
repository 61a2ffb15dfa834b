"""A gateway over real parts: reads come from the store, commands go to the owner, streams follow the log."""

from __future__ import annotations

import asyncio

import pytest

from synapse.core.agent import READY
from synapse.core.errors import (
    AgentNotFound,
    Conflict,
    NotFound,
    UnsupportedOperation,
)
from synapse.core.events import StateChanged
from synapse.core.requests import (
    AnswerQuestion,
    CancelTask,
    FollowTask,
    ForAgent,
    GetAgent,
    GetMessage,
    GetStatus,
    GetTask,
    ListAgents,
    ListTasks,
    RegisterAgent,
    RemoveAgent,
    SendAndFollow,
    SendAndWait,
    SubscribeTask,
)
from synapse.core.task import TaskState
from tests.fakes.driver import FakeDriver
from tests.fakes.gateway_world import (
    BOB_NAME,
    BOUND,
    LAPTOP,
    PHONE,
    everything,
    message,
    questions,
    world,
)


async def test_a_message_goes_to_the_agent_and_the_answer_comes_from_the_store() -> None:
    async with world() as gateway:
        task = await gateway.ask(ForAgent("ada", SendAndWait(message("hi"))))

        assert task.state is TaskState.COMPLETED
        assert task.artifacts[0].text == "echo: hi"
        assert (task.inbox, task.scope) == ("ada", "key:laptop")
        assert await gateway.ask(ForAgent("ada", GetTask(task.id, exact=True))) == task
        assert await gateway.ask(ForAgent("ada", GetTask(f"ada:{task.id}", exact=True))) == task
        assert await gateway.ask(GetTask(task.id)) == task


async def test_an_agent_without_a_given_name_is_found_by_its_id() -> None:
    async with world() as gateway:
        task = await gateway.ask(ForAgent(BOB_NAME, SendAndWait(message())))

        assert task.inbox == "codex@/proj"
        assert gateway.directory.name_of(task) == BOB_NAME


async def test_a_stream_begins_with_the_task_as_it_was_sent_however_fast_the_agent_is() -> None:
    async with world() as gateway:
        updates = await gateway.ask(ForAgent("ada", SendAndFollow(message())))
        first = await anext(updates)
        await gateway.desks["ada"].finished(first.task)

        rest = await everything(updates)

        assert (first.event, first.task.state) == (None, TaskState.SUBMITTED)
        versions = [update.task.version for update in (first, *rest)]
        assert versions == list(range(versions[0], versions[0] + len(versions)))
        assert rest[-1].task.state is TaskState.COMPLETED


async def test_a_stream_ends_when_the_agent_asks_and_a_follow_up_goes_on() -> None:
    async with world(questions()) as gateway:
        *_, last = await everything(await gateway.ask(ForAgent("ada", SendAndFollow(message()))))
        assert isinstance(last.event, StateChanged)
        assert last.task.state is TaskState.INPUT_REQUIRED

        done = await gateway.ask(ForAgent("ada", SendAndWait(message("this one", task_id=last.task.id))))

        assert (done.id, done.state) == (last.task.id, TaskState.COMPLETED)


async def test_an_agent_that_answers_with_a_plain_message_shows_no_task() -> None:
    async with world() as gateway:
        gateway.answer_directly("ada")

        updates = await everything(await gateway.ask(ForAgent("ada", SendAndFollow(message()))))

        assert [(update.event, update.task.state) for update in updates] == [(None, TaskState.COMPLETED)]


async def test_cancelling_a_wait_does_not_cancel_the_task() -> None:
    driver = FakeDriver()
    driver.go_on.clear()
    async with world(driver) as gateway:
        sent = await gateway.service.handle(ForAgent("ada", SendAndWait(message())), LAPTOP)
        pending = asyncio.ensure_future(sent.settled())
        async with asyncio.timeout(BOUND):
            await driver.taken.wait()
        pending.cancel()
        await asyncio.wait({pending}, timeout=BOUND)
        driver.go_on.set()

        page = await gateway.ask(ForAgent("ada", ListTasks()))
        assert (await gateway.desks["ada"].finished(page.tasks[0])).state is TaskState.COMPLETED


async def test_a_running_task_is_canceled_by_its_owner() -> None:
    driver = FakeDriver()
    driver.go_on.clear()
    async with world(driver) as gateway:
        task = await gateway.sent()
        async with asyncio.timeout(BOUND):
            await driver.taken.wait()

        canceled = await gateway.ask(ForAgent("ada", CancelTask(task.id, exact=True)))

        assert (canceled.id, canceled.state) == (task.id, TaskState.CANCELED)
        driver.go_on.set()


async def test_a_finished_task_is_not_followed_but_resumed() -> None:
    async with world() as gateway:
        task = await gateway.ask(ForAgent("ada", SendAndWait(message())))
        with pytest.raises(UnsupportedOperation):
            await gateway.ask(ForAgent("ada", FollowTask(task_id=task.id)))
        log = await everything(await gateway.ask(ForAgent("ada", FollowTask(task_id=task.id, after=0))))
        (snapshot,) = await everything(await gateway.ask(ForAgent("ada", SubscribeTask(task_id=task.id))))

        assert [update.seq for update in log] == list(range(1, len(log) + 1))
        assert snapshot.task.state is TaskState.COMPLETED


async def test_the_sender_of_a_message_finds_it_by_its_id() -> None:
    async with world() as gateway:
        task = await gateway.ask(ForAgent("ada", message("hi", "m-7")))
        assert (await gateway.ask(GetMessage("m-7"))).id == task.id
        for caller, wanted in ((PHONE, "m-7"), (LAPTOP, "m-8")):
            with pytest.raises(NotFound):
                await gateway.ask(GetMessage(wanted), caller)


async def test_agents_are_listed_registered_and_removed() -> None:
    async with world() as gateway:
        assert [(one.id, one.state) for one in await gateway.ask(ListAgents())] == [
            ("ada", READY),
            (BOB_NAME, READY),
        ]
        assert (await gateway.ask(GetAgent("ada"))).id == "ada"
        with pytest.raises(AgentNotFound):
            await gateway.ask(GetAgent("nobody"))
        await gateway.ask(RegisterAgent(url="https://x.example", agent="ada"))
        await gateway.ask(RemoveAgent("ada"))
        assert gateway.registration.done == ["registered https://x.example", "removed ada"]


async def test_an_error_of_the_owner_is_the_callers_error() -> None:
    driver = FakeDriver()
    driver.go_on.clear()
    async with world(driver) as gateway:
        task = await gateway.sent()
        with pytest.raises(Conflict):
            await gateway.sent(task_id=task.id)
        with pytest.raises(Conflict):
            await gateway.ask(ForAgent("ada", AnswerQuestion(verdict="allow")))
        driver.go_on.set()


async def test_requests_that_only_a_host_serves_are_unsupported_at_a_gateway() -> None:
    async with world() as gateway:
        with pytest.raises(UnsupportedOperation):
            await gateway.ask(ForAgent("ada", GetStatus()))
