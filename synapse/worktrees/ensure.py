"""Makes the worktree of an agent, or finds the one that it had: beside the repository, on a branch of its own.

    ~/src/shop                        the repository, where the person works
    ~/src/shop.worktrees/codex        branch synapse/codex, from the commit that shop had when the agent began

A record in the repository's folder for the worktree says that Synapse made it, for whom and from which commit. Git
deletes the record with the worktree.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

from synapse.config.private_files import write_private
from synapse.config.process import SystemClock
from synapse.core.address import short_name
from synapse.core.agent import AgentEntry
from synapse.core.errors import Conflict, InvalidRequest, NotFound, UnsupportedOperation
from synapse.registry.files import is_running, own_start_time
from synapse.worktrees.git import (
    BRANCHES,
    CHECKOUT_SECONDS,
    LinkedWorktree,
    Repository,
    admin_folder,
    checked_out,
    git,
    has_ref,
    linked_worktrees,
    open_repository,
    try_git,
)

SUFFIX: Final = ".worktrees"
BRANCH_PREFIX: Final = "synapse/"
RECORD: Final = "synapse.json"
LOCK: Final = "synapse-worktrees"
CLAIM_SECONDS: Final = 120.0
"""How long a process that asked for a worktree may take until its agent is in the registry."""


class WorktreeInUse(Conflict):
    """Another agent is in the worktree."""

    def __init__(self, path: Path, agent: str) -> None:
        super().__init__(f"{agent} is in the worktree {path}", hint=f"synapse stop {agent}, or --worktree BRANCH")


@dataclass(frozen=True, slots=True, kw_only=True)
class Worktree:
    """The worktree that an agent gets."""

    path: Path
    branch: str
    """Empty if the agent left it with a detached HEAD."""
    repository: Path
    """The folder of the repository's main working tree."""
    folder: Path
    """Where the agent works: the same folder inside the worktree that was asked for inside the repository."""
    is_new: bool
    notes: tuple[str, ...] = ()
    """What the person may not expect: what the agent does not have there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What Synapse knows of a worktree that it made."""

    agent: str
    branch: str
    base: str
    """The commit that it began with."""
    base_branch: str = ""
    """The branch that this commit was the head of, or empty."""
    made_branch: bool = False
    """Whether Synapse made the branch too."""
    claimed_by: str = ""
    """The process that is about to start an agent in it: pid, start time and the agent's name."""
    claimed_at: float = 0.0


def ensure_worktree(folder: Path, agent: str, branch: str = "", *, running: Sequence[AgentEntry]) -> Worktree:
    """Returns a worktree for an agent that is to work in `folder`; makes it and its branch if they do not exist.

    `agent` is the agent's name, `running` all agents that run. With a `branch`, the worktree is named after it.

    Raises:
        InvalidRequest: `folder` is in no repository, or has no commit yet; or the branch's name is not allowed.
        NotFound: the folder does not exist, or is not in the commit.
        Conflict: another agent is in the worktree, the branch is checked out elsewhere, something is in the way, or git
            fails.
        UnsupportedOperation: the folder is in a bare repository, a `.git` folder or a submodule.
        CommandMissing: git is not installed.
    """
    folder = Path(os.path.realpath(folder))
    repository = open_repository(folder)
    if above := git(folder, "rev-parse", "--show-superproject-working-tree"):
        raise UnsupportedOperation(
            f"{folder} is in a submodule of {above}, and a worktree beside it would be in the way there",
            hint="clone the submodule's repository, and use the clone",
        )
    name = branch or f"{BRANCH_PREFIX}{agent}"
    # Git takes `@{-1}` for the branch before, and `@` for HEAD.
    if name == "@" or try_git(repository.common, "check-ref-format", "--branch", name)[:2] != (0, f"{name}\n"):
        raise InvalidRequest(f"'{name}' cannot be the name of a branch", hint="name one: --worktree BRANCH")
    inner = git(folder, "rev-parse", "--show-prefix").rstrip("/")
    path = place_of(repository, branch or agent)
    with locked(repository):
        known = next((one for one in linked_worktrees(repository) if one.path == path), None)
        if known is None:
            made = _make(folder, repository, path, name, agent, inner)
        else:
            made = _use_again(repository, known, agent, branch, running)
        _claim(repository, path, agent)
    return replace(made, folder=_inside(made, inner))


def place_of(repository: Repository, label: str) -> Path:
    """Returns where the worktree of an agent or a branch belongs."""
    return repository.main.with_name(f"{repository.main.name}{SUFFIX}") / label.replace("/", "-")


def read_record(repository: Repository, worktree: LinkedWorktree) -> Record | None:
    """Returns the record of a worktree; None for one that Synapse did not make."""
    folder = admin_folder(repository, worktree)
    try:
        fields: object = json.loads((folder / RECORD).read_text(encoding="utf-8")) if folder else None
        return Record(**cast("dict[str, Any]", fields)) if isinstance(fields, dict) else None
    except (OSError, ValueError, TypeError):
        return None


def agents_in(path: Path, running: Sequence[AgentEntry]) -> list[AgentEntry]:
    """Returns the agents whose working folder is `path` or inside of it."""
    return [entry for entry in running if entry.working_dir and is_inside(Path(entry.working_dir), path)]


def is_inside(folder: Path, path: Path) -> bool:
    """Returns whether a folder is `path` or inside of it, links resolved."""
    return Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(path))


