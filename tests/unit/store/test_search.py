"""Searching the texts of tasks: the contract of every store, and the index file of the one in SQLite."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from synapse.core.errors import InvalidField, SearchNotReady, StoreTooNew, UnsupportedOperation
from synapse.core.events import TaskEvent
from synapse.core.store import TaskQuery
from synapse.core.task import TaskState
from synapse.store import search
from tests.fakes.facts import after, handed, hidden, message, moved, numbered, opened, said
from tests.fakes.leased_store import LeasedStore
from tests.unit.store.stories import AnyStore, keep


async def found(store: AnyStore, text: str, **wanted: object) -> list[str]:
    page = await store.list(TaskQuery(text=text, **wanted))  # type: ignore[arg-type] # the fields of the query by name
    assert page.total == len(page.tasks)
    return [task.id for task in page.tasks]


async def ask(store: AnyStore, task: str, text: str, at: float = 1, **fields: object) -> None:
    await keep(store, opened(task, at=at, message=message(text, f"m-{task}"), **fields))


async def test_messages_and_answers_are_found_newest_change_first(store: AnyStore) -> None:
    first = opened("a", at=1, message=message("write the parser", "m-a"))
    working = moved(TaskState.WORKING, "a", at=2)
    await keep(store, first, working)
    await ask(store, "b", "read the lexer", at=3)

    assert await found(store, "parser") == ["a"]
    assert await found(store, "the") == ["b", "a"]

    await keep(store, handed("the lexer is ", "a", at=4), before=[first, working])
    assert await found(store, "lexer") == ["a", "b"]
    assert await found(store, "parser lexer") == ["a"]
    assert await found(store, '"lexer is done"') == []

    grown: list[TaskEvent] = [first, working, handed("the lexer is ", "a", at=4)]
    await keep(store, handed("done", "a", at=5, append=True), before=grown)
    assert await found(store, '"lexer is done"') == ["a"]


async def test_a_search_obeys_all_other_filters(store: AnyStore) -> None:
    await ask(store, "a", "parser", at=1, context_id="c")
    await ask(store, "b", "parser", at=2, scope="other")
    await ask(store, "c", "parser", at=3, inbox="ada", agent_id="x", parent_id="p", metadata={"user": "ada"})
    await keep(store, opened("d", at=4, message=message("parser", "m-d")), moved(TaskState.FAILED, "d", at=5))
    await ask(store, "e", "lexer", at=6)

    assert await found(store, "parser") == ["d", "c", "b", "a"]
    assert await found(store, "parser", context_id="c") == ["a"]
    assert await found(store, "parser", scope="other") == ["b"]
    assert await found(store, "parser", inbox="ada") == ["c"]
    assert await found(store, "parser", agent_id="x") == ["c"]
    assert await found(store, "parser", parent_id="p") == ["c"]
    assert await found(store, "parser", metadata={"user": "ada"}) == ["c"]
    assert await found(store, "parser", states=frozenset({TaskState.FAILED})) == ["d"]
    assert await found(store, "parser", states=frozenset({TaskState.SUBMITTED})) == ["c", "b", "a"]
    assert await found(store, "parser", updated_after=after(2)) == ["d", "c"]
    assert await found(store, "parser", expired=False) == ["d", "c", "b", "a"]


@pytest.mark.parametrize("few", [0, 2000], ids=["many found", "few found"])
async def test_pages_of_a_search_lose_and_repeat_nothing(
    store: AnyStore, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr("synapse.store.reader._FEW_FOUND", few)
    for number in range(12):
        text = "parser" if number % 2 else "lexer"
        await ask(store, numbered(number), text, at=number // 4, agent_id="x" if number < 6 else "y")

    for wanted, numbers in (
        ({}, (11, 9, 7, 5, 3, 1)),
        ({"agent_id": "x"}, (5, 3, 1)),
        ({"inbox": "codex@/proj"}, (11, 9, 7, 5, 3, 1)),
    ):
        seen: list[str] = []
        cursor = ""
        while True:
            query = TaskQuery(text="parser", limit=2, cursor=cursor, **wanted)  # type: ignore[arg-type] # its fields by name
            page = await store.list(query)
            seen += [task.id for task in page.tasks]
            assert page.total == len(numbers)
            cursor = page.next_cursor
            if not cursor:
                break
        assert seen == [numbered(number) for number in numbers]


async def test_hidden_and_pruned_tasks_are_not_found(store: AnyStore) -> None:
    done = moved(TaskState.COMPLETED, "a", at=2)
    await keep(store, opened("a", at=1, message=message("parser", "m-a")), done)
    await ask(store, "b", "parser", at=3)
    assert await found(store, "parser") == ["b", "a"]

    await keep(store, hidden("b", at=4), before=[opened("b", at=3, message=message("parser", "m-b"))])
    assert await found(store, "parser") == ["a"]

    assert await store.prune(after(10)) == 1
    assert await found(store, "parser") == []


@pytest.mark.parametrize("text", ["!!!", '"', '""', "* OR", "NEAR(", "a:b", "'; --", "\ud800", "\x00"])
async def test_nothing_that_is_typed_is_an_error(store: AnyStore, text: str) -> None:
    await ask(store, "a", "hello")

    assert await found(store, text) == []


async def test_a_search_that_is_too_long_is_refused(store: AnyStore) -> None:
    with pytest.raises(InvalidField, match="500"):
        await store.list(TaskQuery(text="a" * 501))


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncGenerator[LeasedStore]:
    store = await LeasedStore.open(tmp_path / "store.db", lock_timeout=0.5)
    yield store
    await store.close()


async def reopened(store: LeasedStore, path: Path, *, search: bool = True) -> LeasedStore:
    await store.close()
    return await LeasedStore.open(path / "store.db", search=search)


def indexed(folder: Path) -> list[tuple[int, str]]:
    """Returns what the index file holds, in the order of the tasks."""
    connection = sqlite3.connect(folder / "search.db")
    try:
        rows = connection.execute("SELECT rowid, body FROM texts ORDER BY rowid").fetchall()
        assert [number for number, _ in rows] == [
            number for (number,) in connection.execute("SELECT number FROM docs ORDER BY number")
        ]
    finally:
        connection.close()
    return [(number, str(body)) for number, body in rows]


async def test_the_index_is_a_private_file_beside_the_store(sqlite: LeasedStore, tmp_path: Path) -> None:
    await ask(sqlite, "a", "Parser")
    assert not (tmp_path / "search.db").exists()

    assert (await sqlite.update_search(1)).is_current

    assert [body for _, body in indexed(tmp_path)] == ["parser"]
    assert (tmp_path / "search.db").stat().st_mode & 0o777 == 0o600


async def test_a_restart_indexes_only_what_is_new(
    sqlite: LeasedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        await ask(sqlite, numbered(number), f"parser {number}")
    await sqlite.update_search(1)
    store = await reopened(sqlite, tmp_path)
    texts: list[str] = []

    def noted(text: str) -> str:
        texts.append(text)
        return text

    monkeypatch.setattr(search, "normalized", noted)

    await ask(store, numbered(9), "lexer")
    assert await found(store, "lexer") == [numbered(9)]

    assert texts == ["lexer"]
    await store.close()


async def test_an_append_without_text_writes_no_text(sqlite: LeasedStore, tmp_path: Path) -> None:
    first = opened("a", message=message("parser", "m-a"))
    await keep(sqlite, first)
    await sqlite.update_search(1)
    with sqlite3.connect(tmp_path / "search.db") as connection:
        connection.execute("UPDATE texts SET body = 'other'")

    await keep(sqlite, moved(TaskState.WORKING, "a"), before=[first])

    assert await found(sqlite, "parser") == []
    assert await found(sqlite, "other") == ["a"]


@pytest.mark.parametrize("content", [b"", b"this is no database " * 500], ids=["emptied", "overwritten"])
async def test_a_damaged_index_is_built_again(sqlite: LeasedStore, tmp_path: Path, content: bytes) -> None:
    await ask(sqlite, "a", "parser")
    await sqlite.update_search(1)
    store = await reopened(sqlite, tmp_path)
    (tmp_path / "search.db").write_bytes(content)

    assert await found(store, "parser") == ["a"]
    await store.close()


async def test_an_index_that_is_damaged_while_it_is_open_is_built_again(sqlite: LeasedStore, tmp_path: Path) -> None:
    await ask(sqlite, "a", "parser")
    assert await found(sqlite, "parser") == ["a"]
    with sqlite3.connect(tmp_path / "search.db") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("DELETE FROM texts_data")

    assert await found(sqlite, "parser") == ["a"]


@pytest.mark.parametrize("gone", ["search.db*", "search.db", "search.db.lock"])
async def test_a_deleted_index_is_built_again(sqlite: LeasedStore, tmp_path: Path, gone: str) -> None:
    await ask(sqlite, "a", "lexer")
    assert await found(sqlite, "parser") == []
    for file in tmp_path.glob(gone):
        file.unlink()
    await ask(sqlite, "b", "parser")

    assert await found(sqlite, "parser") == ["b"]
    assert [body for _, body in indexed(tmp_path)] == ["lexer", "parser"]


async def test_deleted_texts_leave_the_index(sqlite: LeasedStore, tmp_path: Path) -> None:
    first = opened("a", message=message("parser", "m-a"))
    await keep(sqlite, first)
    await ask(sqlite, "b", "lexer")
    await sqlite.update_search(1)
    await keep(sqlite, hidden("a"), before=[first])

    await sqlite.update_search(1)

    assert [body for _, body in indexed(tmp_path)] == ["lexer"]


async def test_an_index_of_an_older_schema_is_built_again(
    sqlite: LeasedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask(sqlite, "a", "parser")
    await sqlite.update_search(1)
    monkeypatch.setattr(search, "SCHEMA", search.SCHEMA + 1)
    store = await reopened(sqlite, tmp_path)

    assert await found(store, "parser") == ["a"]

    with sqlite3.connect(tmp_path / "search.db") as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (search.SCHEMA,)
    await store.close()


async def test_an_index_of_a_newer_schema_is_left_alone(sqlite: LeasedStore, tmp_path: Path) -> None:
    await ask(sqlite, "a", "parser")
    await sqlite.update_search(1)
    store = await reopened(sqlite, tmp_path)
    with sqlite3.connect(tmp_path / "search.db") as connection:
        connection.execute(f"PRAGMA user_version = {search.SCHEMA + 1}")

    with pytest.raises(StoreTooNew, match="newer Synapse"):
        await store.list(TaskQuery(text="parser"))
    await store.close()


async def test_the_index_of_another_store_is_built_again(sqlite: LeasedStore, tmp_path: Path) -> None:
    await ask(sqlite, "a", "parser")
    await ask(sqlite, "b", "parser")
    await sqlite.update_search(1)
    await sqlite.close()
    for file in tmp_path.glob("store.db*"):
        file.unlink()
    store = await LeasedStore.open(tmp_path / "store.db")

    await ask(store, "c", "lexer")
    await ask(store, "d", "parser")

    assert await found(store, "parser") == ["d"]
    assert await found(store, "lexer") == ["c"]
    assert [body for _, body in indexed(tmp_path)] == ["lexer", "parser"]
    await store.close()


async def test_pruned_texts_leave_the_index_without_a_search(sqlite: LeasedStore, tmp_path: Path) -> None:
    await keep(sqlite, opened("a", message=message("parser", "m-a")), moved(TaskState.COMPLETED, "a"))
    await ask(sqlite, "b", "lexer")
    await sqlite.update_search(1)

    await sqlite.prune(after(10))

    assert [body for _, body in indexed(tmp_path)] == ["lexer"]


async def test_texts_that_another_process_pruned_leave_the_index(sqlite: LeasedStore, tmp_path: Path) -> None:
    await keep(sqlite, opened("a", message=message("parser", "m-a")), moved(TaskState.COMPLETED, "a"))
    await ask(sqlite, "b", "lexer")
    await sqlite.update_search(1)
    (tmp_path / "search.db").rename(tmp_path / "away")  # as if the other process could not reach it
    other = await LeasedStore.open(tmp_path / "store.db")
    await other.prune(after(10))
    await other.close()
    (tmp_path / "away").rename(tmp_path / "search.db")

    await sqlite.update_search(1)

    assert [body for _, body in indexed(tmp_path)] == ["lexer"]


async def test_a_store_that_was_pruned_empty_is_indexed_again(sqlite: LeasedStore) -> None:
    await keep(sqlite, opened("a", message=message("parser", "m-a")), moved(TaskState.COMPLETED, "a"))
    await sqlite.update_search(1)
    await sqlite.prune(after(10))
    assert (await sqlite.update_search(1)).is_current

    await ask(sqlite, "b", "lexer")

    assert await found(sqlite, "lexer") == ["b"]


async def test_while_another_process_builds_a_search_says_so(
    sqlite: LeasedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_QUERY_SECONDS", 0.05)
    await ask(sqlite, "a", "parser")
    await sqlite.update_search(1)
    await ask(sqlite, "b", "parser")
    await ask(sqlite, "c", "parser")
    lock = os.open(tmp_path / "search.db.lock", os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        progress = await sqlite.update_search(0.05)
        assert (progress.seq, progress.last, progress.left, progress.percent) == (1, 3, 2, 33)
        with pytest.raises(SearchNotReady, match="33 %"):
            await sqlite.list(TaskQuery(text="parser"))
    finally:
        os.close(lock)

    assert await found(sqlite, "parser") == ["c", "b", "a"]


async def test_search_that_is_switched_off_refuses_and_deletes_the_index(sqlite: LeasedStore, tmp_path: Path) -> None:
    await ask(sqlite, "a", "parser")
    await sqlite.update_search(1)
    store = await reopened(sqlite, tmp_path, search=False)

    with pytest.raises(UnsupportedOperation, match="switched off"):
        await store.list(TaskQuery(text="parser"))
    assert (await store.update_search(1)).is_current

    assert not (tmp_path / "search.db").exists()
    await store.close()


async def test_a_task_that_cannot_be_read_does_not_stop_the_index(sqlite: LeasedStore, tmp_path: Path) -> None:
    await ask(sqlite, "a", "parser")
    await keep(sqlite, opened("b", message=message("lexer", "m-b")))
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute("""UPDATE appends SET body = '[["task_opened", 1, {}]]' WHERE seq = 2""")

    assert (await sqlite.update_search(1)).is_current

    assert [body for _, body in indexed(tmp_path)] == ["parser", ""]
    assert await found(sqlite, "parser") == ["a"]


async def test_words_of_several_messages_are_found_together(store: AnyStore) -> None:
    first = opened("a", message=message("first", "m-a"))
    await keep(store, first)
    await keep(store, said("second words", "a"), before=[first])

    assert await found(store, "first second") == ["a"]
