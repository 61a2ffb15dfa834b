"""Collecting the figures of a gateway from the log, for those who may see them."""

from __future__ import annotations

from typing import Any

import pytest

from synapse.core.caller import Caller
from synapse.core.errors import Forbidden, InvalidField, UnsupportedOperation
from synapse.core.events import TaskEvent
from synapse.core.question import WAITING_FOR_PERSON
from synapse.core.requests import GetFigures
from synapse.core.task import ReceiptStep, TaskState
from synapse.gateway import figures
from synapse.gateway.directory import GatewayDirectory
from synapse.gateway.figures import FigureCollector
from synapse.tasks.journal import Journal
from tests.fakes.clock import FakeClock
from tests.fakes.facts import moved, numbered, opened, stepped
from tests.fakes.gateway_world import LAPTOP, OPERATOR, world
from tests.fakes.leases import ANY_LEASE
from tests.fakes.memory_store import MemoryStore

DAY = 86_400


class Log:
    """A store, its journal, and a collector over it."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.clock = FakeClock()
        self._journal = Journal(self.store, ANY_LEASE)
        self._collector = FigureCollector(GatewayDirectory(), (self.store,), self.clock)

    async def record(self, *events: TaskEvent) -> None:
        for event in events:
            await self._journal.record(event)

    async def collect(self, caller: Caller = OPERATOR, hours: int = 24) -> dict[str, Any]:
        shown = await self._collector.collect(GetFigures(hours), caller)
        return {
            **shown["total"],
            "messages": sum(shown["total"]["messages"]),
            "agents": [row["agent"] for row in shown["agents"]],
        }


async def test_new_events_are_added_to_those_that_were_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "_PAGE", 2)
    log = Log()
    for number in range(5):
        await log.record(opened(numbered(number)), moved(TaskState.WORKING, numbered(number)))
    assert (await log.collect())["messages"] == 5

    await log.record(opened(numbered(9)), moved(TaskState.FAILED, numbered(1), at=2))
    shown = await log.collect()

    assert (shown["messages"], shown["finished"], shown["failed"]) == (6, 1, 1)


async def test_only_the_last_day_is_counted_however_long_the_log_is() -> None:
    log = Log()
    await log.record(*(opened(numbered(number), at=number * 3600) for number in range(60)))
    log.clock.advance(59 * 3600)

    # The window ends with the current quarter of an hour, which has just begun.
    assert (await log.collect())["messages"] == 24


async def test_the_end_of_an_older_task_is_counted_and_timed() -> None:
    log = Log()
    await log.record(opened("a", at=0), moved(TaskState.WORKING, "a", at=1), opened("b", at=10))
    await log.record(stepped(ReceiptStep.ANSWERED, "a", at=2 * DAY), moved(TaskState.COMPLETED, "a", at=2 * DAY))
    log.clock.advance(2 * DAY + 60)

    shown = await log.collect()

    assert (shown["messages"], shown["finished"], shown["answered_p50"]) == (0, 1, 2 * DAY)


async def test_a_task_that_waits_for_a_person_since_days_counts_for_the_whole_window() -> None:
    log = Log()
    asks = moved(TaskState.INPUT_REQUIRED, "a", at=2, reason=WAITING_FOR_PERSON)
    await log.record(opened("a", at=0), moved(TaskState.WORKING, "a", at=1), asks)
    log.clock.advance(3 * DAY)

    assert (await log.collect(hours=1))["waiting_seconds"] == 3540


async def test_figures_are_of_the_hour_or_the_day() -> None:
    log = Log()
    await log.record(opened("a", at=0))
    log.clock.advance(7200)

    assert (await log.collect(hours=1))["messages"] == 0
    assert (await log.collect(hours=24))["messages"] == 1
    with pytest.raises(InvalidField, match="1, 24"):
        await log.collect(hours=2)


async def test_a_caller_gets_the_figures_of_its_scope_and_its_agents_only() -> None:
    log = Log()
    await log.record(opened("a", inbox="ada", scope=LAPTOP.scope))
    await log.record(opened("b", inbox="bob", scope=LAPTOP.scope), opened("c", inbox="bob", scope="local"))

    everything = await log.collect(OPERATOR)
    own = await log.collect(LAPTOP)
    some = await log.collect(Caller(scope="key:x", sees_all=True, agents=frozenset({"ada"})))

    assert (everything["messages"], everything["agents"]) == (3, ["ada", "bob"])
    assert (own["messages"], own["agents"]) == (2, ["ada", "bob"])
    assert (some["messages"], some["agents"]) == (1, ["ada"])


async def test_an_agent_without_messages_is_shown_and_agents_have_their_gateway_names() -> None:
    async with world() as here:
        await here.sent()
        collector = FigureCollector(here.directory, (here.store,), FakeClock())
        shown = await collector.collect(GetFigures(1), OPERATOR)

    assert {row["agent"]: sum(row["messages"]) for row in shown["agents"]} == {"ada": 1, "synapse-codex-8121": 0}


async def test_the_service_asks_its_collector_and_the_caller_must_be_allowed_to_read() -> None:
    async def ask(caller: Caller) -> None:
        async with world() as here:
            await here.ask(GetFigures(1), caller)

    with pytest.raises(UnsupportedOperation, match="no figures"):
        await ask(OPERATOR)
    with pytest.raises(Forbidden, match="read"):
        await ask(Caller(scope="key:1", actions=frozenset({"send"})))