def claimant(record: Record) -> tuple[int, str] | None:
    """Returns the pid of the process that is about to start an agent there, and the agent's name; None if none is."""
    pid, started, agent = [*record.claimed_by.split(":", 2), "", ""][:3]
    if not pid.isdigit() or not started.isdigit() or not is_running(int(pid), int(started)):
        return None
    # A claim from the future is one of a clock that was set back since.
    is_fresh = 0 <= _now() - record.claimed_at < CLAIM_SECONDS
    return (int(pid), agent) if is_fresh else None


@contextmanager
def locked(repository: Repository) -> Generator[None]:
    """Holds the lock under which Synapse makes and removes worktrees of a repository."""
    with (repository.common / LOCK).open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(folder: Path, repository: Repository, path: Path, branch: str, agent: str, inner: str) -> Worktree:
    code, head, _ = try_git(folder, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if code:
        raise InvalidRequest(f"{repository.main} has no commit yet, so a worktree would be empty", hint="commit first")
    if path.is_symlink() or (path.exists() and not (path.is_dir() and not any(path.iterdir()))):
        raise Conflict(f"{path} exists, and is not a worktree of {repository.main}", hint="move it away")
    if elsewhere := checked_out(repository, branch):
        raise Conflict(f"the branch {branch} is checked out in {elsewhere}", hint="name another: --worktree BRANCH")
    is_new_branch = not has_ref(repository, f"{BRANCHES}{branch}")
    remote = _remote_branch(repository, branch) if is_new_branch else ""
    commit = remote or (head.strip() if is_new_branch else f"{BRANCHES}{branch}")
    if inner and try_git(folder, "cat-file", "-e", f"{commit}:{inner}")[0]:
        raise NotFound(
            f"{folder} is not in {remote or branch if commit != head.strip() else 'the last commit'}, "
            "so the worktree would not have it",
            hint="commit it, or start in another folder",
        )
    new = ["--track" if remote else "--no-track", "-b", branch] if is_new_branch else []
    git(folder, "worktree", "add", "--quiet", *new, str(path), commit if new else branch, seconds=CHECKOUT_SECONDS)
    record = Record(
        agent=agent,
        branch=branch,
        base=git(path, "rev-parse", "HEAD"),
        base_branch=git(folder, "branch", "--show-current"),
        made_branch=is_new_branch,
    )
    _write(repository, path, record)
    notes: list[str] = []
    if git(folder, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules"):
        notes.append(f"changes in {folder} that are not committed are not in it")
    if (path / ".gitmodules").exists():
        notes.append(
            f"its submodules are empty until: git -C {shlex.quote(str(path))} submodule update --init --recursive"
        )
    return Worktree(path=path, branch=branch, repository=repository.main, folder=path, is_new=True, notes=tuple(notes))


def _remote_branch(repository: Repository, branch: str) -> str:
    """Returns the branch of that name at a remote, as `git worktree add` would guess it; empty if there is none."""
    found = git(repository.common, "for-each-ref", "--format=%(refname)", f"refs/remotes/*/{branch}").splitlines()
    if len(found) > 1:
        places = ", ".join(ref.removeprefix("refs/remotes/") for ref in found)
        raise Conflict(
            f"several remotes have a branch {branch}: {places}", hint=f"make the branch: git branch {branch}"
        )
    return found[0] if found else ""


def _use_again(
    repository: Repository, known: LinkedWorktree, agent: str, branch: str, running: Sequence[AgentEntry]
) -> Worktree:
    if known.is_missing:
        raise Conflict(
            f"the folder of the worktree {known.path} is gone, but git still lists it",
            hint=f"git -C {shlex.quote(str(repository.main))} worktree prune",
        )
    record = read_record(repository, known)
    if record is None:
        raise Conflict(f"{known.path} is a worktree that Synapse did not make", hint="name another: --worktree BRANCH")
    if there := agents_in(known.path, running):
        raise WorktreeInUse(known.path, short_name(there[0]))
    claim = claimant(record)
    if claim not in (None, (os.getpid(), agent)):
        raise WorktreeInUse(known.path, claim[1])
    # Without a wish, the branch that the agent has chosen since is as good.
    if branch and known.branch != branch:
        raise Conflict(
            f"{known.path} is on {f'the branch {known.branch}' if known.branch else 'no branch'}, not on {branch}",
            hint=f"git -C {shlex.quote(str(known.path))} switch {shlex.quote(branch)}",
        )
    return Worktree(path=known.path, branch=known.branch, repository=repository.main, folder=known.path, is_new=False)


def _inside(worktree: Worktree, inner: str) -> Path:
    folder = worktree.path / inner
    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}", hint=f"{worktree.path} is on the branch {worktree.branch}")
    return folder


def _claim(repository: Repository, path: Path, agent: str) -> None:
    record = read_record(repository, LinkedWorktree(path=path))
    if record is not None:
        holder = f"{os.getpid()}:{own_start_time()}:{agent}"
        _write(repository, path, replace(record, claimed_by=holder, claimed_at=_now()))


def _write(repository: Repository, path: Path, record: Record) -> None:
    folder = admin_folder(repository, LinkedWorktree(path=path))
    if folder is None:
        raise Conflict(f"git has no folder for the worktree {path}")
    draft = folder / f"{RECORD}.{os.getpid()}"
    write_private(draft, json.dumps(asdict(record)) + "\n")
    draft.replace(folder / RECORD)


def _now() -> float:
    return SystemClock().now().timestamp()
