"""The stream of an agent's whole status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager

import pytest

from synapse.core.caller import Caller
from synapse.core.driver import AgentView, HoldReason
from synapse.core.events import ArtifactAdded
from synapse.core.message import Artifact, TextPart
from synapse.core.override import override
from synapse.core.requests import HostStatus, WatchStatus
from synapse.core.waiting import pause
from synapse.tasks import status_watch
from synapse.tasks.status_watch import GATHER_SECONDS
from tests.fakes.driver import FakeDriver
from tests.fakes.harness import AgentHarness, working
from tests.fakes.questions import PERMISSION

BOUND = 5.0


class CountingDriver(FakeDriver):
    """Counts the looks at it, and shows a dialog that cannot be read yet while `has_dialog`."""

    looks = 0
    has_dialog = False

    @override
    def view(self) -> AgentView:
        self.looks += 1
        view = super().view()
        if not self.has_dialog:
            return view
        return AgentView(state="waiting", why="a dialog", source="screen", since=view.since, question=self.question)

    def tell(self) -> None:
        status = super().view().status
        self.listeners.tell(lambda: status)


class Reader:
    """Reads a stream of statuses, and keeps what came."""

    def __init__(self) -> None:
        self.told: list[HostStatus] = []
        self._came = asyncio.Event()

    async def run(self, statuses: AsyncGenerator[HostStatus, None]) -> None:
        async with aclosing(statuses):
            async for status in statuses:
                self.told.append(status)
                self._came.set()

    async def until(self, is_so: Callable[[HostStatus], bool]) -> HostStatus:
        """Waits for a status that was not asked for yet."""
        async with asyncio.timeout(BOUND):
            while True:
                while self.told:
                    status = self.told.pop(0)
                    if is_so(status):
                        return status
                self._came.clear()
                await self._came.wait()


@asynccontextmanager
async def reading(harness: AgentHarness, finished: int = 0) -> AsyncGenerator[Reader]:
    reader = Reader()
    statuses = await harness.service.watch_status(WatchStatus(finished), Caller())
    job = asyncio.ensure_future(reader.run(statuses))
    await reader.until(lambda _status: True)
    try:
        yield reader
    finally:
        job.cancel()
        await asyncio.wait({job})


async def all_reads() -> None:
    """Waits for the reads that follow a change."""
    await pause(4 * GATHER_SECONDS)


async def test_the_status_comes_at_once_and_again_when_the_state_changes() -> None:
    driver = CountingDriver()
    async with reading(AgentHarness(driver)) as reader:
        driver.ready.clear()
        driver.tell()

        await reader.until(lambda status: status.view.state == "working")


async def test_a_message_is_in_the_queue_then_in_work_then_finished() -> None:
    driver = FakeDriver()
    driver.ready.clear()
    driver.go_on.clear()
    async with working(AgentHarness(driver)) as harness, reading(harness, finished=20) as reader:
        task = await harness.send("hello")
        queued = await reader.until(lambda status: bool(status.queue))
        assert [one.id for one in queued.queue] == [task.id]

        driver.ready.set()
        await reader.until(lambda status: status.current is not None and not status.queue)
        driver.go_on.set()
        ended = await reader.until(lambda status: bool(status.finished))
        assert [one.id for one in ended.finished or ()] == [task.id]


async def test_the_same_status_is_never_sent_twice_and_nothing_is_read_without_a_change() -> None:
    driver = CountingDriver()
    async with reading(AgentHarness(driver)) as reader:
        await all_reads()
        looks = driver.looks
        await all_reads()
        assert driver.looks == looks

        for _ in range(3):
            driver.tell()
            await all_reads()

        assert driver.looks > looks
        assert reader.told == []


async def test_what_a_change_brings_about_a_moment_later_is_seen_too() -> None:
    driver = CountingDriver()
    async with reading(AgentHarness(driver)) as reader:
        await all_reads()
        looks = driver.looks
        driver.tell()
        async with asyncio.timeout(BOUND):
            while driver.looks == looks:
                await pause(0)
        driver.gate = ("a person types", HoldReason.PERSON)  # and nothing tells it

        await reader.until(lambda status: status.view.gate == "a person types")


async def test_changes_are_gathered() -> None:
    loop = asyncio.get_running_loop()
    async with working(AgentHarness()) as harness, reading(harness) as reader:
        begun = loop.time()
        sent = 0
        while loop.time() < begun + 6 * GATHER_SECONDS:
            await harness.finished(await harness.send("hello"))
            sent += 1
        most = (loop.time() - begun) / GATHER_SECONDS + 2

        assert 0 < len(reader.told) <= most
        assert sent > most


@pytest.mark.parametrize(("later", "comes"), [(60.0, False), (0.01, True)])
async def test_a_growing_answer_is_told_a_little_later(
    monkeypatch: pytest.MonkeyPatch, later: float, *, comes: bool
) -> None:
    monkeypatch.setattr(status_watch, "PARTIAL_SECONDS", later)
    driver = FakeDriver()
    driver.go_on.clear()
    async with working(AgentHarness(driver)) as harness, reading(harness) as reader:
        task = await harness.reached(await harness.send("hello"), "submitted")
        await all_reads()
        reader.told.clear()

        artifact = Artifact(artifact_id="a", parts=(TextPart(text="so far"),))
        await harness.journal.record(ArtifactAdded(task_id=task.id, at=harness.clock.now(), artifact=artifact))
        await all_reads()
        assert bool(reader.told) is comes

        driver.go_on.set()
        await reader.until(lambda status: status.current is None)


async def test_a_dialog_that_has_just_opened_is_looked_at_until_it_is_read() -> None:
    driver = CountingDriver()
    async with reading(AgentHarness(driver)) as reader:
        driver.has_dialog = True
        driver.tell()
        opened = await reader.until(lambda status: status.view.state == "waiting")
        assert opened.view.question is None

        driver.question = PERMISSION  # and nothing tells it
        read = await reader.until(lambda status: status.view.question is not None)
        assert read.view.question == PERMISSION


async def test_a_dialog_that_is_not_read_is_not_looked_at_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_watch, "READ_SECONDS", 0.001)
    monkeypatch.setattr(status_watch, "GATHER_SECONDS", 0.001)
    driver = CountingDriver()
    driver.has_dialog = True
    async with reading(AgentHarness(driver)):
        await pause(0.5)
        looks = driver.looks
        await pause(0.2)

        assert driver.looks == looks


async def test_while_messages_are_held_the_reason_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_watch, "HELD_SECONDS", 0.01)
    driver = CountingDriver()
    driver.ready.clear()
    driver.gate = ("a person types", HoldReason.PERSON)
    async with working(AgentHarness(driver)) as harness, reading(harness) as reader:
        await harness.send("hello")
        held = await reader.until(lambda status: status.held is not None)
        assert held.held is not None
        assert held.held.reason is HoldReason.PERSON

        driver.gate = ("no prompt", HoldReason.NO_PROMPT)  # and nothing tells it
        await reader.until(lambda status: status.held is not None and status.held.reason is HoldReason.NO_PROMPT)
        harness.clock.advance(3600)
        await reader.until(lambda status: status.held is not None and status.held.is_overdue)


async def test_the_host_can_make_the_streams_look_again() -> None:
    driver = CountingDriver()
    harness = AgentHarness(driver)
    async with reading(harness) as reader:
        await all_reads()
        driver.gate = ("the store is gone", HoldReason.STORE)
        harness.service.status_changed()

        await reader.until(lambda status: status.view.gate == "the store is gone")


async def test_a_reader_that_leaves_is_no_longer_notified() -> None:
    driver = CountingDriver()
    harness = AgentHarness(driver)
    async with reading(harness):
        during = driver.listeners.has_any

    assert (during, driver.listeners.has_any) == (True, False)
    harness.service.status_changed()
