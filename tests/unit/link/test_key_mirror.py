"""The mirror of keys: what one gateway publishes wrongly does not keep the keys of others from being mirrored."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from synapse.auth.api_keys import KEYS, Grant, KeyFile
from synapse.auth.mirror import FRESH, Revocations, mirror_folder
from synapse.auth.sessions import SESSIONS, SessionFile
from synapse.config.fleet import FleetConfig, fleet_folder, save_fleet
from synapse.config.process import SystemClock
from synapse.core.errors import NotFound, StoreCorrupt
from synapse.core.override import override
from synapse.core.waiting import pause
from synapse.fleet import names
from synapse.fleet.bus import NoReply, NotAllowed
from synapse.link import key_mirror
from synapse.link.key_mirror import KeyMirror, take_over_revocation
from tests.fakes.memory_engine import MemoryBus, MemoryEngine

CLOCK = SystemClock()


@asynccontextmanager
async def mirroring(
    home: Path, bus: MemoryBus, note: Callable[[str], None] = lambda _: None
) -> AsyncGenerator[KeyMirror]:
    save_fleet(home, FleetConfig(fleet="f", machine="gate", servers=()))
    mirror = KeyMirror(home, bus, "gate", clock=CLOCK, note=note)
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
        "box9.k-00000000000e": json.dumps({**fields, "id": "00000000000e", "agents": agents}).encode(),
        f"box2.k-{key.key_id}": json.dumps(fields).encode(),
    }

    async with mirroring(tmp_path / "gate", engine.bus("gate")):
        await until(lambda: KeyFile(tmp_path / "gate", CLOCK).find(key.key_id))

        assert KeyFile(tmp_path / "gate", CLOCK).find("00000000000e") is None


NAIVE = "2026-11-19T02:00:00"
"""A time without time zone, which cannot be compared with one that has a time zone."""


@pytest.mark.parametrize(
    ("entry", "fields"),
    [
        ("r-00000000000e", {"at": NAIVE, "id": "00000000000E"}),
        ("k-00000000000e", {"created": NAIVE}),
        ("k-00000000000e", {"expires": NAIVE}),
        ("s-00000000000e", {"created": NAIVE}),
        ("s-00000000000e", {"created": "9999-12-31T00:00:00+00:00"}),
        ("s-00000000000e", {"idle_seconds": 1e300}),
        ("s-00000000000e", {"idle_seconds": -1e300}),
    ],
)
async def test_one_invalid_entry_does_not_keep_others_from_being_used_or_revoked(
    tmp_path: Path, entry: str, fields: Any
) -> None:
    other, gate = tmp_path / "other", tmp_path / "gate"
    save_fleet(gate, FleetConfig(fleet="f", machine="gate", servers=()))
    key, _ = KeyFile(other, CLOCK).create("laptop", Grant())
    session = SessionFile(other, CLOCK).create(frozenset({"read"}), timedelta(hours=1)).session
    stolen, _ = KeyFile(gate, CLOCK).create("stolen", Grant())
    kinds = {"k": KEYS.encode(key), "s": SESSIONS.encode(session), "r": {}}
    engine = MemoryEngine()
    engine.buckets[names.KEYS] = {
        f"box9.{entry}": json.dumps({**kinds[entry[0]], "id": "00000000000e", **fields}).encode(),
        f"box2.k-{key.key_id}": json.dumps(KEYS.encode(key)).encode(),
        f"box2.s-{session.session_id}": json.dumps(SESSIONS.encode(session)).encode(),
        f"box2.r-{stolen.key_id}": json.dumps({"id": stolen.key_id, "at": CLOCK.now().isoformat()}).encode(),
    }

    async with mirroring(gate, engine.bus("gate")):
        await until(lambda: KeyFile(gate, CLOCK).mirrored())

        assert KeyFile(gate, CLOCK).all() == ()
        assert [one.record.key_id for one in KeyFile(gate, CLOCK).mirrored()] == [key.key_id]
        assert SessionFile(gate, CLOCK).find(session.session_id)
        assert SessionFile(gate, CLOCK).find("00000000000e") is None
        assert not Revocations(gate).has("00000000000e")


@pytest.mark.parametrize(
    "record_id", ["{victim}", "../keys.json", "../../00000000000f", "00000000000F", "00000000000f\n"]
)
@pytest.mark.parametrize("kind", "ksr")
async def test_the_id_of_a_published_credential_names_no_file(tmp_path: Path, kind: str, record_id: str) -> None:
    victim = tmp_path / "thesis.txt"
    victim.write_text("years of work", encoding="utf-8")
    other, gate = tmp_path / "other", tmp_path / "gate"
    save_fleet(gate, FleetConfig(fleet="f", machine="gate", servers=()))
    key, _ = KeyFile(other, CLOCK).create("laptop", Grant())
    session = SessionFile(other, CLOCK).create(frozenset({"read"}), timedelta(hours=1)).session
    fields = {"k": KEYS.encode(key), "s": SESSIONS.encode(session), "r": {"at": CLOCK.now().isoformat()}}[kind]
    wrong = record_id.format(victim=victim)
    engine = MemoryEngine()
    engine.buckets[names.KEYS] = {
        f"box9.{kind}-{wrong}": json.dumps({**fields, "id": wrong}).encode(),
        f"box2.k-{key.key_id}": json.dumps(KEYS.encode(key)).encode(),
    }

    async with mirroring(gate, engine.bus("gate")):
        await until(lambda: KeyFile(gate, CLOCK).find(key.key_id))

        assert [one.machine for one in KeyFile(gate, CLOCK).mirrored()] == ["box2"]
        assert not Revocations(gate).has(wrong)
        with pytest.raises(NotFound):
            SessionFile(gate, CLOCK).revoke(wrong)
        assert victim.exists()


@pytest.mark.parametrize("kind", "ksr")
async def test_an_entry_with_the_id_of_another_credential_counts_for_nothing(tmp_path: Path, kind: str) -> None:
    other, gate = tmp_path / "other", tmp_path / "gate"
    save_fleet(gate, FleetConfig(fleet="f", machine="gate", servers=()))
    key, _ = KeyFile(other, CLOCK).create("laptop", Grant())
    session = SessionFile(other, CLOCK).create(frozenset({"read"}), timedelta(hours=1)).session
    own, _ = KeyFile(gate, CLOCK).create("own", Grant())
    fields = {"k": KEYS.encode(key), "s": SESSIONS.encode(session), "r": {"at": CLOCK.now().isoformat()}}[kind]
    engine = MemoryEngine()
    entry = f"box9.{kind}-00000000000e"
    engine.buckets[names.KEYS] = {
        entry: json.dumps({**fields, "id": own.key_id}).encode(),
        f"box2.k-{key.key_id}": json.dumps(KEYS.encode(key)).encode(),
    }

    async with mirroring(gate, engine.bus("gate")):
        await until(lambda: KeyFile(gate, CLOCK).find(key.key_id))
        take_over_revocation(gate, entry, engine.buckets[names.KEYS][entry])

        assert [one.machine for one in KeyFile(gate, CLOCK).mirrored()] == ["box2"]
        assert SessionFile(gate, CLOCK).find(own.key_id) is None
        assert KeyFile(gate, CLOCK).find(own.key_id) == own


def with_more(path: Path, *rows: dict[str, str]) -> str:
    """Adds records to a file of revocations, and returns its new text."""
    document = json.loads(path.read_text(encoding="utf-8"))
    document["revoked"] = [*rows, *document["revoked"]]
    text = json.dumps(document)
    path.write_text(text, encoding="utf-8")
    return text


@pytest.mark.parametrize("name", ["mirror/revoked.json", "revoked.json"])
def test_a_revocation_on_the_disk_without_a_valid_time_revokes_what_it_names(tmp_path: Path, name: str) -> None:
    revocations = Revocations(tmp_path)
    revocations.add("00000000000a", CLOCK)
    revocations.add_mirrored([*revocations.own.current().values()], CLOCK.now() - timedelta(days=1))
    with_more(fleet_folder(tmp_path) / name, {"id": "00000000000e", "at": NAIVE})

    revocations.add("00000000000b", CLOCK)
    revocations.add_mirrored([], CLOCK.now() - timedelta(days=1))

    assert all(revocations.has(f"00000000000{one}") for one in "abe")


def test_a_mirrored_revocation_that_names_nothing_is_skipped(tmp_path: Path) -> None:
    revocations = Revocations(tmp_path)
    revocations.add("00000000000a", CLOCK)
    revocations.add_mirrored([*revocations.own.current().values()], CLOCK.now() - timedelta(days=1))
    revocations.own.write(())
    with_more(mirror_folder(tmp_path) / "revoked.json", {"id": "/e", "at": CLOCK.now().isoformat()})

    assert (revocations.has("00000000000a"), revocations.has("/e")) == (True, False)


def test_an_unreadable_revocation_of_this_machine_brings_no_credential_back(tmp_path: Path) -> None:
    revocations = Revocations(tmp_path)
    revocations.add("00000000000a", CLOCK)
    path = fleet_folder(tmp_path) / "revoked.json"
    text = with_more(path, {"id": "0000000000", "at": CLOCK.now().isoformat()})

    with pytest.raises(StoreCorrupt, match="is not a file of revoked credentials"):
        revocations.has("00000000000e")
    with pytest.raises(StoreCorrupt):
        revocations.add("00000000000b", CLOCK)

    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("kind", "ks")
async def test_an_id_that_two_machines_publish_counts_for_neither(tmp_path: Path, kind: str) -> None:
    gate = tmp_path / "gate"
    save_fleet(gate, FleetConfig(fleet="f", machine="gate", servers=()))
    key, _ = KeyFile(tmp_path / "box2", CLOCK).create("laptop", Grant())
    forged, _ = KeyFile(tmp_path / "box9", CLOCK).create("forged", Grant())
    other, _ = KeyFile(tmp_path / "box3", CLOCK).create("other", Grant())
    session = SessionFile(tmp_path / "box2", CLOCK).create(frozenset({"read"}), timedelta(hours=1)).session
    record_id, published, forgery = {
        "k": (key.key_id, KEYS.encode(key), {**KEYS.encode(forged), "id": key.key_id}),
        "s": (session.session_id, SESSIONS.encode(session), SESSIONS.encode(session)),
    }[kind]
    engine = MemoryEngine()
    engine.buckets[names.KEYS] = {
        f"box2.{kind}-{record_id}": json.dumps(published).encode(),
        f"box9.{kind}-{record_id}": json.dumps(forgery).encode(),
        f"box3.k-{other.key_id}": json.dumps(KEYS.encode(other)).encode(),
    }

    async with mirroring(gate, engine.bus("gate")):
        await until(lambda: KeyFile(gate, CLOCK).find(other.key_id))

        assert KeyFile(gate, CLOCK).find(record_id) is None
        assert SessionFile(gate, CLOCK).find(record_id) is None


class WatchingBus(MemoryBus):
    """A connection that is also told of what is deleted later."""

    def __init__(self, engine: MemoryEngine, machine: str) -> None:
        super().__init__(engine, machine)
        self.deleted = asyncio.Queue[str]()

    @override
    async def watch(self, bucket: str) -> AsyncGenerator[tuple[str, bytes | None], None]:
        async for key, value in super().watch(bucket):
            yield key, value
            if not key:
                break
        while True:
            yield await self.deleted.get(), None


async def test_what_two_machines_publish_is_told_until_one_takes_it_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key, _ = KeyFile(tmp_path / "box3", CLOCK).create("ci", Grant())
    session = SessionFile(tmp_path / "box3", CLOCK).create(frozenset({"read"}), timedelta(hours=1)).session
    entries = {f"k-{key.key_id}": KEYS.encode(key), f"s-{session.session_id}": SESSIONS.encode(session)}
    revoked = {"r-00000000000e": {"id": "00000000000e", "at": CLOCK.now().isoformat()}}
    engine = MemoryEngine()
    engine.buckets[names.KEYS] = {
        f"{machine}.{entry}": json.dumps(fields).encode()
        for machine in ("box5", "box3")
        for entry, fields in (entries | revoked).items()
    }
    bus, notes = WatchingBus(engine, "gate"), list[str]()

    async with mirroring(tmp_path / "gate", bus, notes.append) as mirror:
        await until(lambda: mirror.status()["shared"])
        shared = mirror.status()["shared"]
        for entry in entries:
            bus.deleted.put_nowait(f"box5.{entry}")
        await until(lambda: not mirror.status()["shared"])

        assert KeyFile(tmp_path / "gate", CLOCK).find(key.key_id)
        assert SessionFile(tmp_path / "gate", CLOCK).find(session.session_id)

    assert shared == [
        {"kind": "key", "id": key.key_id, "machines": ["box3", "box5"]},
        {"kind": "session", "id": session.session_id, "machines": ["box3", "box5"]},
    ]
    [note] = notes
    assert note.startswith("box3 and box5 publish the same keys or sessions")
    assert [one.message for one in caplog.records if one.levelname == "WARNING"] == ["credential_published_twice"] * 2


async def test_a_machine_is_told_that_another_one_publishes_its_own_keys(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    key, _ = KeyFile(gate, CLOCK).create("ci", Grant())
    engine = MemoryEngine()
    engine.buckets[names.KEYS] = {f"box5.k-{key.key_id}": json.dumps(KEYS.encode(key)).encode()}

    async with mirroring(gate, engine.bus("gate")) as mirror:
        await until(lambda: mirror.status()["shared"])

        assert mirror.status()["shared"] == [{"kind": "key", "id": key.key_id, "machines": ["box5", "gate"]}]
        assert KeyFile(gate, CLOCK).find(key.key_id) == key


def test_a_revocation_of_a_machine_that_is_removed_is_kept(tmp_path: Path) -> None:
    for name, at in (("a", CLOCK.now().isoformat()), ("e", NAIVE)):
        key_id = f"00000000000{name}"
        take_over_revocation(tmp_path, f"box2.r-{key_id}", json.dumps({"id": key_id, "at": at}).encode())

    assert {*Revocations(tmp_path).own.current()} == {"00000000000a", "00000000000e"}


async def test_a_revocation_that_is_published_no_more_still_counts(tmp_path: Path) -> None:
    engine = MemoryEngine()
    at = CLOCK.now().isoformat()
    engine.buckets[names.KEYS] = {"box2.r-111111111111": json.dumps({"id": "111111111111", "at": at}).encode()}
    async with mirroring(tmp_path, engine.bus("gate")):
        await until(lambda: Revocations(tmp_path).has("111111111111"))

    engine.buckets[names.KEYS] = {"box2.r-222222222222": json.dumps({"id": "222222222222", "at": at}).encode()}
    async with mirroring(tmp_path, engine.bus("gate")):
        await until(lambda: Revocations(tmp_path).has("222222222222"))

        assert Revocations(tmp_path).has("111111111111")


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
