"""Records which projects the person trusts: a project's `.synapse/` is used only with the content they approved.

    not known ──trust──► trusted ──a file changes──► changed
        └────decline───► declined ──a file changes──► not known

A project is read once, into memory: the bytes that are hashed are the bytes that are used, so that a profile cannot
change in between. A single file elsewhere, as a team file, is trusted in the same way, by its path and content.

A git worktree without a decision of its own has that of its repository, about exactly the same content.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, cast

from synapse.config.paths import PROJECT_FOLDER, is_ours
from synapse.config.private_files import make_private, write_private
from synapse.core.errors import InvalidRequest, NotFound

FOLDER: Final = "trust"
"""The folder inside the state folder with a file for each decision."""
MAX_FILES: Final = 1000
MAX_BYTES: Final = 4 * 1024 * 1024
_SUFFIX: Final = ".json"
_LONGEST_POINTER: Final = 8192
"""More than a path can have."""


class Trust(StrEnum):
    """The person's decision about a project with its present files."""

    UNKNOWN = "not trusted"
    TRUSTED = "trusted"
    CHANGED = "changed since it was trusted"
    DECLINED = "declined"
    UNUSABLE = "cannot be trusted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A folder with a `.synapse/`, and the files that were read from it; or the path of a file, and that file alone."""

    folder: Path
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes], repr=False)
    """The content of each file, by its path inside `.synapse/`."""
    problem: str = ""
    """Why it can never be trusted, or an empty string."""

    @property
    def place(self) -> Path:
        return self.folder / PROJECT_FOLDER

    @property
    def digest(self) -> str:
        """A hash of all names and contents."""
        whole = hashlib.sha256()
        for name in sorted(self.files):
            for part in (os.fsencode(name), self.files[name]):
                # With the length first, different names and contents never give equal bytes.
                whole.update(len(part).to_bytes(8, "big") + part)
        return whole.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A decision of the person about a project with a certain content."""

    folder: Path
    digest: str
    trusted: bool
    at: str

    def about(self, project: Project) -> Trust:
        """Returns what the decision means for the project with its present files."""
        if self.digest == project.digest:
            return Trust.TRUSTED if self.trusted else Trust.DECLINED
        return Trust.CHANGED if self.trusted else Trust.UNKNOWN


def read_project(folder: Path) -> Project:
    """Reads a project's `.synapse/`; its `problem` says why it could not be read completely."""
    folder = Path(os.path.realpath(folder))
    try:
        return Project(folder=folder, files=dict(_files(folder / PROJECT_FOLDER)))
    except OSError as error:
        where = error.filename or folder / PROJECT_FOLDER
        return Project(folder=folder, problem=f"{where} cannot be read: {error.strerror}")
    except InvalidRequest as error:
        return Project(folder=folder, problem=str(error))


def read_single_file(path: Path) -> Project:
    """Reads one file that a person may trust by its path; its `problem` says why it can never be trusted.

    Does not follow a link at the end of the path, whose target others could change.
    """
    folder = Path(os.path.realpath(path.parent)) / path.name
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(opened, "rb") as file:
            found = os.fstat(opened)
            if not is_ours(found.st_uid):
                return Project(folder=folder, problem=f"{folder} belongs to another user (uid {found.st_uid})")
            if not stat.S_ISREG(found.st_mode):
                return Project(folder=folder, problem=f"{folder} is not a plain file")
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return Project(folder=folder, problem=f"{folder} is a symbolic link, whose target others can change")
        return Project(folder=folder, problem=f"{folder} cannot be read: {error.strerror}")
    if len(content) > MAX_BYTES:
        return Project(folder=folder, problem=f"{folder} holds more than {MAX_BYTES // 1024**2} MB")
    return Project(folder=folder, files={folder.name: content})


def _files(place: Path) -> Iterator[tuple[str, bytes]]:
    """Yields the path and content of each file; does not follow links. Raises InvalidRequest or OSError."""
    if place.is_symlink():
        raise InvalidRequest(f"{place} is a symbolic link, whose target others can change")
    count = size = 0
    for parent, folders, names, here in os.fwalk(place, follow_symlinks=False, onerror=_raise):
        inner = Path(os.path.relpath(parent, place))
        for name in sorted([*folders, *names]):
            path = (inner / name).as_posix()
            found = os.stat(name, dir_fd=here, follow_symlinks=False)
            if not is_ours(found.st_uid):
                raise InvalidRequest(f"{place / path} belongs to another user (uid {found.st_uid})")
            if stat.S_ISDIR(found.st_mode):
                continue
            if not stat.S_ISREG(found.st_mode):
                raise InvalidRequest(f"{place / path} is not a plain file; the target of a link could change")
            content = _content(name, here, MAX_BYTES - size)
            count, size = count + 1, size + len(content)
            if count > MAX_FILES or size > MAX_BYTES:
                raise InvalidRequest(f"{place} holds more than {MAX_FILES} files or {MAX_BYTES // 1024**2} MB")
            yield path, content


