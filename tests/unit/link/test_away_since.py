"""Which machines are here, and since when they are not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from synapse.core.override import override
from synapse.fleet.asks import Greeted
from synapse.fleet.names import INCARNATIONS, PRESENCE
from synapse.fleet.wire import Incarnation
from synapse.link.presence import Lasting, Machines, PresencePublisher, Present
from tests.fakes.clock import FakeClock
from tests.fakes.memory_engine import MemoryBus, MemoryEngine

CAME, SEEN, BACK = "2026-11-17T09:00:00Z", "2026-11-17T10:00:00Z", "2026-11-17T10:00:30Z"


async def test_a_machine_that_died_is_away_since_the_last_beat_that_was_read() -> None:
    engine = MemoryEngine()
    bus = engine.bus("laptop")
    machines = Machines("laptop", bus, lambda _machine, _incarnation: None)
    await bus.put(INCARNATIONS, "box2", msgspec.json.encode(Lasting(incarnation=Incarnation(1, "a"), seen=SEEN)))
    await bus.put(PRESENCE, "box2", msgspec.json.encode(Present(instance="i", since=CAME, beat=BACK)))

    still_there = await machines.away("box2")
    await bus.delete(PRESENCE, "box2")
    expired = await machines.find("box2")

    assert still_there.since == BACK
    assert expired.shown()["since"] == BACK


class LookedAtBus(MemoryBus):
    """Counts how often somebody looks whether there is a connection."""

    looks = 0

    @property
    @override
    def connected(self) -> bool:
        self.looks += 1
        return super().connected


async def test_a_machine_that_is_back_writes_at_once_that_it_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synapse.link.presence.CHANGE_SECONDS", 0.001)
    monkeypatch.setattr("synapse.link.presence.BEAT_SECONDS", 0.002)
    engine, clock = MemoryEngine(), FakeClock()
    bus = LookedAtBus(engine, "box2")

    async def agents() -> tuple[dict[str, str], ...]:
        return ()

    async def until(is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not is_so():
                await asyncio.wait({running}, timeout=0.005)

    def seen() -> str:
        written = engine.buckets.get(INCARNATIONS, {}).get("box2")
        return msgspec.json.decode(written, type=Lasting).seen if written is not None else ""

    publisher = PresencePublisher(
        "box2",
        Greeted(instance="one"),
        bus=bus,
        clock=clock,
        read_agents=agents,
        incarnation=lambda: Incarnation(1, "a"),
        is_gateway=lambda: False,
    )
    running = asyncio.create_task(publisher.run())
    await until(lambda: seen() == "2026-01-15T10:30:00Z")
    bus.cut()
    looks = bus.looks
    await until(lambda: bus.looks > looks)
    clock.advance(5)
    bus.mend()

    await until(lambda: seen() == "2026-01-15T10:30:05Z")
    present = msgspec.json.decode(engine.buckets[PRESENCE]["box2"], type=Present)
    assert (present.since, present.beat) == ("2026-01-15T10:30:05Z", "2026-01-15T10:30:05Z")

    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(("came", "last_seen"), [("", SEEN), (CAME, SEEN), (BACK, BACK)])
async def test_a_machine_is_away_since_it_was_last_there(came: str, last_seen: str) -> None:
    """Also while its key in SYN_PRESENCE has not expired yet; that one says when it came."""
    engine = MemoryEngine()
    bus = engine.bus("laptop")
    lasting = Lasting(incarnation=Incarnation(1, "a"), seen=SEEN)
    await bus.put(INCARNATIONS, "box2", msgspec.json.encode(lasting))
    if came:
        await bus.put(PRESENCE, "box2", msgspec.json.encode(Present(instance="i", since=came)))

    away = await Machines("laptop", bus, lambda _machine, _incarnation: None).away("box2")

    assert str(away) == f"the machine box2 is away (since {last_seen})"
