"""A worktree has the trust of its repository, for the same content, and nothing else has it."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from synapse.config.trust import Trust, TrustStore, read_project, same_folder_in_main_worktree
from tests.samples.repositories import commit, configure_git, git, new_repository

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a project."""
    for name, value in configure_git(tmp_path).items():
        monkeypatch.setenv(name, value)
    made = new_repository(tmp_path.resolve() / "shop")
    commit(made, ".synapse/config.toml", "queue_limit = 2\n")
    commit(made, "web/.synapse/config.toml", "queue_limit = 3\n")
    return made


@pytest.fixture
def worktree(repository: Path) -> Path:
    place = repository.with_name("worktree")
    git(repository, "worktree", "add", "--quiet", str(place))
    return place


@pytest.fixture
def store(tmp_path: Path) -> TrustStore:
    return TrustStore(tmp_path / "state")


def trust_in(store: TrustStore, folder: Path) -> Trust:
    return store.trust_in(read_project(folder))


def decide(store: TrustStore, folder: Path, *, trusted: bool) -> None:
    store.decide(read_project(folder), NOW, trusted=trusted)


def test_a_worktree_has_the_decision_about_its_repository(repository: Path, worktree: Path, store: TrustStore) -> None:
    assert trust_in(store, worktree) is Trust.UNKNOWN

    decide(store, repository, trusted=True)
    assert trust_in(store, worktree) is Trust.TRUSTED

    store.revoke(repository)
    assert trust_in(store, worktree) is Trust.UNKNOWN
    decide(store, repository, trusted=False)
    assert trust_in(store, worktree) is Trust.DECLINED


def test_a_project_below_the_top_has_its_own_counterpart(repository: Path, worktree: Path, store: TrustStore) -> None:
    decide(store, repository, trusted=True)
    assert trust_in(store, worktree / "web") is Trust.UNKNOWN

    decide(store, repository / "web", trusted=True)
    assert trust_in(store, worktree / "web") is Trust.TRUSTED


def test_other_content_is_not_trusted(repository: Path, worktree: Path, store: TrustStore) -> None:
    decide(store, repository, trusted=True)

    (worktree / ".synapse" / "config.toml").write_text("queue_limit = 4\n", encoding="utf-8")

    assert trust_in(store, worktree) is Trust.UNKNOWN


def test_content_that_has_changed_in_both_is_not_trusted(repository: Path, worktree: Path, store: TrustStore) -> None:
    decide(store, repository, trusted=True)

    for folder in (repository, worktree):
        (folder / ".synapse" / "config.toml").write_text("queue_limit = 4\n", encoding="utf-8")

    assert trust_in(store, repository) is Trust.CHANGED
    assert trust_in(store, worktree) is Trust.UNKNOWN


def test_a_decision_of_its_own_comes_first(repository: Path, worktree: Path, store: TrustStore) -> None:
    decide(store, repository, trusted=True)

    decide(store, worktree, trusted=False)

    assert trust_in(store, worktree) is Trust.DECLINED
    assert trust_in(store, repository) is Trust.TRUSTED


def test_a_folder_that_only_claims_to_be_a_worktree_is_not_trusted(
    repository: Path, worktree: Path, store: TrustStore, tmp_path: Path
) -> None:
    decide(store, repository, trusted=True)
    stranger = tmp_path.resolve() / "stranger"
    (stranger / ".synapse").mkdir(parents=True)
    (stranger / ".synapse" / "config.toml").write_bytes((repository / ".synapse" / "config.toml").read_bytes())
    (stranger / ".git").write_bytes((worktree / ".git").read_bytes())

    assert trust_in(store, stranger) is Trust.UNKNOWN
    assert trust_in(store, worktree) is Trust.TRUSTED


def test_a_worktree_that_the_repository_has_forgotten_is_not_trusted(
    repository: Path, worktree: Path, store: TrustStore
) -> None:
    decide(store, repository, trusted=True)

    (repository / ".git" / "worktrees" / "worktree" / "gitdir").write_text("/elsewhere/.git\n", encoding="utf-8")

    assert trust_in(store, worktree) is Trust.UNKNOWN


def test_a_pointer_that_is_a_link_is_not_followed(repository: Path, worktree: Path, store: TrustStore) -> None:
    decide(store, repository, trusted=True)
    real = worktree.with_name("pointer")
    (worktree / ".git").rename(real)
    (worktree / ".git").symlink_to(real)

    assert trust_in(store, worktree) is Trust.UNKNOWN


def test_a_clone_or_a_repository_inside_is_not_the_worktree(
    repository: Path, worktree: Path, store: TrustStore, tmp_path: Path
) -> None:
    decide(store, repository, trusted=True)
    git(tmp_path, "clone", "--quiet", str(repository), "clone")
    git(worktree, "clone", "--quiet", str(repository), "inner")

    assert trust_in(store, tmp_path.resolve() / "clone") is Trust.UNKNOWN
    assert trust_in(store, worktree / "inner") is Trust.UNKNOWN


def test_relative_pointers_are_followed(repository: Path, worktree: Path) -> None:
    """As git writes them with `worktree.useRelativePaths`."""
    admin = repository / ".git" / "worktrees" / "worktree"
    (worktree / ".git").write_text(f"gitdir: {os.path.relpath(admin, worktree)}\n", encoding="utf-8")
    (admin / "gitdir").write_text(f"{os.path.relpath(worktree / '.git', admin)}\n", encoding="utf-8")

    assert same_folder_in_main_worktree(worktree / "web") == repository / "web"


def test_what_is_no_linked_worktree_has_no_counterpart(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", "--bare", str(repository), "bare")
    git(tmp_path / "bare", "worktree", "add", "--quiet", str(tmp_path / "checkout"), "main")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / ".git").write_text("what", encoding="utf-8")
    library = new_repository(tmp_path / "library")
    git(repository, "submodule", "--quiet", "add", str(library), "lib")

    for folder in (tmp_path, repository, tmp_path / "checkout", tmp_path / "odd", repository / "lib"):
        assert same_folder_in_main_worktree(folder) is None
