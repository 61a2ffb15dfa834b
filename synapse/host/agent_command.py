"""Makes the `synapse` command reachable by an agent, whatever shell its CLI runs commands in.

    FOLDER/bin/synapse    the first folder of the CLI's PATH, for every shell that keeps the PATH it is given
    FOLDER/bash_env       bash reads it before each command (also `bash -lc`, behind the login profile), and it puts the
                          folder back on a PATH that the profile has reset

Other shells that reset their PATH do not find it; for them the agent's instructions name the command's whole path.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from synapse.config.private_files import make_private, write_private

BASH_ENV: Final = "BASH_ENV"
PERSON_BASH_ENV: Final = "SYNAPSE_PERSON_BASH_ENV"
"""The person's own BASH_ENV, for agents that are started by this agent."""
_EXPANDED_BY_BASH: Final = frozenset("$`\\\"'\n")


def launch_folder(home: Path, agent_id: str) -> Path:
    """Returns the private folder of one launch."""
    return home / "launches" / agent_id


def command_path(folder: Path) -> Path:
    """Returns the absolute path of the `synapse` command: the installed script, or the one in the launch's folder."""
    script = Path(sys.executable).parent / "synapse"
    return script if os.access(script, os.X_OK) else _program_in(folder)


class AgentCommand:
    """The `synapse` command of one launch, in the launch's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Creates the command, and returns `env` changed so that the agent's shells find it. Raises OSError."""
        bin_folder = _program_in(self._folder).parent
        if os.pathsep in str(bin_folder):
            # A PATH cannot name this folder; the agent's instructions do.
            return dict(env)
        for folder in (self._folder.parent, self._folder, bin_folder):
            make_private(folder)
        _write_program(_program_in(self._folder))
        launches = self._folder.parent
        others = [one for one in (env.get("PATH") or os.defpath).split(os.pathsep) if not _is_below(one, launches)]
        found = {**env, "PATH": os.pathsep.join([str(bin_folder), *others])}
        file = self._folder / "bash_env"
        if _EXPANDED_BY_BASH.isdisjoint(str(file)):
            given = env.get(BASH_ENV, "")
            theirs = env.get(PERSON_BASH_ENV, "") if _is_below(given, launches) else given
            write_private(file, _bash_env(bin_folder, theirs))
            found |= {BASH_ENV: str(file), PERSON_BASH_ENV: theirs}
        return found

    def remove(self) -> None:
        """Removes the command and the script for bash."""
        shutil.rmtree(self._folder / "bin", ignore_errors=True)
        (self._folder / "bash_env").unlink(missing_ok=True)


def _program_in(folder: Path) -> Path:
    return folder / "bin" / "synapse"


def _write_program(path: Path) -> None:
    """Links to the installed script, or writes one that runs the module."""
    path.unlink(missing_ok=True)
    program = command_path(path.parent.parent)
    if program != path:
        path.symlink_to(program)
        return
    own = shlex.join([sys.executable, "-P", "-m", "synapse.cli.main"])
    path.write_text(f'#!/bin/sh\nexec {own} "$@"\n', encoding="utf-8")
    path.chmod(0o700)


def _bash_env(bin_folder: Path, theirs: str) -> str:
    """Returns the script that every bash of the agent reads; it prints nothing, and never fails."""
    folder = shlex.quote(str(bin_folder))
    script = (
        "# Written by Synapse for one launch: a login profile may have reset the PATH.\n"
        f'case ":${{PATH-}}:" in\n  *:{folder}:*) ;;\n  *) export PATH={folder}"${{PATH:+:$PATH}}" ;;\nesac\n'
    )
    if not theirs:
        return script
    # Bash expands the variable's value as if it stood in double quotes.
    quoted = theirs.replace("\\", "\\\\").replace('"', '\\"')
    return f'{script}if [ -r "{quoted}" ]; then . "{quoted}"; fi\n'


def _is_below(path: str, folder: Path) -> bool:
    return bool(path) and Path(path).is_relative_to(folder)
