"""External agents are stored in private files; the error of a broken file says how to remove it."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from synapse.core.errors import StoreCorrupt, StoreFailed
from synapse.core.requests import ExternalAgent
from synapse.external.files import FileExternalStore

OTHER = ExternalAgent(
    alias="other",
    url="http://other:9000",
    name="Other \N{SNOWMAN}",
    description="does things",
    protocol="a2a-1.0",
    added_at="2026-01-15T10:30:00Z",
    card={"name": "Other", "skills": [{"id": "chat"}]},
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "external"


@pytest.fixture
def book(folder: Path) -> FileExternalStore:
    return FileExternalStore(folder)


def test_an_empty_store_has_no_agents(book: FileExternalStore) -> None:
    assert book.agents() == ()
    assert book.find("other") is None
    assert book.remove("other") is None


def test_a_stored_agent_is_found(book: FileExternalStore, folder: Path) -> None:
    book.write(OTHER)

    assert book.find("other") == OTHER
    assert FileExternalStore(folder).agents() == (OTHER,)


def test_agents_are_listed_by_alias(book: FileExternalStore) -> None:
    for alias in ("b", "c", "a"):
        book.write(ExternalAgent(alias=alias, url=f"http://{alias}", name=alias))

    assert [agent.alias for agent in book.agents()] == ["a", "b", "c"]


def test_a_folder_that_cannot_be_read_is_not_taken_for_an_empty_one(book: FileExternalStore, folder: Path) -> None:
    folder.parent.mkdir()
    folder.write_text("not a folder", encoding="utf-8")

    for read in (book.agents, book.fingerprint):
        with pytest.raises(StoreFailed, match=f"{folder} cannot be read: Not a directory"):
            read()


def test_other_users_cannot_read_the_files(book: FileExternalStore, folder: Path) -> None:
    book.write(OTHER)

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "other.json").stat().st_mode) == 0o600


def test_writing_leaves_no_draft_behind(book: FileExternalStore, folder: Path) -> None:
    book.write(OTHER)
    book.write(OTHER)

    assert [path.name for path in folder.iterdir()] == ["other.json"]


def test_a_removed_agent_is_not_found(book: FileExternalStore) -> None:
    book.write(OTHER)

    assert book.remove("other") == OTHER
    assert book.agents() == ()


@pytest.mark.parametrize("alias", ["", ".", "..", ".hidden", "../other", "a/b", "a\0b"])
def test_an_alias_never_leads_out_of_the_folder(book: FileExternalStore, folder: Path, alias: str) -> None:
    book.write(OTHER)
    (folder.parent / "other.json").write_text("{}", encoding="utf-8")

    assert book.find(alias) is None
    assert book.remove(alias) is None
    with pytest.raises(ValueError, match="cannot be a file name"):
        book.write(ExternalAgent(alias=alias, url="", name=""))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is not JSON"),
        (b"\xff", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"[]", "it is not a JSON object"),
        (b"{}", "'alias' is missing or not a string"),
        (
            json.dumps({**dict.fromkeys(("url", "name"), "x"), "alias": 3}).encode(),
            "'alias' is missing or not a string",
        ),
    ],
)
def test_a_broken_file_is_named_with_a_hint(book: FileExternalStore, folder: Path, content: bytes, why: str) -> None:
    book.write(OTHER)
    (folder / "broken.json").write_bytes(content)

    with pytest.raises(StoreCorrupt, match=why) as caught:
        book.agents()

    assert str(folder / "broken.json") in str(caught.value)
    assert caught.value.hint == "`synapse external remove broken`, then add it again"
    assert book.find("other") == OTHER


def test_a_file_without_a_card_or_under_another_name_is_broken(book: FileExternalStore, folder: Path) -> None:
    book.write(OTHER)
    fields = json.loads((folder / "other.json").read_text(encoding="utf-8"))
    (folder / "else.json").write_text(json.dumps(fields), encoding="utf-8")
    (folder / "bare.json").write_text(json.dumps({**fields, "alias": "bare", "card": []}), encoding="utf-8")

    with pytest.raises(StoreCorrupt, match="its alias differs"):
        book.find("else")
    with pytest.raises(StoreCorrupt, match="'card' is missing or not an object"):
        book.find("bare")


def test_a_broken_file_can_be_removed(book: FileExternalStore, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "broken.json").write_text("?", encoding="utf-8")

    assert book.remove("broken") == ExternalAgent(alias="broken", url="", name="")
    assert book.agents() == ()


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the folder should be", encoding="utf-8")
    book = FileExternalStore(tmp_path / "state" / "external")

    with pytest.raises(StoreFailed, match="cannot be written: "):
        book.write(OTHER)


def test_a_file_that_cannot_be_read_is_an_error(book: FileExternalStore, folder: Path) -> None:
    (folder / "odd.json").mkdir(parents=True)

    with pytest.raises(StoreFailed, match="cannot be read: Is a directory"):
        book.find("odd")
