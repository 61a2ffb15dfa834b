"""Waits for agents of other machines end when nothing will answer them, and not before."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec

from synapse.core.caller import Caller
from synapse.core.errors import AgentNotFound
from synapse.core.message import Json
from synapse.core.requests import CreateTask, LeaveTask
from synapse.core.task import Task, TaskState
from synapse.fleet import asks
from synapse.fleet.bus import Bus, NobodyThere
from synapse.fleet.names import INCARNATIONS
from synapse.fleet.relay_io import OutboxRow, OutboxState
from synapse.fleet.wire import NO_INCARNATION, Incarnation
from synapse.link.asking import FleetClient
from synapse.link.database import LinkDatabase
from synapse.link.deliveries import WaitReply
from synapse.link.presence import Lasting, Machines
from synapse.link.waits import LOST_SECONDS, RemoteWaits
from synapse.store.codec import encode_task
from synapse.tasks.waits import GRACE_SECONDS, UNSENT_SECONDS
from tests.fakes.harness import ME, AgentHarness, say
from tests.samples.tasks import a_task

MYSELF = Caller(agent_id=ME.agent_id, via_socket=True)


class Box2:
    """The bus as this machine sees it: box2 answers on it while `is_here`, and gemini runs there while `runs`."""

    connected = True
    problem = ""

    def __init__(self) -> None:
        self.is_here = True
        self.is_member = True
        self.was_removed = False
        self.runs: str = "gemini"
        self.task = a_task(state=TaskState.WORKING)

    async def request(self, _subject: str, body: bytes, _seconds: float) -> bytes:
        if not self.is_here:
            raise NobodyThere("box2")
        ask = asks.decode_ask(body)
        if isinstance(ask, asks.ReadTask):
            return asks.encode_answer(asks.TaskRead(task=encode_task(self.task)))
        assert isinstance(ask, asks.ResolveAgent)
        if not self.runs:
            return asks.encode_answer(asks.failed(AgentNotFound(ask.target)))
        return asks.encode_answer(asks.AgentResolved(agent={"inbox": self.runs}))

    async def get(self, bucket: str, _key: str) -> bytes | None:
        lasting = Lasting(incarnation=Incarnation(1, "a"))
        return msgspec.json.encode(lasting) if bucket == INCARNATIONS and self.is_member else None

    async def is_deleted(self, _bucket: str, _key: str) -> bool:
        return self.was_removed


class Waits:
    """The waits of the harness's agent, and what the link ended."""

    def __init__(self, database: LinkDatabase) -> None:
        self.harness = AgentHarness()
        self.box2 = Box2()
        self.database = database
        self.ended: list[tuple[str, str]] = []
        bus = cast("Bus", self.box2)
        machines = Machines("laptop", bus, lambda _machine, _incarnation: None)
        client = FleetClient("laptop", bus, machines)
        self.waits = RemoteWaits(self.harness.store, database, client, machines, self._end_wait, self.harness.clock)

    async def _end_wait(self, reply: WaitReply) -> bool:
        self.ended.append((reply.task_id, reply.marks["end_reason"]))
        return True

    async def wait_for_gemini(self) -> Task:
        metadata: Json = {"waits_for": "synapse-gemini-1@box2", "waits_for_inbox": "box2!gemini"}
        request = CreateTask(message=say("review"), dialect="synapse", metadata=metadata)
        return await self.harness.service.handle(request, MYSELF)

    async def sent(self, waiting: Task, state: OutboxState) -> None:
        body = asks.SendBody(parts=(), sender_inbox=ME.inbox, response_expected=True, sender_task_id=waiting.id)
        row = OutboxRow(
            message_id="m-1",
            to="box2",
            incarnation=NO_INCARNATION,
            n=1,
            kind="send",
            target="gemini",
            task_id="t-there",
            body=asks.encode_send_body(body),
            queue=False,
            state=state,
            created_at=0.0,
            expires_at=1.0,
            changed_at=0.0,
        )
        await self.database.commit((row,))

    async def after(self, seconds: float) -> list[tuple[str, str]]:
        """Returns what was ended by now, when nothing else happens for so long."""
        await self.waits.sweep()
        self.harness.clock.advance(seconds)
        await self.waits.sweep()
        return self.ended


