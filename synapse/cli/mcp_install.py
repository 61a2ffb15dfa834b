"""`synapse mcp install` and `uninstall`: adds our MCP server to a CLI that takes none at launch, and removes it."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Mapping
from typing import Final

from synapse.cli.output import print_json, print_notice, print_result
from synapse.client.lines import short_path
from synapse.config.gemini_extension import Change, extension_folder, install_extension, uninstall_extension
from synapse.core.errors import UnsupportedOperation

CLIS: Final = ("gemini",)


def installable(word: str) -> str:
    """The `type` of an argument that names a CLI of CLIS."""
    if word not in CLIS:
        others = "claude, codex, opencode and copilot get the tools at each launch"
        raise ArgumentTypeError(f"must be {' or '.join(CLIS)}, not '{word}'; {others}")
    return word


def change_extension(
    cli: str, env: Mapping[str, str], command: tuple[str, ...], *, install: bool, as_json: bool
) -> int:
    """Installs or removes the extension of a CLI, tells what was done, and returns the exit code.

    Raises UnsupportedOperation when something else is there, or the folder cannot be written.
    """
    folder = extension_folder(env)
    try:
        change = install_extension(env, command) if install else uninstall_extension(env)
    except OSError as error:
        raise UnsupportedOperation(f"{folder} cannot be changed: {error.strerror or error}") from error
    if as_json:
        print_json({"cli": cli, "change": change.value, "folder": str(folder)})
        return 0
    print_result(_told(change, short_path(str(folder)), install=install))
    if install:
        print_notice("Each Gemini loads it from its next start. `synapse gemini` also allows its tools.")
    return 0


def _told(change: Change, folder: str, *, install: bool) -> str:
    if change is Change.UNCHANGED:
        return f"{folder} is installed already" if install else f"{folder} is not installed"
    return f"{change.value} {folder}"
