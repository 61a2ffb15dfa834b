"""The updates of a remote stream, and streams that break off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any, cast

import pytest

from synapse.client.events import ServerEvent
from synapse.core.errors import ExternalAgentFailed, ExternalAgentUnreachable
from synapse.external.card import A2A_1_0, Interface
from synapse.external.client import RemoteInterface
from synapse.external.requests import RemoteRequests

TASK = ServerEvent("1", "", '{"task": {"id": "t", "status": {"state": "TASK_STATE_WORKING"}}}')
ENDS = '{"error": {"code": 503, "status": "UNAVAILABLE", "message": "this server ends"}}'
BROKEN = [
    ServerEvent("1", "error", ENDS),
    ServerEvent("1", "error", '{"type": "AgentUnavailableError", "message": "this server ends"}'),
    ServerEvent("1", "", '{"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "this server ends"}}'),
]


class Stream:
    """Requests whose streams have these events."""

    def __init__(self, *events: ServerEvent) -> None:
        self._events = events

    async def follow(self, _call: Any) -> AsyncGenerator[ServerEvent, None]:
        for event in self._events:
            yield event


def followed(*events: ServerEvent) -> Sequence[Any]:
    way = RemoteInterface(Interface(protocol=A2A_1_0, binding="JSONRPC", url="http://other", streaming=True), {})

    async def all_of_it() -> Sequence[Any]:
        return [said async for said in way.follow(cast("RemoteRequests", Stream(*events)), "t")]

    return asyncio.run(all_of_it())


@pytest.mark.parametrize("last", BROKEN, ids=["1.0", "0.3 REST", "JSON-RPC"])
def test_an_agent_whose_stream_breaks_off_counts_as_unreachable(last: ServerEvent) -> None:
    with pytest.raises(ExternalAgentUnreachable, match="its stream broke off: this server ends"):
        followed(TASK, last)


@pytest.mark.parametrize("first", [BROKEN[0], BROKEN[2]], ids=["1.0", "JSON-RPC"])
def test_an_error_in_place_of_a_stream_is_a_refusal(first: ServerEvent) -> None:
    with pytest.raises(ExternalAgentFailed, match="it refused: this server ends"):
        followed(first)


def test_each_update_of_a_stream_is_yielded() -> None:
    assert [said["task"]["id"] for said in followed(TASK, TASK)] == ["t", "t"]
