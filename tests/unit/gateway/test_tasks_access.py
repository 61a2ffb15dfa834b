"""Tasks and agents that a caller may not see look missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from synapse.core.caller import CANCEL, READ, SEND, Caller
from synapse.core.errors import AgentNotFound, Forbidden, PersonRequired, TaskNotFound, UnsupportedOperation
from synapse.core.requests import (
    CancelTask,
    ChangeTask,
    DeleteTask,
    FollowTask,
    ForAgent,
    GetMessage,
    GetTask,
    GetTimeline,
    ListAgents,
    ListPushConfigs,
    ListTasks,
    OnBehalfOf,
    RegisterAgent,
    Request,
    SendAndWait,
    SubscribeTask,
)
from synapse.core.store import TaskPage
from synapse.core.task import SHORT_ID_LENGTH, TaskState
from synapse.gateway import tasks
from tests.fakes.gateway_world import (
    ADA,
    BOB_NAME,
    LAPTOP,
    OPERATOR,
    PHONE,
    fleet_world,
    message,
    questions,
    world,
)


@pytest.mark.parametrize("agent", ["", "ada"])
async def test_tasks_of_another_caller_look_missing(agent: str) -> None:
    async with world() as gateway:
        task = await gateway.sent()

        def about(request: Request[object]) -> Request[object]:
            return ForAgent(agent, request) if agent else request

        for request in (
            GetTask(task.id, exact=True),
            CancelTask(task.id, exact=True),
            ChangeTask(task_id=task.id, metadata={"a": 1}),
            SubscribeTask(task_id=task.id),
            FollowTask(task_id=task.id),
        ):
            with pytest.raises(TaskNotFound) as foreign:
                await gateway.ask(about(request), PHONE)
            missing = replace(request, task_id="no-such")
            with pytest.raises(TaskNotFound) as unknown:
                await gateway.ask(about(missing), PHONE)
            assert str(foreign.value).replace(task.id, "") == str(unknown.value).replace("no-such", "")


async def test_a_follow_up_to_a_task_of_another_caller_finds_none() -> None:
    async with world(questions()) as gateway:
        task = await gateway.ask(ForAgent("ada", SendAndWait(message())))
        with pytest.raises(TaskNotFound):
            await gateway.sent(caller=PHONE, task_id=task.id)


async def test_lists_show_what_the_caller_sees() -> None:
    async with world() as gateway:
        await gateway.desks["ada"].send("local")
        mine, other = await gateway.sent("a"), await gateway.sent("b", PHONE, BOB_NAME)

        async def ids(request: Request[object], caller: Caller) -> set[str]:
            page: TaskPage = await gateway.ask(request, caller)
            assert page.total == len(page.tasks)
            return {task.message.text for task in page.tasks}

        assert await ids(ForAgent("ada", ListTasks()), LAPTOP) == {"a"}
        assert await ids(ListTasks(), LAPTOP) == {"a"}
        assert await ids(ListTasks(agent=BOB_NAME), PHONE) == {"b"}
        assert await ids(ListTasks(), OPERATOR) == {"local", "a", "b"}
        assert await ids(ListTasks(), replace(OPERATOR, agents=frozenset({"ada"}))) == {"local", "a"}
        assert (mine.inbox, other.inbox) == ("ada", "codex@/proj")


async def test_a_prefix_of_an_id_is_not_enough_at_a_gateway() -> None:
    async with world() as gateway:
        await gateway.sent("a")
        await gateway.sent("b", PHONE)
        for request in (GetTask("0"), SubscribeTask(task_id="0"), CancelTask("0")):
            with pytest.raises(TaskNotFound):
                await gateway.ask(request)


async def test_a_short_id_reads_the_only_task_that_the_caller_sees() -> None:
    async with world() as gateway:
        task = await gateway.sent("a")
        prefix = task.id[:SHORT_ID_LENGTH]

        assert (await gateway.ask(GetTask(prefix))).id == task.id
        for request, caller in (
            (GetTask(prefix), PHONE),
            (GetTask(prefix, exact=True), LAPTOP),
            (GetTask(prefix[:-1]), LAPTOP),
            (SubscribeTask(task_id=prefix), LAPTOP),
            (CancelTask(prefix), LAPTOP),
        ):
            with pytest.raises(TaskNotFound):
                await gateway.ask(request, caller)


async def test_a_short_id_of_several_tasks_reads_none_unless_the_caller_sees_only_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "SHORT_ID_LENGTH", 4)  # by which the ids of these tests are the same
    async with world() as gateway:
        mine, theirs = await gateway.sent("a"), await gateway.sent("b", PHONE)
        prefix = mine.id[:4]
        assert theirs.id.startswith(prefix)

        assert (await gateway.ask(GetTask(prefix))).id == mine.id
        with pytest.raises(TaskNotFound):
            await gateway.ask(GetTask(prefix), OPERATOR)


async def test_a_key_for_one_agent_knows_no_other() -> None:
    async with world() as gateway:
        only_ada = replace(LAPTOP, agents=frozenset({"ada"}))
        with pytest.raises(AgentNotFound) as hidden:
            await gateway.sent(caller=only_ada, agent=BOB_NAME)
        with pytest.raises(AgentNotFound) as unknown:
            await gateway.sent(caller=LAPTOP, agent="nobody")
        assert hidden.value.hint == unknown.value.hint
        assert [one.id for one in await gateway.ask(ListAgents(), only_ada)] == ["ada"]
        theirs = await gateway.sent("x", OPERATOR, BOB_NAME)
        with pytest.raises(TaskNotFound):
            await gateway.ask(GetTask(theirs.id), replace(OPERATOR, agents=frozenset({"ada"})))
        with pytest.raises(AgentNotFound):
            await gateway.ask(ListTasks(agent=BOB_NAME), replace(OPERATOR, agents=frozenset({"ada"})))


async def test_a_caller_with_read_access_can_only_read() -> None:
    async with world() as gateway:
        task = await gateway.sent()
        reader = replace(LAPTOP, actions=frozenset({"read"}))
        assert (await gateway.ask(ForAgent("ada", GetTask(task.id)), reader)).id == task.id
        with pytest.raises(Forbidden):
            await gateway.sent(caller=reader)
        with pytest.raises(Forbidden):
            await gateway.ask(RegisterAgent(url="https://x.example", agent="x"), reader)


async def test_a_task_of_another_agent_is_no_task_of_this_one() -> None:
    async with world() as gateway:
        task = await gateway.sent()
        with pytest.raises(TaskNotFound):
            await gateway.ask(ForAgent(BOB_NAME, GetTask(task.id, exact=True)))


async def test_tasks_of_a_stopped_agent_are_read_and_canceled_but_nothing_is_sent_to_it() -> None:
    async with world() as gateway:
        named, unnamed = await gateway.sent("a"), await gateway.sent("b", agent=BOB_NAME)
        gateway.desks = {}

        for agent, task in (("ada", named), (BOB_NAME, unnamed)):
            assert (await gateway.ask(ForAgent(agent, GetTask(task.id, exact=True)))).id == task.id
            assert (await gateway.ask(GetTask(task.id))).id == task.id
            assert [one.id for one in (await gateway.ask(ForAgent(agent, ListTasks()))).tasks] == [task.id]
            assert gateway.directory.name_of(task) == agent
            assert (await gateway.ask(ForAgent(agent, CancelTask(task.id)))).state is TaskState.CANCELED
            with pytest.raises(AgentNotFound, match=agent) as gone:
                await gateway.sent(agent=agent)
            assert "does not run" in gone.value.hint
            with pytest.raises(AgentNotFound):
                await gateway.ask(ForAgent(agent, ListPushConfigs(task_id=task.id)))
            await gateway.ask(ForAgent(agent, ChangeTask(task_id=task.id, metadata={"a": 1})))
            await gateway.ask(DeleteTask(task_id=task.id))
            assert gateway.stopped.changed[-2:] == [(task.id, ChangeTask), (task.id, DeleteTask)]
            # A caller who sees none of its tasks does not learn that it existed.
            for request in (message(), GetTask(task.id, exact=True), ListTasks()):
                with pytest.raises(AgentNotFound) as unknown:
                    await gateway.ask(ForAgent(agent, request), PHONE)
                assert "does not run" not in unknown.value.hint
        assert gateway.stopped.canceled == [named.id, unnamed.id]


async def test_an_agent_that_never_existed_has_no_tasks() -> None:
    async with world() as gateway:
        for request in (GetTask("t", exact=True), ListTasks(), CancelTask("t"), SubscribeTask(task_id="t")):
            with pytest.raises(AgentNotFound):
                await gateway.ask(ForAgent("nobody", request))


async def test_a_host_speaks_for_others_only_to_a_person_on_its_socket() -> None:
    async with world() as gateway:
        harness = gateway.desks["ada"]
        request = OnBehalfOf(LAPTOP, message())
        for caller in (Caller(), Caller(via_socket=True, agent_id="synapse-claude-8100")):
            with pytest.raises(PersonRequired):
                await harness.service.handle(request, caller)
        with pytest.raises(UnsupportedOperation):
            await harness.service.handle(OnBehalfOf(LAPTOP, request), Caller(via_socket=True))


@pytest.mark.parametrize(
    "caller",
    [
        Caller(via_socket=True, agent_id=ADA.agent_id),
        Caller(via_socket=True, doubt="it has exited"),
        Caller(is_owner=True),
        Caller(name="ci", key_id="0123456789ab", actions=frozenset({READ, SEND, CANCEL})),
    ],
    ids=["agent", "unproven", "owner", "key of the user's scope"],
)
async def test_a_caller_of_the_users_scope_that_is_no_person_finds_only_own_tasks_on_other_machines(
    caller: Caller,
) -> None:
    async with fleet_world() as here:
        theirs = await here.desks["carl"].finished(await here.desks["carl"].send("secret", caller=Caller()))
        relayed = Caller(scope="machine:hub", machine="hub", remote_sender=ADA.agent_id)
        by_link = await here.desks["carl"].send("of hub's link", caller=relayed)
        own = await here.sent("mine", caller, "carl@box2")
        local = await here.sent("near", Caller(), "ada")
        requests: list[Request[Any]] = [
            GetTask(theirs.id),
            GetTask(theirs.short_id),
            GetMessage(theirs.message.message_id),
            CancelTask(task_id=theirs.id),
            DeleteTask(task_id=theirs.id),
            ChangeTask(task_id=theirs.id, metadata={"a": 1}),
            SubscribeTask(task_id=theirs.id),
            GetTimeline(task_id=theirs.id),
            ForAgent("carl@box2", message("more", task_id=theirs.id)),
        ]
        for request in requests:
            with pytest.raises(TaskNotFound):
                await here.ask(request, caller)
        page = await here.ask(ListTasks(), caller)
        of_carl = await here.ask(ForAgent("carl@box2", ListTasks()), caller)

        assert {task.id for task in page.tasks} == {by_link.id, own.id, local.id}
        assert {task.id for task in of_carl.tasks} == {by_link.id, own.id}
        assert (await here.ask(GetTask(own.id), caller)).id == own.id
        assert theirs.id in {task.id for task in (await here.ask(ListTasks(), Caller(via_socket=True))).tasks}


async def test_a_page_of_a_process_is_filled_from_the_tasks_that_it_may_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "READ_AT_ONCE", 4)
    agent = Caller(via_socket=True, agent_id=ADA.agent_id)
    async with fleet_world() as here:
        own = [(await here.sent(f"mine {number}", agent, "carl@box2")).id for number in range(3)]
        for number in range(9):
            await here.desks["carl"].send(f"secret {number}", caller=Caller())

        page = await here.ask(ListTasks(limit=2), agent)
        then = await here.ask(ListTasks(limit=2, cursor=page.next_cursor), agent)

        assert [[task.id for task in one.tasks] for one in (page, then)] == [own[:0:-1], own[:1]]
        assert (then.next_cursor, then.is_counted) == ("", False), "how many there are of others is not told"
