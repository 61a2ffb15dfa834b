"""Agents of a gateway without processes: desks as hosts, and a gateway over the same store."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from synapse.core.address import split_inbox
from synapse.core.agent import READY, AgentEntry
from synapse.core.caller import Caller
from synapse.core.driver import AgentStatus, Answered, InputRequested, Submitted, TurnEvent
from synapse.core.errors import SynapseError, UnsupportedOperation
from synapse.core.events import Update
from synapse.core.extension import Extensions
from synapse.core.message import TextPart
from synapse.core.requests import (
    MOST_FINISHED,
    CancelTask,
    ChangeTask,
    CommandResult,
    DeleteTask,
    ExternalAgent,
    ForAgent,
    HostCommand,
    ListedAgent,
    OnBehalfOf,
    Pending,
    RegisterAgent,
    Request,
    SendMessage,
    WatchStatus,
)
from synapse.core.task import Task, TaskId, TaskState
from synapse.dialects.proto_json import to_json
from synapse.dialects.synapse.commands import decode_caller, encode_caller
from synapse.dialects.synapse.encode import status_object
from synapse.gateway.directory import GatewayAgent, GatewayDirectory
from synapse.gateway.overview import OverviewFollower, Overviews
from synapse.gateway.service import GatewayService
from synapse.gateway.tasks import GatewayTasks
from synapse.tasks.feed import Feed, LogFollower
from synapse.tasks.journal import Journal
from synapse.tasks.quota import KeyQuotas
from tests.fakes.clock import FakeClock
from tests.fakes.driver import FakeDriver
from tests.fakes.harness import AgentHarness, say, working
from tests.fakes.memory_store import MemoryStore

BOUND = 5.0
PING_SECONDS = 0.2
ADA = AgentEntry("synapse-codex-8120", "codex", name="ada", inbox="ada")
BOB = AgentEntry("synapse-codex-8121", "codex", inbox="codex@/proj")
BOB_NAME = "synapse-codex-8121"
CARL = AgentEntry("synapse-codex-8130@box2", "codex", name="carl@box2", inbox="box2!carl")
HUB = "hub"
"""The gateway's own machine, where it is one of a fleet."""
LAPTOP = Caller(scope="key:laptop", name="laptop")
PHONE = Caller(scope="key:phone", name="phone")
OPERATOR = Caller(scope="key:operator", sees_all=True)


class FakeRegistration:
    """Remembers what was registered and removed."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def register(self, request: RegisterAgent, caller: Caller) -> ExternalAgent:
        self.done.append(f"registered {request.url}")
        return ExternalAgent(alias=request.agent, url=request.url, name="")

    async def remove(self, agent: str) -> ExternalAgent:
        self.done.append(f"removed {agent}")
        return ExternalAgent(alias=agent, url="", name="")


class FakeStopped:
    """Remembers what was canceled and changed."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.canceled: list[str] = []
        self.changed: list[tuple[str, type[Request[object]]]] = []

    async def cancel(self, request: CancelTask, _caller: Caller) -> Task:
        self.canceled.append(request.task_id)
        return replace(await self._store.load(TaskId(request.task_id)), state=TaskState.CANCELED)

    async def change(self, request: ChangeTask, _caller: Caller) -> Task:
        return await self._change(request)

    async def delete(self, request: DeleteTask, _caller: Caller) -> Task:
        return await self._change(request)

    async def _change(self, request: ChangeTask | DeleteTask) -> Task:
        self.changed.append((request.task_id, type(request)))
        return await self._store.load(TaskId(request.task_id))


