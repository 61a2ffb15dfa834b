"""How one CLI is run against the scripted model: its variables, its arguments, and the files of its own home."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatch
from pathlib import Path
from string import Template
from typing import Any, Final

from synapse.core.errors import UnsupportedOperation

RECIPES: Final = Path(__file__).parent / "recipes"
KEY: Final = "no-key-" + "0" * 32
_KEY_END: Final = 20
"""How many characters of a key Claude Code remembers."""


class WhenLimited(StrEnum):
    """What a CLI does about "too many requests"."""

    FAILS = "fails"
    ASKS = "asks"
    """It asks a person whether to go on trying."""
    RETRIES = "retries"
    """It tries again by itself at the time that it was told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What the recipe of one CLI says; `${url}`, `${key}`, `${key_end}`, `${project}` and `${home}` stand in it."""

    name: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Path below the home → text."""
    own_files: tuple[str, ...] = ()
    """What the CLI writes by itself."""
    settings: tuple[str, ...] = ()
    """What is a person's, even where `own_files` covers it."""
    when_limited: WhenLimited = WhenLimited.FAILS

    def filled(self, places: Mapping[str, str]) -> Recipe:
        """The recipe with everything that stands in it put in."""

        def fill(text: str) -> str:
            return Template(text).substitute(places)

        return replace(
            self,
            args=tuple(map(fill, self.args)),
            env={name: fill(value) for name, value in self.env.items()},
            files={path: fill(text).lstrip() for path, text in self.files.items()},
        )

    def is_watched(self, path: str) -> bool:
        """True for a file below the home that only a person may change."""
        if any(fnmatch(path, pattern) for pattern in self.settings):
            return True
        return not any(fnmatch(path, pattern) for pattern in self.own_files)


def places(url: str, *, home: Path, project: Path) -> dict[str, str]:
    """What stands in recipes, for one run."""
    return {"url": url, "key": KEY, "key_end": KEY[-_KEY_END:], "home": str(home), "project": str(project)}


def recipe_names() -> list[str]:
    """The CLIs that can be calibrated."""
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def load_recipe(name: str) -> Recipe:
    """The recipe for a profile.

    Raises:
        UnsupportedOperation: there is none.
    """
    if name not in recipe_names():
        raise UnsupportedOperation(
            f"'{name}' cannot be calibrated: there is no recipe that points it to the scripted model",
            hint=f"there are recipes for: {', '.join(recipe_names())}",
        )
    fields: dict[str, Any] = tomllib.loads((RECIPES / f"{name}.toml").read_text(encoding="utf-8"))
    return Recipe(
        name=name,
        args=tuple(fields.get("args", ())),
        env=dict(fields.get("env", {})),
        files={file["path"]: file["text"] for file in fields.get("files", ())},
        own_files=tuple(fields.get("own_files", ())),
        settings=tuple(fields.get("settings", ())),
        when_limited=WhenLimited(fields.get("when_limited", WhenLimited.FAILS)),
    )
