"""A worktree is removed only if nobody can lose anything with it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from synapse.core.agent import AgentEntry
from synapse.core.errors import Conflict
from synapse.registry.files import own_start_time
from synapse.worktrees.ensure import CLAIM_SECONDS, RECORD, ensure_worktree
from synapse.worktrees.git import open_repository
from synapse.worktrees.inventory import Facts, inventory
from synapse.worktrees.removal import obstacles, remove_worktree
from tests.samples.repositories import commit, git, new_repository

CACHE_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n"


@pytest.fixture
def worktree(repository: Path) -> Path:
    """A worktree whose agent has stopped, so that nothing keeps it."""
    made = ensure_worktree(repository, "codex", running=())
    release(repository, "codex")
    return made.path


def release(repository: Path, name: str) -> None:
    """Ends the claim of this process, which would last until its agent runs."""
    record = repository / ".git" / "worktrees" / name / RECORD
    fields = json.loads(record.read_text(encoding="utf-8"))
    record.write_text(json.dumps(fields | {"claimed_by": ""}), encoding="utf-8")


def facts_of(worktree: Path, *running: AgentEntry) -> Facts:
    found = inventory(open_repository(worktree), running)
    return next(one for one in found if one.worktree.path == worktree)


def refuse(worktree: Path, *running: AgentEntry) -> Conflict:
    """Asserts that the removal is refused and leaves everything there."""
    before = sorted(str(path) for path in worktree.rglob("*"))
    with pytest.raises(Conflict) as refused:
        remove_worktree(facts_of(worktree), running)
    assert sorted(str(path) for path in worktree.rglob("*")) == before
    assert "is not removed" in str(refused.value)
    return refused.value


def test_a_worktree_in_which_nothing_was_done_goes_with_its_branch(repository: Path, worktree: Path) -> None:
    assert obstacles(facts_of(worktree)) == []

    assert remove_worktree(facts_of(worktree), ()) is True

    assert not worktree.exists()
    assert git(repository, "branch", "--list", "synapse/*") == ""
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_merged_work_goes_with_its_branch(repository: Path, worktree: Path) -> None:
    commit(worktree, "feature")
    assert facts_of(worktree).is_merged is False
    git(repository, "merge", "--quiet", "--no-ff", "-m", "merge", "synapse/codex")

    assert facts_of(worktree).is_merged
    assert remove_worktree(facts_of(worktree), ()) is True


def test_pushed_work_goes_but_its_branch_stays(tmp_path: Path, repository: Path) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(repository), str(clone))
    made = ensure_worktree(clone, "codex", running=())
    release(clone, "codex")
    commit(made.path, "feature")
    facts = facts_of(made.path)
    assert (facts.ahead, facts.unpushed, facts.unsaved, facts.default_branch) == (1, 1, 1, "main")
    assert "1 commit neither pushed nor in main" in str(refuse(made.path))
    git(made.path, "push", "--quiet", "origin", "synapse/codex")
    facts = facts_of(made.path)
    assert (facts.ahead, facts.unpushed, facts.unsaved, facts.is_merged) == (1, 0, 0, False)

    assert remove_worktree(facts, ()) is False

    assert git(clone, "branch", "--list", "synapse/*").strip() == "synapse/codex"


def test_a_branch_that_was_there_before_stays(repository: Path) -> None:
    git(repository, "branch", "feature")
    made = ensure_worktree(repository, "codex", "feature", running=())
    release(repository, "feature")

    assert remove_worktree(facts_of(made.path), ()) is False

    assert git(repository, "branch", "--list", "feature").strip() == "feature"


def test_commits_that_are_nowhere_else_are_kept(repository: Path, worktree: Path) -> None:
    commit(worktree, "one")
    commit(worktree, "two")
    commit(repository, "elsewhere")

    facts = facts_of(worktree)

    assert (facts.ahead, facts.behind, facts.unpushed, facts.unsaved) == (2, 1, None, 2)
    assert "2 commits neither pushed nor in main" in str(refuse(worktree))


def test_commits_on_no_branch_are_kept(worktree: Path) -> None:
    git(worktree, "switch", "--quiet", "--detach")
    commit(worktree, "one")

    assert "1 commit neither pushed nor in main" in str(refuse(worktree))


def change(worktree: Path) -> None:
    (worktree / "README").write_text("changed", encoding="utf-8")


def stage(worktree: Path) -> None:
    (worktree / "new").write_text("staged", encoding="utf-8")
    git(worktree, "add", "new")


def rename(worktree: Path) -> None:
    git(worktree, "mv", "README", "OTHER")


def delete(worktree: Path) -> None:
    (worktree / "README").unlink()


def hide(worktree: Path) -> None:
    git(worktree, "update-index", "--assume-unchanged", "README")
    change(worktree)


def leave_untracked(worktree: Path) -> None:
    (worktree / "draft").write_text("draft", encoding="utf-8")


def leave_repository(worktree: Path) -> None:
    new_repository(worktree / "inner")


def ignore(worktree: Path, *names: str) -> None:
    """Ignores names without a change in the worktree itself."""
    exclude = Path(git(worktree, "rev-parse", "--path-format=absolute", "--git-path", "info/exclude"))
    exclude.parent.mkdir(exist_ok=True)
    exclude.write_text("\n".join(names) + "\n", encoding="utf-8")


def leave_secrets(worktree: Path) -> None:
    ignore(worktree, ".env")
    (worktree / ".env").write_text("KEY=1", encoding="utf-8")


def leave_repository_in_environment(worktree: Path) -> None:
    ignore(worktree, ".venv")
    (worktree / ".venv").mkdir()
    (worktree / ".venv" / "pyvenv.cfg").write_text("", encoding="utf-8")
    new_repository(worktree / ".venv" / "src" / "library")


def link_cache(worktree: Path) -> None:
    ignore(worktree, "node_modules")
    (worktree / "node_modules").symlink_to(worktree.parent)


def stop_in_rebase(worktree: Path) -> None:
    admin = Path(git(worktree, "rev-parse", "--absolute-git-dir"))
    (admin / "rebase-merge").mkdir()


def lock(worktree: Path) -> None:
    git(worktree, "worktree", "lock", str(worktree))


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (change, "1 file with changes that are not committed"),
        (stage, "1 file with changes that are not committed"),
        (rename, "1 file with changes that are not committed"),
        (delete, "1 file with changes that are not committed"),
        (hide, "1 file whose changes git was told not to show"),
        (leave_untracked, "1 file that git does not know"),
        (leave_repository, "1 file that git does not know"),
        (leave_secrets, "ignored files that may exist nowhere else: .env"),
        (leave_repository_in_environment, "ignored files that may exist nowhere else: .venv/"),
        (link_cache, "ignored files that may exist nowhere else: node_modules"),
        (stop_in_rebase, "a rebase is not finished"),
        (lock, "it is locked"),
    ],
)
def test_what_would_be_lost_keeps_the_worktree(worktree: Path, act: Callable[[Path], None], reason: str) -> None:
    act(worktree)

    assert reason in str(refuse(worktree))


def test_untracked_files_count_even_if_the_settings_hide_them(worktree: Path) -> None:
    git(worktree, "config", "status.showUntrackedFiles", "no")
    leave_untracked(worktree)

    assert "1 file that git does not know" in str(refuse(worktree))


def test_what_a_command_makes_again_does_not_keep_it(worktree: Path) -> None:
    names = ("__pycache__", "node_modules", ".venv", "target", "old.pyc")
    ignore(worktree, *names)
    for name in names[:-1]:
        (worktree / name).mkdir()
        (worktree / name / "file").write_text("made", encoding="utf-8")
    (worktree / ".venv" / "pyvenv.cfg").write_text("", encoding="utf-8")
    (worktree / "target" / "CACHEDIR.TAG").write_text(CACHE_TAG, encoding="utf-8")
    (worktree / "old.pyc").write_bytes(b"")

    assert obstacles(facts_of(worktree)) == []
    remove_worktree(facts_of(worktree), ())
    assert not worktree.exists()


def test_a_folder_that_is_only_named_like_a_cache_keeps_it(worktree: Path) -> None:
    ignore(worktree, "target")
    (worktree / "target").mkdir()
    (worktree / "target" / "CACHEDIR.TAG").write_text("no tag", encoding="utf-8")

    assert "target/" in str(refuse(worktree))


def test_a_running_agent_keeps_it(worktree: Path) -> None:
    agent = AgentEntry("synapse-codex-8120", "codex", name="reviewer", working_dir=str(worktree))

    refused = refuse(worktree, agent)

    assert "reviewer is in it" in str(refused)
    assert refused.hint == "synapse stop reviewer"


def test_an_agent_that_is_about_to_start_keeps_it_but_not_for_ever(repository: Path) -> None:
    made = ensure_worktree(repository, "codex", running=())

    assert "codex is in it" in str(refuse(made.path))

    record = repository / ".git" / "worktrees" / "codex" / RECORD
    fields = json.loads(record.read_text(encoding="utf-8"))
    record.write_text(json.dumps(fields | {"claimed_at": fields["claimed_at"] - CLAIM_SECONDS}), encoding="utf-8")
    assert obstacles(facts_of(made.path)) == []
    # The pid of a launcher that has ended may be another process's now.
    other = f"{fields['claimed_by'].split(':')[0]}:{own_start_time() + 1}:codex"
    record.write_text(json.dumps(fields | {"claimed_by": other}), encoding="utf-8")
    assert obstacles(facts_of(made.path)) == []


def test_a_process_with_its_folder_inside_keeps_it(worktree: Path) -> None:
    inside = worktree / "__pycache__"
    inside.mkdir()
    ignore(worktree, "__pycache__")
    with subprocess.Popen(["sleep", "60"], cwd=inside) as sleeper:
        try:
            refused = refuse(worktree)
        finally:
            sleeper.terminate()

    assert f"sleep (pid {sleeper.pid}) is in it" in str(refused)
    assert "leave the folder" in refused.hint
    remove_worktree(facts_of(worktree), ())


def test_a_worktree_that_synapse_did_not_make_is_never_removed(repository: Path, tmp_path: Path) -> None:
    place = tmp_path / "mine"
    git(repository, "worktree", "add", "--quiet", "-b", "mine", str(place))

    assert "Synapse did not make it" in str(refuse(place))


def test_a_worktree_whose_folder_is_gone_is_left_to_the_person(repository: Path, worktree: Path) -> None:
    worktree.rename(worktree.with_name("moved"))

    with pytest.raises(Conflict, match="its folder is gone") as refused:
        remove_worktree(inventory(open_repository(repository), ())[0], ())

    assert refused.value.hint == f"git -C {repository} worktree prune"
    assert git(repository, "worktree", "list", "--porcelain").count("worktree ") == 2


def test_a_damaged_worktree_is_not_judged(worktree: Path) -> None:
    facts = facts_of(worktree)
    (worktree / ".git").write_text("gitdir: /nowhere\n", encoding="utf-8")

    with pytest.raises(Conflict, match="is not removed"):
        remove_worktree(facts, ())
    assert (worktree / "README").exists()


def test_old_facts_do_not_count(worktree: Path) -> None:
    facts = facts_of(worktree)
    leave_untracked(worktree)

    with pytest.raises(Conflict, match="1 file that git does not know"):
        remove_worktree(facts, ())
    with pytest.raises(Conflict, match="is no longer a worktree"):
        remove_worktree(replace(facts, worktree=replace(facts.worktree, path=worktree / "other")), ())


def test_the_refusal_names_the_command_of_git_and_offers_no_other_way(repository: Path, worktree: Path) -> None:
    change(worktree)

    hint = refuse(worktree).hint

    assert hint.endswith(f"git -C {repository} worktree remove --force {worktree}")
    subprocess.run(hint.rpartition(": ")[2], shell=True, check=True)
    assert not worktree.exists()


def test_a_worktree_with_a_submodule_is_left_to_git(repository: Path, tmp_path: Path) -> None:
    library = new_repository(tmp_path / "library")
    git(repository, "submodule", "--quiet", "add", str(library), "lib")
    git(repository, "commit", "--quiet", "-m", "with a library")
    made = ensure_worktree(repository, "codex", running=())
    release(repository, "codex")
    git(made.path, "submodule", "--quiet", "update", "--init")

    with pytest.raises(Conflict, match="submodules"):
        remove_worktree(facts_of(made.path), ())
    assert (made.path / "lib" / "README").exists()
