"""Reads profiles from files: the user's, the ones that come with Synapse, and a project's."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from synapse.core.address import KEY, UNVERIFIED, is_marked, nearest
from synapse.core.errors import InvalidProfile, UnknownProfile
from synapse.runtime.settings import BUNDLED_PROFILES
from synapse.terminal.profile import Profile, parse_profile

_SUFFIX: Final = ".toml"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
# Stands for the Python that runs Synapse, so that a bundled program needs no PATH.
_PYTHON: Final = "{python}"


def load_profile(name: str, folders: Sequence[Path] = (BUNDLED_PROFILES,)) -> Profile:
    """Return the profile `name` from the first folder that has it.

    Raises:
        UnknownProfile: no folder has it; the hint names a likely one.
        InvalidProfile: its file cannot be used; the message names the key.
    """
    for folder in folders:
        path = folder / (name + _SUFFIX)
        if path.parent == folder and path.is_file():
            _check_name(name, path)
            return _with_python(parse_profile(_read(path, name), name))
    known = profile_names(folders)
    meant = nearest(name, known)
    raise UnknownProfile(
        f"there is no profile '{name}'",
        hint=f"Did you mean '{meant}'?" if meant else f"there are: {', '.join(known)}",
    )


def profile_names(folders: Sequence[Path] = (BUNDLED_PROFILES,)) -> list[str]:
    """Return the names of all profiles, sorted."""
    return sorted({path.stem for folder in folders for path in folder.glob("*" + _SUFFIX)})


def _check_name(name: str, path: Path) -> None:
    """The name is part of the agent's id, which is typed, listed and used as a file's name. Raises InvalidProfile."""
    if _NAME.fullmatch(name) and not is_marked(name):
        return
    raise InvalidProfile(
        f"'{name}' cannot be a profile's name",
        hint=f"rename {path}: letters (a to z), digits, '.', '-' and '_', and neither '{UNVERIFIED}' nor '{KEY}' first",
    )


def _read(path: Path, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidProfile(f"profile '{name}' cannot be read: {error}", hint=f"look at {path}") from error


def _with_python(profile: Profile) -> Profile:
    return replace(profile, command=tuple(word.replace(_PYTHON, sys.executable) for word in profile.command))
