"""Says what is in each worktree of a repository: what would be lost with it, and who is in it.

Everything is read without touching the worktree: an agent may be at work there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from synapse.core.address import short_name
from synapse.core.agent import AgentEntry
from synapse.core.errors import Conflict
from synapse.worktrees.ensure import Record, agents_in, claimant, is_inside, read_record
from synapse.worktrees.git import (
    BRANCHES,
    LinkedWorktree,
    Repository,
    admin_folder,
    git,
    has_ref,
    linked_worktrees,
    try_git,
)

_REMOTES: Final = "refs/remotes/"
_UNFINISHED: Final = {
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "BISECT_LOG": "a bisection",
}
_REPRODUCIBLE: Final = ("__pycache__", "node_modules")
_CACHE_TAG: Final = b"Signature: 8a477f597d28d172789f06886806bc55"
"""What makes a folder a cache, by the Cache Directory Tagging Specification; pytest, mypy, ruff and cargo write it."""
_PROCESSES: Final = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a worktree. Of one whose folder is gone or damaged: only where it was."""

    worktree: LinkedWorktree
    repository: Repository
    record: Record | None
    """None for a worktree that Synapse did not make."""
    changed: int = 0
    """Files with changes that are not committed."""
    untracked: int = 0
    ignored: tuple[str, ...] = ()
    """Ignored files and folders that no command can make again, as far as Synapse can tell."""
    hidden: int = 0
    """Files whose changes git was told not to show (assume-unchanged, skip-worktree)."""
    unfinished: str = ""
    """What git is in the middle of, as a rebase."""
    default_branch: str = ""
    ahead: int = 0
    behind: int = 0
    """Commits that the default branch does not have, and that it has more."""
    unpushed: int | None = None
    """Commits that no remote has; None in a repository without remotes."""
    unsaved: int = 0
    """Commits that neither a remote nor the default branch has."""
    agents: tuple[str, ...] = ()
    """The agents that run in it."""
    processes: tuple[str, ...] = ()
    """Other processes whose working folder is inside."""
    problem: str = ""
    """Why the rest is not known."""

    @property
    def name(self) -> str:
        return self.worktree.path.name

    @property
    def agent(self) -> str:
        """The agent that it was made for."""
        return self.record.agent if self.record else ""

    @property
    def dirty(self) -> int:
        """How many files would be lost with the worktree."""
        return self.changed + self.untracked + len(self.ignored) + self.hidden

    @property
    def is_merged(self) -> bool:
        return not self.problem and bool(self.default_branch) and self.ahead == 0

    @property
    def is_in_use(self) -> bool:
        return bool(self.agents or self.processes)


def inventory(repository: Repository, running: Sequence[AgentEntry]) -> list[Facts]:
    """Returns the facts about all linked worktrees of a repository, sorted by path. Raises as `git`."""
    found = sorted(linked_worktrees(repository), key=lambda one: one.path)
    return [inspect(repository, worktree, running) for worktree in found]


def inspect(repository: Repository, worktree: LinkedWorktree, running: Sequence[AgentEntry]) -> Facts:
    """Returns the facts about one worktree; its `problem` says why they could not be read."""
    record = read_record(repository, worktree)
    if worktree.is_missing:
        return Facts(worktree=worktree, repository=repository, record=record, problem="its folder is gone")
    path = worktree.path
    try:
        changed, untracked, ignored = _status(path)
        branch, others = default_branch(repository, worktree.branch)
        behind, ahead = _compare(path, others[0]) if others else (0, 0)
        remotes = git(path, "for-each-ref", "--count=1", _REMOTES)
        return Facts(
            worktree=worktree,
            repository=repository,
            record=record,
            changed=changed,
            untracked=untracked,
            ignored=ignored,
            hidden=_hidden(path),
            unfinished=_unfinished(repository, worktree),
            default_branch=branch,
            ahead=min([ahead, *(_commits(path, "--not", other) for other in others[1:])]),
            behind=behind,
            unpushed=_commits(path, "--not", "--remotes") if remotes else None,
            unsaved=_commits(path, "--not", "--remotes", *others),
            agents=tuple(_agents(path, record, running)),
            processes=tuple(_processes_in(path, running)),
        )
    except Conflict as error:
        return Facts(
            worktree=worktree,
            repository=repository,
            record=record,
            agents=tuple(_agents(path, record, running)),
            problem=str(error),
        )


