"""The opt-in extension by which Gemini CLI gets our MCP server: one file below `~/.gemini/extensions`.

Gemini has no flag and no variable for a server of one launch, so a person installs it once. In a launch it serves the
agent; in a Gemini that was started without Synapse it serves the person. Gemini asks before each use of its tools,
except in a launch, which allows them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

from synapse.config.cli_configs import read_configs, table_in
from synapse.config.private_files import make_folders, write_private
from synapse.core.errors import UnsupportedOperation

_NAME: Final = "synapse"
_FILE: Final = "gemini-extension.json"
_MARK: Final = "written by `synapse mcp install gemini`; `synapse mcp uninstall gemini` removes it"
_KEYS: Final = {"name", "version", "description", "mcpServers"}
_SERVER_KEYS: Final = {"command", "args", "timeout"}
_TIMEOUT_MS: Final = 600_000


class Change(Enum):
    """What became of the extension."""

    INSTALLED = "installed"
    UPDATED = "updated"
    REMOVED = "removed"
    UNCHANGED = "unchanged"
    """It was there, or it was not there, as was asked."""


def gemini_folder(env: Mapping[str, str]) -> Path:
    """Returns the folder in which Gemini keeps a person's settings."""
    return Path(env.get("GEMINI_CLI_HOME") or env.get("HOME") or "~").expanduser() / ".gemini"


def extension_folder(env: Mapping[str, str]) -> Path:
    """Returns the folder of our extension."""
    return gemini_folder(env) / "extensions" / _NAME


def is_installed(env: Mapping[str, str]) -> bool:
    """Returns whether our extension is there, as we wrote it."""
    return _is_ours(_read(extension_folder(env) / _FILE))


def install_extension(env: Mapping[str, str], command: tuple[str, ...]) -> Change:
    """Writes the extension, with `command` as its server. Leaves everything else unchanged.

    Raises:
        UnsupportedOperation: another extension of this name is there, or Gemini would not load ours.
        OSError: the file cannot be written.
    """
    folder = extension_folder(env)
    file = folder / _FILE
    present = _read(file)
    wanted = _extension(command)
    if present == wanted:
        return Change.UNCHANGED
    if folder.is_symlink() or (folder.exists() and not _is_ours(present)):
        raise _not_ours(folder)
    if any(table_in(one, "security").get("allowedExtensions") for one in read_configs([_settings_file(env)])):
        raise UnsupportedOperation(
            "Gemini loads only the extensions that `security.allowedExtensions` names",
            hint=f"see {_settings_file(env)}; without the extension, Gemini sends and replies by its shell",
        )
    make_folders(folder)
    draft = folder / f"{_FILE}.new"
    write_private(draft, json.dumps(wanted, indent=2) + "\n")
    draft.replace(file)
    return Change.UPDATED if present else Change.INSTALLED


def uninstall_extension(env: Mapping[str, str]) -> Change:
    """Removes the extension that `install_extension` wrote.

    Raises:
        UnsupportedOperation: what is there is not ours, or holds files that we did not write.
        OSError: it cannot be removed.
    """
    folder = extension_folder(env)
    file = folder / _FILE
    if not folder.is_symlink() and not folder.exists():
        return Change.UNCHANGED
    if folder.is_symlink() or not _is_ours(_read(file)) or [one.name for one in folder.iterdir()] != [_FILE]:
        raise _not_ours(folder)
    file.unlink()
    folder.rmdir()
    return Change.REMOVED


def _settings_file(env: Mapping[str, str]) -> Path:
    return gemini_folder(env) / "settings.json"


def _extension(command: tuple[str, ...]) -> dict[str, Any]:
    server = {"command": command[0], "args": list(command[1:]), "timeout": _TIMEOUT_MS}
    return {"name": _NAME, "version": "1.0.0", "description": _MARK, "mcpServers": {_NAME: server}}


def _read(file: Path) -> Mapping[str, Any]:
    found = read_configs([file])
    return found[0] if found else {}


def _is_ours(extension: Mapping[str, Any]) -> bool:
    """Returns whether we wrote it and nobody has added to it since."""
    servers = table_in(extension, "mcpServers")
    return (
        set(extension) == _KEYS
        and extension["description"] == _MARK
        and set(servers) == {_NAME}
        and set(table_in(servers, _NAME)) == _SERVER_KEYS
    )


def _not_ours(folder: Path) -> UnsupportedOperation:
    return UnsupportedOperation(
        f"{folder} holds something that Synapse did not write, which is left as it is",
        hint="move it away, and run the command again",
    )
