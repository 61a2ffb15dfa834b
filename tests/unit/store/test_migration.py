"""Migrating a store of schema 3, which had a row for every event, loses nothing, even when it is killed."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from synapse.core.errors import StoreInUse
from synapse.core.events import TaskEvent
from synapse.core.lifecycle import replay
from synapse.core.message import Artifact, DataPart, FilePart, TextPart
from synapse.core.store import KnownMessage, Lease, TaskQuery
from synapse.core.task import ReceiptStep, TaskId, TaskState
from synapse.store.file import APPLICATION_ID, migrations
from synapse.store.sqlite import SqliteStore
from tests.fakes.facts import TASK, after, handed, hidden, message, moved, numbered, opened, said, stepped
from tests.fakes.leased_store import LeasedStore
from tests.fakes.old_stores import bring_up_to

ROWS: Final = Path(__file__).with_name("store_of_schema_3.sql")
PARTS: Final = (
    TextPart(text='日本語 "quoted" \\ \ud800 \x00', name="it's"),
    FilePart(content=bytes(range(256)), name="f.bin"),
    DataPart(data={"n": [1.5, None]}),
)
DONE: Final[Sequence[TaskEvent]] = (
    opened(message=replace(message(), parts=PARTS), metadata={"user": "ada"}),
    stepped(ReceiptStep.TYPED),
    moved(TaskState.WORKING, at=3),
    replace(handed("", at=3), artifact=Artifact(artifact_id="a", parts=PARTS)),
    moved(TaskState.COMPLETED, at=4),
)
QUEUED: Final[Sequence[TaskEvent]] = (opened(numbered(2), at=2, inbox="other"),)
GOING_ON: Final[Sequence[TaskEvent]] = (
    opened(numbered(3), at=5, scope="key:x"),
    moved(TaskState.WORKING, numbered(3), at=6),
    said("more", numbered(3), at=7),
)
HIDDEN: Final[Sequence[TaskEvent]] = (
    opened(numbered(4), at=8),
    moved(TaskState.FAILED, numbered(4), at=8, reason="expired"),
    hidden(numbered(4), at=9),
)
# Seqs 1, 2, 15 and 16 belonged to tasks that have been pruned.
LOG: Final = (*DONE[:2], *QUEUED, *GOING_ON[:2], *DONE[2:], *GOING_ON[2:], *HIDDEN)
LAST_SEQ: Final = 16
KILLED_MIGRATION: Final = Path(__file__).with_name("killed_migration.py")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Returns the path of the old store."""
    file = tmp_path / "store.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        bring_up_to(connection, 3)
        connection.executescript(f"{ROWS.read_text(encoding='utf-8')}; PRAGMA application_id = {APPLICATION_ID};")
    return file


@asynccontextmanager
async def look(path: Path) -> AsyncGenerator[LeasedStore]:
    async with asyncio.timeout(20):
        store = await LeasedStore.open(path)
        try:
            yield store
        finally:
            await store.close()


async def compare(store: LeasedStore) -> None:
    """Checks that every event, seq and task is unchanged."""
    recorded = await store.read_after(0)
    assert [one.event for one in recorded] == list(LOG)
    assert [one.seq for one in recorded] == list(range(3, 15))
    for log in (DONE, QUEUED, GOING_ON, HIDDEN):
        assert await store.load(log[0].task_id) == replay(log)
        assert [one.event for one in await store.read_after(0, task_id=log[0].task_id)] == list(log)


async def test_every_event_and_task_survives_a_migration(path: Path) -> None:
    async with look(path) as store:
        await compare(store)
        await store.check()


async def test_old_tasks_without_a_snapshot_are_made_from_their_own_events(path: Path) -> None:
    # Their numbers are also the seqs of others.
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM snapshots")

    async with look(path) as store:
        await compare(store)


async def test_lists_and_their_totals_survive_the_migration(path: Path) -> None:
    async with look(path) as store:

        async def listed(**wanted: object) -> tuple[list[TaskId], int]:
            page = await store.list(TaskQuery(limit=2, **wanted))  # type: ignore[arg-type] # by name
            return [task.id for task in page.tasks], page.total

        assert await listed() == ([numbered(3), TASK], 3)
        assert await listed(scope="local") == ([TASK, numbered(2)], 2)
        assert await listed(states=frozenset({TaskState.COMPLETED})) == ([TASK], 1)
        assert await listed(metadata={"user": "ada"}) == ([TASK], 1)
        assert [task.id for task in await store.open_tasks("other")] == [numbered(2)]


async def test_bytes_stored_before_the_migration_are_counted(path: Path) -> None:
    async with look(path) as store:
        counted, every = await store.stored_bytes(), await store.read_after(0, limit=10_000)
        assert counted > 50 * len(every) > 0
        await store.prune(after(10**9))
        assert await store.stored_bytes() < counted


async def test_claims_leases_and_webhooks_survive_the_migration(path: Path) -> None:
    async with look(path) as store:
        assert await store.find_message("codex@/proj", "local", "m-1") == KnownMessage(TASK, "first")
        assert await store.find_message("", "", "m-more") == KnownMessage(numbered(3), "follow-up")
        assert not await store.acquire("codex@/proj", "another", lambda _holder: True)
        (push,) = await store.pushes.of_task(TASK)
        assert (push.told, push.config.url) == (3, "https://example.com/h")