def default_branch(repository: Repository, own: str) -> tuple[str, list[str]]:
    """Returns the name of the repository's default branch, and its references here and at the remote.

    Without a remote that names one it is `main`, `master`, or what the main worktree is on. The branch `own` is not
    among the references: it says nothing about itself.
    """
    code, head, _ = try_git(repository.common, "symbolic-ref", "--quiet", f"{_REMOTES}origin/HEAD")
    name = "" if code else head.strip().removeprefix(f"{_REMOTES}origin/")
    if not name:
        known = (one for one in ("main", "master") if has_ref(repository, f"{BRANCHES}{one}"))
        code, head, _ = try_git(repository.common, "symbolic-ref", "--quiet", "--short", "HEAD")
        name = next(known, "" if code else head.strip())
    wanted = [f"{BRANCHES}{name}", f"{_REMOTES}origin/{name}"] if name else []
    return name, [ref for ref in wanted if ref != f"{BRANCHES}{own}" and has_ref(repository, ref)]


def _status(path: Path) -> tuple[int, int, tuple[str, ...]]:
    """Returns how many files are changed and untracked, and which ignored ones count."""
    words = (
        "status",
        "--porcelain",
        "-z",
        "--untracked-files=normal",
        "--ignored=matching",
        "--ignore-submodules=none",
    )
    # A rename has a second field with the old name.
    fields = iter(git(path, *words).split("\0"))
    changed = untracked = 0
    ignored: list[str] = []
    for field in fields:
        match field[:2]:
            case "":
                continue
            case "??":
                untracked += 1
            case "!!":
                if not _is_reproducible(path / field[3:]):
                    ignored.append(field[3:])
            case code:
                changed += 1
                if "R" in code or "C" in code:
                    next(fields, "")
    return changed, untracked, tuple(ignored)


def _is_reproducible(path: Path) -> bool:
    """Decides whether a command makes it again: compiled Python, installed packages, or a cache that says so itself."""
    if not path.is_dir() or path.is_symlink():
        return path.suffix == ".pyc"
    is_cache = path.name in _REPRODUCIBLE or (path / "pyvenv.cfg").is_file() or _is_tagged(path)
    # Somebody's repository inside of it, as of an editable install, may have commits of its own.
    return is_cache and not any(".git" in (*folders, *files) for _, folders, files in os.walk(path))


def _is_tagged(path: Path) -> bool:
    try:
        with (path / "CACHEDIR.TAG").open("rb") as file:
            return file.read(len(_CACHE_TAG)) == _CACHE_TAG
    except OSError:
        return False


def _hidden(path: Path) -> int:
    """Counts the files that are there and whose changes git does not show."""
    listed = git(path, "ls-files", "-v", "-z").split("\0")
    return sum((path / one[2:]).exists() for one in listed if one[:1] == "S" or one[:1].islower())


def _unfinished(repository: Repository, worktree: LinkedWorktree) -> str:
    folder = admin_folder(repository, worktree)
    if folder is None:
        raise Conflict(f"git has no folder for the worktree {worktree.path}")
    return next((what for name, what in _UNFINISHED.items() if (folder / name).exists()), "")


def _compare(path: Path, other: str) -> tuple[int, int]:
    left, right = git(path, "rev-list", "--left-right", "--count", f"{other}...HEAD").split()
    return int(left), int(right)


def _commits(path: Path, *limits: str) -> int:
    return int(git(path, "rev-list", "--count", "HEAD", *limits))


def _agents(path: Path, record: Record | None, running: Sequence[AgentEntry]) -> Iterator[str]:
    there = [short_name(entry) for entry in agents_in(path, running)]
    yield from there
    claim = claimant(record) if record else None
    # The process that claimed it may go on after its agent is there.
    if claim is not None and not there:
        yield claim[1]


def _processes_in(path: Path, running: Sequence[AgentEntry]) -> Iterator[str]:
    """Yields each process whose working folder is inside, except those of agents that are named already.

    Raises Conflict on a system that does not tell.
    """
    known = {pid for entry in agents_in(path, running) for pid in (entry.pid, entry.cli_pid)}
    if not (_PROCESSES / "self" / "cwd").exists():
        raise Conflict("this system does not tell which processes are in it")
    for process in _PROCESSES.iterdir():
        if not process.name.isdigit() or int(process.name) in known:
            continue
        try:
            folder = (process / "cwd").readlink()
            name = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            continue  # it has ended, or is another user's
        if is_inside(folder, path):
            yield f"{name} (pid {process.name})"
