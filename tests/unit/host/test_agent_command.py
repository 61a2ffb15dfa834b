"""An agent's shells find the `synapse` command, also behind a login profile that resets the PATH."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from synapse import __version__
from synapse.host.agent_command import AgentCommand, command_path, launch_folder

VERSION = f"synapse {__version__}"
RESETS_PATH = "PATH=/usr/local/bin:/usr/bin:/bin\nexport PATH\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return launch_folder(tmp_path / "a home", "synapse-codex-8120")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A person's environment: without `synapse` on the PATH, and with a login profile that resets it."""
    (tmp_path / ".profile").write_text(RESETS_PATH, encoding="utf-8")
    return {"HOME": str(tmp_path), "PATH": "/usr/local/bin:/usr/bin:/bin"}


def said(env: dict[str, str], *words: str) -> str:
    ran = subprocess.run(words, env=env, capture_output=True, encoding="utf-8", timeout=30, check=False)
    assert not ran.stderr, ran.stderr
    return ran.stdout.strip()


@pytest.mark.parametrize("shell", [("sh", "-c"), ("bash", "-c"), ("bash", "-lc"), ("bash", "-l", "-c"), ("zsh", "-lc")])
@pytest.mark.parametrize("command", ["synapse --version", "timeout 20 synapse --version"])
def test_every_shell_finds_the_command(folder: Path, env: dict[str, str], shell: tuple[str, ...], command: str) -> None:
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")

    assert said(AgentCommand(folder).environment(env), *shell, command) == VERSION


def test_without_an_installed_script_the_module_is_run(
    folder: Path, env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = tmp_path / "alone" / "python"
    alone.parent.mkdir()
    alone.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n', encoding="utf-8")
    alone.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(alone))

    assert said(AgentCommand(folder).environment(env), "bash", "-lc", "synapse --version") == VERSION
    assert command_path(folder) == folder / "bin" / "synapse"


def test_the_path_that_the_instructions_name_needs_no_search(folder: Path, env: dict[str, str]) -> None:
    AgentCommand(folder).environment(env)

    assert said({**env, "PATH": "/nowhere"}, str(command_path(folder)), "--version") == VERSION


def test_the_persons_own_bash_env_is_read_as_before(folder: Path, env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "mine.sh").write_text("export MINE=kept\n", encoding="utf-8")

    given = AgentCommand(folder).environment({**env, "BASH_ENV": "$HOME/mine.sh"})

    assert said(given, "bash", "-c", "echo $MINE") == "kept"
    assert said(given, "bash", "-lc", "synapse --version; echo $MINE") == f"{VERSION}\nkept"


def test_a_missing_bash_env_prints_nothing(folder: Path, env: dict[str, str]) -> None:
    given = AgentCommand(folder).environment({**env, "BASH_ENV": "/nowhere/mine.sh"})

    assert said(given, "bash", "-c", "echo well") == "well"


def test_an_agent_that_an_agent_starts_has_its_own_command_alone(
    folder: Path, env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "mine.sh").write_text("export MINE=kept\n", encoding="utf-8")
    outer = AgentCommand(folder)
    inner = folder.parent / "synapse-claude-8100"

    given = AgentCommand(inner).environment(outer.environment({**env, "BASH_ENV": f"{tmp_path}/mine.sh"}))
    outer.remove()

    assert given["PATH"].split(os.pathsep) == [str(inner / "bin"), *env["PATH"].split(os.pathsep)]
    assert said(given, "bash", "-lc", "synapse --version; echo $MINE") == f"{VERSION}\nkept"


def test_remove_leaves_no_files(folder: Path, env: dict[str, str]) -> None:
    command = AgentCommand(folder)
    command.environment(env)

    command.remove()

    assert list(folder.iterdir()) == []


def test_the_folders_are_private(folder: Path, env: dict[str, str]) -> None:
    AgentCommand(folder).environment(env)

    assert [oct(path.stat().st_mode & 0o077) for path in (folder, folder / "bin")] == ["0o0", "0o0"]


def test_the_current_folder_never_gets_onto_the_path(folder: Path, env: dict[str, str]) -> None:
    given = AgentCommand(folder).environment({**env, "PATH": ""})

    assert "" not in given["PATH"].split(os.pathsep)
    assert said({**given, "PATH": ""}, "/bin/bash", "-c", "echo $PATH") == str(folder / "bin")
