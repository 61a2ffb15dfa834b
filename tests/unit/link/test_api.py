"""The API of the link: what commands are told while this machine, or another one, has no connection."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from synapse.core.errors import LinkDown, TaskNotFound
from synapse.fleet.bus import NotConnected
from synapse.fleet.relay_io import OutboxRow
from synapse.link.api import LinkApi


async def test_without_a_connection_nobody_is_told_that_no_agent_waits() -> None:
    async def all_machines() -> None:
        raise NotConnected("nothing listens at box1:4222")

    fleet = SimpleNamespace(machines=SimpleNamespace(all=all_machines))
    api = LinkApi(cast("Any", fleet), cast("Any", None), status=cast("Any", None), metrics=cast("Any", None))

    with pytest.raises(LinkDown, match="nothing listens at box1:4222"):
        await api.approvals(cast("Any", None), cast("Any", None), cast("Any", SimpleNamespace(is_person=True)))


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