@asynccontextmanager
async def link(folder: Path) -> AsyncGenerator[Waits]:
    clock: Any = AgentHarness().clock
    database = LinkDatabase(folder / "link.db", clock)
    try:
        yield Waits(database)
    finally:
        await database.close()


async def test_a_wait_whose_waiter_left_before_it_sent_its_request_ends(tmp_path: Path) -> None:
    async with link(tmp_path) as here:
        waiting = await here.wait_for_gemini()
        assert await here.after(10 * UNSENT_SECONDS) == [], "its waiter may send it yet"
        await here.harness.service.handle(LeaveTask(waiting.id), MYSELF)
        assert await here.after(UNSENT_SECONDS - 1) == []
        assert await here.after(1) == [(waiting.id, "not_sent")]


async def test_a_wait_whose_request_is_in_the_outbox_goes_on_though_its_waiter_has_left(tmp_path: Path) -> None:
    async with link(tmp_path) as here:
        waiting = await here.wait_for_gemini()
        await here.harness.service.handle(LeaveTask(waiting.id), MYSELF)
        await here.sent(waiting, OutboxState.OPEN)
        here.box2.is_here = False

        assert await here.after(10 * UNSENT_SECONDS) == []


async def test_a_wait_ends_when_the_agent_that_was_asked_is_gone(tmp_path: Path) -> None:
    async with link(tmp_path) as here:
        waiting = await here.wait_for_gemini()
        await here.sent(waiting, OutboxState.ACCEPTED)
        here.box2.runs = "another"
        assert await here.after(GRACE_SECONDS - 1) == []
        here.box2.runs = "gemini"
        assert await here.after(GRACE_SECONDS) == [], "it was started again"
        here.box2.runs = ""
        assert await here.after(GRACE_SECONDS) == [(waiting.id, "agent_exited")]


async def test_a_wait_goes_on_while_nobody_can_tell_whether_its_agent_runs(tmp_path: Path) -> None:
    async with link(tmp_path) as here:
        await here.sent(await here.wait_for_gemini(), OutboxState.ACCEPTED)
        here.box2.is_here = False

        assert await here.after(10 * GRACE_SECONDS) == []


async def test_a_wait_whose_end_is_on_its_way_is_not_ended_for_a_lost_agent(tmp_path: Path) -> None:
    async with link(tmp_path) as here:
        await here.sent(await here.wait_for_gemini(), OutboxState.ACCEPTED)
        here.box2.runs, here.box2.task = "", replace(here.box2.task, state=TaskState.COMPLETED)

        assert await here.after(10 * GRACE_SECONDS) == []


async def test_a_wait_for_a_machine_that_was_removed_ends(tmp_path: Path) -> None:
    async with link(tmp_path) as here:
        waiting = await here.wait_for_gemini()
        await here.sent(waiting, OutboxState.OPEN)
        here.box2.is_here = here.box2.is_member = False
        here.box2.was_removed = True

        assert await here.after(LOST_SECONDS - 1) == []
        assert await here.after(1) == [(waiting.id, "machine_lost")]


async def test_a_wait_for_a_machine_that_was_removed_ends_though_the_outbox_has_lost_the_message(
    tmp_path: Path,
) -> None:
    async with link(tmp_path) as here:
        waiting = await here.wait_for_gemini()
        here.box2.is_here = here.box2.is_member = False
        here.box2.was_removed = True

        assert await here.after(LOST_SECONDS - 1) == []
        assert await here.after(1) == [(waiting.id, "machine_lost")]


async def test_a_wait_goes_on_if_the_server_has_lost_what_it_knew_of_a_machine_that_sleeps(tmp_path: Path) -> None:
    async with link(tmp_path) as here:
        waiting = await here.wait_for_gemini()
        await here.sent(waiting, OutboxState.ACCEPTED)
        here.box2.is_here = here.box2.is_member = False

        assert await here.after(10 * LOST_SECONDS) == []
