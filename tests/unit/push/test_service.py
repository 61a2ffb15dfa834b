"""Push configurations: set with a message or later, visible to callers who see the task."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from synapse.core.caller import Caller
from synapse.core.errors import (
    InvalidField,
    InvalidRequest,
    PushConfigNotFound,
    PushNotSupported,
    TaskFinished,
    TaskNotFound,
)
from synapse.core.push import PushConfig
from synapse.core.requests import (
    DeletePushConfig,
    GetPushConfig,
    ListPushConfigs,
    ListTasks,
    SendAndWait,
    SendMessage,
    SetPushConfig,
)
from synapse.push.service import MAX_PER_TASK
from tests.fakes.harness import AgentHarness, say, working

CONFIG = PushConfig(url="https://example.com/h", token="t", scheme="bearer", credentials="c", dialect="a2a_v1")
STRANGER = Caller(scope="key:other")


async def ask(harness: AgentHarness, request: Any, caller: Caller | None = None) -> Any:
    return await harness.service.handle(request, caller or Caller())


async def test_a_configuration_is_set_read_listed_and_deleted() -> None:
    async with asyncio.timeout(10):
        harness = AgentHarness()
        task = await harness.send("hello")
        kept = await ask(harness, SetPushConfig(task_id=task.id, config=CONFIG))
        assert kept == replace(CONFIG, id=kept.id)
        assert kept.id

        assert await ask(harness, GetPushConfig(task_id=task.id, config_id=kept.id)) == kept
        assert await ask(harness, GetPushConfig(task_id=task.id)) == kept
        assert await ask(harness, ListPushConfigs(task_id=task.id)) == (kept,)

        for _ in range(2):
            await ask(harness, DeletePushConfig(task_id=task.id, config_id=kept.id))
        assert await ask(harness, ListPushConfigs(task_id=task.id)) == ()
        with pytest.raises(PushConfigNotFound):
            await ask(harness, GetPushConfig(task_id=task.id, config_id=kept.id))


async def test_two_configurations_without_an_id_are_two_and_a_get_without_an_id_fails() -> None:
    async with asyncio.timeout(10):
        harness = AgentHarness()
        task = await harness.send("hello")
        for _ in range(2):
            await ask(harness, SetPushConfig(task_id=task.id, config=CONFIG))

        assert len(await ask(harness, ListPushConfigs(task_id=task.id))) == 2
        with pytest.raises(PushConfigNotFound):
            await ask(harness, GetPushConfig(task_id=task.id))


async def test_a_new_configuration_starts_now_and_reaches_the_outbox() -> None:
    async with asyncio.timeout(10):
        harness = AgentHarness()
        task = await harness.send("hello")
        await ask(harness, SetPushConfig(task_id=task.id, config=CONFIG))

        (saved,) = harness.saved
        assert saved.told == (await harness.journal.snapshot(task.id)).seq
        assert (saved.task_id, saved.inbox) == (task.id, task.inbox)


def requests_about(task_id: str) -> list[Any]:
    return [
        SetPushConfig(task_id=task_id, config=CONFIG),
        GetPushConfig(task_id=task_id, config_id="c"),
        ListPushConfigs(task_id=task_id),
        DeletePushConfig(task_id=task_id, config_id="c"),
    ]


async def test_the_webhooks_of_a_foreign_task_look_like_those_of_a_missing_one() -> None:
    async with asyncio.timeout(10):
        harness = AgentHarness()
        task = await harness.send("hello")

        for caller, task_id in ((STRANGER, task.id), (Caller(), "no-such-task"), (Caller(), task.id[:8])):
            for request in requests_about(task_id):
                with pytest.raises(TaskNotFound):
                    await ask(harness, request, caller)


@pytest.mark.parametrize(
    "wrong",
    [
        replace(CONFIG, url="https://private.example"),
        replace(CONFIG, token="a\r\nX-Evil: 1"),
        replace(CONFIG, credentials="a\nb"),
        replace(CONFIG, credentials="\N{SNOWMAN}"),
        replace(CONFIG, scheme="bea rer"),
    ],
)
async def test_an_invalid_webhook_is_refused_and_nothing_is_stored_or_sent(wrong: PushConfig) -> None:
    async with asyncio.timeout(10):
        harness = AgentHarness()
        task = await harness.send("hello")
        with pytest.raises(InvalidField):
            await ask(harness, SetPushConfig(task_id=task.id, config=wrong))
        with pytest.raises(InvalidField):
            await harness.send("another", push=wrong)

        assert await ask(harness, ListPushConfigs(task_id=task.id)) == ()
        assert (await ask(harness, ListTasks())).total == 1


async def test_a_task_has_a_limit_of_webhooks() -> None:
    async with asyncio.timeout(10):
        harness = AgentHarness()
        task = await harness.send("hello")
        for number in range(MAX_PER_TASK):
            await ask(harness, SetPushConfig(task_id=task.id, config=replace(CONFIG, id=f"c-{number}")))

        with pytest.raises(InvalidRequest):
            await ask(harness, SetPushConfig(task_id=task.id, config=CONFIG))
        await ask(harness, SetPushConfig(task_id=task.id, config=replace(CONFIG, id="c-0", token="new")))


async def test_a_webhook_in_a_message_gets_the_task_from_its_opening() -> None:
    async with asyncio.timeout(10):
        harness = AgentHarness()
        task = await harness.send("hello", push=CONFIG)

        (saved,) = harness.saved
        assert (saved.task_id, saved.told) == (task.id, 0)


async def test_a_message_that_is_sent_twice_has_one_webhook() -> None:
    async with asyncio.timeout(10):
        harness = AgentHarness()
        request = SendMessage(message=say("hello", "m-1"), dialect="a2a_v1", push=CONFIG)
        first, again = await ask(harness, request), await ask(harness, request)

        assert first.id == again.id
        assert len(await ask(harness, ListPushConfigs(task_id=first.id))) == 1


async def test_a_caller_that_waits_gets_the_answer_although_there_is_a_webhook() -> None:
    async with asyncio.timeout(10):
        harness = AgentHarness()
        async with working(harness):
            request = SendMessage(message=say("hello"), dialect="a2a_v1", push=CONFIG)
            pending = await harness.service.send_and_wait(SendAndWait(request), Caller())
            task = await pending.settled()

        assert task.state.is_terminal


async def test_a_message_to_a_finished_task_brings_no_webhook() -> None:
    async with asyncio.timeout(10):
        harness = AgentHarness()
        async with working(harness):
            task = await harness.finished(await harness.send("hello"))
            with pytest.raises(TaskFinished):
                await harness.send("more", task_id=task.id, push=CONFIG)

            with pytest.raises(TaskNotFound):
                await harness.send("more", task_id="no-such-task", push=CONFIG)

        assert await ask(harness, ListPushConfigs(task_id=task.id)) == ()


async def test_an_agent_without_push_notifications_says_so() -> None:
    async with asyncio.timeout(10):
        harness = AgentHarness(has_push=False)
        task = await harness.send("hello")
        for request in (ListPushConfigs(task_id=task.id), SendMessage(message=say("x"), dialect="x", push=CONFIG)):
            with pytest.raises(PushNotSupported):
                await ask(harness, request)


async def test_a_named_caller_is_noted_and_lists_its_own() -> None:
    async with asyncio.timeout(10):
        harness = AgentHarness()
        ada, bob = Caller(name="ada"), Caller(name="bob")
        task = await harness.send("hello", caller=ada, metadata={"request": {"project": "x"}})
        await harness.send("other", caller=bob)

        assert task.metadata["user"] == "ada"
        for wanted in (ListTasks(user="ada"), ListTasks(metadata={"request": {"project": "x"}})):
            assert [one.id for one in (await ask(harness, wanted)).tasks] == [task.id]


async def test_a_task_can_be_part_of_one_that_its_sender_sees() -> None:
    async with asyncio.timeout(10):
        harness = AgentHarness()
        parent = await harness.send("whole")
        child = await harness.send("part", parent_id=parent.id)

        assert child.parent_id == parent.id
        assert [one.id for one in (await ask(harness, ListTasks(parent_id=parent.id))).tasks] == [child.id]
        for caller, parent_id in ((STRANGER, parent.id), (Caller(), "nobody")):
            with pytest.raises(InvalidField):
                await harness.send("part", caller=caller, parent_id=parent_id)


async def test_a_message_without_an_id_is_found_by_the_one_that_it_was_given() -> None:
    async with asyncio.timeout(10):
        harness = AgentHarness()
        task = await harness.send("hello")
        known = await harness.store.find_message("", task.scope, task.message.message_id)

        assert known is not None
        assert known.task_id == task.id
