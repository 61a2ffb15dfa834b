"""The replica of a gateway's machine over a real nats-server: it has all of the others' logs, whatever was lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from synapse.config.process import SystemClock
from synapse.core.caller import GATEWAY_SCOPE, MACHINE_SCOPE
from synapse.core.errors import TaskNotFound
from synapse.core.task import TaskState
from synapse.core.waiting import pause
from synapse.fleet import names
from synapse.fleet.bus import Bus
from synapse.fleet.log import (
    LARGE,
    START,
    Batch,
    LogRequest,
    LogRow,
    Mark,
    PieceRequest,
    RangeAnswer,
    RangeRequest,
    chained,
    decode_log,
    encode_batch,
    encode_log,
)
from synapse.fleet.wire import Incarnation
from synapse.link import replicas
from synapse.link.nats_bus import NatsBus
from synapse.link.nats_connection import Access
from synapse.link.replicas import ReplicaKeeper
from synapse.store.replica_store import ReplicaStore
from tests.fakes.facts import handed, moved, numbered, opened
from tests.fakes.shipped_log import ShippedMachine
from tests.fleet.nats_server import NatsServer, nats_server

BOUND = 20.0


@pytest.fixture(scope="module", name="server")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with nats_server(tmp_path_factory.mktemp("nats")) as server:
        yield server


@dataclass
class Gateway:
    """A gateway's machine with its keeper, and another machine whose log it keeps."""

    keeper: ReplicaKeeper
    reader: ReplicaStore
    box2: ShippedMachine
    box2_bus: Bus
    meanwhile: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Tasks that box2 opens while it answers: the batch of the first is lost, the second one's is right behind."""

    async def publish(self, most_rows: int = 200, *, lost: int = 0) -> None:
        """Publishes what is new on box2, except for the first batches."""
        for batch in self.box2.batches(most_rows)[lost:]:
            await self.box2_bus.publish(names.log_subject(self.box2.name), encode_batch(batch))

    async def go_on(self) -> list[Batch]:
        """Opens the tasks of `meanwhile` on box2; returns the batches but the first."""
        for number in self.meanwhile.pop():
            await self.box2.keep(opened(numbered(number)))
        return self.box2.batches(1)[1:]

    def shown(self) -> dict[str, Any]:
        """Returns what the status tells of box2's log."""
        rows: list[dict[str, Any]] = self.keeper.status()["machines"]
        return next(row for row in rows if row["machine"] == self.box2.name)

    async def has(self, number: int, state: TaskState) -> None:
        """Waits until the replica has a task in a state."""
        async with asyncio.timeout(BOUND):
            seq = 0
            while True:
                with suppress(TaskNotFound):
                    if (await self.reader.load(numbered(number))).state is state:
                        return
                seq = await self.reader.wait_after(seq, 1.0)


@asynccontextmanager
async def gateway(server: NatsServer, folder: Path) -> AsyncGenerator[Gateway]:
    name = f"box{abs(hash(folder)) % 10**6}"
    box2 = await ShippedMachine.open(name, folder)
    async with AsyncExitStack() as stack:
        me = await stack.enter_async_context(NatsBus(Access(machine="gate", servers=(server.url,), makes_streams=True)))
        other = await stack.enter_async_context(NatsBus(Access(machine=name, servers=(server.url,))))
        await me.wait_connected(BOUND)
        await me.make_missing()
        await other.wait_connected(BOUND)
        await other.put(names.INCARNATIONS, name, b"1")
        path = folder / "replica.db"
        keeper = ReplicaKeeper(path, me, "gate", clock=SystemClock())
        reader = await ReplicaStore.open(path)
        world = Gateway(keeper, reader, box2, other)
        tasks = [asyncio.create_task(_answer(world)), asyncio.create_task(keeper.run())]
        try:
            yield world
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await reader.close()
            await box2.store.close()


async def _answer(world: Gateway) -> None:
    async for arrival in world.box2_bus.arrivals(names.command_subject(world.box2.name, "gate")):
        request = decode_log(arrival.body)
        if isinstance(request, RangeRequest | PieceRequest):
            answer = world.box2.answer(request)
            behind = await world.go_on() if world.meanwhile else []
            await world.box2_bus.publish(arrival.reply_to, answer)
            for batch in behind:
                await world.box2_bus.publish(names.log_subject(world.box2.name), encode_batch(batch))


