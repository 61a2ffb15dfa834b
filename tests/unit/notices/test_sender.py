"""The notices of one agent, from its statuses to the record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path

from synapse.client.overview import Need
from synapse.core.agent import AgentEntry
from synapse.notices.log import NoticeLog, Result
from synapse.notices.outlets import OutletFailed
from synapse.notices.rules import GRACE_SECONDS, Notice, notice_of, read_rules
from synapse.notices.sender import Notices, NoticeSender
from tests.fakes.clock import FakeClock
from tests.samples.needs import need

AGENT = AgentEntry("synapse-codex-8120", "codex")
ASKS = need()


class FakeOutlet:
    """Remembers what it shows; fails on request."""

    def __init__(self, name: str = "desktop", *, fails: bool = False, defect: Exception | None = None) -> None:
        self.name = name
        self.fails = fails
        self.defect = defect
        self.shown: list[str] = []

    async def show(self, notice: Notice) -> None:
        self._act(f"show {notice.id}")

    async def withdraw(self, notice_id: str) -> None:
        self._act(f"withdraw {notice_id}")

    def _act(self, act: str) -> None:
        self.shown.append(act)
        if self.defect is not None:
            raise self.defect
        if self.fails:
            raise OutletFailed("no daemon")


@dataclass(frozen=True, eq=False)
class Status:
    """A status, as far as notices read it."""

    needs: Sequence[Need]


class FakeStatuses:
    """Statuses that a test puts; None ends them."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Status | None] = asyncio.Queue()

    async def __call__(self) -> AsyncGenerator[Status, None]:
        while (status := await self.queue.get()) is not None:
            yield status


class World:
    """A sender with one outlet, whose statuses and time a test decides."""

    def __init__(self, home: Path, outlet: FakeOutlet, *, on: str = "all") -> None:
        self.log = NoticeLog(home)
        self.clock = FakeClock()
        self.statuses = FakeStatuses()
        notices = Notices(rules=read_rules(on, "all", "none"), outlets=(outlet,), log=self.log)
        self._sender = NoticeSender(AGENT, notices, self.clock)
        self._awaited = Status([])
        self._looked = asyncio.Event()

    async def tell(self, *steps: Sequence[Need]) -> None:
        """Gives the statuses, each after the grace period of the one before, and waits until all is sent."""
        running = asyncio.ensure_future(self._sender.run(self.statuses(), self._needs_in))
        for needs in steps:
            await self._look_at(needs)
            self.clock.advance(GRACE_SECONDS)
            await self._look_at(needs)
            await self._look_at(needs)  # the look before it is over, with all that it sent
        self.statuses.queue.put_nowait(None)
        async with asyncio.timeout(5):
            await running

    async def _look_at(self, needs: Sequence[Need]) -> None:
        self._awaited = Status(needs)
        self._looked.clear()
        self.statuses.queue.put_nowait(self._awaited)
        async with asyncio.timeout(5):
            await self._looked.wait()

    def _needs_in(self, status: Status) -> Sequence[Need]:
        if status is self._awaited:
            self._looked.set()
        return status.needs

    def results(self) -> list[str]:
        return [f"{record['id']} {record['result']} {record['why']}".strip() for record in self.log.records()]


async def test_a_question_is_shown_once_and_withdrawn_when_answered(tmp_path: Path) -> None:
    outlet = FakeOutlet()
    world = World(tmp_path, outlet)

    await world.tell([ASKS], [ASKS], [])

    assert outlet.shown == ["show q1", "withdraw q1"]
    assert world.results() == ["q1 sent", "q1 withdrawn"]


async def test_a_restarted_host_shows_an_open_question_no_second_time(tmp_path: Path) -> None:
    await World(tmp_path, FakeOutlet()).tell([ASKS])
    outlet = FakeOutlet()
    world = World(tmp_path, outlet)

    await world.tell([ASKS], [])

    assert outlet.shown == ["withdraw q1"]
    assert world.results() == ["q1 sent", "q1 withdrawn"]


async def test_what_the_overview_has_rung_for_is_shown_here_all_the_same(tmp_path: Path) -> None:
    NoticeLog(tmp_path).append(notice_of(ASKS), "terminal", Result.SENT, FakeClock().now())
    outlet = FakeOutlet()

    await World(tmp_path, outlet).tell([ASKS])

    assert outlet.shown == ["show q1"]


async def test_a_defect_of_an_outlet_ends_neither_the_host_nor_the_other_notices(tmp_path: Path) -> None:
    outlet = FakeOutlet(defect=UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"))
    world = World(tmp_path, outlet)

    await world.tell([ASKS], [])

    assert outlet.shown == ["show q1"]
    assert world.results() == ["q1 failed an error in Synapse: UnicodeEncodeError; the log has it"]


async def test_what_the_rules_leave_out_is_recorded_as_suppressed_and_not_withdrawn(tmp_path: Path) -> None:
    outlet = FakeOutlet()
    world = World(tmp_path, outlet, on="failed")

    await world.tell([ASKS], [])

    assert outlet.shown == []
    assert world.results() == ["q1 suppressed notify_on does not name asks"]


async def test_a_failure_is_recorded_with_its_reason(tmp_path: Path) -> None:
    world = World(tmp_path, FakeOutlet(fails=True))

    await world.tell([ASKS], [])

    assert world.results() == ["q1 failed no daemon"]


async def test_a_record_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "notices.jsonl").mkdir()
    outlet = FakeOutlet()

    await World(tmp_path, outlet).tell([ASKS], [])

    assert outlet.shown == ["show q1", "withdraw q1"]
