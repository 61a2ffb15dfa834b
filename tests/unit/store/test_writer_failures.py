"""When a system call fails, callers get the reason, and the writer's thread goes on."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import sqlite3
import threading
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from synapse.core.errors import StoreFailed, StoreFull
from synapse.core.events import TaskEvent
from synapse.core.lifecycle import replay
from synapse.core.override import override
from synapse.core.store import Lease
from synapse.store import writer as store_writer
from synapse.store.file import open_file
from synapse.store.lost_files import StoreFiles
from synapse.store.queries import query
from synapse.store.writer import Writer, encode_append
from tests.fakes.facts import message, numbered, opened
from tests.fakes.leased_store import LeasedStore

LEASE = Lease(opened().inbox, "one", 1)


class NoRoomForLocks:
    """A kernel that refuses a lock, once."""

    LOCK_EX, LOCK_UN = fcntl.LOCK_EX, fcntl.LOCK_UN

    def __init__(self) -> None:
        self._refusals = [OSError(errno.ENOLCK, "No locks available")]

    def flock(self, descriptor: int, operation: int) -> None:
        if self._refusals:
            raise self._refusals.pop()
        fcntl.flock(descriptor, operation)


async def test_a_lock_that_the_kernel_refuses_is_reported_and_the_next_write_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(20):
        store = await LeasedStore.open(tmp_path / "store.db")
        monkeypatch.setattr(store_writer, "fcntl", NoRoomForLocks())
        with pytest.raises(StoreFailed, match="No locks available"):
            await asyncio.wait_for(store.append(replay([opened()]), [opened()]), 5)

        assert await asyncio.wait_for(store.append(replay([opened()]), [opened()]), 5) == 1
        await store.close()


def take_lease(connection: sqlite3.Connection) -> None:
    """Makes `LEASE` the current lease of its inbox."""
    connection.execute(query("acquire"), (LEASE.inbox, LEASE.holder, LEASE.epoch))


def submit(writer: Writer, *events: TaskEvent) -> asyncio.Future[int]:
    done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    writer.submit(encode_append(replay(events), events, LEASE, "", done))
    return done


async def test_a_full_disk_fails_only_writes_that_do_not_fit_until_there_is_space(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async with asyncio.timeout(20):
        connection = open_file(path, lock_timeout=1)
        take_lease(connection)
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 20}")
        writer = Writer(StoreFiles(path), connection, lock_timeout=1)
        large = opened(numbered(2), message=message("x" * 200_000))

        small, too_large, behind = submit(writer, opened()), submit(writer, large), submit(writer, opened(numbered(3)))

        with pytest.raises(StoreFull) as refused:
            await too_large
        assert "df -h" in refused.value.hint
        assert [await done for done in (small, behind)] == [1, 2]
        # No thread writes now, so the connection may be used here.
        connection.execute(f"PRAGMA max_page_count = {pages + 2000}")
        assert await submit(writer, large) == 3
        await writer.close()


class Expiring(deque[Any]):
    """A queue whose first work expires right after the writer's thread has seen it."""

    def __init__(self) -> None:
        super().__init__()
        self.expired = threading.Event()

    @override
    def __len__(self) -> int:
        length = super().__len__()
        if length and not self.expired.is_set() and threading.current_thread().name == "synapse-store-writer":
            self.clear()
            self.expired.set()
        return length


async def test_the_thread_goes_on_when_its_queue_has_expired_meanwhile(tmp_path: Path) -> None:
    async with asyncio.timeout(20):
        path = tmp_path / "store.db"
        connection = open_file(path, lock_timeout=5)
        take_lease(connection)
        writer = Writer(StoreFiles(path), connection, lock_timeout=5)
        works = writer._queue = Expiring()  # pyright: ignore[reportPrivateUsage] # the race is inside
        gone = submit(writer, opened())
        assert await asyncio.to_thread(works.expired.wait, 10)

        assert await submit(writer, opened(numbered(2))) == 1
        assert not gone.done()
        await writer.close()