async def test_only_a_gateway_sends_for_callers_of_its_own(server: NatsServer, tmp_path: Path) -> None:
    async with gateway(server, tmp_path) as world:
        await world.box2_bus.put(names.KEYS, "gate2.gateway", b"{}")
        for number, sender in enumerate(["gate", "gate2", "laptop"], 1):
            kept = {GATEWAY_SCOPE: "key:1"}
            await world.box2.keep(opened(numbered(number), scope=MACHINE_SCOPE + sender, metadata=kept))

        await world.publish()

        await world.has(3, TaskState.SUBMITTED)
        scopes = [(await world.reader.load(numbered(number))).scope for number in (1, 2, 3)]
        assert scopes == ["key:1", "key:1", "machine:laptop"]


async def test_a_batch_is_written_as_it_comes_and_a_gap_is_filled(server: NatsServer, tmp_path: Path) -> None:
    async with gateway(server, tmp_path) as world:
        await world.box2.keep(opened(numbered(1)))
        await world.publish()
        await world.has(1, TaskState.SUBMITTED)
        for number in range(2, 30):
            await world.box2.keep(opened(numbered(number)))
        await world.box2.keep(moved(TaskState.CANCELED, numbered(29)))

        await world.publish(5, lost=4)

        await world.has(29, TaskState.CANCELED)
        await world.has(2, TaskState.SUBMITTED)
        (shown,) = world.keeper.status()["machines"]
        assert (shown["machine"], shown["seq"], shown["incomplete"]) == (world.box2.name, 30, "")


async def test_a_gap_that_shows_right_behind_an_answer_is_filled(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "QUIET_SECONDS", 0.05)
    monkeypatch.setattr(replicas, "RECHECK_SECONDS", 0.05)
    async with gateway(server, tmp_path) as world:
        for number in range(1, 20, 2):
            # Box2 is asked again and again, and has nothing new.
            world.meanwhile.append((number, number + 1))

            await world.has(number + 1, TaskState.SUBMITTED)


