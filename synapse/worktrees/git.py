"""Runs git for Synapse: without a shell, a prompt, a hook or a pager, and always with an end.

A repository's own configuration can name programs: hooks, a file system monitor, external diffs, a verifier of
signatures. An agent can write that configuration, and the command may run in a person's shell; so those programs are
switched off. Filters (as of Git LFS) stay, because the files would be wrong without them.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from synapse.core.errors import CommandMissing, Conflict, InvalidRequest, NotFound, UnsupportedOperation

SAFE_OPTIONS: Final = (
    "--no-pager",
    "--no-optional-locks",
    "--literal-pathspecs",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    # `git log` would verify signatures by the program that gpg.program names.
    "-c",
    "log.showSignature=false",
)
READ_SECONDS: Final = 60.0
CHECKOUT_SECONDS: Final = 900.0
"""A checkout of a large repository on a slow disk takes minutes."""
BRANCHES: Final = "refs/heads/"
# Which files git reads is the person's choice; the other variables belong to a git command that this one may run in.
_KEPT_VARIABLES: Final = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
_NOT_A_REPOSITORY: Final = "not a git repository"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A repository with a working tree."""

    main: Path
    """The folder of its main working tree; of a bare repository with linked worktrees, the repository itself."""
    common: Path
    """The folder that all of its worktrees share, usually `.git`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedWorktree:
    """A worktree as git lists it."""

    path: Path
    head: str = ""
    branch: str = ""
    """Empty for a detached HEAD."""
    is_locked: bool = False
    is_missing: bool = False
    """Its folder is gone."""


def git_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment for git: in plain English, for the repository of the folder, and without questions."""
    kept = {name: value for name, value in environ.items() if not name.startswith("GIT_") or name in _KEPT_VARIABLES}
    return kept | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_EDITOR": "false"}


def try_git(
    folder: Path, *arguments: str, seconds: float = READ_SECONDS, index: Path | None = None, text: str = ""
) -> tuple[int, str, str]:
    """Runs git in a folder and returns its exit code, its output and its error.

    It reads `text`, and uses `index` instead of the worktree's own index.

    Raises:
        CommandMissing: git is not installed.
        NotFound: the folder does not exist.
        Conflict: git did not end in time.
    """
    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}")
    try:
        done = subprocess.run(  # noqa: S603 - a list of words, and no shell
            ["git", *SAFE_OPTIONS, *arguments],  # noqa: S607 - the person's git
            cwd=folder,
            env=git_environment(os.environ) | ({"GIT_INDEX_FILE": str(index)} if index else {}),
            input=os.fsencode(text),
            capture_output=True,
            check=False,
            timeout=seconds,
        )
    except FileNotFoundError:
        raise CommandMissing("git is not installed", hint="install git, or do without worktrees") from None
    except subprocess.TimeoutExpired:
        raise Conflict(f"git {arguments[0]} in {folder} did not end within {seconds:.0f} s") from None
    # Paths are bytes; as in all of Python, those that are not UTF-8 become surrogates.
    return done.returncode, os.fsdecode(done.stdout), done.stderr.decode("utf-8", "replace").strip()


def git(folder: Path, *arguments: str, seconds: float = READ_SECONDS, index: Path | None = None, text: str = "") -> str:
    """Runs git in a folder and returns its output, without the last newline.

    Raises what `try_git` does, and Conflict with git's own words if it fails.
    """
    code, output, error = try_git(folder, *arguments, seconds=seconds, index=index, text=text)
    if code:
        raise Conflict(_words_of(error) or f"git {arguments[0]} in {folder} failed with exit code {code}")
    return output.removesuffix("\n")


def show_git(folder: Path, *arguments: str, index: Path) -> int:
    """Lets git write to this process's stdout, in colour and page by page if that is a terminal; returns its exit code.

    The pager is the person's: the repository's configuration does not choose it.
    """
    is_terminal = sys.stdout.isatty()
    environment = git_environment(os.environ) | {"GIT_INDEX_FILE": str(index), "GIT_PAGER": _pager()}
    # The pager shows text in the person's language.
    environment.pop("LC_ALL")
    environment |= {"LC_ALL": os.environ["LC_ALL"]} if "LC_ALL" in os.environ else {}
    sys.stdout.flush()
    # Ctrl-C is for the pager.
    before = signal.signal(signal.SIGINT, _leave_to_child)
    try:
        return subprocess.run(  # noqa: S603 - a list of words, and no shell
            ["git", *SAFE_OPTIONS, *(["--paginate"] if is_terminal else []), *arguments],  # noqa: S607 - the person's git
            cwd=folder,
            env=environment,
            check=False,
        ).returncode
    finally:
        signal.signal(signal.SIGINT, before)


