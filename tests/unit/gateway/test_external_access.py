"""Who may choose the addresses that a host calls."""

from __future__ import annotations

from typing import Any

import pytest

from synapse.core.caller import Caller
from synapse.core.errors import PersonRequired
from synapse.core.requests import AddExternal, ListExternals, RemoveExternal, SendExternal
from tests.fakes.harness import CLAUDE, AgentHarness, say

AN_AGENT = Caller(via_socket=True, agent_id=CLAUDE.agent_id)
LEFT_BEHIND = Caller(via_socket=True, doubt="it was started by an agent")
ADD, REMOVE = AddExternal(url="http://other:9000"), RemoveExternal("other")
LIST, SEND = ListExternals(), SendExternal(alias="other", message=say("hello"))


class Notes:
    """Records the requests about external agents."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def add(self, request: Any) -> None:
        self.asked.append(request)

    remove = send = add

    async def list(self) -> None:
        self.asked.append(LIST)


async def ask(request: Any, caller: Caller) -> list[Any]:
    harness, notes = AgentHarness(), Notes()
    harness.service._externals = notes  # type: ignore[assignment]  # needs neither a store nor a client
    await _handled(harness, request, caller)
    return notes.asked


async def _handled(harness: AgentHarness, request: Any, caller: Caller) -> None:
    await harness.service.handle(request, caller)


@pytest.mark.parametrize("caller", [AN_AGENT, LEFT_BEHIND], ids=["an agent", "a process that it left behind"])
@pytest.mark.parametrize("request_", [ADD, REMOVE], ids=["add", "remove"])
async def test_an_agent_may_neither_add_nor_remove_external_agents(request_: Any, caller: Caller) -> None:
    with pytest.raises(PersonRequired, match="only a person may add and remove"):
        await ask(request_, caller)


@pytest.mark.parametrize("caller", [Caller(via_socket=True), Caller()], ids=["a person", "this user on the port"])
@pytest.mark.parametrize("request_", [ADD, REMOVE], ids=["add", "remove"])
async def test_a_person_may_add_and_remove_external_agents(request_: Any, caller: Caller) -> None:
    assert await ask(request_, caller) == [request_]


@pytest.mark.parametrize("request_", [LIST, SEND], ids=["list", "send"])
async def test_an_agent_may_list_and_use_known_external_agents(request_: Any) -> None:
    assert await ask(request_, AN_AGENT) == [request_]
