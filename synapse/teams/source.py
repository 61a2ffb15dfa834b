"""Finds a team file, and reads it once: the bytes that are trusted are the bytes that are used.

.synapse/team.toml of the project     trusted with the project
another file in a `.synapse/`         the same
a file elsewhere, by its path         trusted by its path and content
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from synapse.config.paths import PROJECT_FOLDER, find_project
from synapse.config.trust import Project, Trust, TrustStore, read_project, read_single_file
from synapse.core.errors import InvalidSettings, NotFound
from synapse.teams.file import FILE, Team, parse_team

_HINT: Final = "`synapse up --example` writes one"


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamSource:
    """A team file as it was read, and whether the person trusts it."""

    file: Path
    folder: Path
    """Where the relative paths in it start."""
    content: bytes
    project: Project
    """What the person trusts: the project of the file, or the file alone."""
    trust: Trust

    @property
    def is_in_project(self) -> bool:
        return self.project.folder != self.file

    def team(self) -> Team:
        """Returns the team. Raises InvalidSettings."""
        return parse_team(self.content, self.file, self.folder)


def team_file(path: str, here: str) -> Path:
    """Returns the absolute path of a team file: the one given, or that of the project of the folder `here`.

    Raises NotFound without a path outside of any project.
    """
    if path:
        given = Path(here) / Path(path).expanduser()
        return Path(os.path.realpath(given.parent)) / given.name
    project = find_project(os.path.realpath(here))
    if not project:
        raise NotFound(f"there is no {PROJECT_FOLDER}/{FILE} in {here} or above it", hint=_HINT)
    return Path(project) / PROJECT_FOLDER / FILE


def has_team(here: str) -> bool:
    """Returns whether the folder `here` is in a project with a team file."""
    project = find_project(os.path.realpath(here))
    return bool(project) and (Path(project) / PROJECT_FOLDER / FILE).is_file()


def read_source(file: Path, home: Path) -> TeamSource:
    """Reads the team file at an absolute path, with the person's decision about it from the state folder `home`.

    Raises:
        NotFound: there is none.
        InvalidSettings: it can never be trusted, as a link, or a file of another user.
    """
    if not os.path.lexists(file):
        raise NotFound(f"there is no file {file}", hint=_HINT)
    project, name = _project_with(file)
    if project.problem:
        raise InvalidSettings(f"{file} cannot be used: {project.problem}", hint="use a plain file of your own")
    if name not in project.files:
        raise NotFound(f"there is no file {file}", hint=_HINT)
    return TeamSource(
        file=file,
        folder=project.folder if project.folder != file else file.parent,
        content=project.files[name],
        project=project,
        trust=TrustStore(home).trust_in(project),
    )


def _project_with(file: Path) -> tuple[Project, str]:
    """Returns the project that the file belongs to, and its name there; for a file elsewhere, the file alone."""
    place = next((folder for folder in file.parents if folder.name == PROJECT_FOLDER), None)
    if place is None:
        return read_single_file(file), file.name
    return read_project(place.parent), file.relative_to(place).as_posix()
