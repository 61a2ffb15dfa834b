"""Runs a CLI in folders of its own, by a recipe that points it to the scripted model.

A sandbox has its own home, project and state folder and a clean environment. It reads and writes nothing of the
person's, so it is safe on a machine where real agents work.
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
from synapse.host.background import HostLaunch, start_host
from synapse.registry.files import FileRegistry

AGENT: Final = "calibrated"
_COMMAND_SECONDS: Final = 60.0
_TIMED_OUT: Final = -1
_PROCESSES: Final = Path("/proc")
# PYTHONPATH: our commands must find the Synapse that runs this process.
_KEPT: Final = ("PATH", "PYTHONPATH", "TZ")
RECIPES: Final = Path(__file__).parent / "recipes"
KEY: Final = "no-key-" + "0" * 32
_KEY_END: Final = 20
"""How many characters at the end of a key Claude Code stores."""


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of a `synapse` command."""

    code: int
    output: str
    notices: str

    @property
    def fields(self) -> dict[str, Any]:
        """The JSON object on its stdout, or an empty one."""
        try:
            value: object = json.loads(self.output)
        except ValueError:
            return {}
        return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


class Sandbox:
    """One agent in folders of its own; `folder` is empty, and its path is short, because it holds sockets."""

    def __init__(self, folder: Path, environ: Mapping[str, str], terminal: TerminalKind | None = None) -> None:
        self.home, self.project = folder / "home", folder / "project"
        self._state, self._sockets, self._temporary = folder / "state", folder / "s", folder / "tmp"
        for path in (self.home, self.project, self._state, self._sockets, self._temporary):
            path.mkdir(mode=0o700)
        (self.project / "README.md").write_text("# A project for calibration\n", encoding="utf-8")
        self._environ = dict(environ)
        self._terminal = terminal or TerminalKind()
        self._registry = FileRegistry(self._state / "registry")
        self.recipe = Recipe(name="")

    @property
    def env(self) -> dict[str, str]:
        """The whole environment of the agent and of our commands."""
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

    def install(self, recipe: Recipe) -> None:
        """Writes the recipe's files to the CLI's home."""
        self.recipe = recipe
        for path, text in recipe.files.items():
            file = self.home / path
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")

    def synapse(self, *words: str, seconds: float = _COMMAND_SECONDS) -> Ran:
        """Runs a `synapse` command in the project, as a person would."""
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
            return Ran(_TIMED_OUT, "", f"`synapse {words[0]}` did not end within {seconds:.0f} s")
        return Ran(done.returncode, done.stdout, done.stderr)

    def start(self, profile: str) -> None:
        """Starts the agent in the terminal of this sandbox; `synapse start` would give it that of the settings.

        Raises:
            SynapseError: it could not be started.
        """
        launch = HostLaunch(
            verb=(profile,), name=AGENT, instructions=False, arguments=self.recipe.args, folder=str(self.project)
        )
        start_host(launch, self._registry, self._state / "logs", self.env)

    def entry(self) -> AgentEntry | None:
        """Returns the agent's registry entry, or None if it is gone."""
        return next(iter(self._registry.entries()), None)

    def address(self) -> HostAddress | None:
        entry = self.entry()
        return None if entry is None else HostAddress(entry.socket, port=entry.port)

    def ask(self, path: str) -> dict[str, Any]:
        """Returns the answer of the agent's host, or an empty object if it is gone."""
        address = self.address()
        if address is None:
            return {}
        try:
            return request(address, "GET", path).body
        except NoAnswer:
            return {}

    @property
    def sees_processes(self) -> bool:
        """False on a system without /proc."""
        return (_PROCESSES / "self").exists()

    def processes(self) -> dict[int, str]:
        """Returns every process with this home in its environment, also one that has left its parents."""
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
        """Returns the files in the home that only a person may change, each with a digest of its content."""
        files = (path for path in self.home.rglob("*") if path.is_file() and not path.is_symlink())
        named = {path.relative_to(self.home).as_posix(): path for path in files}
        watched = {name: path for name, path in named.items() if self.recipe.is_watched(name)}
        return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in sorted(watched.items())}


class WhenLimited(StrEnum):
    """What a CLI does after "too many requests"."""

    FAILS = "fails"
    ASKS = "asks"
    """It asks a person whether to retry."""
    RETRIES = "retries"
    """It retries by itself at the time in the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The recipe of one CLI, with placeholders `${url}`, `${key}`, `${key_end}`, `${project}` and `${home}`."""

    name: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Path inside the home → text."""
    own_files: tuple[str, ...] = ()
    """Patterns of files that the CLI writes by itself."""
    settings: tuple[str, ...] = ()
    """Patterns of files that only a person may change, even if `own_files` matches them."""
    when_limited: WhenLimited = WhenLimited.FAILS

    def filled(self, values: Mapping[str, str]) -> Recipe:
        """Returns the recipe with its placeholders replaced."""

        def fill(text: str) -> str:
            return Template(text).substitute(values)

        return replace(
            self,
            args=tuple(map(fill, self.args)),
            env={name: fill(value) for name, value in self.env.items()},
            files={path: fill(text).lstrip() for path, text in self.files.items()},
        )

    def is_watched(self, path: str) -> bool:
        """Returns whether only a person may change that file in the home."""
        if any(fnmatch(path, pattern) for pattern in self.settings):
            return True
        return not any(fnmatch(path, pattern) for pattern in self.own_files)


def placeholders(url: str, *, home: Path, project: Path) -> dict[str, str]:
    """Returns the values of a recipe's placeholders for one run."""
    return {"url": url, "key": KEY, "key_end": KEY[-_KEY_END:], "home": str(home), "project": str(project)}


def recipe_names() -> list[str]:
    """Returns the CLIs that can be calibrated."""
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def load_recipe(name: str) -> Recipe:
    """Returns the recipe of a profile.

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