def _leave_to_child(_signal: int, _frame: object) -> None:
    """Handles a signal by doing nothing. Not SIG_IGN, which the child would inherit."""


def _pager() -> str:
    if "GIT_PAGER" in os.environ:
        return os.environ["GIT_PAGER"]
    # Outside of any repository, so only the files of the person and of the system count.
    code, chosen, _ = try_git(Path("/"), "config", "--get", "core.pager")
    return os.environ.get("PAGER", "less") if code else chosen.strip()


def open_repository(folder: Path) -> Repository:
    """Returns the repository of a folder.

    Raises:
        InvalidRequest: the folder is in no repository.
        UnsupportedOperation: it is in a bare repository, or in a `.git` folder.
        CommandMissing, NotFound, Conflict: as `git`; also for a repository that git refuses to read.
    """
    code, output, error = try_git(folder, "rev-parse", "--is-inside-work-tree")
    if code and _NOT_A_REPOSITORY in error:
        raise InvalidRequest(f"{folder} is not in a git repository", hint=f"git -C {shlex.quote(str(folder))} init")
    if code:
        raise Conflict(f"git cannot read the repository of {folder}: {_words_of(error)}")
    if output.strip() != "true":
        raise UnsupportedOperation(
            f"{folder} is inside a bare repository or a .git folder, where there are no files to work on",
            hint="use a folder with a checkout",
        )
    own, common = (
        Path(git(folder, "rev-parse", "--path-format=absolute", which)) for which in ("--git-dir", "--git-common-dir")
    )
    if own == common:
        return Repository(main=Path(git(folder, "rev-parse", "--show-toplevel")), common=common)
    return Repository(main=next(_listed(folder)).path, common=common)


def linked_worktrees(repository: Repository) -> list[LinkedWorktree]:
    """Returns the linked worktrees of a repository, those of which the folder is gone too. Raises as `git`."""
    _main, *linked = _listed(repository.common)
    return linked


def checked_out(repository: Repository, branch: str) -> Path | None:
    """Returns the worktree that a branch is checked out in, or None; the main one counts too. Raises as `git`."""
    return next((one.path for one in _listed(repository.common) if branch and one.branch == branch), None)


def admin_folder(repository: Repository, worktree: LinkedWorktree) -> Path | None:
    """Returns the folder inside the repository that belongs to a worktree; None if it is damaged."""
    wanted = worktree.path / ".git"
    try:
        for folder in (repository.common / "worktrees").iterdir():
            pointer = (folder / "gitdir").read_text(encoding="utf-8", errors="surrogateescape").rstrip("\n")
            # Relative to the folder, in repositories with `worktree.useRelativePaths`.
            if Path(os.path.realpath(folder / pointer)) == Path(os.path.realpath(wanted)):
                return folder
    except OSError:
        return None
    return None


def has_ref(repository: Repository, ref: str) -> bool:
    """Returns whether a reference exists, by its full name. Raises as `try_git`."""
    return try_git(repository.common, "show-ref", "--verify", "--quiet", ref)[0] == 0


def _listed(folder: Path) -> Iterator[LinkedWorktree]:
    """Yields all worktrees of the folder's repository, the main one first."""
    for block in git(folder, "worktree", "list", "--porcelain", "-z").split("\0\0"):
        words = (line.partition(" ") for line in block.strip("\0").split("\0"))
        fields = {name: value for name, _, value in words}
        if "worktree" in fields:
            yield LinkedWorktree(
                path=Path(fields["worktree"]),
                head=fields.get("HEAD", ""),
                branch=fields.get("branch", "").removeprefix(BRANCHES),
                is_locked="locked" in fields,
                is_missing=not Path(fields["worktree"]).is_dir(),
            )


def _words_of(error: str) -> str:
    """Returns what git said, without its prefix; the last line is the reason, those before it progress."""
    lines = [line for line in error.splitlines() if line.startswith(("fatal: ", "error: "))] or error.splitlines()
    return lines[-1].removeprefix("fatal: ").removeprefix("error: ") if lines else ""
