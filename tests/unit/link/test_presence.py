"""Which machines are here: what a link writes of itself, how others read it, and how it meets a twin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from synapse.auth.mirror import Revocations
from synapse.config.fleet import fleet_folder
from synapse.core.errors import Conflict, MachineAway, MachineNotFound
from synapse.core.override import override
from synapse.core.waiting import pause
from synapse.fleet.asks import Greeted, encode_answer
from synapse.fleet.bus import NoReply, NotConnected
from synapse.fleet.names import INCARNATIONS, KEYS, PRESENCE, ask_subject, mail_subject
from synapse.fleet.wire import NO_INCARNATION, Incarnation
from synapse.link import presence
from synapse.link.members import FleetMember, Members
from synapse.link.presence import Lasting, Machines, PresencePublisher, Present, forget_removed
from tests.fakes.clock import FakeClock
from tests.fakes.memory_engine import MemoryBus, MemoryEngine

FIRST, SECOND = Incarnation(1, "a"), Incarnation(2, "b")
AGENTS = ({"agent_id": "synapse-codex-8120", "state": "ready"},)
HUB = FleetMember(name="hub", key="UHUB", is_gateway=True, runs_server=True)
ALONE = Members(fleet="home", listen="127.0.0.1:4222", servers=("nats://127.0.0.1:4222",), machines={"hub": HUB})


def publisher(
    engine: MemoryEngine,
    instance: str = "one",
    incarnation: Incarnation | None = FIRST,
    *,
    ships_log: bool = True,
) -> PresencePublisher:
    async def agents() -> tuple[dict[str, str], ...]:
        return AGENTS

    return PresencePublisher(
        "box2",
        Greeted(instance=instance, version="9.9"),
        bus=engine.bus("box2"),
        clock=FakeClock(),
        read_agents=agents,
        incarnation=lambda: incarnation,
        is_gateway=lambda: False,
        ships_log=ships_log,
    )


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await pause(0.01)


async def beat(one: PresencePublisher, engine: MemoryEngine) -> None:
    """Run it until it has written."""
    running = asyncio.create_task(one.run())
    async with asyncio.timeout(10):
        while "box2" not in engine.buckets.get(INCARNATIONS, {}):
            await asyncio.wait({running}, timeout=0.01)
            if running.done():
                running.result()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_machine_is_present_soon_after_the_server_has_lost_all_presence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(presence, "CHANGE_SECONDS", 0.01)
    monkeypatch.setattr(presence, "BEAT_SECONDS", 3600.0)
    engine = MemoryEngine()
    one = publisher(engine)
    [bus] = engine.buses
    running = asyncio.create_task(one.run())
    async with asyncio.timeout(40):  # long before the next beat
        await until(lambda: "box2" in engine.buckets.get(PRESENCE, {}))
        bus.cut()
        engine.buckets.clear()
        bus.mend()

        await until(lambda: "box2" in engine.buckets.get(PRESENCE, {}))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_machine_says_that_it_ships_no_log_also_while_it_is_away() -> None:
    engine = MemoryEngine()
    await beat(publisher(engine, ships_log=False), engine)
    present = await Machines("laptop", engine.bus("laptop"), lambda _name, _incarnation: None).find("box2")
    del engine.buckets[PRESENCE]["box2"]
    away = await Machines("laptop", engine.bus("laptop"), lambda _name, _incarnation: None).find("box2")

    assert [(one.shown()["present"], one.shown()["ships_log"]) for one in (present, away)] == [
        (True, False),
        (False, False),
    ]


async def test_a_machine_that_beats_is_present_with_its_agents() -> None:
    engine, seen = MemoryEngine(), list[tuple[str, Incarnation]]()
    await beat(publisher(engine), engine)
    machines = Machines("laptop", engine.bus("laptop"), lambda name, incarnation: seen.append((name, incarnation)))

    [box] = await machines.all()

    assert box.shown() == {
        "name": "box2",
        "present": True,
        "since": "2026-01-15T10:30:00Z",
        "version": "9.9",
        "is_gateway": False,
        "ships_log": True,
    }
    assert box.present is not None
    assert box.present.agents == AGENTS
    assert seen == [("box2", FIRST)]


class MuteBus(MemoryBus):
    """A bus whose buckets can lose their leader: connected, but nothing is answered."""

    has_leader = True

    @override
    async def watch(self, bucket: str) -> AsyncGenerator[tuple[str, bytes | None], None]:
        if not self.has_leader:
            raise NoReply("the server does not answer with the bucket")
        async for change in super().watch(bucket):
            yield change


async def test_machines_stay_known_while_a_cluster_elects_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = MemoryEngine()
    await beat(publisher(engine), engine)
    bus = MuteBus(engine, "laptop")
    machines = Machines("laptop", bus, lambda _name, _incarnation: None)
    monkeypatch.setattr("synapse.link.presence.FRESH_SECONDS", 0.0)
    before = await machines.all()

    bus.has_leader = False

    assert [machine.name for machine in before] == ["box2"]
    assert await machines.all() == before
    monkeypatch.setattr("synapse.link.presence.KEPT_SECONDS", 0.0)
    with pytest.raises(NoReply):
        await machines.all()


async def test_machines_of_a_cut_connection_are_not_shown_as_if_they_were_here() -> None:
    engine = MemoryEngine()
    await beat(publisher(engine), engine)
    bus = engine.bus("laptop")
    machines = Machines("laptop", bus, lambda _name, _incarnation: None)
    bus.cut()

    with pytest.raises(NotConnected):
        await machines.all()


async def test_a_machine_that_has_left_is_away_since_then() -> None:
    engine = MemoryEngine()
    one = publisher(engine)
    await beat(one, engine)
    await one.leave()
    machines = Machines("laptop", engine.bus("laptop"), lambda _name, _incarnation: None)

    away = await machines.away("box2")

    assert isinstance(away, MachineAway)
    assert (away.machine, away.since) == ("box2", "2026-01-15T10:30:00Z")
    assert (await machines.find("box2")).present is None


@pytest.mark.parametrize("name", ["box9", "Not A Name", ""])
async def test_a_machine_that_nobody_knows_is_not_found(name: str) -> None:
    machines = Machines("laptop", MemoryEngine().bus("laptop"), lambda _name, _incarnation: None)

    with pytest.raises(MachineNotFound, match="has no machine"):
        await machines.find(name)


async def test_the_relay_is_told_of_changes_only() -> None:
    engine, seen = MemoryEngine(), list[Incarnation]()
    machines = Machines("laptop", engine.bus("laptop"), lambda _, incarnation: seen.append(incarnation))
    present = Present(instance="i", since="", incarnation=FIRST)

    def show(bucket: str, value: msgspec.Struct | None) -> None:
        engine.buckets.setdefault(bucket, {}).pop("box2", None)
        if value is not None:
            engine.buckets[bucket]["box2"] = msgspec.json.encode(value)

    show(INCARNATIONS, Lasting(incarnation=FIRST))
    for change in (None, None, present, present, None, present, msgspec.structs.replace(present, incarnation=SECOND)):
        show(PRESENCE, change)
        await machines.find("box2")

    # Known, appeared, appeared again, another incarnation.
    assert seen == [FIRST, FIRST, FIRST, SECOND]


async def test_nothing_is_written_before_the_relay_has_an_incarnation() -> None:
    engine = MemoryEngine()
    running = asyncio.create_task(publisher(engine, incarnation=None).run())
    await asyncio.wait({running}, timeout=0.05)
    running.cancel()

    assert engine.buckets == {}


async def test_a_link_that_finds_another_under_its_name_does_not_begin() -> None:
    engine = MemoryEngine()
    twin = engine.bus("box2")

    async def answer() -> None:
        async for arrival in twin.arrivals(ask_subject("box2", "*")):
            await twin.publish(arrival.reply_to, encode_answer(Greeted(instance="two", version="8.8")))

    answering = asyncio.create_task(answer())
    await asyncio.wait({answering}, timeout=0.01)

    with pytest.raises(Conflict, match=r"another link \(version 8.8\) runs under the name box2"):
        await publisher(engine).require_alone()
    await publisher(engine, instance="two").require_alone()
    answering.cancel()


async def test_a_link_that_meets_another_later_stops() -> None:
    engine = MemoryEngine()
    one = publisher(engine)
    await beat(one, engine)
    engine.buckets[PRESENCE]["box2"] = msgspec.json.encode(Present(instance="two", since=""))

    with pytest.raises(Conflict, match="so this one has stopped"):
        async with asyncio.timeout(10):
            await one.run()


async def test_what_a_newer_version_writes_does_no_harm() -> None:
    engine = MemoryEngine()
    engine.buckets[PRESENCE] = {"box2": b'{"instance": "i", "since": "", "hologram": 1}', "box3": b"\xff"}
    machines = Machines("laptop", engine.bus("laptop"), lambda _name, _incarnation: None)

    found = await machines.all()

    assert [(one.name, one.present is not None) for one in found] == [("box2", True)]
    assert found[0].incarnation == NO_INCARNATION


async def test_only_what_is_known_of_removed_machines_is_deleted(tmp_path: Path) -> None:
    engine = MemoryEngine()
    await beat(publisher(engine), engine)
    hub = engine.bus("hub")
    for bucket in (PRESENCE, INCARNATIONS):
        await hub.put(bucket, "hub", b"{}")
    for key in ("hub.k1", "box2.k1"):
        await hub.put(KEYS, key, b"{}")

    for to, sender in (("hub", "box2"), ("box2", "hub"), ("hub", "hub")):
        await hub.keep(mail_subject(to, sender), b"", once="1")

    await forget_removed(hub, lambda: ALONE, tmp_path)

    assert [subject for _, subject, _ in engine.kept] == [mail_subject("hub", "hub")]
    left = {bucket: list(keys) for bucket, keys in engine.buckets.items()}
    assert left == {PRESENCE: ["hub"], INCARNATIONS: ["hub"], KEYS: ["hub.k1"]}


@pytest.mark.parametrize("is_told_before", [True, False], ids=["removed, then wiped", "wiped, then removed"])
async def test_others_know_who_was_removed_though_the_server_has_lost_it(
    tmp_path: Path, *, is_told_before: bool
) -> None:
    engine = MemoryEngine()
    hub = engine.bus("hub")
    machines = Machines("laptop", engine.bus("laptop"), lambda _name, _incarnation: None)
    removed = replace(ALONE, removed=("box2",))
    if is_told_before:
        await beat(publisher(engine), engine)
        await forget_removed(hub, lambda: removed, tmp_path)
        assert await machines.was_removed("box2")
        engine.buckets.clear()
        engine.deleted.clear()

    await forget_removed(hub, lambda: removed, tmp_path)

    assert await machines.was_removed("box2")
    assert not await machines.was_removed("box3")


class JoinedBus(MemoryBus):
    """The bus of a hub: box2 joins again while it is looked at."""

    members = replace(ALONE, removed=("box2",))

    @override
    async def is_deleted(self, bucket: str, key: str) -> bool:
        await self.put(INCARNATIONS, "box2", b"{}")
        self.members = ALONE
        return await super().is_deleted(bucket, key)


async def test_a_machine_that_joins_meanwhile_under_a_removed_name_keeps_its_entry(tmp_path: Path) -> None:
    hub = JoinedBus(MemoryEngine(), "hub")

    await forget_removed(hub, lambda: hub.members, tmp_path)

    assert await hub.get(INCARNATIONS, "box2") == b"{}"


async def test_what_a_removed_gateway_has_revoked_stays_revoked(tmp_path: Path) -> None:
    fleet_folder(tmp_path).mkdir()
    hub = MemoryEngine().bus("hub")
    for key, value in (
        ("gate.r-111111111111", b'{"id": "111111111111", "at": "2026-01-01T00:00:00+00:00"}'),
        ("gate.r-222222222222", b"{}"),
    ):
        await hub.put(KEYS, key, value)

    await forget_removed(hub, lambda: ALONE, tmp_path)

    assert await hub.keys(KEYS) == []
    assert list(Revocations(tmp_path).own.current()) == ["111111111111"]


async def test_an_entry_with_too_many_levels_does_no_harm() -> None:
    engine = MemoryEngine()
    nested = b'{"incarnation": [1, "a"], "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    engine.buckets[INCARNATIONS] = {"box2": nested, "box3": b'{"incarnation": [1, "a"]}'}
    seen: list[str] = []
    machines = Machines("laptop", engine.bus("laptop"), lambda name, _incarnation: seen.append(name))

    await machines.tell_incarnations()

    assert seen == ["box3"]
