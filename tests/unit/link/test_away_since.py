"""Which machines are here, and since when they are not."""

from __future__ import annotations

import msgspec
import pytest

from synapse.fleet.names import INCARNATIONS, PRESENCE
from synapse.fleet.wire import Incarnation
from synapse.link.presence import Lasting, Machines, Present
from tests.fakes.memory_engine import MemoryEngine

CAME, SEEN, BACK = "2026-11-17T09:00:00Z", "2026-11-17T10:00:00Z", "2026-11-17T10:00:30Z"


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