async def test_a_migrated_store_continues_its_sequence(path: Path) -> None:
    async with look(path) as store:
        new = opened(numbered(6), at=20)
        assert await store.append(replay([new]), [new], digest="new") == LAST_SEQ + 1
        ended = moved(TaskState.COMPLETED, numbered(3), at=21)
        await store.append(replay([*GOING_ON, ended]), [ended])
        assert await store.load(numbered(3)) == replay([*GOING_ON, ended])

        assert await store.prune(after(10)) == 2
        assert await store.find_message("", "", "m-1") is None
        page = await store.list(TaskQuery(limit=1))
        assert (page.tasks[0].id, page.total) == (numbered(3), 3)


@pytest.mark.parametrize(
    "statement",
    ["SELECT id FROM tasks WHERE key IN (VALUES (1))", "INSERT INTO tasks (number, key, id) VALUES (1, 2, 'x')"],
)
async def test_a_process_with_schema_4_fails_instead_of_writing_rows_that_are_never_found(
    path: Path, statement: str
) -> None:
    with closing(sqlite3.connect(path)) as running:
        assert running.execute("PRAGMA user_version").fetchone() == (3,)
        async with look(path) as store:
            await compare(store)

        with pytest.raises(sqlite3.OperationalError, match="key"):
            running.execute(statement)


async def test_a_migration_that_is_killed_at_any_statement_is_done_by_the_next_process(
    path: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "killed"
    migrating = [sys.executable, "-P", str(KILLED_MIGRATION), str(path), str(folder)]
    subprocess.run(migrating, check=True, timeout=60)
    places = list(folder.iterdir())

    assert len(places) > dict(migrations())[4].count(";"), "it was killed at every statement"
    for place in places:
        async with look(place / path.name) as store:
            await compare(store)


@pytest.fixture(params=range(3, 7))
def old(request: pytest.FixtureRequest, path: Path) -> Path:
    """Returns a store of each older schema, in which a host holds the inbox 'codex@/proj'."""
    version: int = request.param
    with closing(sqlite3.connect(path)) as connection:
        bring_up_to(connection, version)
    return path


@pytest.mark.parametrize("schema", range(3, 8))
async def test_a_store_gets_its_id_once(schema: int, path: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        bring_up_to(connection, schema)
    async with look(path) as store:
        await compare(store)
        given = await store.store_id()
    async with look(path) as again, look(tmp_path / "other.db") as other:
        assert (await again.store_id(), len(given)) == (given, 32)
        assert await other.store_id() != given


async def test_a_store_of_each_schema_opens_and_its_next_lease_has_the_first_epoch(old: Path) -> None:
    async with look(old) as store:
        await compare(store)
        lease = await store.acquire("codex@/proj", "successor", lambda _holder: False)
        assert lease == Lease("codex@/proj", "successor", 1)


async def test_a_store_that_a_running_host_of_an_older_version_uses_is_left_as_it_is(old: Path) -> None:
    with closing(sqlite3.connect(old)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    asked: list[str] = []

    def is_alive(holder: str, /) -> bool:
        asked.append(holder)
        return True

    for _ in range(2):
        with pytest.raises(StoreInUse, match=f"from schema {version} to {migrations()[-1][0]}, .*codex@/proj"):
            await LeasedStore.open(old, is_alive=is_alive)

    assert asked == ["holder", "holder"]
    with closing(sqlite3.connect(old)) as running:
        assert running.execute("PRAGMA user_version").fetchone() == (version,)
        running.execute("INSERT OR REPLACE INTO inboxes (inbox, holder) VALUES ('codex@/proj', 'holder')")


async def test_nothing_is_migrated_when_it_is_unknown_whether_a_holder_is_alive(old: Path) -> None:
    with pytest.raises(StoreInUse):
        await SqliteStore.open(old)


async def test_a_late_host_of_an_older_version_cannot_reset_the_epochs(old: Path) -> None:
    with closing(sqlite3.connect(old)) as running:
        assert running.execute("SELECT holder FROM inboxes").fetchone()
        async with look(old) as store:
            await compare(store)

        with pytest.raises(sqlite3.OperationalError, match="holder"):
            running.execute("INSERT OR REPLACE INTO inboxes (inbox, holder) VALUES ('codex@/proj', 'late')")


async def test_a_task_whose_metadata_was_written_with_escapes_is_found_by_it(tmp_path: Path) -> None:
    metadata = {"of": "x\x7fy\N{SNOWMAN}", "user": "ada"}
    event = opened(metadata=metadata)
    path = tmp_path / "store.db"

    async def find() -> None:
        async with look(path) as store:
            assert [task.id for task in (await store.list(TaskQuery(metadata=metadata))).tasks] == [TASK]
            assert await store.load(TASK) == replay([event])

    async with look(path) as store:
        await store.append(replay([event]), [event])
    await find()
    with closing(sqlite3.connect(path)) as connection, connection:
        (body,) = connection.execute("SELECT body FROM appends").fetchone()
        assert "\N{SNOWMAN}" in body
        connection.execute("UPDATE appends SET body = ?", (json.dumps(json.loads(body), separators=(",", ":")),))
    await find()
