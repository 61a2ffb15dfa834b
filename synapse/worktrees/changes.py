"""Compares what an agent has in its folder with the commit that it began from: commits, changes and new files.

Git compares new files only if they are in its index, so a copy of the index gets them; the agent's own index is not
touched.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from synapse.core.errors import Conflict
from synapse.worktrees.ensure import Record, read_record
from synapse.worktrees.git import BRANCHES, LinkedWorktree, git, has_ref, open_repository, show_git, try_git
from synapse.worktrees.inventory import default_branch

# The repository's configuration names the programs for comparing and converting files; see `worktrees.git`. With
# `diff.submodule=diff` git would compare inside of a submodule, and there without these options.
_DIFF: Final = ("diff", "--no-ext-diff", "--no-textconv", "--submodule=short", "--find-renames")
_TRIES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A commit of the agent's."""

    hash: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedFile:
    """A file that differs from the beginning; the numbers are None for a binary file."""

    path: str
    added: int | None
    removed: int | None
    is_untracked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What has changed in a worktree since an agent began there."""

    path: Path
    """The top folder of the worktree."""
    branch: str
    base: str
    """The commit that everything is compared with; the empty tree in a repository without commits."""
    commits: tuple[Commit, ...]
    """The newest first."""
    index: Path
    """A copy of the index, with the new files."""
    untracked: frozenset[str]
    skipped: tuple[str, ...]
    """Repositories inside of it that git does not know: their files are not compared."""

    def files(self) -> list[ChangedFile]:
        """Returns the files that differ. Raises as `git`."""
        output = git(self.path, *_DIFF, "--no-renames", "--numstat", "-z", self.base, index=self.index)
        rows = [row.split("\t", 2) for row in output.split("\0") if row]
        return [
            ChangedFile(
                path=path,
                added=int(added) if added.isdigit() else None,
                removed=int(removed) if removed.isdigit() else None,
                is_untracked=path in self.untracked,
            )
            for added, removed, path in rows
        ]

    def show(self, *, stat: bool) -> int:
        """Writes the difference to stdout as `git diff` does; returns git's exit code."""
        return show_git(self.path, *_DIFF, *(["--stat"] if stat else []), self.base, index=self.index)


@contextmanager
def open_changes(folder: Path) -> Generator[Changes]:
    """Yields what has changed in the worktree of a folder.

    Raises:
        InvalidRequest, UnsupportedOperation, CommandMissing, NotFound, Conflict: as `open_repository`.
    """
    repository = open_repository(folder)
    path = Path(git(folder, "rev-parse", "--show-toplevel"))
    branch = git(path, "branch", "--show-current")
    record = read_record(repository, LinkedWorktree(path=path))
    _, others = default_branch(repository, branch)
    if record and record.base_branch != branch and has_ref(repository, f"{BRANCHES}{record.base_branch}"):
        others.append(f"{BRANCHES}{record.base_branch}")
    base = _base(path, record, others)
    with tempfile.TemporaryDirectory(prefix="synapse-diff-") as temporary:
        index = Path(temporary) / "index"
        untracked, skipped = _copy_index(path, index)
        yield Changes(
            path=path,
            branch=branch,
            base=base,
            commits=tuple(_commits(path, base)),
            index=index,
            untracked=untracked,
            skipped=skipped,
        )


def _base(path: Path, record: Record | None, others: list[str]) -> str:
    """Returns the last commit that the worktree has in common with where it came from.

    When its branch is merged, that is its own head; then it is the commit that the worktree began with.
    """
    code, head, _ = try_git(path, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    head = head.strip()
    if code:
        return git(path, "hash-object", "-t", "tree", "/dev/null")
    began = record.base if record and try_git(path, "merge-base", "--is-ancestor", record.base, head)[0] == 0 else ""
    known = [*others, *([began] if began else [])]
    code, output, _ = try_git(path, "merge-base", head, *known) if known else (1, "", "")
    nearest = head if code else output.splitlines()[0]
    return began if began and nearest == head else nearest


def _commits(path: Path, base: str) -> list[Commit]:
    code, output, _ = try_git(path, "log", "-z", "--format=%H %s", f"{base}..HEAD")
    lines = [] if code else [line for line in output.split("\0") if line]
    return [Commit(hash=line.partition(" ")[0], subject=line.partition(" ")[2]) for line in lines]


def _copy_index(path: Path, index: Path) -> tuple[frozenset[str], tuple[str, ...]]:
    """Copies the index and adds the names of new files; returns those, and the folders that cannot be added."""
    own = Path(git(path, "rev-parse", "--path-format=absolute", "--git-path", "index"))
    error = ""
    # The agent may replace the index, or delete a new file, between two of these steps.
    for _ in range(_TRIES):
        if own.exists():
            shutil.copyfile(own, index)
        found = [one for one in git(path, "ls-files", "--others", "--exclude-standard", "-z").split("\0") if one]
        # Git lists a repository inside of this one as a folder.
        files, skipped = [one for one in found if not one.endswith("/")], [one for one in found if one.endswith("/")]
        words = ("add", "--intent-to-add", "--pathspec-from-file=-", "--pathspec-file-nul")
        code, _, error = try_git(path, *words, index=index, text="\0".join(files)) if files else (0, "", "")
        if code == 0:
            return frozenset(files), tuple(skipped)
    raise Conflict(f"the new files in {path} change too fast: {error}")
