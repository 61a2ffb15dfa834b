"""A person's trust in a project: what it covers, and what ends it."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from synapse.config.trust import MAX_BYTES, MAX_FILES, Project, Trust, TrustStore, read_project
from synapse.core.errors import InvalidRequest, NotFound

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path.resolve() / "project"
    (made / ".synapse" / "profiles").mkdir(parents=True)
    (made / ".synapse" / "profiles" / "bc.toml").write_text("command = ['bc']", encoding="utf-8")
    (made / ".synapse" / "config.toml").write_text("queue_limit = 2", encoding="utf-8")
    return made


@pytest.fixture
def store(tmp_path: Path) -> TrustStore:
    return TrustStore(tmp_path / "state")


def trusted(store: TrustStore, folder: Path) -> Trust:
    store.decide(read_project(folder), NOW, trusted=True)
    return store.trust_in(read_project(folder))


def test_every_file_is_read(folder: Path) -> None:
    assert read_project(folder) == Project(
        folder=folder, files={"profiles/bc.toml": b"command = ['bc']", "config.toml": b"queue_limit = 2"}
    )


def test_a_project_is_unknown_then_trusted_then_forgotten(folder: Path, store: TrustStore) -> None:
    assert store.trust_in(read_project(folder)) is Trust.UNKNOWN

    assert trusted(store, folder) is Trust.TRUSTED

    store.revoke(folder)
    assert store.trust_in(read_project(folder)) is Trust.UNKNOWN
    with pytest.raises(NotFound):
        store.revoke(folder)


def test_a_project_that_was_declined_is_new_again_with_other_content(folder: Path, store: TrustStore) -> None:
    store.decide(read_project(folder), NOW, trusted=False)
    assert store.trust_in(read_project(folder)) is Trust.DECLINED

    (folder / ".synapse" / "more").write_text("", encoding="utf-8")

    assert store.trust_in(read_project(folder)) is Trust.UNKNOWN


def change(path: Path) -> None:
    path.write_text("command = ['other']", encoding="utf-8")


def move(path: Path) -> None:
    path.rename(path.with_name("dc.toml"))


def add(path: Path) -> None:
    (path.parent / "deep" / "er").mkdir(parents=True)
    (path.parent / "deep" / "er" / "new").write_bytes(b"")


@pytest.mark.parametrize("act", [change, move, add, Path.unlink])
def test_any_change_ends_the_trust(folder: Path, store: TrustStore, act: Callable[[Path], None]) -> None:
    assert trusted(store, folder) is Trust.TRUSTED

    act(folder / ".synapse" / "profiles" / "bc.toml")

    assert store.trust_in(read_project(folder)) is Trust.CHANGED


def test_different_names_or_contents_give_different_hashes() -> None:
    def digest(files: dict[str, bytes]) -> str:
        return Project(folder=Path("/x"), files=files).digest

    digests = [
        digest(files) for files in ({}, {"a": b"b"}, {"ab": b""}, {"a": b"", "b": b""}, {"": b"ab"}, {"b": b"a"})
    ]

    assert len(set(digests)) == len(digests)
    assert digest({"a": b"1", "b": b"2"}) == digest({"b": b"2", "a": b"1"})


def test_trust_does_not_extend_to_a_copy_of_the_folder(folder: Path, store: TrustStore, tmp_path: Path) -> None:
    assert trusted(store, folder) is Trust.TRUSTED
    (tmp_path / "link").symlink_to(folder)
    assert store.trust_in(read_project(tmp_path / "link")) is Trust.TRUSTED

    folder.rename(tmp_path / "moved")

    assert store.trust_in(read_project(tmp_path / "moved")) is Trust.UNKNOWN


def link_file(place: Path) -> None:
    (place / "profiles" / "x.toml").symlink_to("/etc/hostname")


def link_folder(place: Path) -> None:
    (place / "deep").symlink_to("/etc")


def broken_link(place: Path) -> None:
    (place / "x").symlink_to("nowhere")


def link_inside(place: Path) -> None:
    (place / "x").symlink_to("config.toml")


def pipe(place: Path) -> None:
    os.mkfifo(place / "pipe")


def too_large(place: Path) -> None:
    (place / "large").write_bytes(bytes(MAX_BYTES))


def too_many(place: Path) -> None:
    for number in range(MAX_FILES):
        (place / str(number)).touch()


def whole_link(place: Path) -> None:
    place.rename(place.with_name("real"))
    place.symlink_to("real")


@pytest.mark.parametrize(
    "act", [link_file, link_folder, broken_link, link_inside, pipe, too_large, too_many, whole_link]
)
def test_links_and_special_files_cannot_be_trusted(
    folder: Path, store: TrustStore, act: Callable[[Path], None]
) -> None:
    assert trusted(store, folder) is Trust.TRUSTED
    act(folder / ".synapse")

    project = read_project(folder)

    assert project.problem
    assert project.files == {}
    assert store.trust_in(project) is Trust.UNUSABLE
    with pytest.raises(InvalidRequest, match="cannot be trusted"):
        store.decide(project, NOW, trusted=True)


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_cannot_be_trusted(folder: Path) -> None:
    os.chown(folder / ".synapse" / "config.toml", 12345, 12345)

    assert "belongs to another user" in read_project(folder).problem


def test_decisions_are_private_and_listed_by_folder(folder: Path, store: TrustStore, tmp_path: Path) -> None:
    (tmp_path.resolve() / "another" / ".synapse").mkdir(parents=True)
    trusted(store, folder)
    store.decide(read_project(tmp_path / "another"), NOW, trusted=False)

    found = store.decisions()

    assert [(one.folder.name, one.trusted, one.at) for one in found] == [
        ("another", False, "2026-01-02T03:04:05Z"),
        ("project", True, "2026-01-02T03:04:05Z"),
    ]
    files = list((tmp_path / "state" / "trust").iterdir())
    assert {file.stat().st_mode & 0o777 for file in [*files, tmp_path / "state" / "trust"]} == {0o600, 0o700}


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"folder": 3, "sha256": null, "trusted": "yes"}', b"\xff"])
def test_a_damaged_decision_file_is_ignored(folder: Path, store: TrustStore, tmp_path: Path, content: bytes) -> None:
    trusted(store, folder)
    for file in (tmp_path / "state" / "trust").iterdir():
        file.write_bytes(content)

    assert store.trust_in(read_project(folder)) is Trust.UNKNOWN
