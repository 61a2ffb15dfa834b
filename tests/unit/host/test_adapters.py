"""A profile names the adapter that listens to its CLI."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from synapse.core.errors import InvalidProfile
from synapse.drivers.pty.adapters.transcript import open_files, shows_open_files
from synapse.host.pty import adapter_for
from synapse.terminal.profile import parse_profile
from tests.unit.drivers.pty.adapters.launches import launch_in
from tests.unit.terminal.bundled import bundled, bundled_names


@pytest.mark.parametrize("name", bundled_names())
def test_every_bundled_cli_except_line_programs_has_an_adapter(tmp_path: Path, name: str) -> None:
    adapter = adapter_for(bundled(name), launch_in(tmp_path))

    assert (adapter is None) == (bundled(name).prompt is None or bundled(name).reads_lines)


def test_a_profile_that_names_an_unknown_adapter_is_refused(tmp_path: Path) -> None:
    profile = parse_profile({"command": ["x"], "signals": {"adapter": "claud"}}, "x")

    with pytest.raises(InvalidProfile, match=r"signals\.adapter must be one of claude"):
        adapter_for(profile, launch_in(tmp_path))


@pytest.mark.skipif(not shows_open_files(), reason="this system does not show open files")
def test_the_open_files_of_a_process_are_listed(tmp_path: Path) -> None:
    with (tmp_path / "transcript").open("w", encoding="utf-8"):
        assert tmp_path / "transcript" in set(open_files(os.getpid()))

    assert tmp_path / "transcript" not in set(open_files(os.getpid()))
    assert list(open_files(2**22 + 1)) == []
