"""A CLI is asked for its flags once for each version."""

from __future__ import annotations

from pathlib import Path

import pytest

from synapse.drivers.pty.adapters.adapter import knows_flag, values_of
from tests.unit.drivers.pty.adapters.launches import launch_in


def program(folder: Path, script: str) -> str:
    path = folder / "cli"
    path.write_text(script, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_a_new_version_is_asked_again(tmp_path: Path) -> None:
    launch = launch_in(tmp_path, command=program(tmp_path, "#!/bin/sh\necho nothing\n"))
    assert not knows_flag("--new", launch)

    program(tmp_path, "#!/bin/sh\necho 'it has --new'\n")

    assert knows_flag("--new", launch)


@pytest.mark.parametrize("remembered", ["no JSON", "[]"])
def test_flags_that_cannot_be_read_are_asked_for_again(tmp_path: Path, remembered: str) -> None:
    launch = launch_in(tmp_path, command=program(tmp_path, "#!/bin/sh\necho --new\n"))
    launch.flags_file.write_text(remembered, encoding="utf-8")

    assert knows_flag("--new", launch)


def test_flags_that_cannot_be_written_are_known_all_the_same(tmp_path: Path) -> None:
    launch = launch_in(tmp_path, command=program(tmp_path, "#!/bin/sh\necho --new\n"))
    launch.flags_file.mkdir()

    assert knows_flag("--new", launch)


def test_a_program_that_cannot_be_run_knows_no_flag(tmp_path: Path) -> None:
    command = program(tmp_path, "#!/no/such/interpreter\n")

    assert not knows_flag("--new", launch_in(tmp_path, command=command))


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        ((), []),
        (("--tool", "a", "b", "--other", "c"), ["a", "b"]),
        (("--tool=a", "--other=b", "--tool", "c", "--tools=d"), ["a", "c"]),
        (("x", "--tool"), []),
    ],
)
def test_all_values_of_a_flag_are_found(arguments: tuple[str, ...], values: list[str]) -> None:
    assert values_of("--tool", arguments) == values