class World:
    """Some desks as hosts, and a gateway over the same store."""

    def __init__(
        self,
        key_bytes: int = 0,
        *,
        home: Path = Path("no-home"),
        feed_buffer: int = 1024,
        machine: str = "",
        **desks: AgentHarness,
    ) -> None:
        self.desks = desks
        self.clock = FakeClock()
        self.watched: Counter[str] = Counter()
        """How many streams of each agent's status are open."""
        self.may_leave = asyncio.Event()
        """Holds back the end of a stream of statuses until it is set."""
        self.may_leave.set()
        self.leaving: asyncio.Queue[str] = asyncio.Queue()
        """The agents whose streams are about to end."""
        self.unreachable: dict[str, SynapseError] = {}
        """Why the host of an agent does not answer."""
        self._direct: set[str] = set()
        self.store = next(iter(desks.values())).store
        self.entries = {"ada": ADA, "bob": BOB}
        self.extensions: dict[str, Extensions] = {}
        """What each agent declares itself."""
        self.told: dict[str, Extensions] = {}
        """What is told about agents at the gateway."""
        self.registration, self.stopped = FakeRegistration(), FakeStopped(self.store)
        self.directory = GatewayDirectory(self, extensions=self.told, machine=machine)
        journal = Journal(self.store)
        tail = LogFollower(self.store, journal, gather_seconds=0.001)
        feed = Feed(journal, self.store, source=tail, buffer=feed_buffer)
        tail.only(feed.has_readers_of)
        tasks = GatewayTasks(
            self.directory, store=self.store, journal=journal, feed=feed, tail=tail, stopped=self.stopped
        )
        quotas = KeyQuotas(key_bytes, self._bytes_of, FakeClock())
        self.follower = OverviewFollower(self.directory, home, self.clock, look_seconds=0.01)
        overviews = Overviews(
            self.follower, store=self.store, feed=feed, tail=tail, clock=self.clock, ping_seconds=PING_SECONDS
        )
        self.service = GatewayService(
            self.directory, tasks, self.registration, listed, quotas=quotas, overviews=overviews
        )

    async def _bytes_of(self, scope: str) -> int:
        return await self.store.stored_bytes(scope=scope)

    async def refresh(self) -> None:
        """Do nothing: the agents are always up to date."""

    def is_current(self) -> bool:
        return True

    def __call__(self) -> list[GatewayAgent]:
        return [
            GatewayAgent(entry=self.entries[name], hosts=self, extensions=self.extensions.get(name, ()))
            for name in self.desks
        ]

    async def command(self, agent: AgentEntry, request: HostCommand, caller: Caller) -> CommandResult:
        name = next(name for name, entry in self.entries.items() if entry is agent)
        if split_inbox(agent.inbox)[1]:
            # As its machine's link has it: from the subject.
            caller = replace(decode_caller(encode_caller(caller)), machine=HUB)
        done = await self.desks[name].service.on_behalf_of(OnBehalfOf(caller, request), Caller(via_socket=True))
        return replace(done, direct=name in self._direct)

    async def status(self, agent: AgentEntry) -> AgentStatus:
        return AgentStatus(state=READY, why="", source="script", since=FakeClock().now())

    async def watch_status(self, agent: AgentEntry) -> AsyncGenerator[dict[str, Any], None]:
        name = next(name for name, entry in self.entries.items() if entry is agent)
        self.watched[name] += 1
        try:
            if name in self.unreachable:
                raise self.unreachable[name]
            watch = await self.desks[name].service.watch_status(WatchStatus(MOST_FINISHED), Caller(via_socket=True))
            async with aclosing(watch) as statuses:
                async for status in statuses:
                    yield json.loads(to_json(status_object(status)))
        finally:
            self.leaving.put_nowait(name)
            await self.may_leave.wait()
            self.watched[name] -= 1

    async def screen(self, agent: AgentEntry, *, lines: int, known: str) -> dict[str, Any] | None:
        if agent is not ADA:
            raise UnsupportedOperation("this agent has no terminal")
        return None if known == "7" else {"version": "7", "lines": [["x"]] * (lines + 1)}

    def answer_directly(self, name: str) -> None:
        """Let this agent answer with plain messages."""
        self._direct.add(name)

    async def ask(self, request: Request[object], caller: Caller = LAPTOP) -> Any:
        async with asyncio.timeout(BOUND):
            result = await self.service.handle(request, caller)
            return await cast("Pending[object]", result).settled() if isinstance(result, Pending) else result

    async def sent(self, text: str = "hello", caller: Caller = LAPTOP, agent: str = "ada", **more: Any) -> Task:
        task = await self.ask(ForAgent(agent, message(text, **more)), caller)
        assert isinstance(task, Task)
        return task


def listed(agent: GatewayAgent, state: str) -> ListedAgent:
    return ListedAgent(
        id=agent.name, name=agent.name, description="", version="1", agent_type=agent.entry.agent_type, state=state
    )


def message(text: str = "hello", message_id: str = "", **more: Any) -> SendMessage:
    return SendMessage(message=say(text, message_id), dialect="a2a_v1", exact=True, **more)


@asynccontextmanager
async def fleet_world(driver: FakeDriver | None = None) -> AsyncGenerator[World]:
    """Ada is here, and Carl on the machine box2."""
    store = MemoryStore()
    ada, carl = AgentHarness(store=store, me=ADA), AgentHarness(driver, store, me=CARL)
    async with working(ada), working(carl):
        here = World(machine=HUB, ada=ada, carl=carl)
        here.entries = {"ada": ADA, "carl": CARL}
        yield here


@asynccontextmanager
async def world(
    driver: FakeDriver | None = None,
    store: MemoryStore | None = None,
    *,
    key_bytes: int = 0,
    home: Path = Path("no-home"),
    feed_buffer: int = 1024,
) -> AsyncGenerator[World]:
    """Ada and Bob are here."""
    store = store or MemoryStore()
    ada, bob = AgentHarness(driver, store, me=ADA), AgentHarness(store=store, me=BOB)
    async with working(ada), working(bob):
        yield World(key_bytes, home=home, feed_buffer=feed_buffer, ada=ada, bob=bob)


async def everything(updates: AsyncGenerator[Update, None]) -> list[Update]:
    async with asyncio.timeout(BOUND):
        return [update async for update in updates]


def questions() -> FakeDriver:
    plots: list[list[TurnEvent]] = [
        [Submitted("script", "taken"), InputRequested((TextPart(text="which?"),))],
        [Submitted("script", "taken"), Answered(parts=(TextPart(text="done"),), source="script")],
    ]
    return FakeDriver(lambda _: plots.pop(0))
