"""A store whose files are deleted, replaced, moved, truncated or overwritten while it is open."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from synapse.core.errors import StoreLost
from synapse.core.lifecycle import replay
from synapse.core.store import TaskQuery
from tests.fakes.facts import numbered, opened
from tests.fakes.leased_store import LeasedStore

Damage = Callable[[Path], None]


def delete_all(path: Path) -> None:
    for file in path.parent.glob("store.db*"):
        file.unlink()


def delete_database(path: Path) -> None:
    path.unlink()


def delete_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


def delete_log(path: Path) -> None:
    Path(f"{path}-wal").unlink()


def delete_index_of_log(path: Path) -> None:
    Path(f"{path}-shm").unlink()


def move(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))


def truncate(path: Path) -> None:
    os.truncate(path, 0)


def truncate_in_the_middle(path: Path) -> None:
    os.truncate(path, 8192)


def overwrite_with_text(path: Path) -> None:
    path.write_bytes(b"this is no database" * 10_000)


def replace_with_another(path: Path) -> None:
    other = path.with_name("other.db")
    with closing(sqlite3.connect(other)) as made:
        made.execute("CREATE TABLE other (field)")
    other.replace(path)


DAMAGES: list[Damage] = [
    delete_all,
    delete_database,
    delete_folder,
    delete_log,
    delete_index_of_log,
    move,
    truncate,
    truncate_in_the_middle,
    overwrite_with_text,
    replace_with_another,
]
PUT_BACK: list[Damage] = [delete_all, delete_database, delete_folder, delete_log, delete_index_of_log]


@asynccontextmanager
async def a_store(path: Path) -> AsyncGenerator[LeasedStore]:
    """Opens a store that has one task in it, and whose database file holds all its tables."""
    async with asyncio.timeout(20):
        store = await LeasedStore.open(path)
        with closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        await store.append(replay([opened()]), [opened()])
        try:
            yield store
        finally:
            await store.close()


async def append(store: LeasedStore, number: int) -> None:
    fact = opened(numbered(number))
    await store.append(replay([fact]), [fact])


def tasks_in(path: Path) -> int:
    with closing(sqlite3.connect(path)) as store:
        (verdict,) = store.execute("PRAGMA quick_check").fetchone()
        assert verdict == "ok"
        (count,) = store.execute("SELECT COUNT(*) FROM tasks").fetchone()
    return int(count)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "store.db"


@pytest.mark.parametrize("damage", DAMAGES)
async def test_nothing_is_acknowledged_that_a_restart_would_not_find(path: Path, damage: Damage) -> None:
    async with a_store(path) as store:
        assert store.fault() == ""
        damage(path)

        assert store.fault().startswith(str(path))
        with pytest.raises(StoreLost, match=r"store\.db") as caught:
            await append(store, 2)
        assert "synapse restart" in caught.value.hint
        with pytest.raises(StoreLost):
            await store.last_seq()
        with pytest.raises(StoreLost):
            await store.open_tasks("inbox")


@pytest.mark.parametrize("damage", PUT_BACK)
async def test_a_deleted_store_is_put_back_when_the_process_ends(path: Path, damage: Damage) -> None:
    async with a_store(path) as store:
        damage(path)
        with pytest.raises(StoreLost):
            await append(store, 2)

    assert tasks_in(path) == 1
    assert path.stat().st_mode & 0o077 == 0
    assert list(path.parent.glob("store.db.saved-*")) == []


async def test_a_store_is_saved_beside_the_one_that_took_its_place(path: Path) -> None:
    async with a_store(path):
        replace_with_another(path)

    (saved,) = path.parent.glob("store.db.saved-*")
    assert tasks_in(saved) == 1
    assert saved.stat().st_mode & 0o077 == 0
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT COUNT(*) FROM other").fetchone() == (0,)


async def test_two_processes_with_the_same_deleted_store_leave_one(path: Path) -> None:
    async with a_store(path) as store:
        second = await LeasedStore.open(path)
        assert await second.last_seq() == 1
        delete_all(path)
        await second.close()
        assert tasks_in(path) == 1
        assert "was replaced" in store.fault()

    assert tasks_in(path) == 1
    assert list(path.parent.glob("store.db.saved-*")) == []


async def test_a_moved_store_continues_when_it_is_moved_back(path: Path) -> None:
    async with a_store(path) as store:
        move(path)
        assert f"was moved to {path.with_name('elsewhere.db')}" in store.fault()
        path.with_name("elsewhere.db").rename(path)
        await append(store, 2)

    assert tasks_in(path) == 2


async def test_reading_a_deleted_store_creates_no_new_file(path: Path) -> None:
    async with a_store(path) as store:
        delete_all(path)
        with pytest.raises(StoreLost):
            await store.open_tasks("inbox")
        assert list(path.parent.iterdir()) == []


async def test_a_store_that_others_vacuum_and_checkpoint_is_not_lost(path: Path) -> None:
    async with a_store(path) as store:
        for number in range(2, 300):
            await append(store, number)
        with closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            assert store.fault() == ""
            other.execute("DELETE FROM appends WHERE seq > 2")
            other.commit()
            other.execute("VACUUM")
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert store.fault() == ""


async def test_the_end_of_a_lost_store_leaves_the_files_of_its_successor(path: Path) -> None:
    async with a_store(path) as lost:
        delete_all(path)
        successor = await LeasedStore.open(path)
        await append(successor, 7)
        await lost.close()

        assert successor.fault() == ""
        await append(successor, 8)
        await successor.close()
        assert tasks_in(path) == 2


async def test_a_lost_store_that_recovers_records_what_was_refused_meanwhile(path: Path) -> None:
    async with a_store(path) as store:
        await store.open_tasks("inbox")
        delete_all(path)
        with pytest.raises(StoreLost):
            await append(store, 2)

        assert await store.recover()

        assert store.fault() == ""
        await append(store, 2)
        assert await store.last_seq() == 2
        assert len((await store.list(TaskQuery())).tasks) == 2

    assert tasks_in(path) == 2


async def test_the_second_process_to_recover_continues_with_the_store_of_the_first(path: Path) -> None:
    async with a_store(path) as store:
        second = await LeasedStore.open(path)
        delete_all(path)
        assert await second.recover()
        await append(second, 2)
        assert await store.recover()
        await append(store, 3)
        await second.close()

    assert tasks_in(path) == 3
    assert list(path.parent.glob("store.db.saved-*")) == []


@pytest.mark.parametrize("damage", [replace_with_another, delete_log, delete_index_of_log, move, truncate])
async def test_only_a_deleted_store_recovers_by_itself(path: Path, damage: Damage) -> None:
    async with a_store(path) as store:
        damage(path)
        assert not await store.recover()
        assert store.fault()


async def test_an_undamaged_store_has_nothing_to_recover(path: Path) -> None:
    async with a_store(path) as store:
        assert await store.recover()
        await append(store, 2)

    assert tasks_in(path) == 2
