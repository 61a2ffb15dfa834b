"""Opening a store: private, migrated once; the error for each kind of bad file names the next step."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from synapse.core.errors import StoreCorrupt, StoreFailed, StoreLocked, StoreTooNew, StoreUnsafe, SynapseError
from synapse.core.events import TaskEvent
from synapse.core.lifecycle import replay
from synapse.core.task import TaskState
from synapse.store import file as store_file
from synapse.store.file import filesystem_type, lock_path, migrations, refuse_network, store_error
from tests.fakes.facts import TASK, handed, hidden, moved, numbered, opened
from tests.fakes.leased_store import LeasedStore

NEXT = migrations()[-1][0] + 1
MOUNTS = """\
22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw
35 22 0:30 / /mnt/share rw,relatime - nfs4 server:/export rw
36 22 0:31 / /mnt/my\\040share rw,relatime - cifs //server/share rw
37 22 0:32 / /mnt/ssh rw,relatime - fuse.sshfs me@there: rw
38 35 0:33 / /mnt/share/local rw,relatime - xfs /dev/sdb1 rw
39 22 0:34 / /twice rw - ext4 /dev/sdc1 rw
40 22 0:35 / /twice rw - 9p host rw
41 22 0:36 / /appimage rw - fuse.squashfuse app rw
"""


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def refusal(path: Path) -> SynapseError:
    """Returns the error of opening the file."""
    with pytest.raises(SynapseError) as refused:
        await LeasedStore.open(path, lock_timeout=0.3)
    return refused.value


async def make(path: Path, *statements: str) -> None:
    """Makes a store with one finished and one open task, then tampers with it."""
    async with asyncio.timeout(20):
        store = await LeasedStore.open(path)
        finished: list[TaskEvent] = [opened(), moved(TaskState.COMPLETED)]
        await store.append(replay(finished), finished)
        await store.append(replay([opened(numbered(2))]), [opened(numbered(2))])
        await store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


async def test_a_new_store_is_private(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "state" / "store.db"
    previous = os.umask(0)
    try:
        async with asyncio.timeout(20):
            store = await LeasedStore.open(path)
            await store.append(replay([opened()]), [opened()])
            assert mode(path.parent) == 0o700
            assert {mode(file) for file in path.parent.iterdir()} == {0o600}
            assert path.with_name("store.db-wal").exists()
            await store.close()
    finally:
        os.umask(previous)


async def test_a_store_that_others_could_read_is_made_private(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.touch(mode=0o644)
    path.chmod(0o644)
    tmp_path.chmod(0o755)

    await make(path)

    assert mode(path) == 0o600
    assert mode(tmp_path) == 0o755, "an existing folder is not changed"


async def test_a_reopened_store_has_everything_that_was_written(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await make(path)

    async with asyncio.timeout(20):
        store = await LeasedStore.open(path)
        assert (await store.load(TASK)).state is TaskState.COMPLETED
        assert await store.append(replay([opened("new")]), [opened("new")]) == 4
        await store.close()


async def test_a_store_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await make(path, "PRAGMA user_version = 99")
    before = path.read_bytes()

    refused = await refusal(path)

    assert isinstance(refused, StoreTooNew)
    assert "upgrade" in refused.hint
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"not a database, but long enough to be one " * 100, b"SQLite format 3\x00" + b"x" * 5000]
)
async def test_a_file_that_is_no_database_is_corrupt(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(content)

    refused = await refusal(path)

    assert isinstance(refused, StoreCorrupt)
    assert str(path) in str(refused)
    assert "mv " in refused.hint
    assert path.read_bytes() == content


async def test_a_truncated_store_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await make(path)
    path.write_bytes(path.read_bytes()[:5000])

    assert isinstance(await refusal(path), StoreCorrupt)


async def test_a_database_of_another_program_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE theirs (x)")

    refused = await refusal(path)

    assert isinstance(refused, StoreCorrupt)
    assert "another program" in str(refused)


async def test_damage_inside_is_found_by_a_check(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await make(path)
    content = bytearray(path.read_bytes())
    content[2 * 4096 : 3 * 4096] = b"\xff" * 4096
    path.write_bytes(content)

    async with asyncio.timeout(20):
        store = await LeasedStore.open(path)
        with pytest.raises(StoreCorrupt):
            await store.check()
        await store.close()


async def test_a_sound_store_passes_the_check(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await make(path)

    async with asyncio.timeout(20):
        store = await LeasedStore.open(path)
        await store.check()
        await store.close()


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("UPDATE appends SET body = replace(body, 'task_opened', 'task_cloned') WHERE seq = 3", StoreTooNew),
        ("UPDATE appends SET body = '[' WHERE seq = 3", StoreCorrupt),
        ("UPDATE appends SET body = '7' WHERE seq = 3", StoreCorrupt),
        ("UPDATE appends SET body = '[7]' WHERE seq = 3", StoreCorrupt),
        ("UPDATE appends SET body = '[[]]' WHERE seq = 3", StoreCorrupt),
        ("""UPDATE appends SET body = '[["task_opened",1,{}]]' WHERE seq = 3""", StoreCorrupt),
        ("UPDATE tasks SET version = 7 WHERE number = 3", StoreCorrupt),
        ("DELETE FROM appends WHERE seq = 3", StoreCorrupt),
    ],
)
async def test_a_damaged_log_is_reported_and_other_tasks_can_be_read(
    tmp_path: Path, statement: str, error: type[StoreFailed]
) -> None:
    path = tmp_path / "store.db"
    await make(path, statement)

    async with asyncio.timeout(20):
        store = await LeasedStore.open(path)
        with pytest.raises(error) as refused:
            await store.load(numbered(2))
        assert refused.value.hint
        assert (await store.load(TASK)).version == 2
        await store.close()


async def test_a_damaged_snapshot_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await make(path, "INSERT INTO snapshots VALUES (2, 2, '{\"id\": 1}')")

    async with asyncio.timeout(20):
        store = await LeasedStore.open(path)
        with pytest.raises(StoreCorrupt):
            await store.load(TASK)
        await store.close()


async def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    refused = await refusal(tmp_path / "file" / "state" / "store.db")

    assert type(refused) is StoreFailed
    assert "SYNAPSE_HOME" in refused.hint


async def test_a_lock_that_is_held_during_migration_is_reported_after_the_timeout(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    descriptor = os.open(lock_path(path), os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        refused = await refusal(path)
    finally:
        os.close(descriptor)

    assert isinstance(refused, StoreLocked)
    assert str(path) in refused.hint
    await make(path)


async def test_a_current_store_can_be_read_while_another_holds_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await make(path)

    async with asyncio.timeout(20):
        descriptor = os.open(lock_path(path), os.O_RDWR)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            store = await LeasedStore.open(path, lock_timeout=0.2)
            assert (await store.load(TASK)).version == 2
            await store.close()
        finally:
            os.close(descriptor)


async def test_a_store_of_an_older_version_is_migrated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.db"
    await make(path)
    monkeypatch.setattr(store_file, "migrations", lambda: [*migrations(), (NEXT, "CREATE TABLE added (x)")])

    async with asyncio.timeout(20):
        for _ in range(2):
            store = await LeasedStore.open(path)
            assert (await store.load(TASK)).version == 2
            await store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (NEXT,)
        assert connection.execute("SELECT COUNT(*) FROM added").fetchone() == (0,)


async def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.db"
    await make(path)
    broken = (NEXT, "CREATE TABLE added (x); CREATE TABLE added (x)")
    monkeypatch.setattr(store_file, "migrations", lambda: [*migrations(), broken])

    refused = await refusal(path)

    assert isinstance(refused, StoreFailed)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (NEXT - 1,)
        assert connection.execute("SELECT name FROM sqlite_master WHERE name = 'added'").fetchone() is None


async def test_a_file_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await make(path)
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        with pytest.raises(sqlite3.OperationalError) as refused:
            connection.execute("DELETE FROM tasks")
        told = store_error(refused.value, path)

    assert type(told) is StoreFailed
    assert "ls -ld" in told.hint


async def snapshots(path: Path, log: Sequence[TaskEvent], *cuts: int) -> list[int]:
    """Writes the log in appends that end at these versions; returns the versions with a snapshot."""
    kept: list[int] = []

    async with asyncio.timeout(20):
        store = await LeasedStore.open(path)
        for start, stop in pairwise((0, *cuts)):
            await store.append(replay(log[:stop]), log[start:stop])
            assert await store.load(TASK) == replay(log[:stop])
            with closing(sqlite3.connect(path)) as connection:
                kept.extend(version for (version,) in connection.execute("SELECT version FROM snapshots"))
        await store.close()
    return kept


async def test_a_task_that_is_whole_in_one_append_needs_no_snapshot(tmp_path: Path) -> None:
    log: list[TaskEvent] = [opened(), moved(TaskState.WORKING), handed("a"), moved(TaskState.COMPLETED)]

    assert await snapshots(tmp_path / "store.db", log, 4) == []


async def test_the_end_of_a_task_and_a_question_write_a_snapshot(tmp_path: Path) -> None:
    log: list[TaskEvent] = [
        opened(),
        moved(TaskState.WORKING),
        moved(TaskState.INPUT_REQUIRED),
        handed("a"),
        moved(TaskState.WORKING),
        moved(TaskState.COMPLETED),
        hidden(),
    ]

    assert await snapshots(tmp_path / "store.db", log, *range(1, 8)) == [3, 3, 3, 6, 6]


async def test_a_task_that_grows_long_gets_a_snapshot_now_and_then(tmp_path: Path) -> None:
    log: list[TaskEvent] = [opened(), moved(TaskState.WORKING), *(handed("a", append=True) for _ in range(150))]

    assert await snapshots(tmp_path / "store.db", log, 2, 60, 65, 66, 130, 150) == [65, 65, 130, 130]


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/home-like/me", "ext4"),
        ("/mnt/share/me/.a2a", "nfs4"),
        ("/mnt/share/local/x", "xfs"),
        ("/mnt/shared", "ext4"),
        ("/mnt/my share/x", "cifs"),
        ("/mnt/ssh", "fuse.sshfs"),
        ("/twice/x", "9p"),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(folder: str, kind: str) -> None:
    assert filesystem_type(Path(folder), MOUNTS) == kind


@pytest.mark.parametrize("folder", ["/mnt/share/me", "/mnt/my share", "/mnt/ssh/x", "/twice"])
def test_a_network_file_system_is_refused_with_a_hint(folder: str) -> None:
    with pytest.raises(StoreUnsafe) as refused:
        refuse_network(Path(folder), MOUNTS)

    assert "SYNAPSE_HOME" in refused.value.hint


@pytest.mark.parametrize("folder", ["/var/me", "/mnt/share/local", "/appimage/x"])
def test_a_local_file_system_is_accepted(folder: str) -> None:
    refuse_network(Path(folder), MOUNTS)


def test_without_a_list_of_mounts_no_folder_is_refused() -> None:
    refuse_network(Path("/mnt/share"), "")
    refuse_network(Path("/mnt/share"), "nonsense\n1 2 3\n")
