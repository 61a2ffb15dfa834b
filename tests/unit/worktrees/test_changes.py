"""What an agent has changed: its commits, its changes and its new files, compared with where it began."""

from __future__ import annotations

from pathlib import Path

import pytest

from synapse.core.errors import InvalidRequest
from synapse.worktrees.changes import open_changes
from synapse.worktrees.ensure import ensure_worktree
from tests.samples.repositories import commit, git, new_repository


@pytest.fixture
def worktree(repository: Path) -> Path:
    return ensure_worktree(repository, "codex", running=()).path


def files_in(folder: Path) -> dict[str, tuple[int | None, int | None, bool]]:
    with open_changes(folder) as changes:
        return {one.path: (one.added, one.removed, one.is_untracked) for one in changes.files()}


def subjects_in(folder: Path) -> list[str]:
    with open_changes(folder) as changes:
        return [one.subject for one in changes.commits]


def test_commits_changes_and_new_files_are_one_diff(worktree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    commit(worktree, "committed", "a\nb\n", "add a file")
    (worktree / "README").write_text("changed\n", encoding="utf-8")
    (worktree / "staged").write_text("staged\n", encoding="utf-8")
    git(worktree, "add", "staged")
    (worktree / "new file").write_text("new\n", encoding="utf-8")
    (worktree / "picture").write_bytes(b"\0\1")
    before = git(worktree, "status", "--porcelain")

    assert files_in(worktree) == {
        "README": (1, 1, False),
        "committed": (2, 0, False),
        "new file": (1, 0, True),
        "picture": (None, None, True),
        "staged": (1, 0, False),
    }
    assert subjects_in(worktree) == ["add a file"]
    with open_changes(worktree) as changes:
        assert changes.show(stat=False) == 0
    patch = capfd.readouterr().out
    assert [line for line in patch.splitlines() if line in ("+a", "+changed", "-hello", "+staged", "+new")] != []
    assert "+++ b/new file" in patch
    # The agent's own index is untouched.
    assert git(worktree, "status", "--porcelain") == before


def test_the_diff_can_be_applied_where_the_agent_began(
    repository: Path, worktree: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    commit(worktree, "src/committed", "a\n")
    (worktree / "new").write_text("new\n", encoding="utf-8")
    with open_changes(worktree / "src") as changes:
        changes.show(stat=False)
    (tmp_path / "patch").write_text(capfd.readouterr().out, encoding="utf-8")

    git(repository, "apply", str(tmp_path / "patch"))

    assert (repository / "src" / "committed").read_text(encoding="utf-8") == "a\n"
    assert (repository / "new").read_text(encoding="utf-8") == "new\n"


def test_ignored_files_are_not_part_of_it(repository: Path, worktree: Path) -> None:
    (repository / ".git" / "info").mkdir(exist_ok=True)
    (repository / ".git" / "info" / "exclude").write_text("*.log\n", encoding="utf-8")
    (worktree / "build.log").write_text("log", encoding="utf-8")

    assert files_in(worktree) == {}


def test_what_others_did_meanwhile_is_not_the_agents(repository: Path, worktree: Path) -> None:
    commit(worktree, "mine", message="mine")
    commit(repository, "theirs", message="theirs")
    assert list(files_in(worktree)) == ["mine"]

    git(worktree, "merge", "--quiet", "-m", "merge main", "main")
    assert list(files_in(worktree)) == ["mine"]
    git(worktree, "reset", "--quiet", "--hard", "HEAD^")
    git(worktree, "rebase", "--quiet", "main")
    assert list(files_in(worktree)) == ["mine"]
    assert subjects_in(worktree) == ["mine"]


def test_it_is_still_shown_when_it_is_merged(repository: Path, worktree: Path) -> None:
    commit(worktree, "mine", message="mine")
    git(repository, "merge", "--quiet", "synapse/codex")

    assert list(files_in(worktree)) == ["mine"]


def test_work_from_a_branch_is_compared_with_that_branch(repository: Path) -> None:
    git(repository, "switch", "--quiet", "-c", "feature")
    commit(repository, "theirs")
    made = ensure_worktree(repository, "codex", running=())
    commit(made.path, "mine")
    commit(repository, "theirs too")

    assert list(files_in(made.path)) == ["mine"]


def test_a_folder_on_a_branch_is_compared_with_the_default_branch(repository: Path) -> None:
    git(repository, "switch", "--quiet", "-c", "feature")
    commit(repository, "mine")
    (repository / "draft").write_text("draft", encoding="utf-8")

    assert list(files_in(repository)) == ["draft", "mine"]


def test_a_folder_on_the_default_branch_is_compared_with_what_is_pushed(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", str(repository), "clone")
    commit(tmp_path / "clone", "mine")
    commit(repository, "mine")

    assert list(files_in(tmp_path / "clone")) == ["mine"]
    # Without a remote, only what is not committed can be told from the rest.
    assert files_in(repository) == {}


def test_a_repository_without_commits_is_all_new(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "empty")
    (tmp_path / "empty" / "new").write_text("new\n", encoding="utf-8")

    assert files_in(tmp_path / "empty") == {"new": (1, 0, True)}


def test_a_repository_inside_is_named_and_not_compared(worktree: Path) -> None:
    new_repository(worktree / "inner")
    (worktree / "new").write_text("new\n", encoding="utf-8")

    with open_changes(worktree) as changes:
        assert changes.skipped == ("inner/",)
        assert [one.path for one in changes.files()] == ["new"]


def test_names_with_newlines_and_pathspecs_are_names(worktree: Path) -> None:
    names = {"a\nb", "*", ":(top)x", "größe", " "}
    for name in names:
        (worktree / name).write_text("new\n", encoding="utf-8")

    assert set(files_in(worktree)) == names


def test_no_program_of_the_repository_is_run(
    repository: Path, worktree: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    proof = tmp_path / "ran"
    commit(worktree, ".gitattributes", "* diff=evil\n")
    for key in ("diff.external", "diff.evil.command", "diff.evil.textconv", "core.fsmonitor", "core.pager"):
        git(repository, "config", key, f"echo {key} >> {proof}; true")
    (worktree / "README").write_text("changed\n", encoding="utf-8")

    with open_changes(worktree) as changes:
        changes.show(stat=False)

    assert "+changed" in capfd.readouterr().out
    assert not proof.exists()


def test_no_program_verifies_signatures(repository: Path, worktree: Path, tmp_path: Path) -> None:
    proof = tmp_path / "ran"
    verifier = tmp_path / "verifier"
    verifier.write_text(f"#!/bin/sh\necho verifier >> {proof}\n", encoding="utf-8")
    verifier.chmod(0o755)
    commit(worktree, "signed", "a\n", "add a file")
    plain = git(worktree, "cat-file", "commit", "HEAD")
    head, _, subject = plain.partition("\n\n")
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n none\n -----END PGP SIGNATURE-----"
    (tmp_path / "commit").write_text(f"{head}\n{signature}\n\n{subject}\n", encoding="utf-8")
    git(worktree, "reset", "--soft", git(worktree, "hash-object", "-t", "commit", "-w", str(tmp_path / "commit")))
    git(repository, "config", "log.showSignature", "true")
    git(repository, "config", "gpg.program", str(verifier))

    assert subjects_in(worktree) == ["add a file"]
    assert not proof.exists()


def test_no_program_of_a_submodule_is_run(repository: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    proof = tmp_path / "ran"
    inner = new_repository(tmp_path / "inner")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "part")
    git(repository, "commit", "--quiet", "-m", "add a submodule")
    git(repository, "config", "diff.submodule", "diff")
    commit(repository / "part", "README", "changed\n")
    for key in ("diff.external", "core.fsmonitor"):
        git(repository / "part", "config", key, f"echo {key} >> {proof}; true")

    with open_changes(repository) as changes:
        changes.show(stat=False)

    assert "+Subproject commit" in capfd.readouterr().out
    assert not proof.exists()


def test_a_folder_outside_of_a_repository_has_no_changes(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="is not in a git repository"), open_changes(tmp_path):
        pass
