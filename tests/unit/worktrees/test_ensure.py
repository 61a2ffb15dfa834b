"""An agent gets a worktree of its own, gets it again, and never one that another agent is in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from synapse.core.agent import AgentEntry
from synapse.core.errors import CommandMissing, Conflict, InvalidRequest, NotFound, UnsupportedOperation
from synapse.registry.files import start_time
from synapse.worktrees.ensure import RECORD, WorktreeInUse, ensure_worktree
from tests.samples.repositories import commit, git, new_repository


def running(folder: Path, agent_id: str = "synapse-codex-8120") -> AgentEntry:
    return AgentEntry(agent_id, "codex", working_dir=str(folder))


def admin_file(repository: Path, worktree: str, name: str = RECORD) -> Path:
    return repository / ".git" / "worktrees" / worktree / name


def test_a_worktree_is_made_beside_the_repository_on_a_branch_of_its_own(repository: Path) -> None:
    made = ensure_worktree(repository, "codex", running=())

    assert made.path == repository.with_name("shop.worktrees") / "codex"
    assert (made.branch, made.repository, made.folder) == ("synapse/codex", repository, made.path)
    assert made.is_new
    assert made.notes == ()
    assert git(made.path, "rev-parse", "HEAD") == git(repository, "rev-parse", "HEAD")
    assert git(made.path, "branch", "--show-current") == "synapse/codex"
    assert git(repository, "status", "--porcelain") == ""


def test_it_is_used_again_with_what_is_in_it(repository: Path) -> None:
    first = ensure_worktree(repository, "codex", running=())
    (first.path / "draft").write_text("not committed", encoding="utf-8")

    again = ensure_worktree(repository, "codex", running=())

    assert (again.path, again.branch, again.is_new) == (first.path, first.branch, False)
    assert (again.path / "draft").read_text(encoding="utf-8") == "not committed"


def test_it_is_used_again_on_the_branch_that_the_agent_has_chosen_since(repository: Path) -> None:
    made = ensure_worktree(repository, "codex", running=())
    git(made.path, "switch", "--quiet", "-c", "other")

    assert ensure_worktree(repository, "codex", running=()).branch == "other"


def test_it_begins_at_the_commit_of_the_folder_not_of_the_main_worktree(repository: Path) -> None:
    first = ensure_worktree(repository, "codex", running=())
    here = commit(first.path, "more")

    made = ensure_worktree(first.path, "claude", running=())

    assert made.path == repository.with_name("shop.worktrees") / "claude"
    assert git(made.path, "rev-parse", "HEAD") == here


def test_asking_from_inside_the_worktree_finds_the_worktree_itself(repository: Path) -> None:
    made = ensure_worktree(repository, "codex", running=())

    assert ensure_worktree(made.path, "codex", running=()).path == made.path


def test_a_running_agent_keeps_its_worktree_for_itself(repository: Path) -> None:
    made = ensure_worktree(repository, "codex", running=())
    inside = made.path / "src"
    inside.mkdir()

    for folder in (made.path, inside):
        with pytest.raises(WorktreeInUse, match="is in the worktree"):
            ensure_worktree(repository, "codex", running=[running(folder)])
    # The name of one folder may begin with that of another.
    ensure_worktree(repository, "codex", running=[running(made.path.with_name("codex-2")), running(repository)])


def test_a_process_that_is_about_to_start_an_agent_there_keeps_it(repository: Path) -> None:
    made = ensure_worktree(repository, "codex", running=())
    asking = "import sys; from pathlib import Path; from synapse.worktrees.ensure import ensure_worktree\n"
    asking += "ensure_worktree(Path(sys.argv[1]), 'codex', running=()); print('mine', flush=True); sys.stdin.read()"
    # This process has asked first.
    other = subprocess.run(
        [sys.executable, "-c", asking, str(repository)], capture_output=True, encoding="utf-8", check=False, input=""
    )
    assert "codex is in the worktree" in other.stderr
    admin_file(repository, "codex").write_text('{"agent": "codex", "branch": "", "base": ""}', encoding="utf-8")

    with subprocess.Popen(
        [sys.executable, "-c", asking, str(repository)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdin is not None
        assert launcher.stdout.readline() == "mine\n"
        assert start_time(launcher.pid)
        with pytest.raises(WorktreeInUse):
            ensure_worktree(repository, "codex", running=())
        launcher.stdin.close()
    assert ensure_worktree(repository, "codex", running=()).path == made.path


def test_a_process_cannot_give_one_worktree_to_two_agents(repository: Path) -> None:
    ensure_worktree(repository, "codex", "feature", running=())

    with pytest.raises(WorktreeInUse, match="codex is in the worktree"):
        ensure_worktree(repository, "claude", "feature", running=())


def test_a_named_branch_gives_the_worktree_its_name(repository: Path) -> None:
    made = ensure_worktree(repository, "codex", "feature/login", running=())

    assert (made.path.name, made.branch) == ("feature-login", "feature/login")
    assert ensure_worktree(repository, "codex", "feature/login", running=()).is_new is False


def test_a_branch_that_exists_is_checked_out_as_it_is(repository: Path) -> None:
    git(repository, "branch", "old")
    old = git(repository, "rev-parse", "old")
    commit(repository, "more")

    made = ensure_worktree(repository, "codex", "old", running=())

    assert git(made.path, "rev-parse", "HEAD") == old


def test_a_branch_of_the_remote_is_followed(repository: Path, tmp_path: Path) -> None:
    git(repository, "switch", "--quiet", "-c", "theirs")
    theirs = commit(repository, "theirs")
    git(repository, "switch", "--quiet", "main")
    git(tmp_path, "clone", "--quiet", str(repository), "clone")

    made = ensure_worktree(tmp_path / "clone", "codex", "theirs", running=())

    assert git(made.path, "rev-parse", "HEAD") == theirs
    assert git(made.path, "rev-parse", "--abbrev-ref", "@{upstream}") == "origin/theirs"


def test_a_branch_of_two_remotes_is_not_guessed(repository: Path, tmp_path: Path) -> None:
    git(repository, "branch", "theirs")
    git(tmp_path, "clone", "--quiet", str(repository), "clone")
    git(tmp_path / "clone", "remote", "add", "second", str(repository))
    git(tmp_path / "clone", "fetch", "--quiet", "second")

    with pytest.raises(Conflict, match=r"several remotes have a branch theirs: origin/theirs, second/theirs"):
        ensure_worktree(tmp_path / "clone", "codex", "theirs", running=())


@pytest.mark.parametrize("where", ["main", "linked"])
def test_a_branch_that_is_checked_out_elsewhere_is_refused(repository: Path, where: str) -> None:
    place = repository
    if where == "linked":
        place = repository.with_name("elsewhere")
        git(repository, "worktree", "add", "--quiet", "-b", "linked", str(place))

    with pytest.raises(Conflict, match=f"the branch {where} is checked out in {place}"):
        ensure_worktree(repository, "codex", where, running=())


def test_a_worktree_on_another_branch_than_the_wanted_one_is_refused(repository: Path) -> None:
    made = ensure_worktree(repository, "codex", "feature", running=())
    git(made.path, "switch", "--quiet", "-c", "other")

    with pytest.raises(Conflict, match="is on the branch other, not on feature"):
        ensure_worktree(repository, "codex", "feature", running=())
    git(made.path, "switch", "--quiet", "--detach")
    with pytest.raises(Conflict, match="is on no branch, not on feature"):
        ensure_worktree(repository, "codex", "feature", running=())


def test_the_agent_works_in_the_same_folder_inside_the_worktree(repository: Path) -> None:
    commit(repository, "web/app/main.js")

    made = ensure_worktree(repository / "web" / "app", "codex", running=())

    assert made.folder == made.path / "web" / "app"
    assert ensure_worktree(repository / "web" / "app", "codex", running=()).folder == made.folder


def test_a_folder_that_is_not_committed_is_refused_before_anything_is_made(repository: Path) -> None:
    (repository / "new").mkdir()

    with pytest.raises(NotFound, match="is not in the last commit"):
        ensure_worktree(repository / "new", "codex", running=())

    assert not repository.with_name("shop.worktrees").exists()
    assert git(repository, "branch", "--list", "synapse/*") == ""


def test_changes_that_are_not_committed_are_mentioned(repository: Path) -> None:
    (repository / "README").write_text("changed", encoding="utf-8")

    made = ensure_worktree(repository, "codex", running=())

    assert made.notes == (f"changes in {repository} that are not committed are not in it",)
    assert (made.path / "README").read_text(encoding="utf-8") == "hello\n"


def test_empty_submodules_are_mentioned(repository: Path, tmp_path: Path) -> None:
    library = new_repository(tmp_path / "library")
    git(repository, "submodule", "--quiet", "add", str(library), "lib")
    git(repository, "commit", "--quiet", "-m", "with a library")

    made = ensure_worktree(repository, "codex", running=())

    assert [note for note in made.notes if "submodule update --init" in note]
    with pytest.raises(UnsupportedOperation, match="is in a submodule of"):
        ensure_worktree(repository / "lib", "codex", running=())


def test_a_folder_outside_of_any_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="is not in a git repository"):
        ensure_worktree(tmp_path, "codex", running=())
    with pytest.raises(NotFound, match="there is no folder"):
        ensure_worktree(tmp_path / "nowhere", "codex", running=())


def test_a_repository_without_a_commit_is_refused(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "empty")

    with pytest.raises(InvalidRequest, match="has no commit yet"):
        ensure_worktree(tmp_path / "empty", "codex", running=())


def test_a_bare_repository_is_refused_but_its_worktrees_have_siblings(repository: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.git"
    git(tmp_path, "clone", "--quiet", "--bare", str(repository), str(bare))
    for folder in (bare, repository / ".git"):
        with pytest.raises(UnsupportedOperation, match=r"bare repository or a \.git folder"):
            ensure_worktree(folder, "codex", running=())
    git(bare, "worktree", "add", "--quiet", str(tmp_path / "checkout"), "main")

    made = ensure_worktree(tmp_path / "checkout", "codex", running=())

    assert made.path == tmp_path / "bare.git.worktrees" / "codex"


def test_a_detached_head_is_a_beginning_like_any_other(repository: Path) -> None:
    head = commit(repository, "more")
    git(repository, "checkout", "--quiet", "--detach")

    made = ensure_worktree(repository, "codex", running=())

    assert git(made.path, "rev-parse", "HEAD") == head
    assert made.branch == "synapse/codex"


@pytest.mark.parametrize("name", ["a b", "-x", "a..b", "x.lock", "@{", "a\nb", "", "a~1", "@", "@{-1}"])
def test_a_name_that_git_refuses_is_refused_before_anything_is_made(repository: Path, name: str) -> None:
    git(repository, "switch", "--quiet", "--create", "before")
    git(repository, "switch", "--quiet", "-")
    with pytest.raises(InvalidRequest, match="cannot be the name of a branch"):
        ensure_worktree(repository, name and "codex", name, running=())
    assert not repository.with_name("shop.worktrees").exists()


def test_paths_with_spaces_umlauts_and_newlines_work(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "my shop\nüber $HOME *")

    made = ensure_worktree(folder, "codex", "größe", running=())

    assert made.path == tmp_path / "my shop\nüber $HOME *.worktrees" / "größe"
    assert ensure_worktree(made.path, "codex", "größe", running=()).path == made.path


def test_something_else_in_its_place_is_left_alone(repository: Path) -> None:
    place = repository.with_name("shop.worktrees") / "codex"
    place.mkdir(parents=True)
    assert ensure_worktree(repository, "codex", running=()).is_new  # an empty folder is no obstacle
    other = place.with_name("claude")
    other.mkdir()
    (other / "notes").write_text("mine", encoding="utf-8")

    with pytest.raises(Conflict, match="exists, and is not a worktree"):
        ensure_worktree(repository, "claude", running=())
    place.with_name("link").symlink_to(other)
    with pytest.raises(Conflict, match="exists, and is not a worktree"):
        ensure_worktree(repository, "link", running=())

    assert (other / "notes").read_text(encoding="utf-8") == "mine"


def test_a_worktree_that_synapse_did_not_make_is_not_used(repository: Path) -> None:
    place = repository.with_name("shop.worktrees") / "codex"
    git(repository, "worktree", "add", "--quiet", "-b", "synapse/codex", str(place))

    with pytest.raises(Conflict, match="Synapse did not make"):
        ensure_worktree(repository, "codex", running=())


def test_a_worktree_whose_folder_is_gone_is_named_with_the_way_out(repository: Path) -> None:
    made = ensure_worktree(repository, "codex", running=())
    made.path.rename(made.path.with_name("moved"))

    with pytest.raises(Conflict, match="is gone, but git still lists it") as refused:
        ensure_worktree(repository, "codex", running=())

    assert refused.value.hint == f"git -C {repository} worktree prune"


def test_a_branch_in_the_way_is_told_in_the_words_of_git(repository: Path) -> None:
    git(repository, "branch", "synapse")

    with pytest.raises(Conflict, match="refs/heads/synapse"):
        ensure_worktree(repository, "codex", running=())


def test_no_program_of_the_repository_is_run(repository: Path, tmp_path: Path) -> None:
    proof = tmp_path / "ran"
    for hook in ("post-checkout", "reference-transaction"):
        script = repository / ".git" / "hooks" / hook
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!/bin/sh\necho {hook} >> {proof}\n", encoding="utf-8")
        script.chmod(0o755)
    git(repository, "config", "core.fsmonitor", f"echo monitor >> {proof}; false")

    ensure_worktree(repository, "codex", running=())

    assert not proof.exists()


def test_the_variables_of_a_git_command_around_it_do_not_count(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = new_repository(tmp_path / "other")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))

    made = ensure_worktree(repository, "codex", running=())

    assert made.repository == repository


def test_git_that_is_missing_is_named(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(repository))

    with pytest.raises(CommandMissing, match="git is not installed"):
        ensure_worktree(repository, "codex", running=())
