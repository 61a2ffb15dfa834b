"""The doorbell: other connections wake those who follow the log; without rings, listeners poll."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from synapse.core.lifecycle import replay
from synapse.store import doorbell
from synapse.store.doorbell import Listener
from synapse.store.file import lock_path
from tests.fakes.facts import numbered, opened
from tests.fakes.leased_store import LeasedStore

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has inotify")
ENDLESS = 3600.0


@pytest.fixture
def bell(tmp_path: Path) -> Path:
    """Returns a lock file that listeners can watch."""
    file = tmp_path / "store.db.lock"
    rung(file, doorbell.prepare, os.O_CREAT)
    return file


def rung(file: Path, act: Callable[[int], None] = doorbell.ring, flags: int = 0) -> None:
    descriptor = os.open(file, os.O_RDWR | flags, 0o600)
    act(descriptor)
    os.close(descriptor)


@on_linux
async def test_a_ring_wakes_every_waiter(bell: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorbell, "QUIET_SECONDS", ENDLESS)

    async with asyncio.timeout(20):
        listeners = [Listener(bell), Listener(bell)]
        assert all(one.hears for one in listeners)
        waiting = [asyncio.ensure_future(one.wait(0, ENDLESS)) for one in listeners for _ in range(2)]
        rung(bell)
        await asyncio.gather(*waiting)
        assert [one.rings for one in listeners] == [1, 1]
        for one in listeners:
            one.close()
            one.close()


@on_linux
async def test_a_ring_before_the_wait_is_not_lost(bell: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorbell, "QUIET_SECONDS", ENDLESS)

    async with asyncio.timeout(20):
        listener = Listener(bell)
        rung(bell)
        await listener.wait(0, ENDLESS)
        await listener.wait(0, ENDLESS)
        listener.close()


def make_anew(bell: Path) -> None:
    """Replaces the file with another one, then deletes the other."""
    new, old = bell.with_suffix(".new"), bell.with_suffix(".old")
    new.write_bytes(b"\n")
    bell.rename(old)
    new.rename(bell)
    old.unlink()


@on_linux
async def test_a_recreated_lock_file_is_heard(bell: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorbell, "QUIET_SECONDS", ENDLESS)

    async with asyncio.timeout(20):
        listener = Listener(bell)
        make_anew(bell)
        await listener.wait(0, ENDLESS)
        heard = listener.rings
        rung(bell)
        await listener.wait(heard, ENDLESS)
        listener.close()


async def test_without_rings_a_listener_polls(tmp_path: Path) -> None:
    async with asyncio.timeout(20):
        listener = Listener(tmp_path / "missing")
        assert not listener.hears
        await listener.wait(0, ENDLESS)
        assert listener.rings == 0
        listener.close()


def no_ring(_lock_file: int) -> None:
    """Does nothing, as if the writer was killed after its commit."""


@on_linux
@pytest.mark.parametrize("is_heard", [True, False])
async def test_an_append_of_another_connection_wakes_the_listener(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_heard: bool
) -> None:
    # A lost ring is found by polling: no writer can make a listener miss an event.
    if is_heard:
        monkeypatch.setattr(doorbell, "QUIET_SECONDS", ENDLESS)
    else:
        monkeypatch.setattr(doorbell, "ring", no_ring)

    async with asyncio.timeout(20):
        reader = await LeasedStore.open(tmp_path / "store.db")
        writer = await LeasedStore.open(tmp_path / "store.db")
        for number in range(1, 4):
            waiting = asyncio.ensure_future(reader.wait_after(number - 1, ENDLESS))
            event = opened(numbered(number))
            await writer.append(replay([event]), [event])
            assert await waiting == number
        await reader.close()
        await writer.close()


async def test_a_store_of_an_earlier_version_gets_a_doorbell(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    lock_path(path).touch(mode=0o600)

    async with asyncio.timeout(20):
        await (await LeasedStore.open(path)).close()
    assert lock_path(path).stat().st_size == 1
