"""Parts of the link: a defect restarts one of them, a server's refusal ends it, and an error of ours ends the link."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from synapse.config.process import SystemClock
from synapse.core.errors import Conflict
from synapse.fleet.bus import NotAllowed
from synapse.fleet.names import INCARNATIONS
from synapse.fleet.relay_io import OutboxRow, OutboxState
from synapse.fleet.wire import NO_INCARNATION, Incarnation
from synapse.link import link
from synapse.link.database import LinkDatabase
from synapse.link.link import MOST_LOOKS, keep_running, look_for_receivers
from synapse.link.presence import Lasting, Machines
from tests.fakes.memory_engine import MemoryEngine

BOUND = 50
"""Only for what hangs."""
ROW = OutboxRow(
    message_id="",
    to="",
    incarnation=NO_INCARNATION,
    n=1,
    kind="send",
    target="codex",
    task_id="t",
    body=b"",
    queue=True,
    state=OutboxState.OPEN,
    created_at=0,
    expires_at=0,
    changed_at=0,
)


class Failing:
    """A part that fails with the given errors, one after the other, and then ends."""

    def __init__(self, *failures: Exception) -> None:
        self._failures = iter(failures)
        self.starts = 0

    async def run(self) -> None:
        self.starts += 1
        for failure in self._failures:
            raise failure


@pytest.mark.parametrize(
    ("failures", "starts"),
    [
        ((), 1),
        ((RecursionError(), AttributeError("x")), 3),
        ((ExceptionGroup("", [ValueError("x"), NotAllowed("no")]),), 2),
        ((NotAllowed("no"), NotAllowed("never")), 3),
        ((ExceptionGroup("", [NotAllowed("no")]),), 2),
    ],
)
async def test_a_part_starts_again_after_a_defect_and_if_it_was_forbidden(
    failures: tuple[Exception, ...], starts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "RESTART_SECONDS", 0)
    monkeypatch.setattr(link, "FORBIDDEN_SECONDS", 0)
    part, notes = Failing(*failures), list[str]()

    await keep_running(part.run, notes.append)

    assert part.starts == starts
    assert len(notes) == len(failures)


async def test_a_part_that_stays_forbidden_is_noted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "FORBIDDEN_SECONDS", 0)
    part, notes = Failing(NotAllowed("no"), NotAllowed("no")), list[str]()

    await keep_running(part.run, notes.append)

    assert (part.starts, notes) == (3, ["a part of this link does not run: no"])


@pytest.mark.parametrize("failure", [Conflict("twice"), ExceptionGroup("", [ValueError("x"), Conflict("twice")])])
async def test_an_error_of_ours_ends_the_link(failure: Exception) -> None:
    part, notes = Failing(failure), list[str]()

    with pytest.raises(type(failure)):
        await keep_running(part.run, notes.append)

    assert (part.starts, notes) == (1, [])


async def test_machines_are_looked_for_though_others_were_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "LOOK_SECONDS", 0.001)
    bus, seen = MemoryEngine().bus("laptop"), asyncio.Event()
    await bus.put(INCARNATIONS, "box2", msgspec.json.encode(Lasting(incarnation=Incarnation(1, "a"))))
    database = LinkDatabase(tmp_path / "link.db", SystemClock())
    removed = [f"a{number}" for number in range(MOST_LOOKS + 1)]
    await database.commit([replace(ROW, message_id=one, to=one) for one in (*removed, "box2")])
    looking = asyncio.create_task(
        look_for_receivers(bus, database, Machines("laptop", bus, lambda _name, _incarnation: seen.set()))
    )

    async with asyncio.timeout(BOUND):
        await seen.wait()

    looking.cancel()
    await asyncio.wait({looking})
    await database.close()
