"""The rows of all agents follow their hosts and the registry: agents come, change, go, and come back."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import pytest

from synapse.client.overview import Need
from synapse.core.agent import AgentEntry
from synapse.core.errors import AgentNotResponding
from synapse.core.message import Json
from synapse.core.waiting import pause
from synapse.registry.files import FileRegistry, start_time
from synapse.top.follower import RowFollower
from tests.unit.top.statuses import NOW, Fields, ago, answered, asking, ready, task, working


class FakeHosts:
    """The streams of hosts: yields what a test tells for an agent, or breaks."""

    def __init__(self) -> None:
        self._told: dict[str, asyncio.Queue[Fields | None]] = {}
        self.opened: list[str] = []

    def tell(self, agent_id: str, status: Fields | None) -> None:
        """Sends a status; None breaks the stream."""
        self._told.setdefault(agent_id, asyncio.Queue()).put_nowait(status)

    def is_read(self, agent_id: str) -> bool:
        return self._told[agent_id].empty()

    async def watch_status(self, entry: AgentEntry) -> AsyncGenerator[Json, None]:
        self.opened.append(entry.agent_id)
        told = self._told.setdefault(entry.agent_id, asyncio.Queue())
        while (status := await told.get()) is not None:
            yield status
        raise AgentNotResponding(entry.agent_id, entry.port, entry.agent_type)


class World:
    """A registry, hosts, and a follower of both."""

    def __init__(self, folder: Path) -> None:
        self.registry = FileRegistry(folder / "registry")
        self.hosts = FakeHosts()
        self.seen: dict[str, datetime] = {}
        self.news: list[str] = []
        self.reports = 0
        self.changed = asyncio.Event()
        self.follower = RowFollower(self.registry, self.hosts.watch_status, self.seen.get, self._report, self._hear)

    def add(self, name: str) -> AgentEntry:
        pid = os.getpid()
        entry = AgentEntry(f"synapse-dummy-{name}", "dummy", name=name, pid=pid, pid_started=start_time(pid) or 0)
        self.registry.write(entry)
        return entry

    def states(self) -> list[tuple[str, str]]:
        return [(row["name"], row["state"]) for row in self.follower.rows]

    async def until(self, is_true: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not is_true():
                self.changed.clear()
                await self.changed.wait()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        following = asyncio.create_task(self.follower.run())
        try:
            yield
        finally:
            following.cancel()
            await asyncio.wait((following,))

    def _report(self) -> None:
        self.reports += 1
        self.changed.set()

    def _hear(self, needs: list[Need]) -> None:
        self.news += [need["id"] for need in needs]
        self.changed.set()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_agents_come_change_and_go(world: World) -> None:
    ada = world.add("ada")
    async with world.running():
        world.hosts.tell(ada.agent_id, ready())
        await world.until(lambda: world.states() == [("ada", "ready")])
        bob = world.add("bob")
        world.hosts.tell(bob.agent_id, asking(1))
        await world.until(lambda: world.states() == [("bob", "asks"), ("ada", "ready")])
        world.registry.remove(bob.agent_id)
        await world.until(lambda: world.states() == [("ada", "ready")])

        assert world.follower.entry(bob.agent_id) is None


async def test_an_agent_is_listed_before_its_host_answers(world: World) -> None:
    world.add("ada")
    async with world.running():
        await world.until(lambda: world.states() == [("ada", "away")])


async def test_a_broken_stream_makes_the_agent_away_and_is_opened_again(world: World) -> None:
    ada = world.add("ada")
    async with world.running():
        world.hosts.tell(ada.agent_id, ready())
        await world.until(lambda: world.states() == [("ada", "ready")])
        world.hosts.tell(ada.agent_id, None)
        await world.until(lambda: world.states() == [("ada", "away")])
        assert "not responding" in world.follower.rows[0]["why"]
        world.hosts.tell(ada.agent_id, working(1, "write"))
        await world.until(lambda: world.states() == [("ada", "working")])


async def test_a_restarted_agent_is_followed_at_its_new_socket(world: World) -> None:
    ada = world.add("ada")
    async with world.running():
        world.hosts.tell(ada.agent_id, ready())
        await world.until(lambda: world.states() == [("ada", "ready")])
        ada.socket = "/elsewhere"
        world.registry.write(ada)
        await world.until(lambda: world.states() == [("ada", "away")])
        world.hosts.tell(ada.agent_id, working(1, "write"))
        await world.until(lambda: world.states() == [("ada", "working")])

        entry = world.follower.entry(ada.agent_id)
        assert entry is not None
        assert entry.socket == "/elsewhere"


async def test_the_same_status_again_is_no_change(world: World) -> None:
    ada = world.add("ada")
    async with world.running():
        world.hosts.tell(ada.agent_id, ready())
        await world.until(lambda: world.states() == [("ada", "ready")])
        before = world.reports
        world.hosts.tell(ada.agent_id, ready())
        for _ in range(10):
            await pause(0)  # the status is read, and a change would be reported

        assert world.hosts.is_read(ada.agent_id)
        assert world.reports == before


async def test_an_answer_that_is_seen_elsewhere_needs_nobody_any_more(world: World) -> None:
    ada = world.add("ada")
    async with world.running():
        world.hosts.tell(ada.agent_id, answered(1, "fine"))
        await world.until(lambda: world.states() == [("ada", "done")])
        world.seen[ada.agent_id] = NOW
        await world.until(lambda: world.states() == [("ada", "ready")])


async def test_a_failure_that_is_seen_needs_nobody_any_more_whoever_sent_the_task(world: World) -> None:
    ada = world.add("ada")
    async with world.running():
        failed = task(1, "build", status="failed", sender="synapse-claude-8101")
        world.hosts.tell(ada.agent_id, {**ready(), "finished": [{**failed, "updated_at": ago(60)}]})
        await world.until(lambda: world.states() == [("ada", "failed")])
        world.seen[ada.agent_id] = NOW
        await world.until(lambda: world.states() == [("ada", "ready")])


async def test_each_new_need_is_told_once_and_old_ones_never(world: World) -> None:
    ada = world.add("ada")
    async with world.running():
        world.hosts.tell(ada.agent_id, asking(1))
        await world.until(lambda: world.states() == [("ada", "asks")])
        world.hosts.tell(ada.agent_id, asking(2))
        await world.until(lambda: world.news == [f"{ada.agent_id}:question-2"])
        world.hosts.tell(ada.agent_id, None)
        await world.until(lambda: world.states() == [("ada", "away")])
        world.hosts.tell(ada.agent_id, asking(2))
        await world.until(lambda: world.states() == [("ada", "asks")])
        bob = world.add("bob")
        world.hosts.tell(bob.agent_id, asking(3))
        await world.until(lambda: world.news == [f"{ada.agent_id}:question-2", f"{bob.agent_id}:question-3"])
