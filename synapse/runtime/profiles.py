"""Reads profiles from files: the user's, the ones that come with Synapse, and a project's."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from synapse.core.address import KEY, UNVERIFIED, is_marked, nearest
from synapse.core.errors import InvalidProfile, UnknownProfile
from synapse.runtime.settings import BUNDLED_PROFILES, PROFILE_NAME, PROJECT_PROFILES, ProfileSource, profile_in
from synapse.terminal.profile import Profile, parse_profile

_SUFFIX: Final = ".toml"
_LONGEST_NAME: Final = 40
# Stands for the Python that runs Synapse, so that a bundled program needs no PATH.
_PYTHON: Final = "{python}"


def load_profile(name: str, sources: Sequence[ProfileSource] = (BUNDLED_PROFILES,)) -> Profile:
    """Return the profile `name` from the first source that has it.

    Raises:
        UnknownProfile: no source has it; the hint names a likely one.
        InvalidProfile: its file cannot be used; the message names the key.
    """
    for source in sources:
        if name in _names(source):
            _check_name(name, _path(source, name))
            return _placed(_parsed(_content(source, name), name, _path(source, name)), source)
    known = profile_names(sources)
    meant = nearest(name, known)
    raise UnknownProfile(
        f"there is no profile '{name}'",
        hint=f"Did you mean '{meant}'?" if meant else f"there are: {', '.join(known)}",
    )


def profile_names(sources: Sequence[ProfileSource] = (BUNDLED_PROFILES,)) -> list[str]:
    """Return the names of all profiles, sorted."""
    return sorted({name for source in sources for name in _names(source)})


def _names(source: ProfileSource) -> Iterator[str]:
    if isinstance(source, Path):
        names = (path.stem for path in source.glob("*" + _SUFFIX) if path.is_file())
        return (name for name in names if PROFILE_NAME.fullmatch(name))
    return (name for path in source.files if (name := profile_in(path)))


def _check_name(name: str, path: Path) -> None:
    """The name is part of the agent's id, which is typed, listed and used as a file's name. Raises InvalidProfile."""
    if len(name) > _LONGEST_NAME or is_marked(name):
        raise InvalidProfile(
            f"'{name}' cannot be a profile's name",
            hint=f"rename {path}: at most {_LONGEST_NAME} letters, and neither '{UNVERIFIED}' nor '{KEY}' first",
        )


def _path(source: ProfileSource, name: str) -> Path:
    folder = source if isinstance(source, Path) else source.place / PROJECT_PROFILES
    return folder / (name + _SUFFIX)


def _content(source: ProfileSource, name: str) -> bytes:
    """The bytes of a profile; those of a project are the ones that the person's trust is about."""
    if not isinstance(source, Path):
        return source.files[PROJECT_PROFILES + name + _SUFFIX]
    path = _path(source, name)
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidProfile(f"profile '{name}' cannot be read: {error}", hint=f"look at {path}") from error


def _parsed(content: bytes, name: str, path: Path) -> Profile:
    try:
        return parse_profile(tomllib.loads(content.decode("utf-8")), name)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidProfile(f"profile '{name}' cannot be read: {error}", hint=f"look at {path}") from error


def _placed(profile: Profile, source: ProfileSource) -> Profile:
    """The profile with a program that is the same one wherever it is started."""
    program, *rest = (word.replace(_PYTHON, sys.executable) for word in profile.command)
    if "/" in program and not program.startswith("/"):
        if isinstance(source, Path):
            raise InvalidProfile(
                f"profile '{profile.name}': the command '{program}' would be another program in each folder",
                hint=f"write its whole path in {_path(source, profile.name)}",
            )
        program = str(source.folder / program)
    return replace(profile, command=(program, *rest))
