"""The mirror of keys: what one gateway publishes wrongly does not keep the keys of others from being mirrored."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from synapse.auth.api_keys import KEYS, Grant, KeyFile
from synapse.auth.mirror import FRESH, Revocations, mirror_folder
from synapse.config.fleet import FleetConfig, save_fleet
from synapse.config.process import SystemClock
from synapse.core.override import override
from synapse.core.waiting import pause
from synapse.fleet import names
from synapse.fleet.bus import NoReply, NotAllowed
from synapse.link import key_mirror
from synapse.link.key_mirror import KeyMirror
from tests.fakes.memory_engine import MemoryBus, MemoryEngine

CLOCK = SystemClock()


@asynccontextmanager
async def mirroring(home: Path, bus: MemoryBus) -> AsyncGenerator[KeyMirror]:
    save_fleet(home, FleetConfig(fleet="f", machine="gate", servers=()))
    mirror = KeyMirror(home, bus, "gate", clock=CLOCK)
    running = asyncio.create_task(mirror.run())
    try:
        yield mirror
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await pause(0.01)


@pytest.mark.parametrize("agents", [[["@"]], [1], "codex", {"a": 1}])
async def test_a_key_that_is_none_does_not_keep_the_others_from_being_mirrored(tmp_path: Path, agents: Any) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "gate").mkdir()
    key, _ = KeyFile(tmp_path / "other", CLOCK).create("laptop", Grant())
    fields = KEYS.encode(key)
    engine = MemoryEngine()
    engine.buckets[names.KEYS] = {
        "box9.k-bad": json.dumps({**fields, "id": "bad", "agents": agents}).encode(),
        f"box2.k-{key.key_id}": json.dumps(fields).encode(),
    }

    async with mirroring(tmp_path / "gate", engine.bus("gate")):
        await until(lambda: KeyFile(tmp_path / "gate", CLOCK).find(key.key_id))

        assert KeyFile(tmp_path / "gate", CLOCK).find("bad") is None


async def test_a_revocation_that_is_published_no_more_still_counts(tmp_path: Path) -> None:
    engine = MemoryEngine()
    at = CLOCK.now().isoformat()
    engine.buckets[names.KEYS] = {"box2.r-1": json.dumps({"id": "1", "at": at}).encode()}
    async with mirroring(tmp_path, engine.bus("gate")):
        await until(lambda: Revocations(tmp_path).has("1"))

    engine.buckets[names.KEYS] = {"box2.r-2": json.dumps({"id": "2", "at": at}).encode()}
    async with mirroring(tmp_path, engine.bus("gate")):
        await until(lambda: Revocations(tmp_path).has("2"))

        assert Revocations(tmp_path).has("1")


class DeafBus(MemoryBus):
    """A connection to an engine that answers no question about a bucket."""

    @override
    async def get(self, bucket: str, key: str) -> bytes | None:
        raise NoReply(f"nobody answers for {key} in {bucket}")


async def test_the_mirror_is_not_fresh_while_the_engine_does_not_answer(tmp_path: Path) -> None:
    async with mirroring(tmp_path, DeafBus(MemoryEngine(), "gate")) as mirror:
        await until(lambda: mirror.problem)

        assert not (mirror_folder(tmp_path) / FRESH).exists()

    async with mirroring(tmp_path, MemoryEngine().bus("gate")):
        await until((mirror_folder(tmp_path) / FRESH).exists)


class ForbiddingBus(MemoryBus):
    """A connection to an engine that forbids the first watch."""

    watches = 0

    @override
    async def watch(self, bucket: str) -> AsyncGenerator[tuple[str, bytes | None], None]:
        self.watches += 1
        if self.watches == 1:
            raise NotAllowed("no")
        async for change in super().watch(bucket):
            yield change


async def test_a_machine_that_gets_the_role_of_a_gateway_again_mirrors_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_mirror, "FORBIDDEN_SECONDS", 0.01)

    async with mirroring(tmp_path, ForbiddingBus(MemoryEngine(), "gate")):
        await until((mirror_folder(tmp_path) / FRESH).exists)
