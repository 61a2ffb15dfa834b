"""The API of the link: what commands are told while this machine, or another one, has no connection."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from synapse.core.errors import AgentNotFound, LinkDown, TaskNotFound, to_wire
from synapse.fleet.bus import NotConnected
from synapse.fleet.relay_io import OutboxRow, OutboxState
from synapse.link.api import LinkApi
from tests.unit.link.test_database import ROW


async def test_without_a_connection_nobody_is_told_that_no_agent_waits() -> None:
    async def all_machines() -> None:
        raise NotConnected("nothing listens at box1:4222")

    fleet = SimpleNamespace(machines=SimpleNamespace(all=all_machines))
    api = LinkApi(cast("Any", fleet), cast("Any", None), status=cast("Any", None), metrics=cast("Any", None))

    with pytest.raises(LinkDown, match="nothing listens at box1:4222"):
        await api.approvals(cast("Any", None), cast("Any", None), cast("Any", SimpleNamespace(is_person=True)))


async def test_the_outbox_tells_why_another_machine_has_refused_a_message() -> None:
    error = msgspec.json.encode(to_wire(AgentNotFound("codex")))
    rows = [replace(ROW, why="", error=error, state=state) for state in (OutboxState.REFUSED, OutboxState.OPEN)]

    async def read_outbox() -> list[OutboxRow]:
        return rows

    fleet = SimpleNamespace(database=SimpleNamespace(read_outbox=read_outbox))
    api = LinkApi(cast("Any", fleet), cast("Any", None), status=cast("Any", None), metrics=cast("Any", None))

    told = await api.outbox(cast("Any", None), cast("Any", None), cast("Any", None))

    whys = [row["why"] for row in msgspec.json.decode(told.body)["messages"]]
    assert whys == [str(AgentNotFound("codex")), ""]


async def test_who_cancels_an_unknown_message_is_told_where_they_are_listed() -> None:
    async def find_outbox(_task_id: str) -> list[OutboxRow]:
        return []

    fleet = SimpleNamespace(database=SimpleNamespace(find_outbox=find_outbox))
    api = LinkApi(cast("Any", fleet), cast("Any", None), status=cast("Any", None), metrics=cast("Any", None))

    with pytest.raises(TaskNotFound) as missing:
        await api.cancel(
            cast("Any", SimpleNamespace(body=b'{"task_id": "1a2b"}')), cast("Any", None), cast("Any", None)
        )
    assert "synapse fleet outbox" in missing.value.hint
