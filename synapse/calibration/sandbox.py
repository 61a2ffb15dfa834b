"""Where a CLI is calibrated: a home, a project and a state folder of its own, and a clean environment.

Nothing of the person's is read or written, so this is safe on a machine where real agents work.

How one CLI is run against the scripted model: its variables, its arguments, and the files of its own home.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatch
from pathlib import Path
from string import Template
from typing import Any, Final, cast

from synapse.calibration.terminals import TerminalKind
from synapse.client.http import HostAddress, NoAnswer, request
from synapse.core.agent import AgentEntry
from synapse.core.errors import UnsupportedOperation
from synapse.registry.files import FileRegistry

AGENT: Final = "calibrated"
_COMMAND_SECONDS: Final = 60.0
_TOO_SLOW: Final = -1
_PROCESSES: Final = Path("/proc")
# PYTHONPATH: our own commands must find the same Synapse that runs this one.
_KEPT: Final = ("PATH", "PYTHONPATH", "TZ")
RECIPES: Final = Path(__file__).parent / "recipes"
KEY: Final = "no-key-" + "0" * 32
_KEY_END: Final = 20
"""How many characters of a key Claude Code remembers."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a `synapse` command came to."""

    code: int
    output: str
    talk: str

    @property
    def fields(self) -> dict[str, Any]:
        """The JSON object that it printed, or an empty one."""
        try:
            value: object = json.loads(self.output)
        except ValueError:
            return {}
        return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


class Workbench:
    """One agent in folders of its own; `folder` is empty and short, because sockets lie in it."""

    def __init__(self, folder: Path, environ: Mapping[str, str], terminal: TerminalKind | None = None) -> None:
        self.home, self.project = folder / "home", folder / "project"
        self._state, self._sockets, self._temporary = folder / "state", folder / "s", folder / "tmp"
        for path in (self.home, self.project, self._state, self._sockets, self._temporary):
            path.mkdir(mode=0o700)
        (self.project / "README.md").write_text("# A project for calibration\n", encoding="utf-8")
        self._environ = dict(environ)
        self._terminal = terminal or TerminalKind()
        self.recipe = Recipe(name="")

    @property
    def env(self) -> dict[str, str]:
        """All that the agent and our own commands get to know of the world outside."""
        kept = {name: value for name in _KEPT if (value := self._environ.get(name))}
        own = {
            "HOME": str(self.home),
            "TMPDIR": str(self._temporary),
            "SYNAPSE_HOME": str(self._state),
            "SYNAPSE_UDS_DIR": str(self._sockets),
            "LANG": "C.UTF-8",
            "SHELL": "/bin/sh",
        }
        return {**kept, **own, **self._terminal.env, **self.recipe.env}

    def furnish(self, recipe: Recipe) -> None:
        """Write the files of the CLI's home."""
        self.recipe = recipe
        for path, text in recipe.files.items():
            file = self.home / path
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")

    def synapse(self, *words: str, seconds: float = _COMMAND_SECONDS) -> Ran:
        """Type a `synapse` command in the project, as a person would."""
        try:
            done = subprocess.run(  # noqa: S603 - our own interpreter and our own module
                [sys.executable, "-P", "-m", "synapse.cli.main", *words],
                cwd=self.project,
                env=self.env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Ran(_TOO_SLOW, "", f"`synapse {words[0]}` did not end within {seconds:.0f} s")
        return Ran(done.returncode, done.stdout, done.stderr)

    def entry(self) -> AgentEntry | None:
        """What the registry says of the agent, or None when it is gone."""
        return next(iter(FileRegistry(self._state / "registry").entries()), None)

    def address(self) -> HostAddress | None:
        entry = self.entry()
        return None if entry is None else HostAddress(entry.socket, port=entry.port)

    def ask(self, path: str) -> dict[str, Any]:
        """What the agent's host answers, or an empty object when it is gone."""
        address = self.address()
        if address is None:
            return {}
        try:
            return request(address, "GET", path).body
        except NoAnswer:
            return {}

    @property
    def sees_processes(self) -> bool:
        """False on a system that does not tell what runs."""
        return (_PROCESSES / "self").exists()

    def processes(self) -> dict[int, str]:
        """Every process that lives in this home, by its environment: also one that has left its parents."""
        mark = f"HOME={self.home}".encode()
        found: dict[int, str] = {}
        for folder in _PROCESSES.glob("[0-9]*"):
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                    found[int(folder.name)] = command.strip() or (folder / "comm").read_text(encoding="utf-8").strip()
            except OSError:
                continue  # it has just ended, or is another user's
        return {pid: command for pid, command in found.items() if pid != os.getpid()}

    def settings(self) -> dict[str, str]:
        """The files of the home that only a person may change, each with a digest of its content."""
        files = (path for path in self.home.rglob("*") if path.is_file() and not path.is_symlink())
        named = {path.relative_to(self.home).as_posix(): path for path in files}
        watched = {name: path for name, path in named.items() if self.recipe.is_watched(name)}
        return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in sorted(watched.items())}


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