async def test_the_status_counts_repairs_and_names_a_gap_that_stays(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateway(server, tmp_path) as world:
        await world.box2.keep(opened(numbered(1)))
        await world.publish()
        await world.has(1, TaskState.SUBMITTED)
        first = world.shown()
        for number in (2, 3):
            await world.box2.keep(opened(numbered(number)))
        await world.publish(1, lost=1)
        await world.has(3, TaskState.SUBMITTED)
        repaired = world.shown()
        began = SystemClock().now().replace(microsecond=0)
        monkeypatch.setattr(world.box2, "answer", nonsense)
        for number in (4, 5):
            await world.box2.keep(opened(numbered(number)))

        await world.publish(1, lost=1)

        async with asyncio.timeout(BOUND):
            while not world.shown()["incomplete"]:
                await pause(0.01)
        torn = world.shown()
        assert (first["repairs"], first["incomplete"], first["incomplete_since"]) == (0, "", "")
        assert (repaired["repairs"], repaired["incomplete"]) == (1, "")
        assert torn["repairs"] == 2
        assert "cannot read" in torn["incomplete"]
        assert began <= datetime.fromisoformat(torn["incomplete_since"]) <= SystemClock().now()


def nonsense(_request: LogRequest) -> bytes:
    return b"garbage"


async def test_a_machine_that_did_not_answer_is_asked_again(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "QUIET_SECONDS", 0.05)
    async with gateway(server, tmp_path) as world:
        await world.box2.keep(opened(numbered(1)))
        await world.publish()
        await world.has(1, TaskState.SUBMITTED)
        answer = world.box2.answer
        refused: list[LogRequest] = []

        def later(request: LogRequest) -> Any:
            refused.append(request)
            return b"garbage" if len(refused) < 3 else answer(request)

        monkeypatch.setattr(world.box2, "answer", later)
        for number in (2, 3):
            await world.box2.keep(opened(numbered(number)))

        # The first of the two batches is lost, and no further one comes.
        await world.publish(1, lost=1)

        await world.has(3, TaskState.SUBMITTED)
        async with asyncio.timeout(BOUND):
            while world.shown()["incomplete"]:
                await pause(0.01)


async def test_a_large_row_is_fetched_in_pieces(server: NatsServer, tmp_path: Path) -> None:
    async with gateway(server, tmp_path) as world:
        text = "x" * (LARGE + 100_000)
        await world.box2.keep(opened(numbered(1)), handed(text, numbered(1)))

        await world.publish()

        await world.has(1, TaskState.SUBMITTED)
        task = await world.reader.load(numbered(1))
        assert task.artifacts == (await world.box2.store.load(numbered(1))).artifacts


async def test_tasks_that_a_new_incarnation_lacks_read_as_lost(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "QUIET_SECONDS", 0.05)
    async with gateway(server, tmp_path) as world:
        await world.box2.keep(opened(numbered(1)))
        await world.publish()
        await world.has(1, TaskState.SUBMITTED)
        await world.box2.store.close()
        world.box2 = restored = await ShippedMachine.open(world.box2.name, tmp_path, counter=2)
        await restored.keep(opened(numbered(2)))

        await world.publish()

        await world.has(2, TaskState.SUBMITTED)
        await world.has(1, TaskState.FAILED)
        assert (await world.reader.load(numbered(1))).reason == "machine_lost"


async def test_tasks_are_not_lost_while_their_machine_has_not_shipped_them_again(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "QUIET_SECONDS", 0.05)
    monkeypatch.setattr(replicas, "RECHECK_SECONDS", 0.05)
    async with gateway(server, tmp_path) as world:
        await world.box2.keep(opened(numbered(1)))
        await world.publish()
        await world.has(1, TaskState.SUBMITTED)

        # It answers, but the engine takes no batch: nothing of the new incarnation is in one.
        world.box2.renew()
        asked = world.box2.ranges_asked
        async with asyncio.timeout(BOUND):
            while world.box2.ranges_asked < asked + 10:
                await pause(0.01)
        assert (await world.reader.load(numbered(1))).state is TaskState.SUBMITTED

        await world.box2.keep(opened(numbered(2)))
        await world.publish()
        await world.has(2, TaskState.SUBMITTED)
        assert (await world.reader.load(numbered(1))).state is TaskState.SUBMITTED


async def test_rows_that_no_store_writes_do_not_stop_the_others(server: NatsServer, tmp_path: Path) -> None:
    async with gateway(server, tmp_path) as world:
        await world.box2_bus.publish(names.log_subject(world.box2.name), b"garbage")
        forged = await ShippedMachine.open("other", tmp_path)
        await forged.keep(opened(numbered(5)))
        for batch in forged.batches():
            await world.box2_bus.publish(names.log_subject(world.box2.name), encode_batch(batch))
        await forged.store.close()
        await world.box2.keep(opened(numbered(1)))

        await world.publish()

        await world.has(1, TaskState.SUBMITTED)
        with pytest.raises(TaskNotFound):
            await world.reader.load(numbered(5))


async def test_a_row_of_any_size_does_not_stop_the_logs_of_others(server: NatsServer, tmp_path: Path) -> None:
    async with gateway(server, tmp_path) as world:
        evil = f"evil{world.box2.name}"
        rows = (LogRow(1, b"", 2**40, b"d"),)
        last = Mark(1, chained(b"", rows))
        batch = Batch(machine=evil, incarnation=Incarnation(1, "a"), schema=1, prev=START, last=last, rows=rows)
        async with NatsBus(Access(machine=evil, servers=(server.url,))) as bus:
            await bus.wait_connected(BOUND)
            asked: list[object] = []
            answering = asyncio.create_task(_answer_without_pieces(bus, evil, batch, asked))
            async with asyncio.timeout(BOUND):
                while not asked:
                    await bus.publish(names.log_subject(evil), encode_batch(batch))
                    await pause(0.05)
            await world.box2.keep(opened(numbered(1)))

            await world.publish()

            await world.has(1, TaskState.SUBMITTED)
            answering.cancel()
        assert not [one for one in asked if isinstance(one, PieceRequest)]


async def _answer_without_pieces(bus: NatsBus, machine: str, batch: Batch, asked: list[object]) -> None:
    async for arrival in bus.arrivals(names.command_subject(machine, "gate")):
        request = decode_log(arrival.body)
        asked.append(request)
        if isinstance(request, RangeRequest):
            answer = RangeAnswer(incarnation=batch.incarnation, batches=(encode_batch(batch),))
            await bus.publish(arrival.reply_to, encode_log(answer))