def _content(name: str, folder: int, most: int) -> bytes:
    # If it was replaced by a link or a pipe meanwhile, this fails instead of following the link or blocking.
    opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(opened, "rb") as file:
        return file.read(most + 1)


def _raise(error: OSError) -> None:
    raise error


def same_folder_in_main_worktree(folder: Path) -> Path | None:
    """Returns the folder that corresponds to `folder` in the main worktree; None if it is not in a linked worktree.

    The worktree must name the repository, and the repository the worktree: a folder that comes from elsewhere can name
    any repository, but is named by none. Reads the files of git itself, because every command asks this.
    """
    folder = Path(os.path.realpath(folder))
    try:
        top = next(one for one in (folder, *folder.parents) if os.path.lexists(one / ".git"))
        marker, found, place = _pointer(top / ".git").partition("gitdir: ")
        admin = Path(os.path.realpath(top / place))
        common = Path(os.path.realpath(admin / _pointer(admin / "commondir")))
        back = Path(os.path.realpath(admin / _pointer(admin / "gitdir")))
    except (StopIteration, OSError, ValueError):
        return None
    is_linked = not marker and found and back == top / ".git" and admin.parent == common / "worktrees"
    # A bare repository has no main worktree.
    return common.parent / folder.relative_to(top) if is_linked and common.name == ".git" else None


def _pointer(path: Path) -> str:
    """Returns the line in a file of git's. Raises OSError, or ValueError if another user could have written it."""
    opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(opened, "rb") as file:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode) or not is_ours(found.st_uid):
            raise ValueError(f"{path} is not a plain file of this user")
        return os.fsdecode(file.read(_LONGEST_POINTER)).rstrip("\n")


class TrustStore:
    """The person's decisions, each in a private file in the state folder."""

    def __init__(self, home: Path) -> None:
        self._folder = home / FOLDER

    def trust_in(self, project: Project) -> Trust:
        """Returns the person's decision about the project with its present files."""
        if project.problem:
            return Trust.UNUSABLE
        decision = self._about(project.folder)
        if decision is not None:
            return decision.about(project)
        inherited = self._about(same_folder_in_main_worktree(project.folder))
        # A worktree with other content is another project, not a changed one.
        return inherited.about(project) if inherited and inherited.digest == project.digest else Trust.UNKNOWN

    def decide(self, project: Project, now: datetime, *, trusted: bool) -> Decision:
        """Records the person's decision about the project as it was read.

        Raises:
            InvalidRequest: the project can never be trusted.
            OSError: the file cannot be written.
        """
        if project.problem:
            raise InvalidRequest(f"{project.folder} cannot be trusted: {project.problem}")
        at = now.isoformat(timespec="seconds").replace("+00:00", "Z")
        decision = Decision(folder=project.folder, digest=project.digest, trusted=trusted, at=at)
        make_private(self._folder)
        path = self._path(project.folder)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        text = json.dumps({"folder": str(project.folder), "sha256": decision.digest, "trusted": trusted, "at": at})
        write_private(draft, text + "\n")
        draft.replace(path)
        return decision

    def revoke(self, folder: Path) -> None:
        """Deletes the decision about a project.

        Raises:
            NotFound: there is none.
        """
        try:
            self._path(folder).unlink()
        except FileNotFoundError:
            raise NotFound(f"there is no decision about {folder}", hint="synapse trust --list") from None

    def decisions(self) -> list[Decision]:
        """Returns all decisions, sorted by folder."""
        read = (self._read(path) for path in self._folder.glob(f"*{_SUFFIX}"))
        return sorted((decision for decision in read if decision is not None), key=lambda decision: decision.folder)

    def _about(self, folder: Path | None) -> Decision | None:
        decision = self._read(self._path(folder)) if folder else None
        return decision if decision and decision.folder == folder else None

    def _path(self, folder: Path) -> Path:
        return self._folder / (hashlib.sha256(os.fsencode(folder)).hexdigest()[:32] + _SUFFIX)

    def _read(self, path: Path) -> Decision | None:
        """Returns the decision in a file; None if the file is damaged or belongs to another user."""
        try:
            with path.open("rb") as file:
                if not is_ours(os.fstat(file.fileno()).st_uid):
                    return None
                fields: object = json.loads(file.read())
        except (OSError, ValueError):
            return None
        if not isinstance(fields, dict):
            return None
        known = cast("dict[str, Any]", fields)
        return Decision(
            folder=Path(str(known.get("folder"))),
            digest=str(known.get("sha256")),
            trusted=known.get("trusted") is True,
            at=str(known.get("at")),
        )
