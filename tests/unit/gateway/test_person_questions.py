"""Questions of an agent's own at a gateway: listed as a task that asks, answered by a key that may approve."""

from __future__ import annotations

import pytest

from synapse.core.caller import APPROVE, READ, SEND, Caller
from synapse.core.errors import PersonRequired, TaskNotFound
from synapse.core.requests import AnswerQuestion, AskPerson, ForAgent, GetTask, SendMessage
from synapse.core.task import Task, TaskState
from tests.fakes.gateway_world import ADA, LAPTOP, world
from tests.fakes.harness import AgentHarness, say

MAY_APPROVE = Caller(scope="key:operator", sees_all=True, actions=frozenset({READ, SEND, APPROVE}), name="operator")
MAY_SEND = Caller(scope="key:helper", sees_all=True, actions=frozenset({READ, SEND}), name="helper")


async def asked(harness: AgentHarness) -> Task:
    request = AskPerson(message=say("Which branch?"), dialect="synapse", options=("main", "develop"))
    return await harness.service.handle(request, Caller(agent_id=ADA.agent_id, via_socket=True))


@pytest.mark.parametrize("by_message", [False, True])
async def test_a_key_that_may_approve_answers(by_message: bool) -> None:
    async with world() as here:
        question = await asked(here.desks["ada"])
        shown = await here.ask(ForAgent("ada", GetTask(question.id)), MAY_APPROVE)
        assert (shown.state, shown.question.title) == (TaskState.INPUT_REQUIRED, "Which branch?")
        request = (
            SendMessage(message=say("develop"), dialect="a2a", task_id=question.id, exact=True)
            if by_message
            else AnswerQuestion(task_id=question.id, option="2")
        )
        await here.ask(ForAgent("ada", request), MAY_APPROVE)
        done = await here.ask(ForAgent("ada", GetTask(question.id)), MAY_APPROVE)

    assert (done.state, done.artifacts[0].text) == (TaskState.COMPLETED, "develop")
    assert done.metadata["answered"]["by"] == "operator"


async def test_other_keys_do_not() -> None:
    async with world() as here:
        question = await asked(here.desks["ada"])
        message = SendMessage(message=say("develop"), dialect="a2a", task_id=question.id, exact=True)
        with pytest.raises(PersonRequired):
            await here.ask(ForAgent("ada", message), MAY_SEND)
        with pytest.raises(TaskNotFound):
            await here.ask(ForAgent("ada", message), LAPTOP)
        assert (await here.ask(ForAgent("ada", GetTask(question.id)), MAY_SEND)).question is not None
