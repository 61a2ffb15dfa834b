"""The API of the link: what commands are told while this machine, or another one, has no connection."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from synapse.core.errors import AgentNotFound, LinkDown, MachineAway, TaskNotFound, to_wire
from synapse.core.override import override
from synapse.dialects.dialect import WireRequest
from synapse.fleet.asks import ReadTasks, TasksListed
from synapse.fleet.bus import NotConnected
from synapse.fleet.relay_io import OutboxRow, OutboxState
from synapse.fleet.wire import NO_INCARNATION
from synapse.link.api import LinkApi
from synapse.link.asking import FleetClient, MachineSilent
from synapse.link.presence import Lasting, Machine, Machines, Present
from tests.fakes.memory_engine import MemoryBus, MemoryEngine
from tests.unit.link.test_database import ROW


async def test_without_a_connection_nobody_is_told_that_no_agent_waits() -> None:
    async def all_machines() -> None:
        raise NotConnected("nothing listens at box1:4222")

    fleet = SimpleNamespace(machines=SimpleNamespace(all=all_machines))
    api = LinkApi(cast("Any", fleet), cast("Any", None), status=cast("Any", None), metrics=cast("Any", None))

    with pytest.raises(LinkDown, match="nothing listens at box1:4222"):
        await api.approvals(cast("Any", None), cast("Any", None), cast("Any", SimpleNamespace(is_person=True)))


@pytest.mark.parametrize(
    ("problem", "hint"),
    [
        ("nothing listens at hub:4222", "synapse fleet status"),
        ("hub:4222 refuses the key of this machine: it was removed", "synapse fleet leave"),
    ],
)
async def test_a_machine_that_is_cut_off_is_told_why_once_and_what_helps(problem: str, hint: str) -> None:
    class CutOff(MemoryBus):
        @property
        @override
        def problem(self) -> str:
            return problem

    bus = CutOff(MemoryEngine(), "laptop")
    bus.cut()
    machines = Machines("laptop", bus, lambda _machine, _incarnation: None)
    fleet = SimpleNamespace(machines=machines)
    api = LinkApi(cast("Any", fleet), cast("Any", None), status=cast("Any", None), metrics=cast("Any", None))

    with pytest.raises(LinkDown) as listing:
        await api.agents(WireRequest("GET", "/fleet/agents"), cast("Any", None), cast("Any", None))
    with pytest.raises(LinkDown) as asking:
        await FleetClient("laptop", bus, machines).ask("box2", ReadTasks(), TasksListed)

    for told in (listing.value, asking.value):
        assert str(told) == f"this machine has no connection to the fleet: {problem}"
        assert hint in told.hint


async def test_machines_that_could_not_be_asked_for_questions_are_named() -> None:
    there = Present(instance="i", since="2026-11-17T09:00:00Z")
    gone = Lasting(incarnation=NO_INCARNATION, seen="2026-11-17T10:00:00Z")

    async def all_machines() -> tuple[Machine, ...]:
        return tuple(Machine(name=name, present=present, lasting=gone) for name, present in known.items())

    async def ask(machine: str, *_: object) -> None:
        raise MachineAway(machine, "2026-11-17T11:00:00Z") if machine == "box3" else MachineSilent(machine, "no answer")

    known = {"box2": None, "box3": there, "box4": there}
    fleet = SimpleNamespace(machines=SimpleNamespace(all=all_machines), client=SimpleNamespace(ask=ask))
    api = LinkApi(cast("Any", fleet), cast("Any", None), status=cast("Any", None), metrics=cast("Any", None))

    told = await api.approvals(cast("Any", None), cast("Any", None), cast("Any", SimpleNamespace(is_person=True)))

    away = [(one["name"], one["since"]) for one in msgspec.json.decode(told.body)["away"]]
    assert away == [("box2", "2026-11-17T10:00:00Z"), ("box3", "2026-11-17T11:00:00Z"), ("box4", "")]


async def test_the_outbox_tells_why_another_machine_has_refused_a_message() -> None:
    error = msgspec.json.encode(to_wire(AgentNotFound("codex")))
    rows = [replace(ROW, why="", error=error, state=state) for state in (OutboxState.REFUSED, OutboxState.OPEN)]

    async def read_outbox() -> list[OutboxRow]:
        return rows

    fleet = SimpleNamespace(database=SimpleNamespace(read_outbox=read_outbox))
    api = LinkApi(cast("Any", fleet), cast("Any", None), status=cast("Any", None), metrics=cast("Any", None))

    told = await api.outbox(cast("Any", None), cast("Any", None), cast("Any", None))

    whys = [row["why"] for row in msgspec.json.decode(told.body)["messages"]]
    assert whys == [f"on box2: {AgentNotFound('codex')}", ""]


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
