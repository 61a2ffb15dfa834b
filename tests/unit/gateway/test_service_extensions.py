"""Required extensions at a gateway: checked for callers who may see the agent, whichever side declares them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from synapse.core.errors import AgentNotFound, ExtensionRequired, TaskNotFound
from synapse.core.extension import Extension
from synapse.core.requests import ForAgent, GetTask, ListTasks, Request, SendAndWait
from synapse.core.task import TaskState
from tests.fakes.gateway_world import BOB_NAME, LAPTOP, message, world

PLAN = Extension(uri="urn:plan", required=True)
PACE = Extension(uri="urn:pace", required=True)
NOTHING: frozenset[str] = frozenset()


async def test_a_required_extension_must_be_named_in_every_request() -> None:
    async with world() as gateway:
        gateway.extensions["ada"] = (PLAN,)
        gateway.told["ada"] = (PACE,)
        asked: tuple[Request[object], ...] = (
            SendAndWait(message()),
            GetTask("no-such-task", exact=True),
            ListTasks(),
        )
        for request in asked:
            with pytest.raises(ExtensionRequired, match=r"urn:pace$"):
                await gateway.ask(ForAgent("ada", request, frozenset({"urn:plan"})))

        both = frozenset({"urn:plan", "urn:pace"})
        assert (await gateway.ask(ForAgent("ada", SendAndWait(message()), both))).state is TaskState.COMPLETED


async def test_nothing_is_required_in_other_dialects_nor_of_other_agents() -> None:
    async with world() as gateway:
        gateway.extensions["ada"] = (PLAN,)

        for request in (
            ForAgent("ada", SendAndWait(message())),
            ForAgent(BOB_NAME, SendAndWait(message()), NOTHING),
        ):
            assert (await gateway.ask(request)).state is TaskState.COMPLETED
        with pytest.raises(TaskNotFound):
            await gateway.ask(ForAgent("ada", GetTask("no-such-task", exact=True), frozenset({"urn:plan"})))


async def test_a_caller_who_may_not_see_an_agent_does_not_learn_what_it_requires() -> None:
    async with world() as gateway:
        gateway.extensions["ada"] = (PLAN,)

        stranger = replace(LAPTOP, agents=frozenset({"bob"}))
        with pytest.raises(AgentNotFound):
            await gateway.service.handle(ForAgent("ada", ListTasks(), NOTHING), stranger)
