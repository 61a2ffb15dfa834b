"""The program that a name stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from synapse.core.errors import CommandMissing
from synapse.drivers.pty.process import find_command, locate


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in the current folder, and in `bin` there."""
    (tmp_path / "bin").mkdir()
    for path in (tmp_path / "claude", tmp_path / "bin" / "claude"):
        path.write_text("#!/bin/sh\n", encoding="utf-8")
        path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "bin" / "claude"


@pytest.mark.parametrize("before", ["", ".:", ":", "bin:", "./bin:", "::"])
def test_only_absolute_entries_of_the_path_count(program: Path, before: str) -> None:
    assert locate("claude", before + str(program.parent)) == str(program)
    assert locate("claude", before.rstrip(":")) is None
    assert find_command("claude", {"PATH": before + str(program.parent)}) == str(program)


@pytest.mark.usefixtures("program")
def test_the_error_says_that_a_program_is_only_in_the_current_folder() -> None:
    with pytest.raises(CommandMissing, match="an entry of the PATH that means the current folder"):
        find_command("claude", {"PATH": "bin"})
    with pytest.raises(CommandMissing, match="is not installed") as caught:
        find_command("claude", {"PATH": "/nowhere"}, "install it")
    assert caught.value.hint == "install it"


def test_without_a_path_that_of_this_process_counts(monkeypatch: pytest.MonkeyPatch, program: Path) -> None:
    monkeypatch.setenv("PATH", f".:{program.parent}")

    assert locate("claude") == str(program)
