"""Finds the `synapse` command that a service can run for years, and refuses one that soon disappears."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from synapse.core.errors import UnsupportedOperation

COMMAND: Final = "synapse"
_TEMPORARY: Final = ("/tmp", "/var/tmp", "/dev/shm", "/run")  # noqa: S108 - nothing is written there
_PIPX_RUN: Final = ("pipx", ".cache")


def lasting_command(environ: Mapping[str, str] = os.environ) -> str:
    """Returns the absolute path of the installed command.

    Raises:
        UnsupportedOperation: there is none, or it belongs to an environment that soon disappears.
    """
    command = own_command()
    if why := throw_away_reason((command, Path(os.path.realpath(command)), Path(sys.prefix)), environ):
        raise UnsupportedOperation(
            f"a service needs a Synapse that stays, and {why}",
            hint="install one, and use that:  uv tool install synapse-a2a",
        )
    return str(command)


def own_command() -> Path:
    """Returns the path under which this command was called, or the one beside its Python.

    Not where a link to it leads: an upgrade may replace that.

    Raises:
        UnsupportedOperation: there is no such file.
    """
    called, beside = Path(sys.argv[0]).absolute(), Path(sys.executable).parent / COMMAND
    for candidate in (called, beside):
        if candidate.name == COMMAND and os.access(candidate, os.X_OK) and candidate.is_file():
            return candidate
    raise UnsupportedOperation(
        f"there is no command `{COMMAND}` beside {sys.executable}",
        hint="install Synapse as a program:  uv tool install synapse-a2a",
    )


def throw_away_reason(paths: tuple[Path, ...], environ: Mapping[str, str]) -> str:
    """Returns why one of the paths soon disappears; empty if all of them stay."""
    for path in paths:
        for folder, what in _throw_away_folders(environ):
            if path.is_relative_to(folder):
                return f"{path} is in {what}"
        if _PIPX_RUN in zip(path.parts, path.parts[1:], strict=False):
            return f"{path} is in the cache of `pipx run`"
    return ""


def _throw_away_folders(environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    if cache := environ.get("UV_CACHE_DIR"):
        yield Path(cache), f"uv's cache {cache}, as with `uvx`"
    cache = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    yield Path(cache), f"the cache {cache}, as with `uvx`"
    for folder in dict.fromkeys((tempfile.gettempdir(), *_TEMPORARY)):
        yield Path(folder), f"the temporary folder {folder}"
